"""Clips, their stills and the captions of both in the cache: stored once, found again, made again when anything
changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mezzotint import draws
from mezzotint.compat.open_sora_plan import text_files as text_cache_npz
from mezzotint.data.cache.entries import Caches, LatentCache, TextCache, as_still
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue, joined_images_settings
from mezzotint.data.formats.base import EmbeddingFile
from mezzotint.data.loading.reading import read_frames
from mezzotint.data.loading.worker import to_pixels
from mezzotint.diffusion import noise
from mezzotint.errors import CacheError
from mezzotint.families.base import Encodes, Grid, ModelFamily
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.stages import Batch, TextEmbedding
from mezzotint.tasks import assemble
from mezzotint.tasks.cache import cache
from mezzotint.tasks.cache.filling import CacheSummary, Worker, fill
from support.clip_folders import write_images
from support.loading import open_loader

CPU = torch.device("cpu")


@dataclass
class Encoder:
    """A family that encodes by a formula, frames in fours after the first, and text with a mask."""

    layer_streamer = None
    animates = False

    calls: list[Encodes] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    grid: Grid = field(default_factory=lambda: Grid(channels=3, pixels=8, frames=4))

    def parts(self) -> dict[str, nn.Module]:
        return {}

    def encode_media(self, pixels: Tensor) -> Tensor:
        self.shapes.append(tuple(pixels.shape[1:]))
        frames = pixels if pixels.ndim == 5 else pixels[:, :, None]
        mean = nn.functional.avg_pool3d(frames, (1, 8, 8))[:, :, ::4]
        moments = torch.cat([mean, mean.abs() + 0.1], dim=1)
        return moments if pixels.ndim == 5 else moments[:, :, 0]

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        states = noise.normal(torch.tensor([draws.text_key(c) >> 1 for c in captions]), (40, 3))
        mask = torch.arange(40)[None] <= torch.tensor([len(c) for c in captions])[:, None]
        return TextEmbedding(states, mask.to(torch.int64))


@dataclass
class World:
    films: Path
    index: Path
    encoder: Encoder

    def settings(self, *, clips: dict[str, Any] | None = None, **values: Any) -> DataSettings:
        chosen = {"frames": 9, "images": 2, "images_from": "images", "images_path": self.films / "images.txt"}
        plain = {
            "path": self.films / "clips.txt",
            "format": "clip-list",
            "resolution": 32,
            "batch_size": 2,
            "workers": 0,
        }
        buckets = {"shape": "square", "step": 8}
        cache = {"latents": True, "text": True, "crops": 2, "path": self.index}
        return DataSettings(**plain | {"buckets": buckets, "cache": cache} | values, clips=chosen | (clips or {}))

    def filled(self, settings: DataSettings) -> tuple[Catalogue, LatentCache, TextCache, list[CacheSummary]]:
        catalogue = catalogues.build(settings, self.index, workers=1)
        latents = LatentCache(self.index, settings, identity="vae", compute="fp32", seed=3)
        text = TextCache(self.index, settings, identity="t5", compute="fp32")
        sets = [(catalogue, settings)]
        if catalogue.joined_images is not None:
            sets.append((catalogue.joined_images, joined_images_settings(settings)))
        summaries = []
        for one, section in sets:
            rows = np.arange(len(one), dtype=np.int32)
            summaries.append(fill(Worker(one, section, self.load, CPU), rows, Caches(latents, text)))
        return catalogue, latents, text, summaries

    def load(self, what: Encodes) -> ModelFamily:
        self.encoder.calls.append(what)
        return cast("ModelFamily", self.encoder)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory, write_clip: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("films")
    for n in range(3):
        write_clip(folder / f"media/{n}.mp4", 12 + n, size=(48, 32))
    listed = [{"path": f"{n}.mp4", "cap": "a clip " + "long " * 5 * n} for n in range(3)]
    (folder / "clips.json").write_text(json.dumps(listed))
    (folder / "clips.txt").write_text("media,clips.json\n")
    write_images(folder, 4)
    images = [{"path": f"{n}.png", "cap": f"image {n}"} for n in range(4)]
    (folder / "images.json").write_text(json.dumps(images))
    (folder / "images.txt").write_text("images,images.json\n")
    return folder


@pytest.fixture
def world(films: Path, tmp_path: Path) -> World:
    return World(films, tmp_path / "cache", Encoder())


def batches(catalogue: Catalogue, settings: DataSettings, **caches: Any) -> list[Batch]:
    rows = np.arange(len(catalogue), dtype=np.int32)
    with open_loader(catalogue, rows, settings, accumulation=1, seed=3, start_step=0, last_step=6, **caches) as loader:
        return [batch for step in loader for batch in step.batches]


def test_cached_clips_and_stills_equal_the_encoder_output(world: World) -> None:
    settings = world.settings()
    catalogue, latents, text, summaries = world.filled(settings)
    assert [one.needed for one in summaries] == [
        3 * 2 + 4,
        4 + 4 + 1,
    ]  # two windows of each clip; captions and the empty one
    assert set(world.encoder.shapes) == {(3, 9, 32, 32), (3, 32, 32)}
    bucket = Size(32, 32, 9)
    kept = {}
    for row in range(3):
        for variant in range(2):
            placed = latents.placement(catalogue, row, variant, bucket)
            times = latents.times(catalogue, row, 9, variant)
            pixels = to_pixels(read_frames(catalogue, row, placed, times, settings), CPU)
            kept[catalogue.key(row), variant] = world.encoder.encode_media(pixels[None])[0]
    for batch in batches(catalogue, settings, latents=latents, text=text):
        assert batch.moments is not None
        assert batch.joined_images is not None
        assert batch.joined_images.moments is not None
        assert batch.moments.shape == (batch.size, 6, 3, 4, 4)
        assert batch.joined_images.moments.shape == (2 * batch.size, 6, 4, 4)
        for number, key in enumerate(batch.keys):
            assert any(torch.equal(batch.moments[number], kept[key, variant]) for variant in range(2))
        for part in (batch, batch.joined_images):
            plain = world.encoder.encode_text(part.captions)
            assert part.text is not None
            assert part.text.mask is not None
            assert plain.mask is not None
            assert torch.equal(part.text.mask, plain.mask)
            assert torch.equal(part.text.states, plain.states * plain.mask[:, :, None])


def test_cached_text_rows_have_the_length_of_the_caption(world: World) -> None:
    _, _, text, _ = world.filled(world.settings())
    used = {store.row_bytes // 16: len(store) for store in text.stores if len(store)}
    assert used == {16: 2 + 4, 40: 1, 32: 1} or sum(used.values()) == 8
    assert used[16] >= 5
    assert text.layout is not None
    assert text.layout.lengths == (16, 32, 40)


def test_second_fill_adds_nothing_and_frames_change_the_address(world: World) -> None:
    world.filled(world.settings())
    calls = len(world.encoder.calls)
    for same in (world.settings(), world.settings(batch_size=3), world.settings(clips={"images": 3})):
        assert sum(one.new for one in world.filled(same)[3]) == 0
    assert len(world.encoder.calls) == calls
    for other, joined_images in (
        ({"clips": {"interval": 1, "start": "first"}}, 0), ({"clips": {"fps": 9.0}}, 0), ({"clips": {"frames": 5}}, 0),
        ({"resize": "bicubic"}, 4), ({"resize": "square-then-bilinear"}, 4), ({"crop": "random"}, 4),
    ):  # fmt: skip
        _, _, _, (clips, images) = world.filled(world.settings(**cast("dict[str, Any]", other)))
        assert clips.new >= 1, other  # a window that happens to be the same is shared
        assert images.new >= joined_images, other
    assert world.filled(world.settings(clips={"frames": 5}))[3][0].new == 0


@pytest.mark.parametrize("cached", [False, True])
def test_frames_of_the_clip_are_cached_as_images(world: World, cached: bool) -> None:
    settings = world.settings(clips={"images": 3, "images_from": "clips", "images_path": ()})
    catalogue, latents, text, (summary,) = world.filled(settings)
    assert summary.needed == 3 * 2 * (1 + 3) + 3 + 1
    if not cached:
        (batch, *_) = batches(catalogue, settings)
        assert batch.joined_images is not None
        assert batch.joined_images.pixels is not None
        assert batch.joined_images.pixels.shape == (6, 3, 32, 32)
        return
    for batch in batches(catalogue, settings, latents=latents, text=text):
        assert batch.joined_images is not None
        assert batch.joined_images.moments is not None
        assert batch.moments is not None
        # by this encoder's formula the first latent frame of a clip is its first frame, encoded separately
        assert torch.equal(batch.joined_images.moments[::3], batch.moments[:, :, 0])
        assert torch.equal(batch.joined_images.moments[2::3], batch.moments[:, :, 2])
        assert batch.joined_images.text is not None
        assert batch.text is not None
        assert torch.equal(batch.joined_images.text.states[::3], batch.text.states)
    placed = latents.placement(catalogue, 0, 0, Size(32, 32, 9))
    assert as_still(placed).bucket == Size(32, 32)


def test_cached_sample_is_a_posterior_sample(world: World) -> None:
    settings = world.settings()
    settings = settings.model_copy(update={"cache": settings.cache.model_copy(update={"content": "sample"})})
    catalogue, latents, text, _ = world.filled(settings)
    (batch, *_) = batches(catalogue, settings, latents=latents, text=text)
    assert batch.latents is not None
    assert batch.latents.shape[1:] == (3, 3, 4, 4)
    assert batch.joined_images is not None
    assert batch.joined_images.latents is not None
    assert batch.joined_images.latents.shape[1:] == (3, 4, 4)


def test_cached_samples_of_frames_of_one_clip_differ(films: Path, tmp_path: Path) -> None:
    chosen = {"frames": 9, "images": 3, "images_from": "clips"}
    plain = {"path": films / "clips.txt", "format": "clip-list", "cache": {"latents": True, "content": "sample"}}
    latents = LatentCache(tmp_path, DataSettings(**plain, clips=chosen), identity="vae", compute="fp32", seed=3)
    assert len({latents.draw(5, variant, still) for variant in range(2) for still in range(-1, 3)}) == 8


def test_cache_command_imports_embeddings_without_the_text_encoder(
    films: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        states = np.full((24, 32), n, np.float32)
        text = EmbeddingFile(states, (np.arange(24) < 5).astype(np.uint8))
        text_cache_npz.write(tmp_path / f"texts/{n}.npz", text)
    (tmp_path / "list.txt").write_text(f"{films}/media,texts,{films}/clips.json\n")
    (tmp_path / "recipe.yaml").write_text(
        "model: {family: latte, path: tiny-latte, weights: random}\n"
        "data: {path: list.txt, format: clip-list, resolution: 32, buckets: {shape: square, step: 16}, batch_size: 2,\n"
        "  workers: 0, clips: {frames: 5}, clip_list: {text_embeddings: true},\n"
        f"  cache: {{text: true, path: '{tmp_path}/cache'}}}}\n"
        "run: {device: cpu}\n"
    )
    monkeypatch.setattr(assemble, "encoders", lambda *_: pytest.fail)
    assert cache.run([str(tmp_path / "recipe.yaml")]) == 0
    output = capsys.readouterr().out
    assert "importing 3 embeddings from files, whose age cannot be checked" in output
    assert "3 entries, 0 present, 3 added" in output
    assert cache.run([str(tmp_path / "recipe.yaml")]) == 0
    assert "3 entries, 3 present, nothing to add" in capsys.readouterr().out
    text_cache_npz.write(tmp_path / "texts/1.npz", EmbeddingFile(states[:20], (np.arange(20) < 5).astype(np.uint8)))
    with pytest.raises(CacheError, match="has 20 tokens, but the model needs 24") as caught:
        cache.run([str(tmp_path / "recipe.yaml")])
    assert caught.value.code == "E1310"
