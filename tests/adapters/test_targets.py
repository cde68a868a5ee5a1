"""Selecting layers: presets against kohya's networks and diffusers' scripts for full-size models."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from mezzotint.adapters import targets
from mezzotint.adapters.names import LayerNames
from mezzotint.errors import WeightsError
from mezzotint.weights.folder.model_folder import open_folder, shipped_folder
from mezzotint.weights.single_file import known_layouts, match_tensors

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "adapters"
COUNTS: dict[str, dict[str, Any]] = json.loads((RECORDS / "full_size_counts.json").read_text())
RECORD_OF = {"sd1": "sd15", "sd2": "sd21", "sdxl": "sdxl"}


@pytest.mark.parametrize("model", RECORD_OF)
def test_names_of_full_size_networks_match_kohya(model: str) -> None:
    folder = open_folder(shipped_folder(model))
    layout = known_layouts.for_components([n for n in known_layouts.component_names() if folder.has(n)])
    assert layout is not None
    names = LayerNames.of_stable(match_tensors.shapes_of(folder, layout))
    encoders = [component for component in names.shapes if component.startswith("text_encoder")]
    text = [layer for each in encoders for layer in targets.select_layers(names, each, "attention+mlp")]
    record = COUNTS[RECORD_OF[model]]
    for preset, case in (("attention+mlp", RECORD_OF[model]), ("all", RECORD_OF[model] + "_conv")):
        layers = [*targets.select_layers(names, "unet", preset), *text]  # type: ignore[arg-type]
        flat = "\n".join(sorted(names.kohya[layer] for layer in layers))
        assert len(layers) == COUNTS[case]["unet_modules"] + COUNTS[case]["text_modules"]
        assert hashlib.sha256(flat.encode()).hexdigest() == COUNTS[case]["names_sha256"]
    assert len(targets.select_layers(names, "unet", "attention")) == record.get("peft_attention_modules", 560)
    assert len(targets.select_layers(names, "unet", "all-linear")) > record["unet_modules"] * 0.7


def test_patterns_select_layers_by_name(bases: dict[str, Any]) -> None:
    names: LayerNames = bases["sd"].names
    layers = targets.select_layers(names, "unet", ["mid_block.*.to_q", "conv_in"])
    assert {layer.path.rpartition(".")[2] for layer in layers} == {"to_q", "conv_in"}


def test_family_adds_its_own_layer_names() -> None:
    names = LayerNames({"net": {f"{path}.weight": (4, 4) for path in ("a.to_q", "a.mix", "b.squash", "door.in")}})
    own = {"attention": r".*\.mix", "mlp": r".*\.squash", "outer": r"door\..*"}

    def paths(preset: targets.Preset, own: dict[str, str]) -> list[str]:
        return [layer.path for layer in targets.select_layers(names, "net", preset, own)]

    assert paths("attention", own) == ["a.to_q", "a.mix"]
    assert paths("attention+mlp", own) == ["a.to_q", "a.mix", "b.squash"] == paths("all-linear", own)
    assert paths("attention+mlp", {}) == ["a.to_q"]
    assert paths("all-linear", {}) == ["a.to_q", "a.mix", "b.squash", "door.in"]


def test_pattern_without_match_is_an_error(bases: dict[str, Any]) -> None:
    path = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_w"
    with pytest.raises(WeightsError, match=r"no layer of unet matches .*did you mean .*attn1\.to_") as caught:
        targets.select_layers(bases["sd"].names, "unet", [path])
    assert caught.value.code == "E1437"
