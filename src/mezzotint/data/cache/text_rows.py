"""Stored text embeddings: rows of one length, or, with an attention mask, of a few lengths, which saves space for short
captions. Between the stores, which have rows of one size, and `entries.TextCache`.

Tokens after the last unmasked one are not stored: they are read as zeros, which attention ignores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint.data.cache.store import Addresses, Dtype, Store, as_addresses
from mezzotint.stages import TextEmbedding

STEP = 16
"""Stored lengths are multiples of this number of tokens."""


@dataclass(frozen=True, slots=True)
class TextLayout:
    """length, width: of the states (L, D). mask: whether a mask (L,) is stored, and rows only up to its last token.
    pooled: width P of the pooled vector, 0 without one."""

    length: int
    width: int
    mask: bool
    pooled: int

    @property
    def numbers(self) -> int:
        return self.numbers_of(self.length)

    def numbers_of(self, length: int) -> int:
        """Numbers in a row of `length` tokens: states, mask, pooled."""
        return length * self.width + length * self.mask + self.pooled

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that rows may have, in tokens, ascending."""
        return (*range(STEP, self.length, STEP), self.length) if self.mask else (self.length,)


class TextRows:
    """The rows of one text encoder. folder: of all stores. dtype: of stored numbers."""

    def __init__(self, folder: Path, layout: TextLayout, dtype: Dtype) -> None:
        self.layout = layout
        self._stores = {
            length: Store(folder, shape=(layout.numbers_of(length),), dtype=dtype) for length in layout.lengths
        }

    @property
    def stores(self) -> tuple[Store, ...]:
        return tuple(self._stores.values())

    @property
    def row_bytes(self) -> int:
        """Bytes of the largest row, that of a caption of maximum length."""
        return max(store.row_bytes for store in self.stores)

    def refresh(self) -> None:
        for store in self.stores:
            store.refresh()

    def has(self, addresses: Addresses, *, checks: bool) -> NDArray[np.bool_]:
        """Which addresses have an entry. checks: whether entries are also verified."""
        keys = as_addresses(addresses)
        exists = np.zeros(len(keys), dtype=np.bool_)
        for store in self.stores:
            open_ = np.flatnonzero(~exists)
            exists[open_] = store.has(keys[open_], checks=checks)
        return exists

    def is_damaged(self, addresses: Addresses) -> NDArray[np.bool_]:
        """Which addresses have an entry that is known to be damaged, and no valid one."""
        keys = as_addresses(addresses)
        is_damaged = np.zeros(len(keys), dtype=np.bool_)
        for store in self.stores:
            is_damaged |= store.is_damaged(keys)
        return is_damaged & ~self.has(keys, checks=False)

    def append(
        self, addresses: NDArray[np.uint8], text: TextEmbedding, *, names: Sequence[str], at_once: bool = True
    ) -> None:
        """Adds embeddings; existing ones are skipped. at_once: see `Store.append`. Raises as `Store.append`."""
        lengths = np.asarray([self._length_of(text, i) for i in range(len(text.states))])
        for length in np.unique(lengths).tolist():
            indexes = np.flatnonzero(lengths == length)
            rows = pack(_select(text, torch.from_numpy(indexes), length))
            shown = [names[i] for i in indexes.tolist()]
            self._stores[length].append(addresses[indexes], rows, names=shown, at_once=at_once)

    def read(self, addresses: Addresses) -> TextEmbedding | NDArray[np.int64]:
        """Reads the embeddings, (B, L, D) in the stored dtype, with token counts; or returns the indexes of those
        without a valid entry. Raises CacheError E1303 for a damaged entry."""
        keys = as_addresses(addresses)
        if not self.layout.mask:
            rows = self.stores[0].fetch(keys)
            return rows if isinstance(rows, np.ndarray) else unpack(rows, self.layout)
        return self._read_lengths(keys)

    def _read_lengths(self, keys: NDArray[np.uint8]) -> TextEmbedding | NDArray[np.int64]:
        layout, n = self.layout, len(keys)
        dtype = self.stores[0].dtype
        states = torch.zeros((n, layout.length, layout.width), dtype=dtype)
        mask = torch.zeros((n, layout.length), dtype=torch.int64)
        pooled = torch.zeros((n, layout.pooled), dtype=dtype) if layout.pooled else None
        is_pending = np.ones(n, dtype=np.bool_)
        for length, store in self._stores.items():
            pending = np.flatnonzero(is_pending)
            entries = store.find_valid(keys[pending])
            indexes = torch.from_numpy(pending[entries >= 0])
            if not len(indexes):
                continue
            short = TextLayout(length, layout.width, True, layout.pooled)
            part = unpack(store.read(entries[entries >= 0]), short)
            assert part.mask is not None
            states[indexes, :length], mask[indexes, :length] = part.states, part.mask
            if pooled is not None and part.pooled is not None:
                pooled[indexes] = part.pooled
            is_pending[indexes.numpy()] = False
        if is_pending.any():
            return np.flatnonzero(is_pending)
        return TextEmbedding(states, mask, pooled, tuple(mask.sum(1).tolist()))

    def _length_of(self, text: TextEmbedding, i: int) -> int:
        """The shortest length that holds all unmasked tokens."""
        if text.mask is None:
            return self.layout.length
        counts = torch.nonzero(text.mask[i])
        needed = int(counts.max()) + 1 if len(counts) else 1
        return next(length for length in self.layout.lengths if length >= needed)


def layout_of(text: TextEmbedding) -> TextLayout:
    """The layout of rows for these embeddings: tokens, width, whether masked, width of pooled (0 without)."""
    pooled = 0 if text.pooled is None else text.pooled.shape[1]
    return TextLayout(text.states.shape[1], text.states.shape[2], text.mask is not None, pooled)


def pack(text: TextEmbedding) -> Tensor:
    """Embeddings of B captions as rows (B, numbers): states, then mask, then pooled."""
    fields = [text.states, text.mask, text.pooled]
    return torch.cat([field.float().flatten(1) for field in fields if field is not None], dim=1)


def unpack(rows: Tensor, layout: TextLayout) -> TextEmbedding:
    """The inverse of `pack`, in the dtype of `rows`; the mask becomes int64."""
    widths = [layout.length * layout.width, layout.length * layout.mask, layout.pooled]
    states, mask, pooled = rows.split(widths, dim=1)
    return TextEmbedding(
        states.reshape(len(rows), layout.length, layout.width),
        mask.to(torch.int64) if layout.mask else None,
        pooled if layout.pooled else None,
    )


def _select(text: TextEmbedding, which: Tensor, length: int) -> TextEmbedding:
    """Selects captions, cut to `length` tokens; masked tokens become zero, so equal captions give equal rows."""
    states, mask = text.states.cpu()[which, :length], text.mask
    if mask is not None:
        mask = mask.cpu()[which, :length]
        states = states * mask[:, :, None].to(states.dtype)
    return TextEmbedding(states, mask, None if text.pooled is None else text.pooled.cpu()[which])
