"""The optimizer `adamw-8bit-or-adamw`: which of the two a run takes, and that it keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint.errors import RecipeError
from mezzotint.recipe.reading.read import read_text
from mezzotint.recipe.recipe import Recipe
from mezzotint.tasks import optimizers
from mezzotint.training.update import _step_of

EITHER = "adamw-8bit-or-adamw"
BOTH = (
    "model: {train: [denoiser, text_encoder]}\n"
    f"optim: {{optimizer: {{kind: {EITHER}, eps: 1e-7}}, part_optimizer: {{text_encoder: {{kind: {EITHER}}}}}}}"
)


def recipe(text: str) -> Recipe:
    return read_text(text).recipe


def kinds(found: Recipe) -> list[str]:
    return [found.optim.optimizer.kind, *(rule.kind for rule in found.optim.part_optimizer.values())]


@pytest.mark.parametrize(("device", "kind"), [("cuda", "adamw-8bit"), ("cpu", "adamw"), ("mps", "adamw")])
def test_a_new_run_takes_the_one_that_its_device_can_run(device: str, kind: str) -> None:
    found = optimizers.settled(recipe(BOTH), device)
    assert kinds(found) == [kind, kind]
    assert (found.optim.optimizer.eps, found.optim.optimizer.weight_decay) == (1e-7, 0.01)  # type: ignore[union-attr]
    assert not optimizers.is_open(found)
    said = list(optimizers.sentences(recipe(BOTH), found, device, goes_on=False, origin={"optim.optimizer.kind": "x"}))
    assert len(said) == 2
    assert said[0].startswith(f"optim.optimizer.kind (x) is {EITHER}: ")


@pytest.mark.parametrize("kind", ["adamw", "adamw-8bit"])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_run_that_goes_on_keeps_its_own_wherever_it_is(device: str, kind: str) -> None:
    recorded: dict[str, Any] = {"optim": {"optimizer": {"kind": kind}, "part_optimizer": {}}}
    assert kinds(optimizers.settled(recipe(BOTH), device, recorded)) == [kind, kind]
    apart = {"optim": {"optimizer": {"kind": "adacoor"}, "part_optimizer": {"text_encoder": {"kind": kind}}}}
    here = "adamw-8bit" if device == "cuda" else "adamw"
    assert kinds(optimizers.settled(recipe(BOTH), device, apart)) == [here, kind], "adacoor is neither of them"


def test_another_recipe_stays_as_it_is() -> None:
    plain = recipe("optim: {optimizer: {kind: adamw-8bit}}")
    assert optimizers.settled(plain, "cpu") is plain


def test_eight_bit_adamw_that_is_not_installed_names_both_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bitsandbytes", "bitsandbytes.optim"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    settings = optimizers.settled(recipe(BOTH), "cuda").optim.optimizer
    with pytest.raises(RecipeError, match=r"'mezzotint\[eight-bit\]', or write optim\.optimizer\.kind=adamw") as caught:
        _step_of(settings, {}, None)  # type: ignore[arg-type]
    assert caught.value.code == "E1061"
