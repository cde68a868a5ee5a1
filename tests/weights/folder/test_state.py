"""Loading tensors that fit a network, and random weights by seed and part."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mezzotint.errors import WeightsError
from mezzotint.weights.folder import components, state
from mezzotint.weights.low_bit import WeightForm
from support.small_text import HERE, TEXT, same, text_file


def test_mismatched_weights_are_reported_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = text_file(tmp_path)
    state = load_file(path)
    state["extra.weight"] = torch.ones(1)
    del state["text_model.final_layer_norm.bias"]
    state["text_model.final_layer_norm.weight"] = torch.ones(3)
    save_file(state, path)
    monkeypatch.setattr("mezzotint.weights.files.tensor_files.read", lambda *a: pytest.fail("must not be read"))
    with pytest.raises(WeightsError) as caught:
        components.load("clip_text", TEXT, path, where=HERE)
    assert caught.value.code == "E1405"
    for words in (
        "missing: 1 tensor (final_layer_norm.bias)",
        "unexpected: 1 tensor (extra.weight)",
        "final_layer_norm.weight is 3 in the file, 16 by config.json",
    ):
        assert words in caught.value.message


def test_random_weights_depend_only_on_seed_and_part() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one = components.random_network("clip_text", TEXT, 3, "text_encoder", where=HERE)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    assert same(components.random_network("clip_text", TEXT, 3, "text_encoder", where=HERE), one)
    assert not same(components.random_network("clip_text", TEXT, 4, "text_encoder", where=HERE), one)
    assert not same(components.random_network("clip_text", TEXT, 3, "text_encoder_2", where=HERE), one)
    assert not one.training


def test_non_finite_tensor_is_reported_but_only_in_requested_rows(tmp_path: Path) -> None:
    path, _ = text_file(tmp_path)
    tensors = load_file(path)
    name = "text_model.embeddings.token_embedding.weight"
    tensors[name][30, 2] = float("nan")
    save_file(tensors, path)
    with pytest.raises(
        WeightsError, match=r"token_embedding\.weight has 1 of 640 values that are not finite"
    ) as caught:
        components.load("clip_text", TEXT, path, where=HERE)
    assert caught.value.code == "E1403"
    later = components.load("clip_text", TEXT, path, WeightForm(torch.bfloat16, is_deferred=True), where=HERE)
    filling, own = state.get_deferred_filling(later), "embeddings.token_embedding.weight"
    assert filling is not None
    assert later.get_parameter(own).is_meta
    [(name_of, rows)] = filling.rows({own: slice(10, 30)})
    assert name_of == own
    assert torch.equal(rows, tensors[name][10:30].bfloat16())
    with pytest.raises(WeightsError, match="not finite"):
        list(filling.rows({own: slice(20, 40)}))
