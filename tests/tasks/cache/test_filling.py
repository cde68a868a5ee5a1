"""Filling the cache: what is encoded and why, after kills, and by several processes."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from mezzotint import draws, fault_injection, outside
from mezzotint.data.buckets import buckets
from mezzotint.data.cache import shard_files
from mezzotint.data.cache.entries import Caches, LatentCache, TextCache
from mezzotint.data.cache.store import Store
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.diffusion import noise
from mezzotint.errors import CacheError, DatasetError
from mezzotint.families.base import ModelFamily, posterior_sample
from mezzotint.families.sd import Family
from mezzotint.settings.sections.data import DataSettings
from mezzotint.tasks.cache import filling
from mezzotint.tasks.cache.filling import Worker, fill
from mezzotint.tasks.cache.inventory import latent_entries
from support.cache_filling import Encoder, Filled, data, filled, paint, write_images
from support.loading import open_loader


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_images(tmp_path / "images")
    return tmp_path


def test_first_filling_encodes_everything_and_second_nothing(root: Path) -> None:
    first = filled(root)
    assert first.images == 6
    assert first.captions == sorted(["", *(f"image {i}" for i in range(6))])
    assert first.summary.reasons == ("6 images new", "7 captions new")
    assert (first.summary.needed, first.summary.present, first.summary.new, first.summary.encoded) == (13, 0, 13, 13)
    second = filled(root)
    assert second.encoders == []  # no part of the model was loaded
    assert (second.summary.present, second.summary.new, second.summary.reasons) == (13, 0, ())
    assert "nothing to add" in second.summary.lines()[-1]
    assert str(root / "cache") in second.summary.lines()[0]
    assert second.summary.bytes > 0


def test_encoders_are_loaded_only_when_needed(root: Path) -> None:
    assert [e.part for e in filled(root).encoders] == ["media", "text"]
    (root / "images" / "1.txt").write_text("another")
    assert [e.part for e in filled(root).encoders] == ["text"]
    paint(root / "images" / "1.png", (40, 40), 77)
    assert [e.part for e in filled(root).encoders] == ["media"]


def test_only_edited_captions_and_images_are_encoded_again(root: Path) -> None:
    before = filled(root)
    (root / "images" / "2.txt").write_text("something else")
    paint(root / "images" / "4.png", (48, 40), 99)
    after = filled(root)
    assert after.images == 1
    assert after.captions == ["something else"]
    assert after.summary.reasons == ("1 image changed", "1 caption changed")
    assert after.summary.lines()[-1].startswith(
        "cache: 13 entries, 11 present, 2 added: 1 image changed, 1 caption changed"
    )
    whole, fresh = take(after), take(filled(root, data(root, cache={"path": root / "other"})))
    assert whole.keys() == fresh.keys()
    assert all(torch.equal(whole[key], fresh[key]) for key in fresh)
    assert (
        sum(not torch.equal(numbers, take(before)[key]) for key, numbers in whole.items() if key in take(before)) == 0
    )


def take(cache: Filled) -> dict[str, Tensor]:
    """Every entry of the dataset, by image key and caption."""
    table = buckets.table(data(Path()))
    entries: dict[str, Tensor] = {}
    for row in range(len(cache.catalogue)):
        size = (cache.catalogue.width[row : row + 1], cache.catalogue.height[row : row + 1])
        bucket = table[int(buckets.assign(*size, table)[0])]
        placed = cache.latents.placement(cache.catalogue, row, 0, bucket)
        address = cache.latents.address(cache.catalogue, row, placed, 0)
        name = f"{cache.catalogue.key(row)} {cache.catalogue.digest[row].tobytes().hex()}"
        try:
            entries[name] = cache.latents.read([address], bucket, [name])
            entries[cache.catalogue.captions(row)[0]] = cache.text.read(cache.catalogue.captions(row)).states
        except CacheError:
            continue  # edited since
    return entries


@pytest.mark.parametrize(
    ("change", "why", "images", "captions"),
    [
        ({"vae": "another"}, ("6 images (VAE changed)",), 6, 0),
        ({"encoder": "another"}, ("7 captions (text encoder changed)",), 0, 7),
    ],
)
def test_another_encoder_adds_entries_and_keeps_old_ones(
    root: Path, change: dict[str, Any], why: tuple[str, ...], images: int, captions: int
) -> None:
    filled(root)
    other = filled(root, **change)
    assert other.summary.reasons == why
    assert (other.images, len(other.captions)) == (images, captions)
    assert filled(root).summary.new == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"resize": "bilinear"}, ("6 images (placement changed)",)),
        ({"background": "#000000"}, ("6 images (placement changed)",)),
        ({"flip": 1.0}, ("6 images (placement changed)",)),
        ({"resolution": 40}, ("6 images (placement changed)",)),
        ({"cache": {"content": "sample"}}, ("6 images (cache settings changed)",)),
        ({"cache": {"dtype": "fp16"}}, ("7 captions (text encoder changed)", "6 images (cache settings changed)")),
    ],
)
def test_entry_address_depends_on_settings_that_change_values(
    root: Path, change: dict[str, Any], why: tuple[str, ...]
) -> None:
    filled(root)
    again = filled(root, data(root, **change))
    assert sorted(again.summary.reasons) == sorted(why)
    assert filled(root).summary.new == 0
    assert filled(root, data(root, **change)).summary.new == 0


def test_entry_address_ignores_settings_that_change_no_value(root: Path) -> None:
    filled(root)
    settings = data(root, batch_size=5, repeats=3, workers=2, captions={"dropout": 0.5}, remainder="drop")
    assert filled(root, settings).summary.new == 0
    (root / "images").rename(root / "moved")
    moved = data(root, path=[root / "moved"])
    assert filled(root, moved).summary.new == 0
    (root / "cache").rename(root / "elsewhere")
    assert filled(root, data(root, path=[root / "moved"], cache={"path": root / "elsewhere"})).summary.new == 0


def test_new_images_are_distinguished_from_changed_ones(root: Path) -> None:
    filled(root)
    paint(root / "images" / "9.png", (32, 32), 9)
    (root / "images" / "9.txt").write_text("the ninth")
    paint(root / "images" / "0.png", (32, 32), 100)
    assert filled(root).summary.reasons == ("1 image changed", "1 image new", "1 caption new")


def test_random_crops_add_the_requested_number_of_entries(root: Path) -> None:
    settings = data(root, crop="random", flip=0.5, cache={"crops": 3})
    first = filled(root, settings)
    distinct = len(set(addresses_of(first, settings, 3)))
    assert distinct > 6
    assert first.images == distinct
    assert filled(root, settings).summary.new == 0
    assert filled(root, data(root, flip=1.0, cache={"crops": 3})).latents.views == 1


def addresses_of(cache: Filled, settings: DataSettings, variants: int) -> list[bytes]:
    rows = np.arange(len(cache.catalogue), dtype=np.int32)
    assert cache.latents.views == variants
    return [a.tobytes() for w in latent_entries(cache.catalogue, rows, settings, cache.latents) for a in w.addresses]


def test_every_caption_that_can_be_chosen_is_cached(root: Path) -> None:
    (root / "images" / "0.txt").write_text("one\ntwo\nthree")
    cache = filled(root, data(root, captions={"lines": "random"}), extra_captions=["a preview", "one"])
    assert cache.captions == sorted(["", "one", "two", "three", "a preview", *(f"image {i}" for i in range(1, 6))])


@pytest.mark.parametrize("what", ["latents", "text"])
def test_damaged_entry_is_encoded_again_and_reported(root: Path, what: str) -> None:
    filled(root)
    path = max((root / "cache" / what).rglob("*.rows"), key=lambda p: p.stat().st_size)
    content = bytearray(path.read_bytes())
    content[7] ^= 4
    path.write_bytes(content)
    again = filled(root)
    assert again.summary.reasons == (
        ("1 image (entry damaged)",) if what == "latents" else ("1 caption (entry damaged)",)
    )
    assert again.summary.encoded == 1
    assert filled(root).summary.new == 0


def test_damage_above_verify_limit_is_found_when_read(root: Path) -> None:
    filled(root)
    for path in (root / "cache" / "latents").rglob("*.rows"):
        path.write_bytes(bytes(path.stat().st_size))
    assert filled(root, verify_bytes=100).summary.new == 0
    cache = filled(root, verify_bytes=100)
    rows = np.arange(6, dtype=np.int32)
    with pytest.raises(CacheError, match="no valid entry"):
        list(
            open_loader(
                cache.catalogue, rows, data(root), accumulation=1, seed=5, start_step=0, last_step=5,
                latents=cache.latents, text=cache.text,
            )
        )  # fmt: skip
    assert filled(root, verify_bytes=100).summary.new > 0  # the damage is recorded
    assert filled(root).summary.new > 0
    assert filled(root).summary.new == 0


def test_deleted_entries_are_encoded_again(root: Path) -> None:
    filled(root)
    for path in sorted((root / "cache" / "latents").rglob("*.rows")):
        path.unlink()
    assert filled(root).summary.reasons == ("6 images (entry gone)",)


def test_nonfinite_latent_error_names_the_file(root: Path) -> None:
    def spoil(moments: Tensor) -> Tensor:
        moments[-1, 0, 0, 0] = float("nan")
        return moments

    with pytest.raises(CacheError, match=re.escape(str(root / "images")) + r"/\d\.png: .*non-finite") as caught:
        filled(root, spoil=spoil)
    assert caught.value.code == "E1304"
    assert filled(root).summary.new > 0  # the lock on the shard was released


def test_image_replaced_after_indexing_is_detected_when_read(root: Path) -> None:
    settings = data(root)
    catalogue = catalogues.build(settings, root / "index", workers=1)
    path = root / "images" / "3.png"
    replacement = root / "aside.png"
    paint(replacement, (32, 64), 1234)
    path.write_bytes(replacement.read_bytes())
    latents = LatentCache(settings.cache.path, settings, identity="vae", compute="fp32", seed=5)
    rows = np.arange(len(catalogue), dtype=np.int32)
    worker = Worker(catalogue, settings, lambda what: cast(ModelFamily, Encoder(what)), torch.device("cpu"))
    with pytest.raises(DatasetError, match=r"3\.png: its content differs from the index") as caught:
        fill(worker, rows, Caches(latents))
    assert caught.value.code == "E1251"


def test_unwritable_cache_folder_is_named(root: Path) -> None:
    (root / "cache").write_text("a file")
    with pytest.raises(CacheError, match=r"data\.cache\.path") as caught:
        filled(root)
    assert caught.value.code == "E1301"


def test_complete_cache_in_read_only_folder_is_usable(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(root)
    catalogue = catalogues.build(data(root), root / "index", workers=1)
    working = os.open

    def read_only(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and str(path).startswith(str(root)):
            raise OSError(30, "Read-only file system")
        return working(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", read_only)
    monkeypatch.setattr(catalogues, "build", lambda *_args, **_named: catalogue)
    assert filled(root).summary.new == 0


def _gather(folder: Path, rank: int, wait: Callable[[], Any]) -> Callable[[str], tuple[str, ...]]:
    """An all-gather of two processes through files."""

    def gather(text: str) -> tuple[str, ...]:
        (folder / f"said{rank}").write_text(text)
        wait()
        return tuple((folder / f"said{number}").read_text() for number in range(2))

    return gather


def _fill_and_report(root: Path, fault: str, out: Any, **changes: Any) -> None:
    torch.set_num_threads(1)
    fault_injection.arm(fault)
    cache = filled(root, **changes)
    out.put((cache.images, cache.captions, cache.summary.encoded))


def _in_processes(*jobs: Callable[[], None]) -> list[int | None]:
    started = [multiprocessing.get_context("fork").Process(target=job) for job in jobs]
    for process in started:
        process.start()
    for process in started:
        process.join(60)
    return [process.exitcode for process in started]


@pytest.mark.faults
@pytest.mark.parametrize(
    ("fault", "left"),
    [("cache.encode@3:kill", 2), ("cache.append@3:kill", 2), ("cache.commit@1:kill", 1), ("cache.commit@3:kill", 3)],
)
def test_kill_loses_only_unfinished_entries(root: Path, fault: str, left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_files, "SYNC_BYTES", 1)
    out = multiprocessing.get_context("fork").SimpleQueue()
    assert _in_processes(lambda: _fill_and_report(root, fault, out)) == [-signal.SIGKILL]
    again = filled(root)
    assert 0 < again.summary.encoded < 13
    assert again.summary.present >= left
    assert again.summary.encoded == again.summary.new == 13 - again.summary.present
    whole, fresh = take(again), take(filled(root, data(root, cache={"path": root / "other"})))
    assert whole.keys() == fresh.keys()
    assert all(torch.equal(whole[key], fresh[key]) for key in fresh)
    assert filled(root).encoders == []


@pytest.mark.parametrize("shards", [4, 12])
def test_filling_reopens_only_shards_that_have_grown(root: Path, monkeypatch: pytest.MonkeyPatch, shards: int) -> None:
    write_images(root / "images", [(32, 32)] * shards)
    monkeypatch.setattr(Store.__init__, "__kwdefaults__", {"shard_bytes": 1})  # of one row each
    monkeypatch.setattr(filling, "_PIXELS_PER_BATCH", 1)
    opens: list[Path] = []
    true = outside.open_plain
    monkeypatch.setattr(outside, "open_plain", lambda path, **named: opens.append(path) or true(path, **named))
    filled(root, rows=np.arange(shards, dtype=np.int32))
    indexes = [path for path in opens if path.suffix == ".index"]
    assert len(list((root / "cache" / "latents").rglob("*.index"))) == shards
    assert len(indexes) <= 3 * 2 * shards + 3  # of latents and texts


@pytest.mark.faults
def test_filling_resumes_after_a_kill_at_any_moment(root: Path) -> None:
    context = multiprocessing.get_context("fork")
    out = context.SimpleQueue()
    fresh = take(filled(root, data(root, cache={"path": root / "other"})))
    present = 0
    for trial in range(6):
        run = context.Process(target=_fill_and_report, args=(root, "", out))
        run.start()
        run.join(random.Random(trial).uniform(0.0, 0.08))
        run.kill()
        run.join()
        empty = filled(root, rows=np.zeros(0, dtype=np.int32))  # encodes only the empty caption
        there = take(empty)
        assert len(there) >= present
        assert all(torch.equal(there[key], fresh[key]) for key in there)
        present = len(there)
    assert take(filled(root)).keys() == fresh.keys()
    assert filled(root).encoders == []


@pytest.mark.distributed
def test_processes_of_one_run_share_the_encoding(root: Path) -> None:
    context = multiprocessing.get_context("fork")
    out, barrier = context.SimpleQueue(), context.Barrier(2)
    catalogues.build(data(root), root / "index", workers=1)
    jobs = [
        lambda rank=rank: _fill_and_report(
            root, "", out, rank=rank, world_size=2, barrier=barrier.wait, gather=_gather(root, rank, barrier.wait)
        )
        for rank in range(2)
    ]
    assert _in_processes(*jobs) == [0, 0]
    reports = [out.get(), out.get()]
    assert sum(images for images, _, _ in reports) == 6
    assert sorted(c for _, captions, _ in reports for c in captions) == sorted(["", *(f"image {i}" for i in range(6))])
    assert all(encoded > 0 for _, _, encoded in reports)
    assert filled(root).summary.new == 0


@pytest.mark.distributed
def test_two_concurrent_runs_leave_one_complete_cache(root: Path) -> None:
    context = multiprocessing.get_context("fork")
    out = context.SimpleQueue()
    catalogues.build(data(root), root / "index", workers=1)
    assert _in_processes(*[lambda: _fill_and_report(root, "", out) for _ in range(3)]) == [0, 0, 0]
    after = filled(root, verify_bytes=None)
    assert after.summary.new == 0
    for cached in (after.latents, after.text):
        for store in cached.stores:
            assert isinstance(store, Store)
            assert store.verify(np.arange(len(store))).all()


@pytest.fixture(scope="module")
def tiny() -> Family:
    return Family.tiny()


@pytest.mark.parametrize("content", ["moments", "sample"])
def test_cached_values_equal_those_of_the_model(root: Path, tiny: Family, content: str) -> None:
    plain = data(root, cache={"content": content})
    catalogue = catalogues.build(plain, root / "index", workers=1)
    rows = np.arange(len(catalogue), dtype=np.int32)
    latents = LatentCache(plain.cache.path, plain, identity="tiny", compute="fp32", seed=5)
    text = TextCache(plain.cache.path, plain, identity="tiny", compute="fp32")
    fill(Worker(catalogue, plain, lambda _: tiny, torch.device("cpu")), rows, Caches(latents, text))

    def batches(**caches: Any) -> list[Any]:
        loader = open_loader(
            catalogue, rows, plain, accumulation=1, seed=5, start_step=0, last_step=6, **caches
        )  # fmt: skip
        return [batch for step in loader for batch in step.batches]

    for cached, live in zip(batches(latents=latents, text=text), batches(), strict=True):
        assert cached.keys == live.keys
        assert torch.equal(cached.posterior_keys, live.posterior_keys)
        moments = tiny.encode_media(live.pixels)
        if content == "moments":
            torch.testing.assert_close(cached.moments, moments, rtol=1e-5, atol=1e-6)
        else:
            hashes = [draws.text_key(key) for key in live.keys]
            keys = np.array([draws.key(5, "posterior-sample", h, 0) for h in hashes], dtype=np.uint64)
            eps = noise.normal(torch.from_numpy(keys.view(np.int64)), cached.latents.shape[1:])
            torch.testing.assert_close(cached.latents, posterior_sample(moments, eps), rtol=1e-5, atol=1e-6)
        with torch.no_grad():
            states = tiny.encode_text(live.captions).states
        torch.testing.assert_close(cached.text.states, states, rtol=1e-5, atol=1e-6)
