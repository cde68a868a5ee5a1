"""Facts of MindSpore's checkpoints (`.ckpt`), which are recognised by their first entry."""

from __future__ import annotations

from mezzotint.compat.mindone import _mindspore_wire as wire
from mezzotint.settings.weights_formats import WeightsFormatSpec

_ENCRYPTED = (b"\xd8\x5e\x3a\x7f", b"\xd9\x5e\x3a\x7f", b"\xda\x5e\x3a\x7f")

SPEC = WeightsFormatSpec(
    suffix=".ckpt",
    recognises=wire.is_checkpoint_start,
    unreadable=((_ENCRYPTED, "it is an encrypted MindSpore checkpoint; save it again without a key"),),
)
