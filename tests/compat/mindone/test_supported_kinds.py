"""SDXL in MindSpore's checkpoints and MindONE's tables, each with the commands."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mezzotint.cli import main
from mezzotint.tasks.check.meta_model import Activations, MetaModel
from support.run_folders import logged


@pytest.fixture(autouse=True)
def _no_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Activations are not measured by `check` here: tests/tasks/check/test_memory.py does."""
    monkeypatch.setattr(
        MetaModel, "activations", lambda self, size, samples: Activations(samples, 1000 * samples, 0, 0)
    )


PLAIN: dict[str, Any] = {"data__crop": "center", "data__flip": 0, "data__captions__dropout": 0, "run__steps": 1}


def table_of_mindone(world: Any, folder: Path) -> dict[str, Any]:
    for path in world.images.glob("*.png"):
        shutil.copy(path, folder)
    rows = [
        f"{path.name},{path.with_suffix('.txt').read_text().strip()}" for path in sorted(world.images.glob("*.png"))
    ]
    (folder / "img_txt.csv").write_text("\n".join(["dir,text", *rows]))
    return {"data__format": "mindone"}


@pytest.mark.slow
def test_mindone_tables_are_checked_cached_and_trained(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = world.root / "data"
    folder.mkdir()
    settings = PLAIN | table_of_mindone(world, folder) | {"data__path": folder}
    settings |= {"data__cache__latents": True, "data__cache__text": True}
    for verb, output in (("check", "10 images"), ("cache", "21 added"), ("train", "21 present, nothing to add")):
        assert world.train("run", verb=verb, **settings) == 0
        assert output in capsys.readouterr().out
    assert logged(world.root / "run")[0] > 0


@pytest.mark.slow
def test_mindspore_sdxl_is_checked_trained_and_sampled_from(world: Any, sdxl_folder: Path) -> None:
    """Training gives the loss that the folder of the same weights gives."""
    checkpoint = world.root / "mindspore.ckpt"
    assert main(["convert", str(sdxl_folder), str(checkpoint)]) == 0
    plain = PLAIN | {"model__family": "sdxl", "model__weights": "files"}
    config = f"model.config={sdxl_folder}"
    assert world.train("folder", **plain, model__path=sdxl_folder) == 0
    for command in ("check", "train"):
        assert main([command, *world.words("mindspore", **plain, model__path=checkpoint), config]) == 0
    assert logged(world.root / "mindspore") == logged(world.root / "folder")
    out = world.root / "images"
    sampling = ["--prompt=a field", "--size=32x32", "--steps=1", "run.device=cpu", f"--out={out}", config]
    assert main(["sample", str(checkpoint), *sampling]) == 0
    assert (out / "contact.png").is_file()
