"""Resuming: which checkpoint is used, and what stays from the first start."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from mezzotint import durable
from mezzotint.sampling.image_files import read_record
from mezzotint.settings.reading.read import read
from mezzotint.tasks.reading import choices
from mezzotint.tasks.train import prepare
from mezzotint.training.checkpoints import state
from mezzotint.weights.files import tensor_files


class Hashed:
    """Names of files that are hashed whole, and of files that are hashed while reading tensors."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.files: list[str] = []
        self.read: list[str] = []
        for module, name, names in ((durable, "sha256", self.files), (tensor_files, "read_hashed", self.read)):
            patch.setattr(module, name, partial(self._counted, getattr(module, name), names))

    @staticmethod
    def _counted(real: Callable[[Path], Any], names: list[str], path: Path) -> Any:
        names.append(path.name)
        return real(path)


def test_checkpoints_are_read_only_to_resume(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Hashed(monkeypatch)
    saving = {"run__steps": 4, "run__save__every": 1, "run__save__keep": 1}
    assert world.train("run", **saving) == 0
    of_checkpoints = {"weights.safetensors", "shadow.safetensors", "optimizer.safetensors", "state.json"}
    assert not of_checkpoints & {*counted.files}, "what was written here was hashed then"
    counted.files.clear()
    assert not counted.read
    assert world.train("run", **saving) == 0
    assert sorted(counted.read) == ["optimizer.safetensors", "shadow.safetensors", "weights.safetensors"]
    assert {"state.json"} == of_checkpoints & {*counted.files}


@pytest.mark.parametrize("rank", [0, 1])
def test_first_process_hashes_a_checkpoint_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    content = {"w/denoiser/a": torch.ones(3), "ema/denoiser/a": torch.zeros(3), "opt.applied": torch.tensor(2.0)}
    path = state.write(tmp_path, step=1, tensors=content, values={}, recipe_digest="")
    hashed = Hashed(monkeypatch)
    runtime: Any = SimpleNamespace(is_first=rank == 0, shares={}, gather=lambda text: ("", text))
    held = prepare.read_tensors(state.read(path, tensors=False), runtime)
    assert held.keys() == content.keys()
    assert all(torch.equal(held[name], tensor) for name, tensor in content.items())
    describe_tensors = [] if rank else ["optimizer.safetensors", "shadow.safetensors", "weights.safetensors"]
    assert sorted(hashed.read) == describe_tensors
    assert hashed.files == ["state.json"], "a few bytes, which every process reads"


@pytest.mark.parametrize("rank", [0, 1])
def test_checkpoint_damaged_for_one_process_is_skipped_by_all(tmp_path: Path, rank: int) -> None:
    content = {"w/denoiser/a": torch.ones(3)}
    path = state.write(tmp_path, step=1, tensors=content, values={}, recipe_digest="")
    restored = state.read(path, tensors=False)
    weights = bytearray((path / "weights.safetensors").read_bytes())
    weights[-1] ^= 1
    (path / "weights.safetensors").write_bytes(weights)
    heard: list[str] = []

    def gather(text: str) -> tuple[str, ...]:
        heard.append(text)
        return (text, "") if rank == 0 else ("weights.safetensors is damaged: …", text)

    runtime: Any = SimpleNamespace(is_first=rank == 0, shares={}, gather=gather)
    with pytest.raises(state.DamagedCheckpoint, match=r"weights\.safetensors is damaged"):
        prepare.read_tensors(restored, runtime)
    assert bool(heard[0]) == (rank == 0), "the first process hashes for all"


def test_all_processes_use_the_seed_of_the_first(world: Any) -> None:
    recipe, *words = world.words("many", run__seed=-1)
    reading = read(recipe, words)
    said: list[str] = []
    seeds: list[str] = []
    for _ in range(2):
        settled = choices.choose(reading.recipe, "cpu", share=lambda text: seeds[0] if seeds else text, is_run=True)
        seeds.append(str(settled.recipe.run.seed))
        said += settled.sentences
    assert seeds[0] == seeds[1] != "-1"
    assert len(said) == 2
    assert all(seeds[0] in line for line in said)


@pytest.mark.usefixtures("unmeasured")
def test_changed_recipe_error_suggests_a_new_run_folder(
    world: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.root)
    settings = {"run__steps": 1, "run__folder": None, "run__name": "fox", "optim__ema__rule": "none"}
    assert world.train("run", **settings) == 0
    (world.images / "00.txt").write_text("another caption")
    for verb in ("check", "train"):
        capsys.readouterr()
        assert world.train("run", verb=verb, **settings | {"optim__lr": 2e-3}) == 2
        page, said = capsys.readouterr()
        assert "not bit-exact from there" not in page, "nothing goes on from there"
        assert "train resumes from it" not in page
        assert "or start a new run: run.name=fox-2\n" in said, verb
        assert "E1510" in said, verb
        assert "E1513" in said, verb
    assert world.train("run", **settings | {"run__name": "fox-2", "optim__lr": 2e-3}) == 0


def test_new_preview_seed_is_printed_and_kept(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"sample__seed": -1, "run__preview__every": 9, "sample__prompts": ["a"], "sample__steps": 1}
    settings |= {"optim__ema__rule": "none", "run__seed": 5}
    assert world.train("run", run__steps=1, **settings) == 0
    (seed,) = re.findall(r"sample\.seed is -1: this run's previews have seed (\d+), drawn", capsys.readouterr().out)
    assert world.train("run", run__steps=2, **settings) == 0
    assert f"this run's previews have seed {seed}, kept" in capsys.readouterr().out
    for step in (0, 1, 2):
        with Image.open(world.root / "run" / "samples" / f"step-{step:08d}" / "00-raw.png") as image:
            assert read_record(image)["seed"] == seed
    assert world.train("other", run__steps=1, **settings) == 0
    assert f"seed {seed}, drawn" not in capsys.readouterr().out, "not run.seed, which is the same"
