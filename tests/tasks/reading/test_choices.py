"""Seeds of -1, shared by run and previews and among processes, and the choice of `adamw-8bit-or-adamw`. A resumed run
keeps both."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint import registry
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.reading import choices

EITHER = "adamw-8bit-or-adamw"
BOTH = (
    "model: {train: [denoiser, text_encoder]}\n"
    f"optim: {{optimizer: {{kind: {EITHER}, eps: 1e-7}}, part_optimizer: {{text_encoder: {{kind: {EITHER}}}}}}}"
)
SEEDS = read_text("run: {seed: -1}\nsample: {seed: -1}").recipe


def recipe(text: str) -> Recipe:
    return read_text(text).recipe


def kinds(read_recipe: Recipe) -> list[str]:
    return [read_recipe.optim.optimizer.kind, *(rule.kind for rule in read_recipe.optim.part_optimizer.values())]


@pytest.mark.parametrize(("device", "kind"), [("cuda", "adamw-8bit"), ("cpu", "adamw"), ("mps", "adamw")])
def test_new_run_uses_optimizer_that_its_device_supports(device: str, kind: str) -> None:
    settled = choices.choose(recipe(BOTH), device, origin={"optim.optimizer.kind": "x"})
    optim = settled.recipe.optim
    assert kinds(settled.recipe) == list(settled.kinds.values()) == [kind, kind]
    assert (optim.optimizer.eps, optim.optimizer.weight_decay) == (1e-7, 0.01)  # type: ignore[union-attr]
    assert choices.choose(settled.recipe, device).kinds == {}
    assert len(settled.sentences) == 2
    assert settled.sentences[0].startswith(f"optim.optimizer.kind (x) is {EITHER}: ")


@pytest.mark.parametrize("kind", ["adamw", "adamw-8bit"])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_resumed_run_keeps_its_optimizer_on_any_device(device: str, kind: str) -> None:
    recorded: dict[str, Any] = {"optim": {"optimizer": {"kind": kind}, "part_optimizer": {}}}
    assert kinds(choices.choose(recipe(BOTH), device, recorded).recipe) == [kind, kind]
    apart = {"optim": {"optimizer": {"kind": "adacoor"}, "part_optimizer": {"text_encoder": {"kind": kind}}}}
    here = "adamw-8bit" if device == "cuda" else "adamw"
    assert kinds(choices.choose(recipe(BOTH), device, apart).recipe) == [here, kind], "adacoor is neither of them"


def test_recipes_with_other_optimizers_are_unchanged() -> None:
    plain = recipe("optim: {optimizer: {kind: adamw-8bit}}")
    assert choices.choose(plain, "cpu").recipe == plain


def test_missing_8_bit_adamw_names_both_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bitsandbytes", "bitsandbytes.optim"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    settings = choices.choose(recipe(BOTH), "cuda").recipe.optim.optimizer
    with pytest.raises(RecipeError, match=r"'mezzotint\[eight-bit\]', or write optim\.optimizer\.kind=adamw") as caught:
        registry.find("training/optimizers", settings.kind).step_of(settings, {}, None)
    assert caught.value.code == "E1061"


def test_new_seed_is_shared_by_run_and_previews() -> None:
    settled = choices.choose(SEEDS, "cpu", share=lambda text: "5", is_run=True)
    assert (settled.recipe.run.seed, settled.recipe.sample.seed) == (5, 5)
    assert settled.sentences == (
        "run.seed is -1: this run's seed is 5, drawn just now",
        "sample.seed is -1: this run's previews have seed 5, drawn just now",
    )
    assert choices.choose_seeds(settled.recipe) == (settled.recipe, [])


def test_inspecting_a_run_uses_its_recorded_seeds() -> None:
    recorded: dict[str, Any] = {"run": {"seed": 7}, "sample": {"seed": -1}}
    settled, sentences = choices.choose_seeds(SEEDS, recorded)
    assert (settled.run.seed, settled.sample.seed) == (7, 7), "a run from when -1 meant run.seed keeps that one"
    assert all(sentence.endswith("7, kept") for sentence in sentences)
