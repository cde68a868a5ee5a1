"""A cache of SDXL: latents and text, after a kill, and with another VAE."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mezzotint.families.sdxl import Family

SIZES = json.dumps([[48, 48], [48, 64], [64, 48]])
LATENTS = {"data__cache__latents": True}
TEXT = {"data__cache__text": True}
BOTH = LATENTS | TEXT


@pytest.fixture
def settings(sdxl_folder: Path) -> dict[str, Any]:
    return {
        "model__family": "sdxl",
        "model__path": sdxl_folder,
        "model__weights": "files",
        "data__buckets__shape": "list",
        "data__buckets__sizes": json.loads(SIZES),
        "data__crop": "center",
        "data__flip": 0,
        "data__captions__dropout": 0,
        "run__seed": 1,
    }


def counts(said: str) -> tuple[int, int, int]:
    """Needed, present and added entries, as printed last."""
    lines = re.findall(r"cache: (\d+) entr(?:y|ies), (\d+) present, (?:(\d+) added|nothing to add)", said)
    needed, there, encoded = lines[-1]
    return int(needed), int(there), int(encoded or 0)


def test_sdxl_latents_and_text_are_cached_separately_or_together(
    world: Any, settings: dict[str, Any], capsys: Any
) -> None:
    assert world.train("text", verb="cache", **settings | TEXT) == 0
    assert counts(capsys.readouterr().out) == (11, 0, 11)  # ten captions and the empty one
    assert not (world.root / "cache" / "latents").exists()
    assert world.train("latents", verb="cache", **settings | LATENTS) == 0
    assert counts(capsys.readouterr().out) == (10, 0, 10)
    assert world.train("both", verb="cache", **settings | BOTH) == 0
    assert counts(capsys.readouterr().out) == (21, 21, 0)
    [layout] = (world.root / "cache" / "text").glob("*/layout.json")
    assert (
        json.loads(layout.read_text())["layout"]["pooled"]
        == Family.tiny().parts()["text_encoder_2"].config.projection_dim
    )  # type: ignore[union-attr]


def test_sdxl_random_crops_and_flips_are_cached(world: Any, settings: dict[str, Any], capsys: Any) -> None:
    square = {"data__buckets__sizes": [[48, 48]], "data__crop": "random", "data__flip": 0.5}
    assert world.train("crops", verb="cache", **settings | LATENTS | square | {"data__cache__crops": 3}) == 0
    needed, there, encoded = counts(capsys.readouterr().out)
    assert there == 0
    assert 10 < needed == encoded <= 30, "equal crops are one entry"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.faults
def test_sdxl_two_processes_complete_a_cache_after_a_kill(world: Any, settings: dict[str, Any]) -> None:
    values = settings | BOTH | {"verb": "cache"}
    killed = world.fork_group("cut", 2, faults={0: "cache.commit@2:kill"}, **values)
    assert 137 in [world.wait(child) for child in killed]
    for child in world.fork_group("rest", 2, **values):
        assert world.wait(child) == 0, world.out("rest")
    needed, there, encoded = counts(world.out("rest"))
    assert needed == 21
    assert 0 < there < 21
    assert encoded == 21 - there
    assert world.wait(world.fork("again", **values)) == 0
    assert counts(world.out("again")) == (21, 21, 0)
    fresh = values | {"data__cache__path": world.root / "other"}
    assert world.wait(world.fork("fresh", **fresh)) == 0
    assert rows_of(world.root / "cache") == rows_of(world.root / "other")


def rows_of(folder: Path) -> dict[str, int]:
    """The number of rows in each store."""
    return {
        str(store.relative_to(folder)): sum(path.stat().st_size // 48 for path in store.glob("*.index"))
        for store in sorted(folder.glob("*/*/rows-*"))
    }


def test_sdxl_changed_vae_is_encoded_again_and_named_as_reason(
    world: Any, settings: dict[str, Any], tmp_path: Path, capsys: Any
) -> None:
    assert world.train("first", verb="cache", **settings | BOTH) == 0
    other = tmp_path / "other-model"
    shutil.copytree(settings["model__path"], other)
    [file] = (other / "vae").glob("*.safetensors")
    tensors = load_file(file)
    name = next(name for name in tensors if name.startswith("encoder") and name.endswith("weight"))
    save_file(tensors | {name: tensors[name] + torch.finfo(torch.float16).eps}, file)
    capsys.readouterr()
    assert world.train("second", verb="cache", **settings | BOTH | {"model__path": other}) == 0
    said = capsys.readouterr().out
    assert counts(said) == (21, 11, 10)
    assert "10 images (VAE changed)" in said
    assert len(list((world.root / "cache" / "latents").iterdir())) == 2, "old entries are kept"
