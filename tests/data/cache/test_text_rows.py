"""Text embeddings with a mask are stored up to their length and read back completely."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint.data.cache.store import as_addresses
from mezzotint.data.cache.text_rows import TextLayout, TextRows, layout_of
from mezzotint.stages import TextEmbedding

LENGTHS = [1, 16, 17, 33, 40]


def embedding(pooled: bool = False) -> TextEmbedding:
    """Embeddings of five captions with `LENGTHS` of 40 tokens."""
    states = torch.randn(5, 40, 3, generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(40)[None] < torch.tensor(LENGTHS)[:, None]).long()
    return TextEmbedding(states, mask, torch.arange(10.0).view(5, 2) if pooled else None)


def addresses(count: int) -> NDArray[np.uint8]:
    return as_addresses([bytes([n]) * 32 for n in range(1, count + 1)])


def masked(text: TextEmbedding) -> Tensor:
    return text.states * text.mask[:, :, None]


def filled(folder: Path, text: TextEmbedding) -> TextRows:
    rows = TextRows(folder, layout_of(text), "fp32")
    rows.append(addresses(5), text, names=list("abcde"))
    for store in rows.stores:
        store.close_writer()
    return rows


@pytest.mark.parametrize("pooled", [False, True])
def test_embeddings_are_stored_up_to_the_last_token(pooled: bool, tmp_path: Path) -> None:
    text = embedding(pooled)
    rows = filled(tmp_path, text)
    assert [store.shape for store in rows.stores] == [(n * 4 + 2 * pooled,) for n in (16, 32, 40)]
    assert [len(store) for store in rows.stores] == [2, 1, 2]
    order = [3, 0, 4, 0, 1]
    read_back = TextRows(tmp_path, layout_of(text), "fp32").read(addresses(5)[order])
    assert torch.equal(read_back.mask, text.mask[order])
    assert read_back.lengths == tuple(LENGTHS[i] for i in order)
    assert torch.equal(read_back.states, masked(text)[order])
    assert (read_back.pooled is None) == (not pooled)
    if pooled and read_back.pooled is not None and text.pooled is not None:
        assert torch.equal(read_back.pooled, text.pooled[order])


def test_embeddings_without_mask_are_stored_whole(tmp_path: Path) -> None:
    text = TextEmbedding(embedding().states)
    rows = filled(tmp_path, text)
    assert [store.shape for store in rows.stores] == [(120,)]
    read_back = rows.read(addresses(5))
    assert torch.equal(read_back.states, text.states)
    assert read_back.mask is None


def test_missing_rows_are_numbered_and_damaged_ones_count_as_absent(tmp_path: Path) -> None:
    rows = filled(tmp_path, embedding())
    missing = rows.read(addresses(7))
    assert missing.tolist() == [5, 6]
    (path,) = (tmp_path / "rows-128-fp32").glob("*.rows")
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(bytes(data))
    again = TextRows(tmp_path, layout_of(embedding()), "fp32")
    assert again.has(addresses(5), checks=True).tolist() == [True, True, False, True, True]
    assert again.is_damaged(addresses(5)).tolist() == [False, False, True, False, False]
    text = embedding()
    again.append(addresses(5)[2:3], TextEmbedding(text.states[2:3], text.mask[2:3]), names=["c"])
    assert again.has(addresses(5), checks=True).all()
    assert not again.is_damaged(addresses(5)).any()


def test_stored_lengths_are_few_and_include_the_full_length() -> None:
    assert TextLayout(300, 4096, True, 0).lengths == (*range(16, 300, 16), 300)
    assert TextLayout(16, 8, True, 0).lengths == (16,)
    assert TextLayout(8, 8, True, 0).lengths == (8,)
    assert TextLayout(300, 4096, False, 0).lengths == (300,)
