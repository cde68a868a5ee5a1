"""Rows of `data.clips` for Open-Sora-Plan's lists: starts of entries, missing files, embeddings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint.compat.open_sora_plan import text_files as text_cache_npz
from mezzotint.data.cache.entries import Caches, TextCache
from mezzotint.data.formats.base import EmbeddingFile
from mezzotint.errors import CacheError, DatasetError, RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.cache.filling import Worker, fill

Make = Callable[..., Any]
SHADE = 12
SQUARE = {"format": "clip-list", "buckets__shape": "square", "max_skipped": 1.0}


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory, write_clip: Callable[..., Path]) -> Path:
    """A folder of clips: `a` and `b` of 12 frames, `short` of 3, `wide` and `large` of other shapes; ten a second."""
    folder = tmp_path_factory.mktemp("films")
    for name, num, size in (
        ("a", 12, (48, 32)), ("b", 12, (48, 32)), ("short", 3, (48, 32)), ("wide", 6, (96, 32)), ("large", 6, (96, 96)),
    ):  # fmt: skip
        write_clip(folder / f"{name}.mp4", num, size=size)
    for number in range(5):
        Image.fromarray(np.full((40, 48, 3), 40 * number, np.uint8)).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"image {number}")
    return folder


@pytest.fixture
def listed(films: Path, tmp_path: Path) -> Callable[..., Path]:
    """`listed("a.mp4", …)`: a list file of these entries, names or whole objects; `name` is the file's."""

    def write(*entries: Any, name: str = "list", texts: Path | None = None) -> Path:
        written = [{"path": one, "cap": f"caption of {one}"} if isinstance(one, str) else one for one in entries]
        (tmp_path / f"{name}.json").write_text(json.dumps(written))
        middle = f"{texts}," if texts else ""
        (tmp_path / f"{name}.txt").write_text(f"{films},{middle}{name}.json\n")
        return tmp_path / f"{name}.txt"

    return write


def numbers(pixels: torch.Tensor) -> list[int]:
    """The frame numbers of a clip (3, F, H, W), from their shades."""
    return [round(float((frame[:, -4:, -4:].mean() + 1) * 127.5) / SHADE) for frame in pixels.transpose(0, 1)]


def seen(fed: Any) -> list[list[int]]:
    return [numbers(one) for batch in fed.batches() for one in batch.pixels]


def reasons(files: Sequence[tuple[str, str]]) -> dict[str, str]:
    return dict(files)


def refusal(*words: str) -> str:
    with pytest.raises(RecipeError) as caught:
        read_text("schema: 1", overrides=["data.format=clip-list", *words])
    return str(caught.value)


# breaks if all frames are used whatever the interval, or it moves an entry's own start
@pytest.mark.effect("data.clips.interval")
def test_interval_skips_frames(feed: Make, listed: Make) -> None:
    path = listed("a.mp4", {"path": "b.mp4", "cap": "b", "frame_idx": "3:8"})
    generated, own = sorted(
        seen(feed(path, **SQUARE, clips__frames=5, clips__interval=2)), key=lambda one: one[1] - one[0]
    )
    assert generated == [3, 4, 5, 6, 7]
    assert np.diff(own).tolist() == [2, 2, 2, 2]


# breaks if an entry's own start is read past the end of its clip, or moved, where clips are cut into pieces
@pytest.mark.parametrize("rate", [{"clips__interval": 2}, {"clips__fps": 5.0}])
def test_starts_of_entries_must_fit_the_pieces(rate: dict[str, Any], feed: Make, listed: Make) -> None:
    path = listed(*({"path": "a.mp4", "cap": "a", "frame_idx": f"{start}:12"} for start in (3, 4)))
    fed = feed(path, **SQUARE, clips__frames=5, clips__pieces=2, **rate)
    assert seen(fed) == [[3, 5, 7, 9, 11]]
    assert reasons(fed.report.left_out)["a.mp4@4"] == "too short: frames 4 to 12 are needed, it has 12"


# breaks if missing files are never counted, or always
@pytest.mark.effect("data.clip_list.missing")
def test_missing_clips_are_skipped_or_counted(feed: Make, listed: Make) -> None:
    path = listed("a.mp4", "gone.mp4")
    skipped, counted = (
        feed(path, **SQUARE, clips__frames=5, clip_list__missing=one).report for one in ("skip", "count")
    )
    assert (set(reasons(skipped.left_out)), set(reasons(skipped.skipped))) == ({"gone.mp4"}, set())
    assert (set(reasons(counted.left_out)), set(reasons(counted.skipped))) == (set(), {"gone.mp4"})


# breaks if embeddings in files are not read, are computed again, or change
@pytest.mark.effect("data.clip_list.text_embeddings")
def test_text_embeddings_are_imported_from_files(listed: Make, feed: Make, tmp_path: Path) -> None:
    states = torch.randn(20, 6, generator=torch.Generator().manual_seed(0)).numpy()
    for name, count in (("a", 3), ("b", 18)):
        mask = (np.arange(20) < count).astype(np.uint8)
        text_cache_npz.write(tmp_path / f"texts/{name}.npz", EmbeddingFile(states, mask))
    path = listed("a.mp4", "b.mp4", texts=tmp_path / "texts")
    usual = SQUARE | {"clips__frames": 5, "clip_list__text_embeddings": True, "cache__text": True}
    fed = feed(path, **usual)
    text = TextCache(tmp_path / "cache", fed.recipe.data, identity="t", compute="fp32")

    def no_encoder(what: str) -> Any:
        raise AssertionError(what)

    messages: list[str] = []
    rows, data = fed.dataset.rows, fed.recipe.data
    cpu = torch.device("cpu")
    fill(Worker(fed.catalogue, data, no_encoder, cpu, say=messages.append), rows, Caches(text=text))
    assert any("age cannot be checked" in line for line in messages)
    read_back = text.read(
        [fed.catalogue.captions(row)[0] for row in rows], [fed.catalogue.overrides.embedding_of(row) for row in rows]
    )
    assert read_back.mask.sum(dim=1).tolist() == [3, 18]
    assert torch.equal(read_back.states[1, :18], torch.from_numpy(states[:18]))
    assert not read_back.states[0, 3:].any()
    assert sorted(store.row_bytes for store in text.stores if len(store)) == [16 * 7 * 4, 20 * 7 * 4]
    text.expected_shape = (300, 6)
    text_cache_npz.write(tmp_path / "texts/a.npz", EmbeddingFile(states[:19], mask[:19]))
    again = feed(path, **usual)
    fresh = TextCache(tmp_path / "other", again.recipe.data, identity="t", compute="fp32")
    fresh.expected_shape = (20, 6)
    with pytest.raises(CacheError, match="has 19 tokens, but the model needs 20"):
        fill(Worker(again.catalogue, data, no_encoder, cpu, say=messages.append), rows, Caches(text=fresh))
    assert "set data.cache.text=true" in refusal("data.clip_list.text_embeddings=true")
    with pytest.raises(DatasetError, match=r"set data\.clip_list\.text_embeddings=true"):
        feed(path, **SQUARE, clips__frames=5)


# breaks if the images are not those of the list
@pytest.mark.effect("data.clips.images_path", "data.clips.images_format")
def test_images_are_read_from_a_list(feed: Make, listed: Make) -> None:
    path, images = listed("a.mp4"), listed("0.png", "4.png", name="images")
    usual = SQUARE | {"clips__frames": 5, "clips__images": 2, "clips__images_from": "images"}
    (of_list,) = feed(path, **usual, clips__images_path=[str(images)]).batches()
    assert set(of_list.joined_images.captions) == {"caption of 0.png", "caption of 4.png"}
