"""MindONE's names: norms and embeddings, what its program leaves in them, and what its optimizers decay."""

from __future__ import annotations

import json
import math

import pytest

from mezzotint.compat.mindone import sdxl_layout as mindone_sdxl
from mezzotint.compat.mindone.sdxl_layout import has_weight_decay, mindspore_name, plain_name, stability_name
from mezzotint.weights.layouts import sdxl
from support.layout_names import RECORDS, shapes_of, table_of


def test_weight_decay_matches_the_optimizers_of_mindone() -> None:
    record = json.loads((RECORDS / "decay_groups.json").read_text())
    shapes = shapes_of("sdxl", "unet", sdxl.LAYOUT)
    entries = table_of("sdxl", "unet", sdxl.LAYOUT).entries
    groups = {taken: [e for e in entries if has_weight_decay(e.foreign) is taken] for taken in (True, False)}
    counts = {
        "decayed_tensors": len(groups[True]),
        "undecayed_tensors": len(groups[False]),
        "decayed_elements": sum(math.prod(e.foreign_shape(shapes)) for e in groups[True]),
        "undecayed_elements": sum(math.prod(e.foreign_shape(shapes)) for e in groups[False]),
    }
    assert counts == record["counts"]
    norms = [e.foreign for e in groups[True] if mindspore_name(e.foreign).endswith((".gamma", ".beta"))]
    assert sorted(norms) == sorted(record["decayed_norm_tensors_torch_names"])


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("conditioner.embedders.1.model.transformer.resblocks.0.ln_1.bias", True),
        ("conditioner.embedders.1.model.ln_final.weight", True),
        ("conditioner.embedders.0.transformer.text_model.final_layer_norm.weight", False),
        ("conditioner.embedders.0.transformer.text_model.embeddings.token_embedding.weight", True),
        ("conditioner.embedders.1.model.transformer.resblocks.0.attn.in_proj_bias", False),
        ("conditioner.embedders.1.model.transformer.resblocks.0.attn.in_proj_weight", True),
    ],
)
def test_text_encoders_follow_the_same_decay_rule(name: str, taken: bool) -> None:
    assert has_weight_decay(name) is taken


def test_leftover_mindone_names_are_read() -> None:
    table = table_of("sdxl", "unet", mindone_sdxl.LAYOUT)
    name = "model.diffusion_model.input_blocks.1.0.in_layers.0.gamma"
    for met in (
        "model.diffusion_model._backbone.input_blocks.1.0.in_layers.0.gamma",
        "stage1.diffusion_model.input_blocks.1.0.in_layers.0.gamma",
    ):
        assert plain_name(met) == name
        entry = table.find_foreign(met)
        assert entry is not None
        assert entry.foreign == name
    assert plain_name("stage2.diffusion_model.out.0.beta") == "model.diffusion_model.out.0.beta"


@pytest.mark.parametrize(
    "name",
    [
        "first_stage_model.encoder.conv_norm.weight",
        "first_stage_model.decoder.norm_out.conv.bias",
        "first_stage_model.in_layers.0.weight",
        "conditioner.embedders.1.model.positional_embedding",
        "model.diffusion_model.input_blocks.1.0.in_layers.2.weight",
        "model.diffusion_model.out.2.bias",
        "normal.weights",
    ],
)
def test_names_without_norms_are_unchanged(name: str) -> None:
    assert mindspore_name(name) == stability_name(name) == name
