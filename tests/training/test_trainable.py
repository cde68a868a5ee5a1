"""Patterns of parameter names: one with `~` may match nothing; others must match."""

from __future__ import annotations

import pytest
from torch import nn

from mezzotint.errors import RecipeError
from mezzotint.settings.optimizers.adamw import AdamW
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.training import trainable
from mezzotint.training.trainable import select_trained_parameters
from mezzotint.training.update import Update

NET = {"denoiser": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))}


def trained(*freeze: str) -> dict[str, nn.Parameter]:
    return select_trained_parameters(NET, ModelSettings(train=("denoiser",), freeze=freeze), ("denoiser",))


def groups(*spared: str) -> dict[str, list[str]]:
    update = Update(trained(), OptimSettings(optimizer=AdamW(no_decay=spared)), separate_masters=False)
    return {group.name: group.names for group in update.groups}


def test_optional_pattern_acts_where_it_matches() -> None:
    assert list(trained("~denoiser/1.*", "~denoiser/7.*")) == ["denoiser/0.weight", "denoiser/0.bias"]
    assert groups("~*bias", "~*layernorm*")["denoiser.no_decay"] == ["denoiser/0.bias", "denoiser/1.bias"]
    assert groups("~*layernorm*").keys() == {"denoiser"}


def test_required_pattern_without_match_is_refused() -> None:
    with pytest.raises(RecipeError, match="matches no trained parameter"):
        groups("~*layernorm*", "*layernorm*")
    with pytest.raises(RecipeError, match="matches no parameter"):
        trained("denoiser/7.*")


def test_optional_patterns_without_match_are_reported() -> None:
    assert trainable.find_unmatched_patterns(["~*bias", "~*layernorm*", "*gone*", "~!*norm*"], list(trained())) == [
        "*layernorm*",
        "!*norm*",
    ]
