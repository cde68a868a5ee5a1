"""The optimizer `adamw-8bit-or-adamw`: which of the two a run takes, and that it keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint import registry
from mezzotint.errors import RecipeError
from mezzotint.recipe.reading.read import read_text
from mezzotint.recipe.recipe import Recipe
from mezzotint.tasks.reading import optimizers

EITHER = "adamw-8bit-or-adamw"
BOTH = (
    "model: {train: [denoiser, text_encoder]}\n"
    f"optim: {{optimizer: {{kind: {EITHER}, eps: 1e-7}}, part_optimizer: {{text_encoder: {{kind: {EITHER}}}}}}}"
)


def recipe(text: str) -> Recipe:
    return read_text(text).recipe


def kinds(read_recipe: Recipe) -> list[str]:
    return [read_recipe.optim.optimizer.kind, *(rule.kind for rule in read_recipe.optim.part_optimizer.values())]


@pytest.mark.parametrize(("device", "kind"), [("cuda", "adamw-8bit"), ("cpu", "adamw"), ("mps", "adamw")])
def test_a_new_run_takes_the_one_that_its_device_can_run(device: str, kind: str) -> None:
    settled = optimizers.settle(recipe(BOTH), device, origin={"optim.optimizer.kind": "x"})
    optim = settled.recipe.optim
    assert kinds(settled.recipe) == list(settled.kinds.values()) == [kind, kind]
    assert (optim.optimizer.eps, optim.optimizer.weight_decay) == (1e-7, 0.01)  # type: ignore[union-attr]
    assert optimizers.settle(settled.recipe, device).kinds == {}
    assert len(settled.sentences) == 2
    assert settled.sentences[0].startswith(f"optim.optimizer.kind (x) is {EITHER}: ")


@pytest.mark.parametrize("kind", ["adamw", "adamw-8bit"])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_run_that_goes_on_keeps_its_own_wherever_it_is(device: str, kind: str) -> None:
    recorded: dict[str, Any] = {"optim": {"optimizer": {"kind": kind}, "part_optimizer": {}}}
    assert kinds(optimizers.settle(recipe(BOTH), device, recorded=recorded).recipe) == [kind, kind]
    apart = {"optim": {"optimizer": {"kind": "adacoor"}, "part_optimizer": {"text_encoder": {"kind": kind}}}}
    here = "adamw-8bit" if device == "cuda" else "adamw"
    assert kinds(optimizers.settle(recipe(BOTH), device, recorded=apart).recipe) == [here, kind], (
        "adacoor is neither of them"
    )


def test_another_recipe_stays_as_it_is() -> None:
    plain = recipe("optim: {optimizer: {kind: adamw-8bit}}")
    assert optimizers.settle(plain, "cpu").recipe is plain


def test_eight_bit_adamw_that_is_not_installed_names_both_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bitsandbytes", "bitsandbytes.optim"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    settings = optimizers.settle(recipe(BOTH), "cuda").recipe.optim.optimizer
    with pytest.raises(RecipeError, match=r"'mezzotint\[eight-bit\]', or write optim\.optimizer\.kind=adamw") as caught:
        registry.find("training/optimizers", settings.kind).step_of(settings, {}, None)
    assert caught.value.code == "E1061"
