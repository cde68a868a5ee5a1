"""Fixtures shared by tests of commands: existing runs, and checks without measured activations."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from PIL import Image

from mezzotint.cli import main
from support import adapter_records, check_command

whole_sdxl = adapter_records.whole_sdxl
check_of = check_command.check_of


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the files that command lines name."""
    (tmp_path / "a.toml").write_text('# of kohya\n\n[model]\npath = "x"\n')
    (tmp_path / "windows.yaml").write_text('data:\n  path: "C:\\Users\\me"\n')
    (tmp_path / "runs" / "first" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "recipe.yaml").write_text("schema: 1\n")
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    for number in range(2):
        Image.new("RGB", (16, 16), (200 * number, 90, 90)).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"image {number}")
    return folder


def line_in(root: Path, images: Path) -> list[str]:
    return [
        "tiny_cpu", f"data.path={images}", f"data.cache.path={root / 'cache'}", f"run.folder={root / 'run'}",
        "data.resolution=16", "data.buckets.step=8", "data.batch_size=2", "data.workers=0", "run.device=cpu",
        "run.steps=1", "run.tensorboard=false", "run.preview.every=null",
    ]  # fmt: skip


@pytest.fixture
def line(images: Path, tmp_path: Path) -> list[str]:
    """A command line that is checked within a second."""
    return line_in(tmp_path, images)


@pytest.fixture(scope="session")
def finished_run(images: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], str]:
    """A finished run in the folder `run`: its path, its command line, and its output."""
    root = tmp_path_factory.mktemp("finished_run")
    words = line_in(root, images)
    said = io.StringIO()
    with contextlib.chdir(root), contextlib.redirect_stdout(said):
        assert main(["train", *words, "objective.loss=l1"]) == 0
    return root, words, said.getvalue()
