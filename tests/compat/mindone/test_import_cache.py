"""MindONE's cache of SDXL taken over: what the denoiser is given is what our own encoders would have given it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.models.embeddings import Timesteps

from mezzotint.compat.mindone import encoded_files as mindone_arrays
from mezzotint.families.sdxl import Family
from mezzotint.runtimes.base import Launch, open_runtime
from mezzotint.settings.reading.read import resolve_paths
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.tasks import assemble
from mezzotint.tasks.reading.arguments import parse
from support.loading import open_loader

SIZES = [(100, 200, 0, 12, 48, 64), (64, 48, 8, 0, 64, 48), (48, 48, 0, 0, 48, 48)]
CAPTIONS = ["a cat", "a dog", ""]


@pytest.fixture(scope="module")
def family(sdxl_folder: Path) -> Family:
    return Family.of(ModelSettings(family="sdxl", path=sdxl_folder))


@pytest.fixture
def folder(tmp_path: Path, family: Family) -> Path:
    """A cache as MindONE writes it: latents not scaled, everything with a leading axis."""
    place = tmp_path / "cache_data"
    for name in mindone_arrays.FOLDERS:
        (place / name).mkdir(parents=True)
    with torch.no_grad():
        text = family.encode_text(CAPTIONS)
    assert text.pooled is not None
    for number, sizes in enumerate(SIZES):
        height, width = sizes[4:]
        latents = np.random.default_rng(number).standard_normal((1, 4, height // 8, width // 8)).astype(np.float32)
        vector = np.concatenate([text.pooled[number].numpy(), *(mindone_arrays.sinusoid(n, 8) for n in sizes)])
        arrays = (latents, vector[None], text.states[number][None].numpy())
        for where, array in zip(mindone_arrays.FOLDERS, arrays, strict=True):
            np.save(place / where / f"{number}.npy", array)
    rows = "".join(f'{number}.jpg," "\n' for number in range(3))
    (place / "img_txt_rank0.csv").write_text(f"dir,text\n{rows}")
    return place


@pytest.fixture
def settings(sdxl_folder: Path, folder: Path) -> dict[str, Any]:
    return {
        "model__family": "sdxl",
        "model__path": sdxl_folder,
        "model__weights": "files",
        "data__path": folder,
        "data__format": "mindone-cache",
        "data__buckets__shape": "list",
        "data__buckets__sizes": [[48, 64], [64, 48], [48, 48]],
        "data__crop": "center",
        "data__flip": 0,
        "data__captions__dropout": 0,
        "run__steps": 3,
    }


def test_imported_cache_gives_the_stored_latents_and_text(
    world: Any, settings: dict[str, Any], folder: Path, family: Family, capsys: Any
) -> None:
    assert world.train("run", verb="cache", **settings) == 0
    output = capsys.readouterr().out
    assert "importing latents of 3 images from files, which cannot be checked" in output
    assert "6 entries, 0 present, 6 added" in output
    recipe = resolve_paths(parse(world.words("run", **settings), "train"))
    runtime = open_runtime(recipe.run, Launch())
    dataset = assemble.open_dataset(recipe, runtime)
    caches = assemble.open_caches(recipe, assemble.open_files(recipe))
    loader = open_loader(
        dataset.catalogue, dataset.rows, recipe.data, accumulation=1, seed=0, start_step=0, last_step=3,
        latents=caches.latents, text=caches.text,
    )  # fmt: skip
    batches = [batch for step in loader for batch in step.batches]
    assert sorted(key for batch in batches for key in batch.keys) == ["0", "1", "2"]
    for batch in batches:
        number = int(batch.keys[0])
        assert batch.latents is not None
        assert batch.text is not None
        raw = np.load(folder / "latent_cache" / f"{number}.npy")
        torch.testing.assert_close(batch.latents, torch.from_numpy(raw) * 2.0)  # the factor of tiny-sdxl
        assert torch.equal(batch.text.states, torch.from_numpy(np.load(folder / "crossattn_cache" / f"{number}.npy")))
        condition = family.condition(batch.text, batch)
        assert condition.vector is not None
        assert condition.vector.tolist() == [list(map(float, SIZES[number]))]
        assert batch.text.pooled is not None
        embedded = Timesteps(8, True, 0)(condition.vector.flatten()).reshape(1, -1)
        vector = torch.cat([batch.text.pooled, embedded], dim=1)
        torch.testing.assert_close(vector, torch.from_numpy(np.load(folder / "vector_cache" / f"{number}.npy")))


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_check_lists_the_imported_cache(world: Any, settings: dict[str, Any], capsys: Any) -> None:
    assert world.train("run", verb="check", **settings) == 0
    output = capsys.readouterr().out
    assert "3 images" in output
    assert "48×64" in output
    assert not (world.root / "run").exists()


@pytest.mark.slow
def test_training_imports_the_cache_without_loading_encoders(
    world: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    loaded: list[frozenset[str] | None] = []
    plain = Family.load.__func__  # type: ignore[attr-defined]

    def watched(cls: Any, files: Any, only: Any = None, *forms: Any) -> Any:
        loaded.append(None if only is None else frozenset(only))
        return plain(cls, files, only, *forms)

    monkeypatch.setattr(Family, "load", classmethod(watched))
    assert world.train("run", **settings | {"run__steps": 1}) == 0
    assert set(loaded) == {frozenset({"denoiser"})}
    assert "6 entries, 0 present, 6 added" in capsys.readouterr().out


def test_one_changed_file_is_imported_again(world: Any, settings: dict[str, Any], folder: Path, capsys: Any) -> None:
    assert world.train("run", verb="cache", **settings) == 0
    np.save(folder / "latent_cache" / "1.npy", np.ones((1, 4, 8, 6), np.float32))
    capsys.readouterr()
    assert world.train("run", verb="cache", **settings) == 0
    assert "5 present, 1 added: 1 image changed" in capsys.readouterr().out


def test_latents_without_a_bucket_are_reported_with_the_sizes(
    world: Any, settings: dict[str, Any], capsys: Any
) -> None:
    assert world.train("run", verb="cache", **settings | {"data__buckets__sizes": [[48, 64], [64, 64]]}) == 2
    error = capsys.readouterr().err
    assert "E1371" in error
    assert "data.buckets.sizes='[[48, 48], [48, 64], [64, 48]]'" in error


def test_family_that_cannot_import_caches_is_refused(world: Any, settings: dict[str, Any], capsys: Any) -> None:
    other = {"model__family": "sd", "model__path": world.model, "model__weights": "random"}
    assert world.train("run", verb="cache", **settings | other) == 2
    assert "set model.family=sdxl" in capsys.readouterr().err


@pytest.mark.parametrize(("place", "shape"), [("latent_cache", (1, 16, 6, 8)), ("crossattn_cache", (1, 77, 64))])
def test_cache_of_another_model_is_refused(
    place: str, shape: tuple[int, ...], world: Any, settings: dict[str, Any], folder: Path, capsys: Any
) -> None:
    np.save(folder / place / "0.npy", np.ones(shape, np.float32))
    assert world.train("run", verb="cache", **settings) == 2
    error = capsys.readouterr().err
    assert "E1371" in error
    assert "of another model" in error
