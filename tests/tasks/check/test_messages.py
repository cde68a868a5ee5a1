"""Messages of `check`: whether a step fits, wrong paths, missing packages, and the folder of a run with another
recipe."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mezzotint.cli import main
from mezzotint.errors import RecipeError
from mezzotint.settings import advice
from mezzotint.settings.reading.read import read, read_text
from mezzotint.tasks.check import check, fitting, page
from mezzotint.weights import kinds

pytestmark = pytest.mark.usefixtures("unmeasured")
Captured = pytest.CaptureFixture[str]


@pytest.mark.slow
def test_check_ends_with_memory_verdict_and_its_own_exit_status(
    line: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "free_device_memory", lambda device, cap: 1000)
    monkeypatch.setattr(fitting, "ways_to_fit", lambda search, room: [])
    assert main(["check", *line]) == 5
    said = " ".join(capsys.readouterr().out.split())
    assert said.partition("does not fit: ")[2].startswith("a step's peak is ")
    assert "more than the 1 kB that are free on cpu; set run.micro_batch=1 (the mathematics stays the same)" in said
    outcome = check.check(read(line[0], line[1:]))
    assert page.document(outcome)["fits"] is False
    assert outcome.memory is not None
    plan = fitting.Search(outcome.recipe, outcome.largest_batches(), "cpu", of_card=False).as_it_is()
    outcome.ways = [replace(plan, settings={"run.micro_batch": 1})]
    way, _, verdict = " ".join(page.page(outcome)).rpartition("does not fit: ")
    assert "would fit with run.micro_batch=1 (" in way
    assert "would" not in verdict, "the verdict comes last"
    outcome.free_memory = 10**12
    last = page.page(outcome)[-1]
    assert last.startswith("fits: a step's peak is ")
    assert last.endswith(" MB of the 1 TB that are free on cpu")
    outcome.problems.append(RecipeError("something"))
    assert "fits: " not in page.page(outcome)[-1], "problems take precedence"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            [],
            "set run.micro_batch=1 (the mathematics stays the same), set run.gradient_checkpointing.enabled=true, "
            "or set data.",
        ),
        (
            ["run.gradient_checkpointing.enabled=true"],
            "set run.micro_batch=1 (the mathematics stays the same), or set data.",
        ),
        (
            ["run.micro_batch=4"],
            "lower run.micro_batch below 4 (the mathematics stays the same), set run.gradient_checkpointing",
        ),
        (["run.micro_batch=1", "run.gradient_checkpointing.enabled=true"], "set data.resolution below 512"),
        (["data.batch_size=1"], "set run.gradient_checkpointing.enabled=true, or set data.resolution below 512"),
    ],
)
def test_memory_advice_omits_settings_already_in_use(settings: list[str], words: str) -> None:
    recipe = read_text("data: {batch_size: 8}", overrides=settings).recipe
    said = advice.suggest_less_memory(recipe)
    assert said.startswith(words)
    assert ("gradient_checkpointing" in said) != recipe.run.gradient_checkpointing.enabled


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        ("model.path=missing", "E1401", "missing does not exist"),
        ("data.path=missing", "E1201", "missing: does not exist"),
        ("model.path=x.gguf", "E1402", "it is a GGUF file"),
        ("model.path=plain", "E1406", "plain: is a folder without model_index.json"),
        ("run.wandb.mode=online", "E1063", "the package wandb is not installed"),
    ],
)
def test_wrong_path_is_the_only_and_first_problem(
    word: str, code: str, said: str, line: list[str], here: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    (here / "x.gguf").write_bytes(b"GGUF\x03" + b"\0" * 60)
    assert main(["check", *line, word]) == 2
    out, err = capsys.readouterr()
    assert err.count("error[") == 1
    assert err.startswith(f"error[{code}]: ")
    assert said in err
    assert (out == "") == ("path" in word)


def test_missing_package_is_reported_before_encoding(
    line: list[str], tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["train", *line, "run.wandb.mode=online", "data.cache.latents=true"]) == 2
    assert "E1063" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_check_reports_changed_recipe_or_images_like_train(
    finished_run: tuple[Path, list[str], str], images: Path, tmp_path: Path, capsys: Captured
) -> None:
    _, words, _ = finished_run
    beside = "\n  or start a new run: run.folder=FOLDER\n"
    errors = []
    for verb in ("check", "train"):
        assert main([verb, *words, "optim.lr=0.5"]) == 2
        errors.append(capsys.readouterr().err)
    assert errors[0] == errors[1], "check reports what train would report"
    assert errors[0].endswith(beside)
    assert "  given    optim.lr        E1510 is 0.5, but 0.001 in the checkpoint; restore it, or" in errors[0]
    assert "  default  objective.loss  E1510 is 'mse', but 'l1' in the checkpoint; restore it" in errors[0]

    others = tmp_path / "others"
    shutil.copytree(images, others)
    (others / "0.txt").write_text("another caption")
    errors = []
    for verb in ("check", "train"):
        assert main([verb, *words, f"data.path={others}", "objective.loss=l1"]) == 2
        errors.append(capsys.readouterr().err)
    assert errors[0] == errors[1]
    assert "  given  data.path  E1513 images, captions or repeats are not those that" in errors[0]
    assert errors[0].endswith(beside)


@pytest.mark.parametrize(
    ("recipe", "model", "words"),
    [
        ("sd15", "sdxl", ("is SDXL (", "): write model.family=sdxl; family sd trains")),
        ("sdxl", "sd1", ("is SD 1.x (one text encoder", "): write model.family=sd; family sdxl trains")),
        ("sdxl", "sd2", ("is SD 2.x (one text encoder", "): write model.family=sd; family sdxl trains")),
        ("sdxl", "mezzotint-mini", ("is SD 1.x (one text encoder", "): write model.family=sd; family sdxl trains")),
    ],
)
def test_model_of_another_family_is_named(
    recipe: str, model: str, words: tuple[str, ...], line: list[str], capsys: Captured
) -> None:
    assert main(["check", recipe, *line[1:], f"model.path={model}"]) == 2
    err = capsys.readouterr().err
    for part in words:
        assert part in err


def test_family_is_suggested_only_if_it_can_train_the_model() -> None:
    assert kinds.other_family({"unet": 1}, {"cross_attention_dim": 768}, "sdxl") == "sd"
    assert kinds.other_family({"unet": 1}, {"cross_attention_dim": 768, "in_channels": 5}, "sdxl") is None
    assert kinds.other_family({"transformer": 1}, {}, "sdxl") is None
    unknown = {"unet": 1, "_class_name": "SomePipeline"}
    assert str(kinds.describe_folder(unknown, {"cross_attention_dim": 128}, "sdxl")).startswith("not SDXL (")
    known = {"unet": 1, "_class_name": "StableDiffusionImg2ImgPipeline"}
    for linear, name in ((False, "SD 1.x"), (True, "SD 2.x")):
        config = {"cross_attention_dim": 128, "use_linear_projection": linear}
        assert str(kinds.describe_folder(known, config, "sdxl")).startswith(f"{name} (one text encoder")
    assert kinds.other_family({"unet": 1}, {"cross_attention_dim": 768}, "sd") is None
