"""Sizes come back out of their sinusoids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from mezzotint.compat.mindone import encoded_files as mindone_arrays

RECORD = Path(__file__).parents[2] / "parity" / "data" / "mindone-sdxl" / "size_embedding.safetensors"


@given(st.integers(0, 20_000), st.sampled_from([256, 64]), st.sampled_from([np.float32, np.float16]))
def test_numbers_are_recovered_from_their_sinusoid(number: int, width: int, kind: type[np.floating[Any]]) -> None:
    embedded = mindone_arrays.sinusoid(number, width).astype(kind).astype(np.float32)
    assert mindone_arrays.number_of(embedded) == number


def test_other_vectors_have_no_number() -> None:
    rng = np.random.default_rng(0)
    assert mindone_arrays.number_of(rng.standard_normal(256).astype(np.float32)) is None
    assert mindone_arrays.number_of(mindone_arrays.sinusoid(100.5, 256)) is None
    assert mindone_arrays.number_of(np.zeros(256, np.float32)) is None


def test_numbers_are_recovered_from_mindone_files() -> None:
    record = load_file(RECORD)
    numbers = record["numbers"].ravel()
    rows = record["embedded"].reshape(len(numbers), -1)
    assert [mindone_arrays.number_of(row) for row in rows] == numbers.astype(int).tolist()
    for number, row in zip(numbers.tolist(), rows, strict=True):
        assert np.abs(mindone_arrays.sinusoid(number, rows.shape[1]) - row).max() < 2e-3
