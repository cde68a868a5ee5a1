"""The training scripts, their selectors, and which scripts have an option."""

from __future__ import annotations

import pytest
from musubi_commands import DATA, line, problems, recipe, settings

from mezzotint.compat.musubi._rows import _GROUPS, ROWS, SCRIPTS_OF, has_option
from mezzotint.compat.musubi._scripts import OTHER_SCRIPTS, SCRIPTS
from mezzotint.compat.musubi.dialect import DIALECT
from mezzotint.errors import NothingToDo, RecipeError
from mezzotint.settings.reading.translation import Launched


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_script_gives_a_recipe_of_its_family(script: str) -> None:
    read = recipe(script)
    assert read.model.family == SCRIPTS[script].family
    assert read.model.has_adapter == (SCRIPTS[script].method == "adapter")
    assert read.model.train == ("denoiser",)


def test_each_selector_matches_a_script_and_each_flag_has_one_row() -> None:
    assert all(any(script.is_one_of(selector) for script in SCRIPTS.values()) for selector, _ in _GROUPS)
    assert len({row.flag for row in ROWS}) == len(ROWS) == len(SCRIPTS_OF)


@pytest.mark.parametrize(
    ("script", "word", "other"),
    [
        ("wan_train_network", "--text_encoder=a", "zimage_train"),
        ("zimage_train", "--network_dim=4", "wan_train_network"),
        ("wan_train_network", "--full_bf16", "qwen_image_train"),
        ("zimage_train_network", "--model_version=original", "flux_2_train_network"),
    ],
)
def test_option_of_another_script_is_refused(script: str, word: str, other: str) -> None:
    flag = word.partition("=")[0]
    [problem] = problems(script, word)
    assert (problem.where, problem.code, problem.message) == (flag, "E1016", f"{script}.py has no such option")
    assert other in problem.remedy
    assert has_option(SCRIPTS[other], flag.lstrip("-"))


@pytest.mark.parametrize(
    "start",
    [["src/musubi_tuner/zimage_train.py"], ["accelerate", "launch", "zimage_train.py"], ["--script", "zimage_train"]],
)
def test_script_is_found(start: list[str]) -> None:
    translated = DIALECT.translate([*start, *line("zimage_train")[1:]], Launched())
    assert translated.settings["model"]["family"] == "z-image"


def test_command_without_script_is_told_the_names() -> None:
    with pytest.raises(RecipeError) as caught:
        DIALECT.translate(["--dit=a", f"--dataset_config={DATA}"], Launched())
    [problem] = caught.value.problems
    assert problem.where == "--script"
    assert all(name in problem.remedy for name in SCRIPTS)


@pytest.mark.parametrize("family", ["wan", "qwen_image", "zimage", "flux_kontext", "flux_2"])
@pytest.mark.parametrize("step", ["cache_latents", "cache_text_encoder_outputs"])
def test_cache_scripts_are_not_needed(family: str, step: str) -> None:
    with pytest.raises(NothingToDo, match="nothing to do; training fills its cache itself"):
        DIALECT.translate(["python", f"{family}_{step}.py", "--dataset_config=a.toml"], Launched())


def test_other_scripts_are_not_supported_ones() -> None:
    assert not {name.removesuffix(".py") for name in OTHER_SCRIPTS} & SCRIPTS.keys()


def test_caches_are_always_used() -> None:
    values = settings("zimage_train")
    assert values["data.cache.latents"] is True
    assert values["data.cache.text"] is True
