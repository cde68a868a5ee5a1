"""Settings and facts of optimizers."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from mezzotint import registry
from mezzotint.settings.optimizers import base
from mezzotint.settings.optimizers.adamw import Settings as AdamW


def test_every_optimizer_has_settings_of_its_name() -> None:
    names = registry.names("settings/optimizers")
    assert {"adamw", "lion", "prodigy", "library"} <= set(names)
    for name in names:
        settings = registry.find("settings/optimizers", name).Settings
        assert issubclass(settings, base.Optimizer)
        assert settings.model_fields["kind"].default == name


def test_no_decay_replaces_the_default_patterns() -> None:
    before = AdamW(betas=(0.8, 0.9), no_decay=("*.bias",))
    after = before.with_no_decay(["a", "b"])
    assert after.no_decay_patterns == ("a", "b")
    assert (after.betas, before.no_decay_patterns) == ((0.8, 0.9), ("*.bias",))


@pytest.mark.parametrize("wrong", [{"betas": (1.0, 0.9)}, {"eps": 0}, {"weight_decay": -1}])
def test_values_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        AdamW.model_validate(wrong)


def test_only_marked_settings_are_resolved_at_start() -> None:
    for name in registry.names("settings/optimizers"):
        settings = registry.find("settings/optimizers", name).Settings
        if not settings.is_open and name != "library":
            chosen = settings()
            assert chosen.choose_kind("cpu", "") is chosen
