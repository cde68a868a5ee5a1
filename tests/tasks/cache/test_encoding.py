"""Encoding: entries do not depend on the batch, the number of processes and threads, or the order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint.data.cache.entries import Caches, LatentCache, TextCache
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.families.sd import Family
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import TextEmbedding
from mezzotint.tasks.cache import _encoding
from mezzotint.tasks.cache.filling import CacheSummary, Worker, fill
from mezzotint.tasks.cache.inventory import latent_entries, text_entries
from support.cache_filling import data, filled, write_images

SIZES = [(64, 64)] * 7 + [(96, 48)] * 3


@pytest.fixture(scope="module")
def tiny() -> Family:
    return Family.tiny()


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@dataclass
class World:
    """Images, and caches of their encodings by the tiny model."""

    root: Path
    family: Any

    def filled(self, name: str, rows: Sequence[int] | None = None, **worker: Any) -> dict[bytes, bytes]:
        settings, caches = self.settings(name), self.caches(name)
        catalogue = catalogues.build(settings, self.root / "index", workers=1)
        every = np.arange(len(catalogue), dtype=np.int32)
        chosen = every if rows is None else np.asarray(rows, dtype=np.int32)
        fill(Worker(catalogue, settings, lambda _: self.family, torch.device("cpu"), **worker), chosen, caches)
        return _bits(settings, caches, catalogue, every)

    def settings(self, name: str) -> DataSettings:
        return data(self.root, resolution=64, workers=2, cache={"path": self.root / name})

    def caches(self, name: str) -> Caches:
        settings = self.settings(name)
        latents = LatentCache(settings.cache.path, settings, identity="tiny", compute="fp32", seed=5)
        return Caches(latents, TextCache(settings.cache.path, settings, identity="tiny", compute="fp32"))


def _bits(settings: DataSettings, caches: Caches, catalogue: Any, rows: NDArray[np.int32]) -> dict[bytes, bytes]:
    """The bytes of all present entries by address."""
    assert caches.latents is not None
    assert caches.text is not None
    stored = [
        (caches.latents.store(one.bucket), one.addresses)
        for one in latent_entries(catalogue, rows, settings, caches.latents)
    ]
    of_text = text_entries(catalogue, rows, caches.text, ())
    entries = {}
    for rows_of, addresses in [*stored, (caches.text.rows(), of_text.addresses)]:
        assert rows_of is not None
        for address in addresses:
            row = rows_of.fetch(address[None]) if hasattr(rows_of, "fetch") else rows_of.read(address[None])
            if not isinstance(row, np.ndarray):
                numbers = row if isinstance(row, Tensor) else row.states
                entries[address.tobytes()] = numbers.numpy().tobytes()
    return entries


@pytest.fixture
def world(tmp_path: Path, tiny: Family) -> World:
    write_images(tmp_path / "images", SIZES)
    return World(tmp_path, tiny)


def test_entries_do_not_depend_on_how_the_cache_was_filled(world: World, threads: None) -> None:
    torch.set_num_threads(2)
    whole = world.filled("whole")
    assert len(whole) == 2 * len(SIZES) + 1
    torch.set_num_threads(1)
    assert world.filled("one thread") == whole
    for rows in ([8, 2], [0, 1, 2, 3, 4], [9], [5, 6, 7]):
        in_parts = world.filled("in parts", rows)
    assert in_parts == whole
    for rank in (0, 1):  # one after the other: each encodes its own entries
        by_two = world.filled("by two", rank=rank, world_size=2, gather=lambda text: (text,) * 2)
    assert by_two == whole


def test_repaired_entry_is_identical(world: World) -> None:
    whole = world.filled("mended")
    for path in sorted((world.root / "mended").rglob("*.rows")):
        damaged = bytearray(path.read_bytes())
        damaged[5] ^= 1
        path.write_bytes(bytes(damaged))
    fewer = _read(world, "mended")
    assert 0 < len(fewer) < len(whole)
    assert world.filled("mended") == whole


def _read(world: World, name: str) -> dict[bytes, bytes]:
    settings = world.settings(name)
    catalogue = catalogues.build(settings, world.root / "index", workers=1)
    return _bits(settings, world.caches(name), catalogue, np.arange(len(catalogue), dtype=np.int32))


def test_every_encoder_batch_has_the_same_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path / "images")
    seen: list[int] = []
    true = _encoding.Encoding.text_of
    monkeypatch.setattr(
        _encoding.Encoding, "text_of", lambda *arguments: seen.append(len(arguments[2])) or true(*arguments)
    )
    fixed = filled(tmp_path)
    assert seen == [7]
    assert sum(len(encoder.captions) for encoder in fixed.encoders) == _encoding.CAPTIONS
    assert fixed.summary.encoded == 13
    assert all(encoder.largest == 1 for encoder in fixed.encoders if encoder.images)


class _Wavering:
    """A device whose encoders return another result each time."""

    def __init__(self, step: float) -> None:
        self.step, self.times = step, 0

    def encode(self, item: int) -> Tensor:
        self.times += 1
        return torch.full((2,), item + self.step * self.times)


@pytest.mark.parametrize(("step", "repeats"), [(0.0, True), (0.5, False)])
def test_nondeterministic_device_is_detected(step: float, repeats: bool) -> None:
    encoding, device = _encoding.Encoding(torch.device("meta")), _Wavering(step)
    assert len(list(encoding.run(device.encode, [1, 2, 3], at_once=2))) == 3
    assert device.times == 4, "the first one twice"
    assert encoding.repeats is repeats


def test_nondeterminism_is_reported_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path / "images")
    monkeypatch.setattr(_encoding.Encoding, "repeats", False, raising=False)
    monkeypatch.setattr(_encoding.Encoding, "__setattr__", _but_repeats)
    first = filled(tmp_path).summary
    assert first.lines()[-1] == _encoding.NO_REPEAT
    monkeypatch.undo()
    later: CacheSummary = filled(tmp_path).summary
    assert (later.new, later.repeats) == (0, False), "read from the record in the cache"


def _but_repeats(self: object, name: str, value: object) -> None:
    if name != "repeats":
        object.__setattr__(self, name, value)


def test_text_embedding_has_one_row_per_caption(tiny: Family) -> None:
    text: TextEmbedding = _encoding.Encoding(torch.device("cpu")).text_of(tiny, ["one", "two"])
    assert len(text.states) == 2
    with torch.no_grad():
        torch.testing.assert_close(text.states, tiny.encode_text(["one", "two"]).states)
