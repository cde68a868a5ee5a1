"""Models and data other than Stable Diffusion and plain images, each with the commands of its row in
docs/reference/support.md: SDXL and its refiner, tar shards, clips."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
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


# images


def tar_shards(world: Any, folder: Path) -> dict[str, Any]:
    for number in range(2):
        with tarfile.open(folder / f"{number:02d}.tar", "w") as archive:
            for path in sorted(world.images.glob("*.png"))[number::2]:
                archive.add(path, arcname=path.name)
                archive.add(path.with_suffix(".txt"), arcname=f"{path.stem}.txt")
    return {"data__format": "webdataset"}


def folders_of_kohya(world: Any, folder: Path) -> dict[str, Any]:
    for number, path in enumerate(sorted(world.images.glob("*.png"))):
        place = folder / ("3_red field", "2", "1_more")[number % 3]
        place.mkdir(exist_ok=True)
        shutil.copy(path, place)
        shutil.copy(path.with_suffix(".txt"), place)
    return {"data__format": "kohya"}


@pytest.mark.slow
@pytest.mark.parametrize("form", [tar_shards, folders_of_kohya])
def test_shards_and_kohya_folders_are_checked_cached_and_trained(
    form: Callable[[Any, Path], dict[str, Any]], world: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = world.root / "data"
    folder.mkdir()
    settings = PLAIN | form(world, folder) | {"data__path": folder}
    settings |= {"data__cache__latents": True, "data__cache__text": True}
    for verb, output in (("check", "10 images"), ("cache", "21 added"), ("train", "21 present, nothing to add")):
        assert world.train("run", verb=verb, **settings) == 0
        assert output in capsys.readouterr().out
    assert logged(world.root / "run")[0] > 0
    assert (world.root / "run" / "exports" / "step-00000001" / "model_index.json").is_file()


# clips


@pytest.fixture
def films(world: Any, write_clip: Callable[..., Path]) -> Path:
    """Two clips with caption files."""
    folder = Path(world.root / "films")
    for number in range(2):
        write_clip(folder / f"{number}.mp4", 8, size=(48, 32))
        (folder / f"{number}.txt").write_text(f"ball number {number}")
    return folder


CLIPS: dict[str, Any] = PLAIN | {
    "model__family": "wan",
    "model__path": "tiny-wan",
    "data__resolution": 32,
    "data__buckets__step": 16,
    "data__buckets__shape": "square",
    "data__clips__frames": 5,
    "data__clips__start": "first",
    "data__batch_size": 2,
    "sample__size": [32, 32],
}


@pytest.mark.slow
def test_clips_are_checked_cached_and_trained(world: Any, films: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = CLIPS | {"data__format": "videofolder", "data__path": films}
    settings |= {"data__cache__latents": True, "data__cache__text": True}
    for verb, output in (("check", "2 clips"), ("cache", "4 added"), ("train", "4 present, nothing to add")):
        assert world.train("run", verb=verb, **settings) == 0
        assert output in capsys.readouterr().out
    assert logged(world.root / "run")[0] > 0


# models


@pytest.mark.slow
def test_sdxl_folder_and_single_file_are_checked_trained_and_sampled(world: Any, sdxl_folder: Path) -> None:
    forms = {"folder": sdxl_folder, "one": world.root / "one.safetensors"}
    losses = {}
    for name, path in forms.items():
        if path != sdxl_folder:
            assert main(["convert", str(sdxl_folder), str(path)]) == 0
        settings = PLAIN | {"model__family": "sdxl", "model__path": path, "model__weights": "files"}
        words = [] if path == sdxl_folder else [f"model.config={sdxl_folder}"]
        for verb in ("check", "train"):
            assert main([verb, *world.words(name, **settings), *words]) == 0
        losses[name] = logged(world.root / name)[0]
        sampling = [
            "--prompt=a field",
            "--size=32x32",
            "--steps=1",
            "run.device=cpu",
            f"--out={world.root / name}-drawn",
        ]
        assert main(["sample", str(path), *sampling, *words]) == 0
        assert (world.root / f"{name}-drawn" / "contact.png").is_file()
    assert len(set(losses.values())) == 1, losses


@pytest.mark.slow
def test_refiner_is_checked_trained_and_sampled(world: Any, refiner_folder: Path) -> None:
    settings = PLAIN | {"model__family": "sdxl", "model__path": refiner_folder, "optim__ema__rule": "none"}
    for verb in ("check", "train"):
        assert world.train("run", verb=verb, **settings) == 0
    sampling = ["--prompt=a field", "--size=32x32", "--steps=1", f"--out={world.root / 'drawn'}"]
    assert main(["sample", str(world.root / "run"), *sampling]) == 0
    assert (world.root / "drawn" / "contact.png").is_file()
