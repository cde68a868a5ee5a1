"""Images and captions for the tests of `docs/reference/support.md`, trained and sampled through the commands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from mezzotint.cli import main
from mezzotint.tasks.check.meta_model import Activations, MetaModel
from support.forked import run_two

CAPTIONS = ("a red field", "a green field", "a blue field", "a grey field")
SHORT = ("data.resolution=64", "data.buckets.step=32", "data.batch_size=2", "data.workers=0", "run.steps=1",
         "run.device=cpu", "run.threads=1", "run.tensorboard=false")  # fmt: skip


def draw(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        Image.new("RGB", (64, 64), (40 * number, 250 - 40 * number, 90)).save(folder / f"{name}.png")
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with four images; a home of its own, where pickles are kept as safetensors. Activations are
    not measured by `check`: tests/tasks/check/test_memory.py does."""
    monkeypatch.setattr(
        MetaModel, "activations", lambda self, size, samples: Activations(samples, 1000 * samples, 0, 0)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for caption, image in zip(CAPTIONS, sorted(draw(tmp_path / "images", *"abcd").iterdir()), strict=True):
        image.with_suffix(".txt").write_text(caption)
    return tmp_path


def words(name: str, *more: str) -> list[str]:
    Path("recipe.yaml").write_text("schema: 1\n")
    own = (f"run.folder={name}", "data.cache.path=cache", "data.path=images")
    return ["recipe.yaml", *SHORT, *own, *more]


def table(folder: Path, ending: str) -> str:
    draw(folder, *CAPTIONS)
    names = [f"{caption}.png" for caption in CAPTIONS]
    path = folder / f"metadata{ending}"
    lines = [json.dumps({"file_name": n, "text": c}) for n, c in zip(names, CAPTIONS, strict=True)]
    match ending:
        case ".jsonl":
            path.write_text("\n".join(lines))
        case ".csv":
            path.write_text("\n".join(["file_name,text", *(f"{n},{n[:-4]}" for n in names)]))
        case _:
            pq.write_table(pa.table({"file_name": names, "text": list(CAPTIONS)}), path)
    return "data.format=metadata"


def require_checked_cached_and_trained(
    model: Path, data: Sequence[str], capsys: pytest.CaptureFixture[str], *, is_whole: bool
) -> None:
    """Four captioned images are trained, and, if is_whole, checked and cached before. data: settings that name them,
    in the folder `data` of the current folder."""
    line = words("run", f"model.path={model}", "data.cache.latents=true", "data.cache.text=true", *data)
    report = "9 added"  # four images, four captions, the empty one
    if is_whole:
        assert main(["check", *line]) == 0
        assert "4 images" in capsys.readouterr().out
        assert main(["cache", *line]) == 0
        assert report in capsys.readouterr().out
        report = "9 present, nothing to add"
    assert main(["train", *line]) == 0
    assert report in capsys.readouterr().out
    assert Path("run/exports/step-00000001/model_index.json").is_file()


def require_a_line_trains_in_two_processes(dialect: str, line: Sequence[str], own: Sequence[str], model: Path) -> str:
    """What a foreign line prints that torchrun's variables start twice, over the folders `model` and `data` of the
    current folder. own: settings of ours."""
    shutil.copytree(model, "model")
    table(Path("data"), ".jsonl")
    ours = ("run.device=cpu", "run.threads=1", "data.cache.path=cache", *own)
    said = run_two(["train", "--as", dialect, *ours, "--", *line], Path("out.txt"), ACCELERATE_MIXED_PRECISION="no")
    assert json.loads(Path("out/environment.json").read_text())["processes"] == 2
    return said
