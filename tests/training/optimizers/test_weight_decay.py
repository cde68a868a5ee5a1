"""Named rules for weight decay."""

from __future__ import annotations

import pytest
from torch import nn

from mezzotint.errors import RecipeError
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.training.optimizers import weight_decay

PARTS = {"denoiser": nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), "text_encoder": nn.Sequential(nn.Linear(2, 2))}
NAMES = [f"{part}/{name}" for part, module in PARTS.items() for name, _ in module.named_parameters()]


def undecayed(optim: dict[str, object], trained: list[str]) -> list[str]:
    return list(weight_decay.resolve_no_decay(OptimSettings(**optim), PARTS, trained).optimizer.no_decay_patterns)


def test_norms_and_biases_are_excluded_from_weight_decay() -> None:
    rule = {"optimizer": {"no_decay": ["@norm-and-bias", "*.0.weight"]}}
    everything = ["denoiser/0.bias", "denoiser/1.weight", "denoiser/1.bias", "text_encoder/0.bias", "*.0.weight"]
    assert undecayed(rule, NAMES) == everything
    assert undecayed(rule, NAMES[:2]) == ["denoiser/0.bias", "*.0.weight"]
    apart = rule | {"part_optimizer": {"text_encoder": {}}}
    assert undecayed(apart, NAMES) == [name for name in everything if not name.startswith("text")]


def test_unknown_weight_decay_rules_are_refused() -> None:
    for rule, words in (("@all", "unknown rule '@all'; use @"),):
        with pytest.raises(RecipeError, match=words) as refused:
            undecayed({"optimizer": {"no_decay": [rule]}}, NAMES)
        assert refused.value.code == "E1078"
