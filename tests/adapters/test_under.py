"""Frozen adapters under a run: what they add to a network, and that they can be switched off without a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from mezzotint.adapters import files, merging, under
from mezzotint.adapters.names import LayerNames
from mezzotint.errors import WeightsError
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.under import UnderSettings
from mezzotint.weights.low_bit import WeightForm
from support.adapter_records import FILES, SD, ran

KINDS = ("lora_r4_a8.kohya", "dora_r4_a8.lycoris", "loha_r2_a4.lycoris", "lokr_r2_a4_factor4.lycoris")
CONVOLUTION = "lora_unet_mid_block_resnets_0_conv1"


def file_of(kind: str) -> Path:
    return FILES / f"sd_{kind}.safetensors"


def write_convolutions(path: Path, *, three_factors: bool) -> Path:
    """An adapter of a convolution, with two factors or three."""
    channels = open_denoiser()[1].get_submodule("mid_block.resnets.0.conv1").weight.shape[0]
    generator = torch.Generator().manual_seed(3)
    shapes = {"lora_down": (4, channels, 3, 3), "lora_up": (channels, 4, 1, 1)}
    if three_factors:
        shapes = {"lora_down": (4, channels, 1, 1), "lora_mid": (4, 4, 3, 3), "lora_up": (channels, 4, 1, 1)}
    tensors = {f"{CONVOLUTION}.{name}.weight": torch.randn(of, generator=generator) for name, of in shapes.items()}
    save_file(tensors | {f"{CONVOLUTION}.alpha": torch.tensor(2.0)}, path)
    return path


def open_denoiser(form: WeightForm | None = None) -> tuple[Any, nn.Module]:
    model_files = Family.files.of(ModelSettings(path=SD))
    family = Family.load(model_files, ("denoiser",), {"denoiser": form} if form else None)
    return model_files, family.parts()["denoiser"].requires_grad_(False).eval()


def output(denoiser: Any) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    config = denoiser.config
    x = torch.randn(2, config.in_channels, 8, 8, generator=generator)
    text = torch.randn(2, 5, config.cross_attention_dim, generator=generator)
    with torch.no_grad():
        predicted: torch.Tensor = denoiser(x, torch.tensor([10, 700]), text).sample
    return predicted


@pytest.mark.parametrize("kind", [*KINDS, "convolution", "three factors"])
def test_network_computes_as_with_the_adapter_merged_and_off_as_without(kind: str, tmp_path: Path) -> None:
    path = file_of(kind)
    if kind not in KINDS:
        path = write_convolutions(tmp_path / "a.safetensors", three_factors=kind == "three factors")
    model_files, merged = open_denoiser()
    plain = output(merged)
    adapter = files.read(path, LayerNames.of(model_files))
    merging.merge_into(merged, "unet", [(adapter, 0.7)])
    model_files, denoiser = open_denoiser()
    settings = [UnderSettings(path=path, strength=0.7)]
    put = under.put_under(settings, model_files, {"denoiser": denoiser})
    change = (output(merged) - plain).abs().max()
    assert change > 1e-3
    torch.testing.assert_close(output(denoiser), output(merged), rtol=0, atol=1e-3 * float(change))
    with put.off():
        assert torch.equal(output(denoiser), plain)
    assert not torch.equal(output(denoiser), plain)
    assert not [name for name in denoiser.state_dict() if "under" in name], "no file contains it"


def test_several_adapters_add_up() -> None:
    first, second = (UnderSettings(path=file_of(kind)) for kind in (KINDS[0], KINDS[3]))
    changes = []
    for settings in ([first], [second], [first, second]):
        model_files, denoiser = open_denoiser()
        put = under.put_under(settings, model_files, {"denoiser": denoiser})
        layer: Any = denoiser.get_submodule("mid_block.attentions.0.transformer_blocks.0.attn1.to_q")
        x = torch.randn(3, layer.in_features, generator=torch.Generator().manual_seed(1))
        with_them = layer(x)
        with put.off():
            changes.append(with_them - layer(x))
    assert all(change.abs().max() > 0 for change in changes)
    torch.testing.assert_close(changes[2], changes[0] + changes[1])


def test_quantized_network_is_changed_and_off_is_itself_again() -> None:
    pytest.importorskip("torchao")
    model_files, denoiser = open_denoiser(WeightForm(torch.float32, "int8"))
    plain = output(denoiser)
    put = under.put_under([UnderSettings(path=file_of("dora_r4_a8.lycoris"))], model_files, {"denoiser": denoiser})
    assert not torch.equal(output(denoiser), plain)
    with put.off():
        assert torch.equal(output(denoiser), plain)


def test_adapter_of_a_text_encoder_is_refused() -> None:
    model_files, denoiser = open_denoiser()
    with pytest.raises(WeightsError, match=r"also changes text_encoder.*mezzotint merge") as caught:
        under.put_under([UnderSettings(path=file_of("lora_text_r4.kohya"))], model_files, {"denoiser": denoiser})
    assert caught.value.code == "E1448"


def test_merged_adapter_keeps_the_records_of_what_lay_under_its_sources(tmp_path: Path) -> None:
    record, junk = [{"name": "u.safetensors", "sha256": "ab", "strength": 1.0}], [{"name": 1}, "x", 3, None]
    tensors = load_file(file_of("lora_r4_a8.kohya"))
    entries = {"a": json.dumps(record), "b": json.dumps(record), "c": json.dumps(junk), "d": "[" * 10**5}
    for name, entry in entries.items():
        save_file(tensors, tmp_path / f"{name}.safetensors", {files.UNDER_KEY: entry})
    sources = [tmp_path / f"{name}.safetensors" for name in entries]
    ran("merge", *sources, tmp_path / "joined.safetensors", f"--base={SD}")
    names = LayerNames.of(open_denoiser()[0])
    joined = files.read(tmp_path / "joined.safetensors", names)
    assert json.loads(joined.metadata[files.UNDER_KEY]) == record
    assert any("trained with u.safetensors under it" in note for note in joined.notes)
    assert not any("under it" in note for note in files.read(sources[2], names).notes)


def test_missing_file_is_named_with_its_setting() -> None:
    model_files, denoiser = open_denoiser()
    with pytest.raises(WeightsError, match=r"model\.under: ostris/adapter does not exist; .*hf download"):
        under.put_under([UnderSettings(path=Path("ostris/adapter"))], model_files, {"denoiser": denoiser})
