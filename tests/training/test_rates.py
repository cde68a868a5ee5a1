"""Learning rates by name pattern: which entry wins, what is frozen, what is refused."""

from __future__ import annotations

import pytest

from mezzotint.errors import RecipeError
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.training import rates
from mezzotint.training.update import Update
from support.stepping import parameters

NAMES = ("denoiser/a.0.weight", "denoiser/a.0.bias", "denoiser/a.1.weight", "text_encoder/b.weight")


def keys(part_lr: dict[str, float]) -> list[str]:
    return list(rates.find_keys(rates.names_to_match(NAMES), OptimSettings(part_lr=part_lr)).values())


def frozen(part_lr: dict[str, float], lr: float = 1e-5) -> set[str]:
    return rates.find_frozen(rates.names_to_match(NAMES), OptimSettings(part_lr=part_lr, lr=lr))


def test_last_matching_pattern_wins_over_earlier_ones_and_over_the_part() -> None:
    wide, narrow = {"denoiser/a.*": 1e-3}, {"denoiser/a.0.*": 2e-3}
    assert keys(wide | narrow | {"denoiser": 3e-3}) == [*["denoiser/a.0.*"] * 2, "denoiser/a.*", "text_encoder"]
    assert keys(narrow | wide) == [*["denoiser/a.*"] * 3, "text_encoder"]
    assert keys({"denoiser": 3e-3}) == [*["denoiser"] * 3, "text_encoder"]


def test_pattern_matches_a_parameter_or_its_layer_in_its_own_part() -> None:
    assert keys({"denoiser/*.bias": 1e-3})[:3] == ["denoiser", "denoiser/*.bias", "denoiser"]
    assert keys({"denoiser/a.0": 1e-3})[:3] == ["denoiser/a.0", "denoiser/a.0", "denoiser"]
    assert keys({"denoiser/*": 1e-3})[3] == "text_encoder"


def test_parameters_of_an_adapter_match_by_their_layer_only() -> None:
    name = "denoiser/down.0.to_q.lora_up.weight"
    names = rates.names_to_match([name, "tokens/x.weight"], ["denoiser"])
    assert names == {name: ("denoiser/down.0.to_q",), "tokens/x.weight": ("tokens/x.weight", "tokens/x")}


def test_rate_of_zero_freezes_where_a_part_has_patterns() -> None:
    assert frozen({"denoiser/a.0.*": 0.0}) == {"denoiser/a.0.weight", "denoiser/a.0.bias"}
    assert frozen({"denoiser": 0.0, "denoiser/a.1.*": 1e-3}) == {"denoiser/a.0.weight", "denoiser/a.0.bias"}
    assert frozen({"denoiser": 0.0}) == set(), "a whole part with a rate of 0 is a mistake, which is found elsewhere"
    assert frozen({"denoiser/a.1.*": 1e-3}, lr=0.0) == {"denoiser/a.0.weight", "denoiser/a.0.bias"}


def test_nothing_left_of_a_part_is_refused() -> None:
    with pytest.raises(RecipeError, match="every rate of denoiser is 0") as caught:
        frozen({"denoiser/a.*": 0.0})
    assert caught.value.code == "E1023"


def test_pattern_without_match_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(RecipeError, match=r"did you mean denoiser/a\.0\.bias") as caught:
        frozen({"denoiser/a.0.bais": 1e-3})
    assert caught.value.code == "E1022"
    assert frozen({"~denoiser/a.0.bais": 1e-3}) == set()
    assert keys({"~denoiser/a.0.bias": 1e-3})[1] == "~denoiser/a.0.bias"


def test_each_rate_has_a_group_and_another_without_weight_decay() -> None:
    trained = parameters({"denoiser/a.weight": (2,), "denoiser/a.bias": (2,), "denoiser/b.weight": (2,)})
    optim = OptimSettings(part_lr={"~denoiser/a*": 1e-3}, optimizer={"no_decay": ["*.bias"]})
    found = rates.find_keys(rates.names_to_match(trained), optim)
    update = Update(trained, optim, separate_masters=False, rate_keys=found)
    assert {group.name: (group.part, group.rate_key, group.names) for group in update.groups} == {
        "denoiser/a*": ("denoiser", "~denoiser/a*", ["denoiser/a.weight"]),
        "denoiser/a*.no_decay": ("denoiser", "~denoiser/a*", ["denoiser/a.bias"]),
        "denoiser": ("denoiser", "denoiser", ["denoiser/b.weight"]),
    }
    assert update.largest_by_part({"denoiser/a*": 2.0, "denoiser/a*.no_decay": 3.0, "denoiser": 1.0}) == {
        "denoiser": 3.0
    }
