"""From a recipe and a folder of images to an exported model, with everything cached; and the messages of a second
start."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from diffusers import StableDiffusionPipeline
from PIL import Image

import mezzotint
from mezzotint import outside
from mezzotint.cli import main
from mezzotint.families.sd import Family
from mezzotint.settings.reading.read import read
from mezzotint.tasks.resolving import resolve
from mezzotint.training.ema import Ema

PACKAGE = Path(mezzotint.__file__).parent
RECORD = Path(__file__).parent / "data" / "tiny_cpu.json"
CACHED = {
    "data__cache__latents": True,
    "data__cache__text": True,
    "data__cache__crops": 2,
    "data__holdout__fraction": 0.2,
    "run__validation__every": 4,
    "run__preview__every": 4,
    "run__tensorboard": True,
    "sample__steps": 2,
    "sample__prompts": ["image number 1"],
}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The models whose files were opened, once for each time."""
    paths: list[Path] = []
    of = Family.files.of.__func__  # type: ignore[attr-defined]

    def counting(cls: Any, settings: Any, seed: int = 0) -> Any:
        paths.append(settings.path)
        return of(cls, settings, seed)

    monkeypatch.setattr(Family.files, "of", classmethod(counting))
    return paths


@pytest.mark.usefixtures("curves")
def test_cached_run_trains_validates_previews_and_exports(
    world: Any, loaded: list[set[str]], opened: list[Path], capsys: Any
) -> None:
    assert world.train("run", **CACHED) == 0
    assert opened == [world.model], "the model's files are opened once a run"
    output = capsys.readouterr().out
    folder = world.root / "run"
    assert [parts for parts in loaded if "denoiser" in parts] == [{"denoiser"}], "training loads only the denoiser"
    assert "text_encoder not loaded (cached); vae not loaded (cached)" in output
    assert f"tensorboard --logdir {folder / 'logs'}" in output
    assert str(folder / "samples" / "grid.png") in output
    assert {p.name for p in (folder / "exports").iterdir()} == {"step-00000008", "step-00000008-ema"}
    assert (folder / "logs" / "loss.png").stat().st_size > 10_000
    assert any((folder / "logs").glob("events.out.tfevents.*"))
    lines = outside.read_lines(folder / "metrics.jsonl")
    assert [line["step"] for line in lines if "val/loss" in line] == [0, 4, 8]
    assert all("val/loss_shadow" in line for line in lines if "val/loss" in line)
    with Image.open(folder / "samples" / "grid.png") as grid:
        assert grid.width > 3 * 48

    pipeline = StableDiffusionPipeline.from_pretrained(folder / "exports" / "step-00000008", local_files_only=True)
    assert sum(p.numel() for p in pipeline.unet.parameters()) > 100_000

    before, loaded[:] = world.end("run"), []
    assert world.train("run", **CACHED) == 0
    assert "nothing is left to train" in capsys.readouterr().out
    assert world.end("run") == before
    assert [parts for parts in loaded if parts != {"denoiser"}] == [], "a second start encodes nothing"


def test_changed_data_is_refused_unless_allowed(world: Any, capsys: Any) -> None:
    settings = CACHED | {"run__preview__every": None, "data__holdout__fraction": 0.0}
    assert world.train("run", **settings | {"run__steps": 3}) == 0
    (world.images / "03.txt").write_text("another caption\n")
    Image.new("RGB", (48, 48), (9, 9, 9)).save(world.images / "06.png")
    capsys.readouterr()
    assert world.train("run", **settings) == 2
    assert "E1513" in capsys.readouterr().err
    assert world.train("run", **settings, run__allow_change=["data"]) == 0
    output = capsys.readouterr().out
    assert "1 image changed" in output
    assert "1 caption changed" in output
    assert "not bit-exact from here: the data set's content has changed" in output
    events = outside.read_lines(world.root / "run" / "history.jsonl")
    assert [e["changes"] for e in events if e["event"] == "resumed"] == [["the data set's content has changed"]]


def test_resuming_an_older_checkpoint_sets_later_ones_aside(world: Any) -> None:
    assert world.train("run", run__steps=6, run__save__keep=9) == 0
    whole = world.end("run")
    older = world.root / "run" / "checkpoints" / "step-00000003"
    assert world.train("run", run__steps=6, run__resume=str(older)) == 0
    assert world.end("run") == whole
    names = sorted(p.name for p in (world.root / "run" / "checkpoints").iterdir())
    assert "set-aside-1-step-00000006" in names


@pytest.mark.parametrize(
    ("resume", "words"),
    [
        ("latest", "there is no checkpoint"),
        ("checkpoints/step-00000009", "is neither a checkpoint"),
        ("nowhere", "is neither a checkpoint"),
    ],
)
def test_missing_checkpoint_is_an_error(world: Any, capsys: Any, resume: str, words: str) -> None:
    assert world.train("run", run__resume=resume) == 2
    assert words in capsys.readouterr().err
    assert not (world.root / "run").exists(), "a start that was refused leaves no trace"


def test_refused_start_changes_no_file(world: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.root)
    before = {path.name for path in world.root.iterdir()} | {"run.yaml", "cache"}  # the index of the data set
    settings: dict[str, Any] = {"run__folder": None, "run__steps": 2}
    assert world.train("run", **settings, data__path="nowhere") == 2
    drawn = {"sample__prompts": ["a"], "run__preview__every": 2, "sample__solver": "unipc", "sample__sigmas": "karras"}
    assert world.train("run", **settings, **drawn) == 2
    assert "E1070" in capsys.readouterr().err, "refused at the start, not at the first preview"
    assert world.train("run", verb="prove", **settings, data__path="nowhere") == 2
    assert {path.name for path in world.root.iterdir()} <= before


@pytest.mark.slow
def test_run_resumes_from_another_working_directory(world: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.root / "elsewhere").mkdir()
    (world.root / "live.yaml").write_text("objective: {noise_offset: 0.5}")
    monkeypatch.chdir(world.root)
    settings: dict[str, Any] = {"data__cache__path": "cache", "run__live__path": "live.yaml", "run__profile__steps": 1}
    assert world.train("run", **settings, run__steps=2, run__profile__folder="traces") == 0
    monkeypatch.chdir(world.root / "elsewhere")
    capsys.readouterr()
    assert main(["train", str(world.root / "run"), "run.steps=6"]) == 0
    assert "epoch 2: " not in (output := capsys.readouterr().out), "the live file has not changed"
    assert "is ignored" not in output
    assert (world.root / "traces" / "rank0.json").is_file()
    assert not list((world.root / "elsewhere").iterdir())


def test_resume_never_names_the_checkpoint_and_the_command_to_resume(world: Any, capsys: Any) -> None:
    assert world.train("run", run__steps=2) == 0
    assert world.train("run", run__steps=2, run__resume="never") == 2
    error = capsys.readouterr().err
    assert "step-00000002" in error
    assert "mezzotint train" in error


def test_run_with_only_damaged_checkpoints_is_refused(world: Any, capsys: Any) -> None:
    assert world.train("run", run__steps=6) == 0
    for path in (world.root / "run" / "checkpoints").iterdir():
        (path / "state.json").write_text("{}")
    assert world.train("run", run__steps=9) == 2
    assert "state.json has" in capsys.readouterr().err


@pytest.mark.slow
def test_moved_run_folder_resumes_bit_exactly(world: Any) -> None:
    assert world.train("run", run__steps=3) == 0
    assert world.train("whole") == 0
    shutil.move(world.root / "run", world.root / "moved")
    assert main(["train", str(world.root / "moved" / "recipe.yaml"), "run.steps=8"]) == 0
    assert world.end("moved") == world.end("whole")


@pytest.mark.slow
def test_tiny_cpu_recipe_has_the_recorded_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """recipes/tiny_cpu.yaml: refactorings must not change these losses. To record them again, delete
    tests/journeys/data/tiny_cpu.json and run this test twice.

    The last digits may differ between processors, so losses are compared to 1e-4, random draws exactly.
    """
    monkeypatch.chdir(tmp_path)
    words = [f"data.cache.path={tmp_path / 'cache'}", "run.log_samples=true", "run.tensorboard=false"]
    assert main(["train", "tiny_cpu", *words]) == 0
    lines = outside.read_lines(tmp_path / "runs" / "tiny_cpu" / "metrics.jsonl")
    drawn = outside.read_lines(tmp_path / "runs" / "tiny_cpu" / "logs" / "samples.rank0.jsonl")
    record = {
        "loss": [line["loss"] for line in lines],
        "norm": [line["norm"] for line in lines],
        "keys": [line["keys"] for line in drawn],
        "timesteps": [line["timesteps"] for line in drawn],
    }
    if not RECORD.exists():
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(record))
        pytest.fail("there was no record; it is written now")
    expected = json.loads(RECORD.read_text())
    assert record["keys"] == expected["keys"]
    assert record["timesteps"] == expected["timesteps"]
    pins = (Path(__file__).parents[2] / "constraints.txt").read_text("utf-8").split()
    if any(f"{name}=={version(name)}" not in pins for name in ("diffusers", "transformers")):
        return  # other versions of the libraries draw other random weights
    assert record["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert record["norm"] == pytest.approx(expected["norm"], rel=1e-3)


def entered(run: Callable[[], object]) -> list[str]:
    """Files of data/ that a run enters from the catalogue on, and of the floors that compute within its first step up
    to the loss, each once, in order."""
    package, files, state = f"{PACKAGE}/", dict[str, None](), {"before": True, "in_step": False}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(package) or "done" in state:
            return
        file, name = code.co_filename.removeprefix(package), code.co_qualname
        if event == "return":
            if name == "Objective.loss":
                state["done"] = True
            return
        state["before"] &= (file, name) != ("data/catalogue/catalogue.py", "build")
        state["in_step"] |= name == "TrainStep.forward_backward"
        floors = ("data", "training", "families", "diffusion") if state["in_step"] else ("data",)
        if not state["before"] and name != "<module>" and file.partition("/")[0] in floors:
            files.setdefault(file)

    before = sys.getprofile()
    threading.setprofile(note)  # images are examined in threads
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]
    return list(files)


def test_image_passes_through_the_files_named_in_the_docs(world: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "journey.md").read_text()
    section = page.partition("**One image, from its folder to its loss**")[2].partition("**`optim.ema.decay`**")[0]
    paragraphs = section.split("\n\n")
    walk, beside = (re.findall(r"`((?:data|training|families|diffusion)/[\w/]+\.py)`", one) for one in paragraphs[:2])
    files = entered(lambda: world.train("run", run__steps=1, data__batch_size=1))
    assert [file for file in files if file in walk] == walk
    assert set(beside) <= set(files) - set(walk)
    assert len(walk) <= 20
    assert f"{len(walk)} files" in section


def holding(value: float, run: Callable[[], object]) -> set[str]:
    """Files of the package with a function that has a value when it ends, in a variable or within one."""
    package, files = f"{PACKAGE}/", set[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "return" and file.startswith(package):
            held = (each for each in frame.f_locals.values() if isinstance(each, (float, str, list, dict)))
            if any(str(value) in repr(each) for each in held):
                files.add(file.removeprefix(package))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return files


def test_setting_passes_through_the_files_named_in_the_docs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "journey.md").read_text()
    walk = re.findall(r"`([\w/]+\.py)`", page.partition("**`optim.ema.decay`**")[2].partition(". In between,")[0])
    assert len(walk) <= 8
    assert all((PACKAGE / file).is_file() for file in walk)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("schema: 1\noptim: {ema: {rule: constant, decay: 0.5}}\n")
    files = holding(0.98765, lambda: read(recipe, ["optim.ema.decay=0.98765"]))
    assert files == {file for file in walk if file.startswith("settings/") and "/sections/" not in file}
    recipe_of_run = read(recipe, ["optim.ema.decay=0.98765"]).recipe
    assert "tasks/resolving.py" in holding(0.98765, lambda: resolve(recipe_of_run, 5))
    weights = {"denoiser/x": torch.ones(1)}
    assert holding(0.98765, lambda: Ema(weights, recipe_of_run.optim, decay=0.98765)) == {"training/ema.py"}
