"""A long clip in pieces takes the memory of one piece, however long it is: live bytes counted, operation by operation.

The bound that is stated: beside the clip and its moments, five times the widest activation of a piece: channels ×
frames × side² numbers.
"""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mezzotint.families.latte import Family
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.weights.folder.model_folder import shipped

SIDE, FRAMES, CHANNELS = 32, 9, 32
PIECE = CHANNELS * FRAMES * SIDE**2 * 4


class Live(TorchDispatchMode):
    """Within, counts the bytes of storages that tensors made there hold, but that of `own`. peak: the most at any
    time."""

    def __init__(self, own: Tensor) -> None:
        super().__init__()
        self._own = own.untyped_storage()._cdata
        self.now = self.peak = 0
        self._held: dict[int, list[int]] = {}  # storage: its bytes, and how many tensors look at it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._hold(tensor)
        return made

    def _hold(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key == self._own:
            return
        entry = self._held.setdefault(key, [storage.nbytes(), 0])
        if entry[1] == 0:
            self.now += entry[0]
            self.peak = max(self.peak, self.now)
        entry[1] += 1
        weakref.finalize(tensor, self._release, key)

    def _release(self, key: int) -> None:
        entry = self._held[key]
        entry[1] -= 1
        if entry[1] == 0:
            self.now -= self._held.pop(key)[0]


def family(tiled: bool) -> Family:
    tiling = {"enabled": tiled, "side": SIDE, "frames": FRAMES}
    asked = ModelSettings(family="latte", path=shipped("tiny-latte"), weights="random", latte={"tiling": tiling})
    return Family.of(asked, ["vae"])


def peak(one: Family, frames: int, side: int = 64) -> tuple[int, int]:
    """Bytes at the most while a clip is encoded, and of its moments."""
    clip = torch.rand(1, 3, frames, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), Live(clip) as live:
        moments = one.encode_media(clip)
    return live.peak, moments.numel() * 4


def test_a_long_clip_in_pieces_stays_under_the_stated_bound() -> None:
    whole, tiled = family(False), family(True)
    short, of_short = peak(tiled, 17)
    long, of_long = peak(tiled, 65)
    assert long < 5 * PIECE + 4 * of_long
    assert long - short <= 4 * (of_long - of_short)  # it grows with the moments alone
    assert peak(whole, 17)[0] > 3 * long
    assert peak(tiled, 17, side=96)[0] < 5 * PIECE + 4 * of_long


@pytest.mark.parametrize("frames", [9, 17])
def test_pieces_give_back_the_length_of_the_clip(frames: int) -> None:
    one = family(True)
    moments = one.encode_media(torch.zeros(1, 3, frames, 48, 48))
    assert moments.shape == (1, 8, (frames - 1) // 4 + 1, 6, 6)
    assert one.decode_media(moments[:, :4]).shape == (1, 3, frames, 48, 48)
