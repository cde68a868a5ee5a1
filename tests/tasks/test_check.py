"""The verb `check`: what it finds, that it finds all problems at once, and that it leaves nothing behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_export import export_model, tiny_model
from PIL import Image

from mezzotint import durable
from mezzotint.errors import CheckpointError, DatasetError, MezzotintError, RecipeError, StorageError, WeightsError
from mezzotint.families.sd import Family
from mezzotint.recipe.base import Every
from mezzotint.recipe.reading.read import read
from mezzotint.recipe.recipe import Recipe
from mezzotint.run_folder import RunFolder
from mezzotint.tasks import assemble
from mezzotint.tasks.cache import cache
from mezzotint.tasks.check import check
from mezzotint.tasks.check import page as _check_page
from mezzotint.tasks.check._estimates import Length, refuse_full_disk, times_due
from mezzotint.tasks.check.memory import Activations, Outline
from mezzotint.tasks.train import announce, exports
from mezzotint.training import state

SIZES = [(64, 64)] * 5 + [(128, 64)] * 3


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`Family.tiny()` as a folder of files."""
    return export_model(tiny_model(Family), tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def world(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a recipe, pictures and a model of its own; the current folder."""
    shutil.copytree(tiny, tmp_path / "model")
    (tmp_path / "pictures").mkdir()
    for number, size in enumerate(SIZES):
        colour = (number * 30, 255 - number * 30, 90)
        Image.new("RGB", size, colour).save(tmp_path / "pictures" / f"{number}.png")
        (tmp_path / "pictures" / f"{number}.txt").write_text(f"colour {number % 6}")
    (tmp_path / "recipe.yaml").write_text(
        "model:\n  path: model\n"
        "data:\n  path: pictures\n  resolution: 64\n  batch_size: 2\n  workers: 0\n"
        "  buckets: {step: 16}\n  cache: {path: CACHE}\n"
        "run: {steps: 20, device: cpu}\n".replace("CACHE", str(tmp_path / "cache"))
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def quick(world: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, where activations are not measured: test_check_memory.py does."""
    monkeypatch.setattr(Outline, "activations", lambda self, size, samples: Activations(samples, 1000 * samples, 0))
    return world


def checked(*words: str, **named: Any) -> check.Checked:
    return check.check(read("recipe.yaml", words), **named)


def codes(errors: Sequence[MezzotintError]) -> list[str]:
    return [error.code for error in errors]


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_recipe_that_can_run_is_told_on_a_page_that_fits_the_terminal(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.run(["recipe.yaml", "optim.lr=2e-4"]) == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= _check_page.WIDTH + len(str(world))
    for words in ("optim.lr", "0.0002", "command line", "line 2", "64×64", "3 batches", "a batch of 1", "trained",
                  "frozen", "5 steps", "4.0 epochs", "a checkpoint", "not measured"):  # fmt: skip
        assert words in " ".join(page.split()) or words == "3 batches", words


def test_nothing_is_written_but_the_index_of_the_data(quick: Path) -> None:
    before = everything_below(quick)
    assert not checked("data.cache.latents=true", "data.cache.text=true").problems
    new = everything_below(quick) - before
    assert new
    assert all(name == "cache" or name.startswith("cache/catalogues") for name in new)


def test_every_setting_that_is_not_a_default_has_its_origin(quick: Path) -> None:
    reading = read("recipe.yaml", ["optim.ema={rule: ramp}", "run.steps=7"])
    origin = _check_page.origin_of_settings(reading)
    assert origin["model.path"] == "line 2"
    assert origin["run.steps"] == origin["optim.ema.rule"] == "command line"
    assert origin["data.buckets.step"] == "line 8"
    assert "optim.ema.decay" not in origin
    assert "optim.lr" not in origin
    assert _check_page.values_of(reading.recipe)["optim.lr"] == 1e-5


@pytest.mark.parametrize(
    ("policy", "batches", "rests"),
    [
        ("short", (3, 2), [(1, 0, 0), (1, 0, 0)]),
        ("fill", (3, 2), [(0, 1, 0), (0, 1, 0)]),
        ("drop", (2, 1), [(0, 0, 1), (0, 0, 1)]),
    ],
)
def test_the_bucket_table_tells_what_becomes_of_the_rest(
    quick: Path, policy: str, batches: tuple[int, int], rests: list[tuple[int, int, int]]
) -> None:
    found = checked(f"data.remainder={policy}")
    rows = {str(row.bucket): row for row in found.buckets}
    assert [(row.pictures, row.visits) for row in rows.values()] == [(5, 5), (3, 3)]
    assert tuple(row.batches for row in rows.values()) == batches
    assert [(row.short, row.repeated, row.left_out) for row in rows.values()] == rests
    assert found.length is not None
    assert found.length.steps_an_epoch == sum(batches)


def test_repeats_count_as_visits(quick: Path) -> None:
    row = checked("data.repeats=3").buckets[0]
    assert (row.pictures, row.visits, row.batches, row.rest) == (5, 15, 8, 1)


def test_the_json_document_holds_the_whole_check(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run(["recipe.yaml", "--json", "data.cache.latents=true"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["problems"] == []
    assert told["recipe"]["settings"]["run.steps"] == 20
    assert {row["bucket"]: row["batches"] for row in told["buckets"]} == {"64×64": 3, "80×48": 2}
    assert {part["name"]: part["loaded"] for part in told["parts"]} == {
        "denoiser": True, "text_encoder": True, "vae": False}  # fmt: skip
    assert told["memory"]["peak"] > told["memory"]["weights"] > 0
    assert told["length"] == {"batches_an_epoch": 5, "steps_an_epoch": 5, "steps": 20, "epochs": 4.0}
    assert told["disk"]["checkpoint"] == told["memory"]["checkpoint"]
    component = next(one for one in told["files"] if one["name"] == "unet")
    assert component["part"] == "denoiser"
    assert component["parameters"] == told["parts"][0]["parameters"]
    assert component["types"] == ["F32"]


def test_all_problems_are_told_together(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (quick / "model" / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    words = ["recipe.yaml", "data.path=nowhere", "optim.lr=0", "--processes=3", "run.resume=latest"]
    with pytest.raises(RecipeError) as caught:
        check.run(words)
    assert [problem.code for problem in caught.value.problems] == ["E1803", "E1602", "E1407", "E1201", "E1507"]
    assert caught.value.exit_status == 2
    assert "denoiser" in capsys.readouterr().out  # what could be found out is shown all the same


def test_a_single_problem_is_raised_as_what_it_is(quick: Path) -> None:
    (quick / "pictures" / "0.txt").unlink()
    with pytest.raises(DatasetError, match=r"0\.png"):
        check.run(["recipe.yaml"])


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-100]), "E1402"),
        (lambda file: file.rename(file.with_suffix(".bin")), "E1408"),
        (lambda file: file.unlink(), "E1407"),
        (lambda file: shutil.copy(file.parent.parent / "vae" / file.name, file), "E1405"),
    ],
    ids=["truncated", "pickled", "missing", "another model's"],
)
def test_weights_that_cannot_be_loaded_are_found_without_loading(quick: Path, damage: Any, code: str) -> None:
    damage(quick / "model" / "unet" / "diffusion_pytorch_model.safetensors")
    found = checked()
    assert codes(found.problems) == [code]
    assert "unet" in found.problems[0].message
    assert isinstance(found.problems[0], WeightsError)


def test_a_model_that_is_not_there_is_told_once(quick: Path) -> None:
    found = checked("model.path=elsewhere")
    assert codes(found.problems) == ["E1401"]
    assert found.buckets  # the data are looked at all the same


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
def test_what_cannot_be_trained_is_a_problem(world: Path, words: list[str], code: str) -> None:
    assert codes(checked(*words).problems) == [code]


def test_a_solver_that_cannot_draw_so_is_a_problem_only_where_previews_are_drawn(world: Path) -> None:
    asked = ("sample.solver=unipc", "sample.sigmas=karras")
    found = checked(*asked, "run.preview.every=2 steps")
    assert codes(found.problems) == ["E1070"]
    assert "sample.sigmas=karras takes one of ddim, euler" in found.problems[0].message
    assert codes(checked(*asked, "run.preview.every=null").problems) == []


def test_a_prompt_file_that_cannot_be_used_is_a_problem_only_where_previews_are_drawn(quick: Path) -> None:
    file = quick / "prompts.txt"
    file.write_text("a fox\na hen --x 1\n")
    found = checked("run.preview.every=5", f"sample.file={file}")
    assert codes(found.problems) == ["E1073"]
    assert f"{file} line 2: --x is no option" in found.problems[0].message
    assert codes(checked(f"sample.file={file}").problems) == []


def test_folders_that_are_measured_alone_are_counted(quick: Path) -> None:
    found = checked("data.holdout.path=pictures", "data.holdout.max_samples=3", "data.cache.text=true")
    assert codes(found.problems) == []
    assert "3 of val/val" in "\n".join(_check_page.page(found, every_setting=False))
    assert any(note.startswith("3 of the 3 pictures of data.holdout.path val are trained") for note in found.notes)
    [text] = found.caches
    assert text.entries == 7, "six captions and the empty one, each once"


def test_a_disk_on_which_two_checkpoints_do_not_fit_is_a_problem(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "free_bytes", lambda folder: 4_000_000)
    found = checked()
    assert codes(found.problems) == ["E1710"]
    disk = found.disk
    assert disk is not None
    assert disk.least == 2 * disk.checkpoint > 4_000_000
    refuse_full_disk(replace(disk, free=disk.least))
    refuse_full_disk(replace(disk, free=disk.checkpoint, there=1))  # one of the two lies there already
    with pytest.raises(StorageError, match="two checkpoints"):
        refuse_full_disk(replace(disk, free=disk.least - 1))
    with pytest.raises(StorageError, match="cache on the same disk") as caught:
        refuse_full_disk(replace(disk, free=disk.least, cache=1, one_disk=True))
    assert caught.value.code == "E1710"
    with pytest.raises(StorageError, match=r"data\.cache\.path") as caught:
        refuse_full_disk(replace(disk, free=10**12, cache=11_000_000))
    assert caught.value.code == "E1711"


def test_checkpoints_that_fit_only_for_a_while_are_a_note(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "free_bytes", lambda folder: 16_000_000)
    found = checked("run.save.keep=9")
    assert not found.problems
    assert any("run.save.keep" in note for note in found.notes)


def test_entries_that_lie_in_the_cache_are_not_needed_again(quick: Path) -> None:
    words = ["data.cache.latents=true", "data.cache.text=true", "data.cache.dtype=fp16"]
    before = {need.kind: need for need in checked(*words).caches}
    assert (before["latents"].entries, before["latents"].present) == (8, 0)
    assert (before["text"].entries, before["text"].present) == (7, 0)  # six captions and the empty one
    assert before["latents"].bytes == 5 * 8 * 8 * 8 * 2 + 3 * 8 * 6 * 10 * 2
    assert before["text"].missing_bytes == before["text"].bytes
    assert cache.run(["recipe.yaml", *words]) == 0
    after = {need.kind: need for need in checked(*words).caches}
    assert [(need.present, need.missing_bytes) for need in after.values()] == [(8, 0), (7, 0)]
    stored = sum(p.stat().st_size for kind in ("latents", "text") for p in (quick / "cache" / kind).rglob("*"))
    assert sum(need.bytes for need in after.values()) <= stored


def test_an_export_is_as_large_as_was_said(quick: Path) -> None:
    found = checked("run.export.dtype=fp16")
    recipe = found.recipe
    model = opened(recipe)
    model.family.export(
        quick / "out", model.files, weights=dict(model.update.masters), dtype="fp16",
        schedule=model.family.schedule, trained_form=model.objective.parameterization,
    )  # fmt: skip
    written = sum(path.stat().st_size for path in (quick / "out").rglob("*") if path.is_file())
    assert found.disk is not None
    assert found.disk.export == pytest.approx(written, rel=0.1)


def test_the_dry_pass_runs_two_steps_and_leaves_nothing(world: Path) -> None:
    before = everything_below(world)
    found = checked("data.cache.latents=true", "data.cache.text=true", dry=True)
    assert not found.problems
    assert found.dry is not None
    assert len(found.dry.seconds) == 2
    assert found.dry.samples in (1, 2)
    assert found.dry.seconds_a_step > 0
    assert found.dry.samples_a_second == pytest.approx(found.dry.samples / found.dry.seconds[-1])
    assert any("a step on cpu" in line for line in _check_page.page(found))
    new = everything_below(world) - before
    assert all(name == "cache" or name.startswith("cache/catalogues") for name in new)


def test_a_run_that_has_begun_is_held_against_its_recipe(quick: Path) -> None:
    folder = RunFolder(quick / "runs" / "run").open()
    old = assemble.effective(read("recipe.yaml").recipe)
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
    assert "line " in str(checked().problems[0])  # breaks if a setting of the file were said to be given elsewhere
    never = checked("run.resume=never")
    assert codes(never.problems) == ["E1505"]
    (folder.checkpoints / "step-00000005" / "state.json").write_text("{")
    broken = checked()
    assert codes(broken.problems) == ["E1501"]
    assert isinstance(broken.problems[0], CheckpointError)


def test_the_catalogue_of_a_check_is_the_one_that_training_uses(quick: Path) -> None:
    first, second = checked(), checked()
    assert first.dataset is not None
    assert second.dataset is not None
    assert second.dataset.catalogue.fingerprint == first.dataset.catalogue.fingerprint
    assert np.array_equal(first.dataset.rows, second.dataset.rows)


@pytest.mark.parametrize(("words", "part"), [(["--processes=0"], "processes"), (["--jsn"], "--json")])
def test_switches_are_checked(quick: Path, words: list[str], part: str) -> None:
    with pytest.raises(RecipeError, match=part) as caught:
        check.run(["recipe.yaml", *words])
    assert caught.value.code == "E1012"


@pytest.mark.parametrize(
    ("every", "times"),
    [
        ([], 0),
        ([Every(100, "steps")], 9),
        ([Every(300, "steps")], 3),
        ([Every(2, "epochs")], 4),
        ([Every(5, "minutes")], None),
        ([Every(2, "epochs"), Every(100, "steps")], 9),  # what both want is done once
        ([Every(2, "epochs"), Every(150, "steps")], 9),
    ],
)
def test_what_is_due_is_counted_without_the_end(every: list[Every], times: int | None) -> None:
    assert times_due(every, Length(100, 100, 1000, 10.0)) == times


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (3_438_083_856, "3.44 GB"), (12_000_000, "12 MB"), (2e15, "2,000 TB")],
)
def test_bytes_are_told_in_words(count: float, words: str) -> None:
    assert _check_page.size(count) == words


# --- figures that were measured ---------------------------------------------------------------------------------------


def opened(recipe: Recipe) -> assemble.Model:
    runtime = check.Runtime(torch.device("cpu"), check.Launch(), recipe.run)
    return assemble.open_model(recipe, assemble.open_files(recipe), runtime, assemble.resolve(recipe, 1))


def take_a_step(model: assemble.Model) -> None:
    for parameter in model.trained.values():
        parameter.grad = torch.ones_like(parameter)
    update = model.update
    rates = {group.name: 1e-5 for group in update.groups}
    one, none = torch.ones(()), torch.zeros(())
    update.apply(loss_scale=one, norms=one[None], found_inf=none, lr=rates, update_ema=False)


@pytest.mark.parametrize(
    "words",
    [
        ["optim.optimizer.kind=adafactor", "run.precision=bf16", "run.weight_dtype=alone"],
        ["optim.optimizer.kind=adafactor", "optim.ema.rule=ramp"],
        ["optim.optimizer.kind=adacoor", "run.precision=bf16", "run.weight_dtype=same"],
    ],
    ids=["adafactor, bf16 alone", "adafactor", "adacoor"],
)
def test_check_train_and_the_disk_have_one_size_of_a_checkpoint(words: list[str], quick: Path) -> None:
    found = checked(*words)
    assert found.disk is not None
    assert found.memory is not None
    model = opened(found.recipe)
    line = announce._saving_line(
        found.recipe, check.Runtime(torch.device("cpu"), check.Launch(), found.recipe.run), model
    )
    take_a_step(model)
    tensors = model.update.tensors()
    assert found.disk.checkpoint == sum(t.numel() * t.element_size() for t in tensors.values())
    assert f"{found.disk.checkpoint / 1e6:,.1f} MB each" in line
    assert found.memory.optimizer == sum(
        t.numel() * t.element_size() for n, t in tensors.items() if n.startswith("opt.") and "/" in n
    )
    written = state.write(quick / "kept", step=1, tensors=tensors, values={}, recipe_digest="")
    on_disk = sum(path.stat().st_size for path in written.glob("*.safetensors"))
    assert 0 <= on_disk - found.disk.checkpoint < 200 * len(tensors), "headers alone are on top"


@pytest.mark.parametrize(
    "export",
    [
        "{dtype: fp32}", "{single_file: true}", "{dtype: bf16, single_file: true}",
        "{single_file: true, single_file_dtype: fp16}", "{parts: trained, single_file_dtype: fp16}",
    ],
)  # fmt: skip
def test_an_export_is_as_large_as_check_says(export: str, quick: Path) -> None:
    found = checked(f"run.export={export}")
    assert found.disk is not None
    model = opened(found.recipe)
    place = quick / "exports"
    exports.write(model, found.recipe, found.recipe.run.export, place, model.update.masters, name="x", name_alone="y")
    on_disk = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    assert abs(on_disk - found.disk.export) < 200_000, "headers are on top; another type would be a megabyte"


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [("adamw", "two moments"), ("adafactor", "second moments by row and column"), ("adacoor", "sums of squares")],
)
def test_the_state_is_told_in_the_optimizers_own_words(optimizer: str, words: str, quick: Path) -> None:
    page = " ".join(" ".join(_check_page.page(checked(f"optim.optimizer.kind={optimizer}"))).split())
    assert words in page
    assert "An export takes a tensor at a time" in page
