"""Names of the latent-diffusion layout: full-size models, and files of another trainer."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from mezzotint.weights.folder import components
from mezzotint.weights.keymap import Entry
from support.layout_names import shapes_of, table_of

RECORD = Path(__file__).parents[2] / "parity" / "data" / "everydream2" / "single_file_keys.json"
COUNTS = {
    ("sd1", "unet"): (686, 686, 859_520_964),
    ("sd1", "vae"): (248, 248, 83_653_863),
    ("sd1", "text_encoder"): (196, 196, 123_060_480),
    ("sd2-v", "unet"): (686, 686, 865_910_724),
    ("sd2-v", "vae"): (248, 248, 83_653_863),
    ("sd2-v", "text_encoder"): (372, 280, 340_387_840),
}
"""Tensors of the diffusers folder, tensors in a single file, and parameters of the published models."""


@pytest.mark.parametrize(("model", "component"), list(COUNTS))
def test_every_tensor_of_full_size_models_is_mapped_both_ways(model: str, component: str) -> None:
    shapes, table = shapes_of(model, component), table_of(model, component)
    ours, foreign, numbers = COUNTS[model, component]
    assert len(shapes) == ours
    assert len(table.entries) == len({entry.foreign for entry in table.entries}) == foreign
    assert sum(math.prod(shape) for shape in shapes.values()) == numbers
    assert sorted(name for entry in table.entries for name in entry.ours) == sorted(shapes)
    for entry in table.entries:
        shape_in_file = entry.foreign_shape(shapes)
        assert math.prod(shape_in_file) == sum(math.prod(shapes[name]) for name in entry.ours)
        assert entry.shapes(shape_in_file) == {name: shapes[name] for name in entry.ours}
        assert table.find_foreign(entry.foreign) is entry
        assert all(table.find_ours(name) is entry for name in entry.ours)


@pytest.mark.parametrize(
    ("model", "component", "name", "shape"),
    [
        ("sd1", "unet", "model.diffusion_model.input_blocks.1.1.proj_in.weight", (320, 320, 1, 1)),
        ("sd2", "unet", "model.diffusion_model.input_blocks.1.1.proj_in.weight", (320, 320)),
        ("sd1", "unet", "model.diffusion_model.output_blocks.5.2.conv.weight", (1280, 1280, 3, 3)),
        ("sd1", "unet", "model.diffusion_model.output_blocks.2.1.conv.bias", (1280,)),
        ("sd1", "unet", "model.diffusion_model.input_blocks.9.0.op.weight", (1280, 1280, 3, 3)),
        ("sd2-v", "unet", "model.diffusion_model.middle_block.1.transformer_blocks.0.attn2.to_k.weight", (1280, 1024)),
        ("sd1", "vae", "first_stage_model.decoder.mid.attn_1.proj_out.weight", (512, 512, 1, 1)),
        ("sd1", "vae", "first_stage_model.encoder.down.1.block.0.nin_shortcut.weight", (256, 128, 1, 1)),
        ("sd1", "vae", "first_stage_model.decoder.up.3.upsample.conv.weight", (512, 512, 3, 3)),
        ("sd1", "vae", "first_stage_model.quant_conv.weight", (8, 8, 1, 1)),
        (
            "sd1", "text_encoder",
            "cond_stage_model.transformer.text_model.embeddings.token_embedding.weight", (49408, 768),
        ),
        ("sd2", "text_encoder", "cond_stage_model.model.transformer.resblocks.22.attn.in_proj_weight", (3072, 1024)),
        ("sd2", "text_encoder", "cond_stage_model.model.positional_embedding", (77, 1024)),
    ],
)  # fmt: skip
def test_published_files_have_these_names_and_shapes(
    model: str, component: str, name: str, shape: tuple[int, ...]
) -> None:
    entry = table_of(model, component).find_foreign(name)
    assert entry is not None
    assert entry.foreign_shape(shapes_of(model, component)) == shape


def recorded() -> dict[str, Any]:
    names: dict[str, Any] = json.loads(RECORD.read_text())
    return names


def modern(name: str) -> str:
    return next(iter(components.modern_names("vae", {name: 0})))


def test_names_match_another_trainer() -> None:
    record = recorded()
    unet, vae = table_of("sd1", "unet"), table_of("sd1", "vae")
    for foreign, ours in record["unet_single_file_to_diffusers"].items():
        assert unet.find_foreign(foreign) == Entry(foreign, (ours,))
    for foreign, ours in record["vae_old_names"].items():
        entry = vae.find_ours(modern(ours))
        assert entry is not None
        assert entry.foreign == foreign
    assert len(record["unet_single_file_to_diffusers"]) + len(record["vae_old_names"]) == 686 + 248


def test_autoencoders_with_new_attention_names_are_read() -> None:
    vae = table_of("sd1", "vae")
    for foreign, ours in recorded()["vae_current_names_as_reference_emits"].items():
        entry = vae.find_foreign(foreign)
        assert entry is not None
        assert entry.ours == (ours,)


@pytest.mark.parametrize(("model", "key"), [("sd1", "text_encoder_sd1"), ("sd2-v", "text_encoder_sd2")])
def test_text_encoder_names_match_another_trainer(model: str, key: str) -> None:
    table, record = table_of(model, "text_encoder"), recorded()[key]
    assert len(record) == len(table.entries)
    for foreign, ours in record.items():
        names = [ours] if isinstance(ours, str) else ours
        entry = table.find_foreign(foreign)
        assert entry is not None
        assert list(entry.ours) == [name.removeprefix("transformer.") for name in names]
