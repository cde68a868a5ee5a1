"""What a recipe leaves to be worked out: said by `check` and before step 1, the same for all processes, kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mezzotint.errors import RecipeError, WeightsError
from mezzotint.recipe.reading.read import read
from mezzotint.tasks.cache import cache
from mezzotint.tasks.check import check
from mezzotint.tasks.check.memory import Activations, Outline
from mezzotint.tasks.train import resume
from mezzotint.training import state
from mezzotint.weights.files import tensor_files


@pytest.fixture
def checked(world: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`check` of a short run without counting activations."""
    monkeypatch.setattr(Outline, "activations", lambda self, size, samples: Activations(samples, 1, 0))

    def look(**settings: Any) -> check.Checked:
        recipe, *words = world.words("checked", **settings)
        return check.check(read(recipe, words))

    return look


def test_check_says_effective_rates_the_averages_decay_and_what_has_no_influence(checked: Any) -> None:
    notes = checked(
        model__train=["denoiser", "text_encoder"],
        optim__lr=2e-6,
        optim__lr_batch_power=0.55,
        optim__part_lr={"text_encoder": 1e-6},
        optim__part_optimizer={"text_encoder": {"kind": "adacoor"}},
        optim__ema__rule="constant",
        optim__ema__strength=0.1,
        run__steps=1000,
    ).notes
    assert any("(4 × 1)^0.55 = 2.144: denoiser 4.287e-06, text_encoder 2.144e-06" in note for note in notes)
    assert any("over 1,000 steps with an update every 1: decay 0.9977000638" in note for note in notes)
    assert any("no influence on text_encoder" in note for note in notes)
    assert checked().notes == []


def test_a_rate_of_nought_is_no_problem_of_a_rule_without_a_rate(checked: Any) -> None:
    assert [error.code for error in checked(optim__lr=0).problems] == ["E1602"]
    assert checked(optim__lr=0, optim__optimizer__kind="adacoor").problems == []


def test_check_counts_each_parts_own_state(checked: Any) -> None:
    both = {"model__train": ["denoiser", "text_encoder"]}
    adam = checked(**both).memory
    mixed = checked(optim__part_optimizer={"text_encoder": {"kind": "adacoor"}}, **both).memory
    [moved] = [part.trained for part in adam.parts if part.name == "text_encoder"]
    assert adam.optimizer - mixed.optimizer == (8 - 2) * moved


def test_check_holds_the_start_of_the_average_against_the_model(
    checked: Any, world: Any, another_sd: Any, tmp_path: Any
) -> None:
    found = checked(optim__ema__rule="constant", optim__ema__start=another_sd).problems
    assert [error.code for error in found] == ["E1417"]
    assert isinstance(found[0], WeightsError)
    found = checked(optim__ema__rule="constant", optim__ema__start=tmp_path / "nowhere").problems
    assert [error.code for error in found] == ["E1401"]
    # configurations alone have no weights that an average could start from
    found = checked(optim__ema__rule="constant", optim__ema__start=world.model).problems
    assert {error.code for error in found} == {"E1407"}


def test_all_processes_take_the_first_ones_seed(world: Any) -> None:
    recipe, *words = world.words("many", run__seed=-1)
    reading = read(recipe, words)
    said: list[str] = []
    seeds: list[str] = []
    for _ in range(2):
        runtime = SimpleNamespace(share=lambda text: seeds[0] if seeds else text, device=torch.device("cpu"))
        settled = resume.settled(reading.recipe, resume.Start(None), runtime, {}, said.append).recipe  # type: ignore[arg-type]
        seeds.append(str(settled.run.seed))
    assert seeds[0] == seeds[1] != "-1"
    assert len(said) == 2
    assert all(seeds[0] in line for line in said)


def test_a_cache_of_a_seed_that_is_not_drawn_yet_is_refused(world: Any) -> None:
    words = world.words("filled", run__seed=-1, data__cache__latents=True, run__resume="auto")
    with pytest.raises(RecipeError) as caught:
        cache.run(words)
    assert caught.value.code == "E1307"
    assert cache.run([*words, "data.crop=center", "data.flip=0", "data.cache.content=moments"]) == 0


@pytest.mark.slow
def test_an_exported_average_can_be_trained_on_its_own(world: Any) -> None:
    given = {"optim__ema__rule": "constant", "optim__ema__decay": 0.7, "run__steps": 2}
    assert world.train("first", **given) == 0
    [export] = (world.root / "first" / "exports").glob("*-ema")
    assert world.train("second", model__path=export, model__weights="files", run__steps=1, optim__lr=1e-5) == 0
    average = state.read(next((world.root / "first" / "checkpoints").iterdir())).tensors
    exported = tensor_files.read(export / "unet" / "diffusion_pytorch_model.safetensors")
    trained = state.read(next((world.root / "second" / "checkpoints").iterdir())).tensors
    for name, tensor in exported.items():
        assert torch.equal(tensor, average[f"ema/denoiser/{name}"])
        torch.testing.assert_close(trained[f"w/denoiser/{name}"], tensor, rtol=0, atol=2e-5)
