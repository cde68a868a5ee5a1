"""Skeleton: being written. The signatures stand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from mezzotint.data.cached import LatentCache, TextCache
from mezzotint.families.base import ModelFamily
from mezzotint.recipe.data import DataSettings

if TYPE_CHECKING:
    from mezzotint.data.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class CacheSummary:
    """What a filling found and made, over all processes. wanted, present: entries. made: how many were encoded, by
    reason (`pictures new`, …). bytes: on disk. `lines()` says it in words."""

    wanted: int
    present: int
    made: dict[str, int]
    bytes: int

    def lines(self) -> tuple[str, ...]:
        """Two or three lines for the reader."""
        raise NotImplementedError


def fill(
    catalogue: Catalogue,
    rows: NDArray[np.int32],
    settings: DataSettings,
    *,
    latents: LatentCache | None,
    text: TextCache | None,
    load: Callable[[Collection[str]], ModelFamily],
    device: torch.device,
    extra_captions: Sequence[str] = (),
    rank: int = 0,
    world_size: int = 1,
    barrier: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = print,
    verify_bytes: int | None = 8 << 30,
) -> CacheSummary:
    """Encodes whatever the caches lack of these rows (held-out rows belong to them, too) and of `extra_captions` (such
    as preview prompts). The empty caption is always there.

    load: called with the parts that are needed ({"vae"}, {"text_encoder"}), only when something is absent; the family
    comes back with these parts on `device` in the type they compute in. barrier: waits for all processes.
    verify_bytes: entries are read and checked when they are no more bytes than this; None checks any number.
    """
    raise NotImplementedError


def run(arguments: Sequence[str]) -> int:
    """The verb `mezzotint cache RECIPE key=value…`."""
    raise NotImplementedError
