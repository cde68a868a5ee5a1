"""Merging adapters into a model's weights, and several into one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mezzotint.adapters import files, merging
from mezzotint.adapters.extraction import RankRule, resize_adapter
from mezzotint.adapters.files import Adapter
from mezzotint.adapters.modules import AdapterModule
from mezzotint.adapters.names import LayerName
from mezzotint.errors import WeightsError
from support.adapter_records import statistics
from support.rounding import within

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "adapters"
FILES = {
    "sd_dora_r4_a8.lycoris.safetensors": 1,
    "sd_loha_r2_a4.lycoris.safetensors": 1,
    "sd_lokr_r2_a4_factor4.lycoris.safetensors": 1,
    "sd_lora_text_r4.kohya.safetensors": 1,
    "sd_lora_text_r4.diffusers": 1,
    "sd_lora_r4_a8.kohya.safetensors": 4096,  # float16
    "sdxl_dora_r4_a8.lycoris.safetensors": 1,
    "sdxl_lokr_r2_a4_factor4.lycoris.safetensors": 1,
    "sdxl_lora_text_r4.kohya.safetensors": 1,
    "sdxl_lora_text_r4.diffusers": 1,
    "sdxl_lora_r4_a8.kohya.safetensors": 4096,
}
"""Files written by other tools, and the factor by which their rounding exceeds that of float32."""


def read(name: str, bases: dict[str, Any]) -> tuple[Adapter, Any]:
    """A file of the records, and its base model."""
    base = bases[name.split("_")[0]]
    return files.read(RECORDS / "files" / name, base.names), base


@pytest.mark.parametrize("name", FILES)
def test_merged_weights_match_the_record(name: str, bases: dict[str, Any]) -> None:
    adapter, base = read(name, bases)
    merged = {}
    for component in adapter.components:
        weights = merging.merge_adapters(component, base.weights[component], [(adapter, 1.0)])
        merged |= {
            f"{component}.{path.removeprefix('text_model.')}": weights[f"{path}.weight"]
            for path in adapter.of(component)
        }
    record = load_file(RECORDS / f"{name.split('.')[0]}.safetensors")["stats.merged_scale_1"].double()
    # float32's rounding of a sum of so many numbers, by the absolute sum of each row
    bound = FILES[name] * 4 * torch.finfo(torch.float32).eps * record[:, 1:2]
    assert record.shape == (len(merged), 4)
    assert ((statistics(merged) - record).abs() <= bound).all()


def test_other_weights_and_dtypes_are_unchanged(bases: dict[str, Any]) -> None:
    adapter, base = read("sd_lora_text_r4.kohya.safetensors", bases)
    half = {name: weight.half() for name, weight in base.weights["unet"].items()}
    merged = merging.merge_adapters("unet", half, [(adapter, 0.5)])
    changed = {name for name in half if merged[name] is not half[name]}
    assert changed == {f"{path}.weight" for path in adapter.of("unet")}
    assert {tensor.dtype for tensor in merged.values()} == {torch.float16}


def test_strength_0_leaves_the_weights_unchanged(bases: dict[str, Any]) -> None:
    adapter, base = read("sd_dora_r4_a8.lycoris.safetensors", bases)
    merged = merging.merge_adapters("unet", base.weights["unet"], [(adapter, 0.0)])
    assert all(merged[name] is weight for name, weight in base.weights["unet"].items())


def test_overflow_in_float16_is_reported(bases: dict[str, Any]) -> None:
    adapter, base = read("sd_lora_text_r4.kohya.safetensors", bases)
    half = {name: weight.half() for name, weight in base.weights["unet"].items()}
    with pytest.raises(WeightsError, match=r"unet\..*too large for float16; merge into fp32 or bf16") as caught:
        merging.merge_adapters("unet", half, [(adapter, 1e9)])
    assert caught.value.code == "E1416"


def test_joined_adapter_equals_the_sum_of_its_parts(bases: dict[str, Any]) -> None:
    one, base = read("sd_lora_text_r4.kohya.safetensors", bases)
    two, _ = read("sd_lora_r4_a8.kohya.safetensors", bases)
    parts = [(one, 0.7), (two, -1.2)]
    joined = merging.join_loras(parts)
    whole, both = (merging.merge_adapters("unet", base.weights["unet"], each) for each in ([(joined, 1.0)], parts))
    for name in both:
        within(whole[name], both[name], roundings=16)
    assert {module.rank for module in joined.modules.values()} == {4, 8}


def test_scaled_adapter_contains_the_strength(bases: dict[str, Any]) -> None:
    adapter, base = read("sd_loha_r2_a4.lycoris.safetensors", bases)
    own = merging.merge_adapters("unet", base.weights["unet"], [(merging.scale_adapter(adapter, 0.25), 1.0)])
    outside = merging.merge_adapters("unet", base.weights["unet"], [(adapter, 0.25)])
    for name in own:
        within(own[name], outside[name], roundings=4)


def test_dora_cannot_be_joined_or_scaled(bases: dict[str, Any]) -> None:
    dora, _ = read("sd_dora_r4_a8.lycoris.safetensors", bases)
    for act in (lambda: merging.join_loras([(dora, 1.0)]), lambda: merging.scale_adapter(dora, 0.5)):
        with pytest.raises(WeightsError, match=r"^error\[E1436\]: unet\.down_blocks"):
            act()
    plain = replace(dora, modules={})
    assert merging.join_loras([(plain, 1.0)]).modules == {}


def test_lokr_with_two_full_factors_can_be_scaled(bases: dict[str, Any]) -> None:
    adapter, base = read("sd_lokr_r2_a4_factor4.lycoris.safetensors", bases)
    assert any({"lokr_w1", "lokr_w2"} <= module.tensors.keys() for module in adapter.modules.values())
    own = merging.merge_adapters("unet", base.weights["unet"], [(merging.scale_adapter(adapter, 0.25), 1.0)])
    outside = merging.merge_adapters("unet", base.weights["unet"], [(adapter, 0.25)])
    for name in own:
        within(own[name], outside[name], roundings=4)


def test_non_finite_result_is_reported_with_its_layer() -> None:
    pair = {"lora_down.weight": torch.ones(1, 2), "lora_up.weight": torch.full((3, 1), 1e30)}
    layer, rows = LayerName("unet", "a.b"), {"dora_scale": torch.ones(3, 1)}
    large = AdapterModule("lora", pair, 1e30)
    flat = AdapterModule("lora", {name: torch.zeros_like(t) for name, t in pair.items()} | rows)
    for module in (large, flat):
        with pytest.raises(
            WeightsError, match=r"unet\.a\.b: the adapted weight has values that are not finite"
        ) as caught:
            merging.merge_adapters("unet", {"a.b.weight": torch.zeros(3, 2)}, [(Adapter({layer: module}), 1.0)])
        assert caught.value.code == "E1403"
        with pytest.raises(WeightsError, match="not finite"):
            resize_adapter(Adapter({layer: module}), RankRule(1), {layer: torch.zeros(3, 2)}, {layer: (3, 2)})
