"""The format mindone-cache: which files make a sample, what is refused, how sizes come back out of their sinusoids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.compat.mindone import encoded_files as mindone_arrays
from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.sections.data import DataSettings
from support.messages import refused

SIZES = (1365, 2048, 0, 171, 1024, 1024)


def write(folder: Path, name: str, sizes: tuple[int, ...] = SIZES, *, width: int = 256, **other: Any) -> None:
    """The three files of an entry, of SDXL's shapes in small; `latents=ARRAY` puts another one there."""
    rng = np.random.default_rng(len(name))
    pooled = rng.standard_normal(40).astype(np.float32)
    vector = np.concatenate([pooled, *(mindone_arrays.sinusoid(number, width) for number in sizes)])
    arrays = {
        "latent_cache": other.get("latents", rng.standard_normal((1, 4, 6, 8)).astype(np.float32)),
        "vector_cache": other.get("vector", vector[None]),
        "crossattn_cache": other.get("states", rng.standard_normal((1, 77, 24)).astype(np.float32)),
    }
    for place, array in arrays.items():
        (folder / place).mkdir(parents=True, exist_ok=True)
        np.save(folder / place / f"{name}.npy", array, allow_pickle=array.dtype.hasobject)


def table(folder: Path, *rows: str, rank: int = 0) -> None:
    (folder / f"img_txt_rank{rank}.csv").write_text("dir,text\n" + "".join(f"{row}\n" for row in rows))


def opened(folder: Path, index: Path) -> Catalogue:
    cache = {"latents": True, "text": True, "content": "sample"}
    settings = DataSettings.model_validate({"path": [folder], "format": "mindone-cache", "cache": cache})
    return build(settings, index, workers=1)


def keys(catalogue: Catalogue) -> list[str]:
    return [catalogue.key(row) for row in range(len(catalogue))]


def test_rows_are_samples_keyed_by_name_up_to_the_first_dot(tmp_path: Path) -> None:
    folder = tmp_path / "cache_data"
    for name in ("a", "b", "c"):
        write(folder, name)
    table(folder, 'b.jpg," "', 'deep/a.x.jpg," "')
    table(folder, 'lost.jpg," "', rank=1)
    data_set = opened(folder, tmp_path / "index")
    assert keys(data_set) == ["b", "a"]
    assert data_set.report.skipped == (
        ("img_txt_rank1.csv:2", "no latent_cache/lost.npy, no vector_cache/lost.npy, no crossattn_cache/lost.npy"),
    )
    assert (int(data_set.width[0]), int(data_set.height[0])) == (64, 48)
    assert data_set.overrides.sizes_of(0) == list(SIZES)
    assert data_set.captions(0)[0].startswith("b ")


def test_without_a_table_each_latent_file_is_a_sample(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write(tmp_path / "cache_data", name)
    assert keys(opened(tmp_path / "cache_data", tmp_path / "index")) == ["a", "b"]


def test_colliding_names_are_reported(tmp_path: Path) -> None:
    write(tmp_path / "cache_data", "a")
    table(tmp_path / "cache_data", 'one/a.jpg," "', 'two/a.jpg," "')
    data_set = opened(tmp_path / "cache_data", tmp_path / "index")
    assert keys(data_set) == ["a", "a#2"]
    assert "1 names are in several rows" in data_set.report.notes[0][1]


def test_change_of_any_of_the_three_files_changes_the_sample(tmp_path: Path) -> None:
    folder = tmp_path / "cache_data"
    write(folder, "a")
    seen = {opened(folder, tmp_path / "index").fingerprint}
    for name, array in (("latents", np.ones((1, 4, 6, 8), np.float32)), ("states", np.ones((1, 77, 24), np.float32))):
        write(folder, "a", **{name: array})
        data_set = opened(folder, tmp_path / "index")
        assert data_set.verify(0)
        seen.add(data_set.fingerprint)
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"latents": np.ones((4, 6, 8), np.float32)}, "has float32 (4, 6, 8); floats (1, C, h, w) are needed"),
        ({"latents": np.full((1, 4, 6, 8), np.nan, np.float32)}, "has non-finite numbers"),
        ({"states": np.ones((1, 77, 24), np.int32)}, "has int32"),
        ({"states": np.array([{"a": 1}], dtype=object)}, "is not an array of numbers"),
        ({"vector": np.ones((1, 2816), np.float32)}, "do not end in six sizes"),
        ({"vector": np.ones((2816,), np.float32)}, "has float32 (2816,); floats (1, V) are needed"),
    ],
)
def test_unusable_file_is_skipped_and_reported(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    folder = tmp_path / "cache_data"
    write(folder, "a")
    write(folder, "bad", **other)
    data_set = opened(folder, tmp_path / "index")
    assert keys(data_set) == ["a"]
    [(path, reason)] = data_set.report.skipped
    assert "bad" in path
    assert message in reason


def test_truncated_file_is_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "cache_data"
    for name in ("a", "bad"):
        write(folder, name)
    place = folder / "latent_cache" / "bad.npy"
    place.write_bytes(place.read_bytes()[:200])
    assert keys(opened(folder, tmp_path / "index")) == ["a"]


def test_folder_with_only_one_cache_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a")
    (tmp_path / "vector_cache" / "a.npy").unlink()
    (tmp_path / "vector_cache").rmdir()
    with refused("E1210", r"no vector_cache: MindONE's cache has the folders"):
        opened(tmp_path, tmp_path / "index")


def test_cache_is_enabled_by_default() -> None:
    cache = read_text("schema: 1", overrides=["data.format=mindone-cache", "data.cache.dtype=fp16"]).recipe.data.cache
    assert (cache.latents, cache.text, cache.content, cache.dtype) == (True, True, "sample", "fp16")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data.cache.latents=false"], "leave out data.cache.latents"),
        (["data.cache.text=false"], "leave out data.cache.latents"),
        (["data.cache.content=moments"], "leave out data.cache.latents"),
        (["data.flip=0.5"], "leave out data.crop, data.flip"),
        (["data.crop=random"], "leave out data.crop, data.flip"),
        (["data.captions.dropout=0.1"], "leave out data.crop, data.flip"),
    ],
)
def test_settings_that_need_images_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(RecipeError, match=r"data\.format=mindone-cache has") as error:
        read_text("schema: 1", overrides=["data.format=mindone-cache", *words])
    assert message in str(error.value)
