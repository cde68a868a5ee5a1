"""LatteT2V and lists of clips, each with the commands."""

from __future__ import annotations

import json
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


@pytest.fixture
def films(world: Any, write_clip: Callable[..., Path]) -> Path:
    """Two clips with caption files, and a list of them in Open-Sora-Plan's format."""
    folder = Path(world.root / "films")
    for number in range(2):
        write_clip(folder / f"{number}.mp4", 8, size=(48, 32))
        (folder / f"{number}.txt").write_text(f"ball number {number}")
    entries = [{"path": f"{number}.mp4", "cap": f"ball number {number}"} for number in range(2)]
    (world.root / "clips.json").write_text(json.dumps(entries))
    (world.root / "clips.txt").write_text("films,clips.json\n")
    return folder


LATTE: dict[str, Any] = PLAIN | {
    "model__family": "latte",
    "model__path": "tiny-latte",
    "data__resolution": 32,
    "data__buckets__step": 16,
    "data__buckets__shape": "square",
    "data__clips__frames": 5,
    "data__clips__start": "first",
    "data__batch_size": 2,
    "sample__size": [32, 32],
}


@pytest.mark.slow
def test_clip_lists_are_checked_cached_and_trained(world: Any, films: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = LATTE | {"data__format": "clip-list", "data__path": world.root / "clips.txt"}
    settings |= {"data__cache__latents": True, "data__cache__text": True}
    for verb, output in (("check", "2 clips"), ("cache", "4 added"), ("train", "4 present, nothing to add")):
        assert world.train("run", verb=verb, **settings) == 0
        assert output in capsys.readouterr().out
    assert logged(world.root / "run")[0] > 0


@pytest.mark.slow
def test_released_latte_folder_is_trained_and_sampled_from(
    world: Any, films: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = LATTE | {"data__format": "videofolder", "data__path": films, "optim__ema__rule": "none"}
    assert world.train("first", **settings) == 0
    released = world.root / "first" / "exports" / "step-00000001"
    assert (released / "config.json").is_file()
    settings |= {"model__path": released, "model__weights": "files"}
    for verb in ("check", "train"):
        assert world.train("second", verb=verb, **settings) == 0
    assert logged(world.root / "second")[0] > 0
    capsys.readouterr()
    drawing = ["--prompt=a ball", "--size=32x32", "--steps=1", "run.device=cpu", f"--out={world.root / 'drawn'}"]
    assert main(["sample", str(released), *drawing]) == 0
    assert (world.root / "drawn" / "contact.png").is_file()
    assert "is of family latte" in capsys.readouterr().out
    for target in ("folder", "one.safetensors"):
        assert main(["convert", str(released), str(world.root / target)]) == 2
        assert "models of other families need no conversion" in capsys.readouterr().err
