"""`mezzotint verify` and `diff`: the inputs of a run are read again, and the first difference is named."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mezzotint.cli import main
from mezzotint.run_folder import RunFolder
from mezzotint.tasks.proof import commit, manifest

SETTINGS = {"run__steps": 1, "optim__ema__rule": "none", "model__weights": "files", "data__captions__dropout": 0.0}


@pytest.fixture(scope="module")
def ran(shared_world: Any) -> Any:
    """A run with files as inputs."""
    world = shared_world
    first = {"run__steps": 1, "optim__ema__rule": "none"}
    assert world.wait(world.fork("base", **first)) == 0, world.out("base")
    model = world.root / "base" / "exports" / "step-00000001"
    assert world.wait(world.fork("run", model__path=model, **SETTINGS)) == 0, world.out("run")
    return world


def spoil_image(world: Any) -> Path:
    path = world.images / "03.png"
    Image.new("RGB", (48, 48), (1, 2, 3)).save(path)
    return path


def spoil_caption(world: Any) -> Path:
    path = world.images / "03.txt"
    path.write_text("another caption")
    return path


def take_image(world: Any) -> Path:
    path = world.images / "03.png"
    path.unlink()
    return path


def spoil_weights(world: Any) -> Path:
    path = world.root / "base" / "exports" / "step-00000001" / "vae" / "diffusion_pytorch_model.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    return path


def spoil_checkpoint(world: Any) -> Path:
    (path,) = (world.root / "run" / "checkpoints").glob("step-*/weights.safetensors")
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    return path


def spoil_recipe(world: Any) -> Path:
    path = world.root / "run" / "recipe.yaml"
    path.write_text(path.read_text().replace("steps: 1", "steps: 2"))
    return path


SPOILS: dict[Callable[[Any], Path], str] = {
    spoil_image: "data: 03.png has changed",
    spoil_caption: "captions, repeats or weight of",
    take_image: "data: 03.png is gone",
    spoil_weights: "vae is not the one",
    spoil_checkpoint: "weights.safetensors is damaged",
    spoil_recipe: "has changed since the run wrote it",
}


def test_verify_confirms_equal_runs_and_names_first_difference(
    ran: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = ran.root / "run"
    assert main(["verify", str(run)]) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()] == ["recipe", "checkpoints", "weights", "data", "machine"]
    for spoil, words in SPOILS.items():
        kept = shutil.copytree(ran.images, tmp_path / "images"), shutil.copytree(run, tmp_path / "run")
        model = shutil.copytree(ran.root / "base" / "exports", tmp_path / "model")
        spoil(ran)
        assert main(["verify", str(run)]) == 2, spoil
        said = capsys.readouterr().err
        assert "error[E1516]" in said, said
        assert words in said
        for place, copy in ((ran.images, kept[0]), (run, kept[1]), (ran.root / "base" / "exports", model)):
            shutil.rmtree(place)
            shutil.move(copy, place)
    assert main(["verify", str(run)]) == 0
    assert not [path for path in run.iterdir() if path.name.startswith(".")]


def test_run_on_read_only_disk_is_verified(
    ran: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Permissions do not stop root, so the error of a read-only disk is simulated."""
    run, mkdir, opened = ran.root / "run", os.mkdir, os.open

    def refuse(path: Any) -> None:
        if Path(os.fsdecode(path)).is_relative_to(run):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def make(path: Any, *arguments: Any, **options: Any) -> None:
        refuse(path)
        mkdir(path, *arguments, **options)

    def open_(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            refuse(path)
        return opened(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "mkdir", make)
    monkeypatch.setattr(os, "open", open_)
    before = sorted(run.rglob("*"))
    assert main(["verify", str(run)]) == 0, capsys.readouterr().err
    assert sorted(run.rglob("*")) == before


def test_manifest_lists_inputs_of_the_run(ran: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    known = manifest.read(ran.root / "run")
    assert set(known) == {"schema", "recipe", "data", "weights", "environment", "determinism"}
    assert set(known["weights"]) >= {"denoiser", "text_encoder", "vae", "tokenizer", "schedule"}
    assert known["data"]["samples"] == 10
    assert 2 < len(known["data"]["shards"]) <= 10
    assert "torch" in known["environment"]["packages"]
    assert known["environment"]["commit"] == commit.current_commit()
    assert main(["verify", str(tmp_path)]) == 2
    assert "error[E1515]" in capsys.readouterr().err
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": 9}))
    assert main(["verify", str(tmp_path)]) == 2
    assert "format 9" in capsys.readouterr().err


def test_verify_reports_differences_of_two_runs(ran: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = ran.root / "run"
    assert main(["diff", str(run), str(run)]) == 0
    assert "bitwise identical in 1 logged steps" in capsys.readouterr().out
    another = shutil.copytree(run, tmp_path / "another")
    known = manifest.read(run)
    known["environment"]["commit"] = "ab12"
    (another / "manifest.json").write_text(json.dumps(known))
    assert main(["diff", str(run), str(another)]) == 0
    assert f"commit: {commit.current_commit()} → ab12" in capsys.readouterr().out
    model = ran.root / "base" / "exports" / "step-00000001"
    assert ran.wait(ran.fork("other", model__path=model, **SETTINGS | {"optim__lr": 5e-3, "run__seed": 3})) == 0
    assert main(["diff", str(run), str(ran.root / "other"), "--json"]) == 0
    differing = json.loads(capsys.readouterr().out)
    assert differing["settings"]["optim.lr"] == [1e-3, 5e-3]
    assert differing["data"] == {}
    assert differing["weights"] == {}
    assert differing["determinism"] == {"seed": [0, 3]}
    assert differing["loss"]["first_step"] == 1
    other = RunFolder(ran.root / "other").path / manifest.FILE
    values = json.loads(other.read_text())
    values["data"]["fingerprint"] = "x"
    values["environment"]["packages"]["torch"] = "1.0"
    other.write_text(json.dumps(values))
    assert main(["diff", str(run), str(ran.root / "other")]) == 0
    page = capsys.readouterr().out
    assert "packages.torch" in page
    assert "captions, repeats or weights differ; images are the same" in page
    assert "differs from step 1 on" in page
