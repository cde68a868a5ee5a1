"""Names of a model's layers in adapter files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mezzotint.adapters.names import LayerName, LayerNames

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "adapters"


def test_sdxl_denoiser_names_match_the_record(bases: dict[str, Any]) -> None:
    names: LayerNames = bases["sdxl"].names
    record: dict[str, str] = json.loads((RECORDS / "sdxl_kohya_names.json").read_text())["sgm"]
    flat = {layer.path: name for layer, name in names.kohya.items() if layer.component == "unet"}
    assert len(flat) > 200
    assert {path: record.get(path) for path in flat if path in record} == {p: n for p, n in flat.items() if p in record}
    assert flat.keys() - record.keys() == set()


def test_every_flat_name_identifies_one_layer(bases: dict[str, Any]) -> None:
    for base in bases.values():
        names: LayerNames = base.names
        assert len(set(names.kohya.values())) == len(names.weights) == len(names.kohya)
        lookup = names.lookup("unet")
        assert all(lookup[flat] == layer for layer, flat in names.kohya.items())


def test_text_encoders_are_found_under_several_names(bases: dict[str, Any]) -> None:
    one, two = bases["sd"].names, bases["sdxl"].names
    path = "text_model.encoder.layers.0.self_attn.q_proj"
    flat = path.replace(".", "_")
    assert one.kohya[LayerName("text_encoder", path)] == f"lora_te_{flat}"
    for name in (f"lora_te_{flat}", f"lora_te1_{flat}", "lora_te_encoder_layers_0_self_attn_q_proj"):
        assert one.lookup("unet")[name] == LayerName("text_encoder", path)
    assert two.kohya[LayerName("text_encoder_2", path)] == f"lora_te2_{flat}"
    assert two.lookup("unet")[f"text_encoder_2.{path.removeprefix('text_model.')}"] == LayerName("text_encoder_2", path)
    assert "lora_te_" + flat not in two.lookup("unet")


def test_diffusers_names_of_sdxl_are_found(bases: dict[str, Any]) -> None:
    names: LayerNames = bases["sdxl"].names
    layer = next(each for each in names.weights if each.path.endswith("attn1.to_q"))
    assert names.lookup("unet")["lora_unet_" + layer.path.replace(".", "_")] == layer
    assert "down_blocks" not in names.kohya[layer]


def test_autoencoder_and_token_embeddings_are_not_layers(bases: dict[str, Any]) -> None:
    for base in bases.values():
        assert {layer.component for layer in base.names.weights} == base.names.shapes.keys() - {"vae"}
        assert not any("token_embedding" in layer.path for layer in base.names.weights)
        assert any(layer.path == "time_embedding.linear_1" for layer in base.names.weights)
