"""`mezzotint check`: its problems, all at once, and that it writes nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mezzotint.cli import main
from mezzotint.errors import CheckpointError, DatasetError, RecipeError
from mezzotint.run_folder import RunFolder
from mezzotint.settings.reading.read import read
from mezzotint.settings.recipe import plain_values
from mezzotint.tasks.check import check
from mezzotint.tasks.check import page as _check_page
from mezzotint.training.checkpoints import state
from support.check_command import checked, codes, everything_below
from support.images import broken_inside


def test_check_writes_only_the_dataset_index(quick: Path) -> None:
    before = everything_below(quick)
    assert not checked("data.cache.latents=true", "data.cache.text=true").problems
    new = everything_below(quick) - before
    assert new
    assert all(name == "cache" or name.startswith("cache/catalogues") for name in new)


def test_all_problems_are_reported_together(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (quick / "model" / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    words = ["recipe.yaml", "data.path=nowhere", "optim.lr=0", "--processes=3", "run.resume=latest"]
    with pytest.raises(RecipeError) as caught:
        check.run(words)
    assert [problem.code for problem in caught.value.problems] == ["E1803", "E1602", "E1407", "E1201", "E1507"]
    assert caught.value.exit_status == 2
    assert "denoiser" in capsys.readouterr().out  # the other results are printed nevertheless


def test_deep_check_decodes_all_images(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken_inside(quick / "images" / "1.png")
    for words, damaged in (([], False), (["--deep"], True), ([], False)):
        check.run(["recipe.yaml", "data.verify=on_first_use", *words])
        assert ("1.png" in capsys.readouterr().out) == damaged


def test_single_problem_is_raised_unchanged(quick: Path) -> None:
    (quick / "images" / "0.txt").unlink()
    with pytest.raises(DatasetError, match=r"0\.png"):
        check.run(["recipe.yaml"])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["model.train=[denoiser, vae]"], "E1021"),
        (["model.freeze=[denoiser/nothing*]"], "E1022"),
        (["optim.optimizer.no_decay=[nothing*]"], "E1022"),
        (["model.freeze=['denoiser/*']"], "E1023"),
        (["objective.timesteps=[0, 900]", "model.attention=cudnn"], "E1060"),
    ],
)
def test_untrainable_settings_are_problems(ready: Path, words: list[str], code: str) -> None:
    assert codes(checked(*words).problems) == [code]


def test_unusable_solver_is_a_problem_only_with_previews(quick: Path) -> None:
    words = ("sample.solver=unipc", "sample.sigmas=karras")
    outcome = checked(*words, "run.preview.every=2 steps")
    assert codes(outcome.problems) == ["E1070"]
    assert "sample.sigmas=karras needs one of ddim, euler" in outcome.problems[0].message
    assert codes(checked(*words, "run.preview.every=null").problems) == []


def test_unusable_prompt_file_is_a_problem_only_with_previews(quick: Path) -> None:
    file = quick / "prompts.txt"
    file.write_text("a fox\na hen --x 1\n")
    outcome = checked("run.preview.every=5", f"sample.prompt_file={file}")
    assert codes(outcome.problems) == ["E1073"]
    assert f"{file} line 2: --x is not an option" in outcome.problems[0].message
    assert codes(checked(f"sample.prompt_file={file}").problems) == []


def test_folders_used_only_for_validation_are_counted(quick: Path) -> None:
    outcome = checked("data.holdout.path=images", "data.holdout.max_samples=3", "data.cache.text=true")
    assert codes(outcome.problems) == []
    assert "3 of val/val" in "\n".join(_check_page.page(outcome, every_setting=False))
    assert any(note.startswith("3 of the 3 images of data.holdout.path val are trained") for note in outcome.notes)
    [text] = outcome.caches
    assert text.entries == 7, "six captions and the empty one, each once"


def test_seed_minus_1_is_new_or_that_of_the_resumed_run(quick: Path) -> None:
    new = checked("run.seed=-1", "sample.seed=-1")
    assert new.recipe.run.seed == new.recipe.sample.seed >= 0
    assert f"run.seed is -1: a new run draws another; here, the seed is {new.recipe.run.seed}, drawn just now" in (
        new.notes
    )
    folder = RunFolder(quick / "runs" / "run").open()
    begun = plain_values(read("recipe.yaml", ["run.seed=77", "data.holdout.fraction=0.25"]).recipe)
    state.write(folder.checkpoints, step=5, tensors={"w/a": torch.zeros(2)}, values={"recipe": begun}, recipe_digest="")
    kept = checked("run.seed=-1", "data.holdout.fraction=0.25")
    assert not kept.problems
    assert kept.recipe.run.seed == 77
    assert "run.seed is -1: this run's seed is 77, kept" in kept.notes
    same = checked("run.seed=77", "data.holdout.fraction=0.25")
    assert kept.dataset is not None
    assert same.dataset is not None
    assert kept.dataset.held.tolist() == same.dataset.held.tolist()


def test_existing_run_is_compared_with_the_recipe(quick: Path) -> None:
    folder = RunFolder(quick / "runs" / "run").open()
    old = plain_values(read("recipe.yaml").recipe)
    state.write(
        folder.checkpoints, step=5, tensors={"w/a": torch.zeros(2)}, values={"recipe": old}, recipe_digest="0" * 64
    )
    same = checked()
    assert not same.problems
    assert any("step-00000005" in note for note in same.notes)
    assert same.disk is not None
    assert same.disk.there == 1
    other = checked("run.seed=4", "objective.loss=huber")
    assert isinstance(other.problems[0], RecipeError)
    assert {problem.code for problem in other.problems[0].problems} == {"E1510", "E1511"}
    recipe = Path("recipe.yaml")
    recipe.write_text(recipe.read_text() + "objective:\n  loss: huber\n")
    assert "line " in str(checked().problems[0])  # fails if the setting is attributed to the command line
    never = checked("run.resume=never")
    assert codes(never.problems) == ["E1505"]
    (folder.checkpoints / "step-00000005" / "state.json").write_text("{")
    broken = checked()
    assert codes(broken.problems) == ["E1501"]
    assert isinstance(broken.problems[0], CheckpointError)


def test_check_and_training_use_the_same_catalogue(quick: Path) -> None:
    first, second = checked(), checked()
    assert first.dataset is not None
    assert second.dataset is not None
    assert second.dataset.catalogue.fingerprint == first.dataset.catalogue.fingerprint
    assert np.array_equal(first.dataset.rows, second.dataset.rows)


@pytest.mark.parametrize(("words", "part"), [(["--processes=0"], "processes"), (["--jsn"], "--json")])
def test_check_options_are_validated(quick: Path, words: list[str], part: str) -> None:
    with pytest.raises(RecipeError, match=part) as caught:
        check.run(["recipe.yaml", *words])
    assert caught.value.code == "E1012"


@pytest.mark.parametrize(("parameters", "sharded"), [("true", "weights"), ("false", "gradients and optimizer state")])
def test_what_fsdp_shards_is_named(quick: Path, parameters: str, sharded: str, capsys: Any) -> None:
    words = ["run.runtime=fsdp", f"run.shard.parameters={parameters}", "data.batch_size=2", "--processes=2"]
    assert main(["check", "recipe.yaml", *words]) == 0
    assert f", {sharded} sharded over 2" in " ".join(capsys.readouterr().out.split())
