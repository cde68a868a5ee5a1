"""Adapters among the sources of a merge."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mezzotint.adapters.applying import AdaptedMerge, AppliedAdapter
from mezzotint.adapters.files import Adapter
from mezzotint.adapters.modules import AdapterModule
from mezzotint.adapters.names import LayerName
from mezzotint.weights.merge import Merge

FIRST, LATER = object(), object()
WEIGHTS = {"a.weight": torch.eye(3), "b.weight": torch.zeros(3, 3), "b.bias": torch.zeros(3)}


def ones(layer: str, strength: float, after: int) -> AppliedAdapter:
    """An adapter that adds `strength` to each weight of a layer."""
    tensors = {"lora_down.weight": torch.ones(1, 3), "lora_up.weight": torch.ones(3, 1)}
    return AppliedAdapter(
        Path(f"{layer}.safetensors"),
        Adapter({LayerName("unet", layer): AdapterModule("lora", tensors)}),
        strength,
        after,
    )


@pytest.fixture
def merge(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A merge of a model and a later file with layer b."""

    def values(self: Merge, component: str, names: Any) -> dict[str, Tensor]:
        return {name: WEIGHTS[name] for name in names}

    monkeypatch.setattr(Merge, "values", values)

    def of(*adapters: AppliedAdapter, dtype: torch.dtype | None = None) -> AdaptedMerge:
        instance = object.__new__(AdaptedMerge)
        origin = {"unet": {"a.weight": FIRST, "b.weight": LATER, "b.bias": LATER}}
        held = {"base": SimpleNamespace(source=FIRST), "others": (LATER,), "origin": origin, "dtype": dtype}
        for name, value in (held | {"adapters": adapters}).items():
            object.__setattr__(instance, name, value)
        return instance

    return of


def test_all_adapters_of_a_tensor_are_added_to_the_original_weight(merge: Any) -> None:
    both = (ones("a", 0.5, 1), ones("a", -2.0, 1))
    for adapters in (both, both[::-1]):
        assert torch.equal(merge(*adapters).values("unet", WEIGHTS)["a.weight"], torch.eye(3) - 1.5)
    assert torch.equal(merge(*both).values("unet", WEIGHTS)["b.weight"], WEIGHTS["b.weight"])


def test_tensor_of_later_file_is_changed_only_by_adapters_after_it(merge: Any) -> None:
    before, after = ones("b", 1.0, 0), ones("b", 2.0, 1)
    merged = merge(before, after)
    assert torch.equal(merged.values("unet", WEIGHTS)["b.weight"], torch.full((3, 3), 2.0))
    assert merged.find_changing("unet", "b.weight") == [after]
    assert merged.find_changing("unet", "b.bias") == []
    assert merged.find_changing("unet", "a.weight") == []
    assert merge(ones("a", 0.0, 1)).find_changing("unet", "a.weight") == [], "strength 0 changes nothing"


def test_sum_is_float32_when_an_output_dtype_is_requested(merge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WEIGHTS, "a.weight", torch.eye(3, dtype=torch.bfloat16))
    exact = merge(ones("a", 1 / 512, 1), dtype=torch.float16).values("unet", ["a.weight"])["a.weight"]
    assert exact.dtype == torch.float32
    assert float(exact[0, 0]) == 1 + 1 / 512, "not rounded to bfloat16 in between"
    assert merge(ones("a", 1 / 512, 1)).values("unet", ["a.weight"])["a.weight"].dtype == torch.bfloat16
