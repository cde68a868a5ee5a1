"""The catalogue: built once, reused, rebuilt when damaged, refused when the data set is not usable."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mezzotint import draws
from mezzotint.data.catalogue import catalogue
from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.data.catalogue.data_report import readable
from mezzotint.data.catalogue.sharing import at_address, to_address
from mezzotint.data.media import decoding
from mezzotint.settings.sections.data import DataSettings
from mezzotint.settings.sections.holdout import HoldoutSettings
from support.data_sets import small_of as settings_of
from support.image_catalogues import Looks, error_of, indexes_in


def test_columns_describe_the_files(painted: Path, index: Path) -> None:
    Image.new("RGBA", (40, 90), (0, 0, 0, 0)).save(painted / "100.png")
    (painted / "100.txt").write_text("one\ntwo\n")
    data_set = build(settings_of(painted, captions={"lines": "random"}, repeats=2.5), index)
    assert len(data_set) == 7
    assert data_set.key(6) == "100.png"
    assert data_set.path(6) == painted / "100.png"
    assert data_set.captions(6) == ("one", "two")
    assert [data_set.captions(row) for row in (0, 6)] == [("image 0",), ("one", "two")]
    assert (int(data_set.width[6]), int(data_set.height[6])) == (40, 90)
    assert data_set.digest[6].tobytes() == decoding.probe(painted / "100.png", 10**6).digest
    assert int(data_set.key_hash[6]) == draws.text_key("100.png")
    assert set(data_set.repeats.tolist()) == {2.5}
    assert set(data_set.weight.tolist()) == {1.0}
    assert data_set.report.converted == (("transparency composited on the background colour", 1),)
    assert data_set.report.upscaled == 1
    assert [data_set.key(row) for row in range(7)] == sorted(data_set.key(row) for row in range(7))


def test_columns_are_memory_maps_and_pickle_as_an_address(painted: Path, index: Path) -> None:
    data_set = build(settings_of(painted), index)
    assert isinstance(data_set.digest, np.memmap) or data_set.digest.nbytes < 256
    with pytest.raises(ValueError, match="read-only"):
        data_set.key_hash[0] = 1
    sent = pickle.dumps(data_set)
    assert len(sent) < 1000
    there = pickle.loads(sent)
    assert there.fingerprint == data_set.fingerprint
    assert there.path(3) == data_set.path(3)


def test_other_processes_reuse_the_listing_of_the_first(
    painted: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(painted)
    data_set = build(settings, index)
    address = to_address(data_set)
    with monkeypatch.context() as patch:
        patch.setattr("mezzotint.data.formats.base.files_below", lambda *_: pytest.fail("files are listed again"))
        there = at_address(address, settings)
    assert there is not None
    assert (there.fingerprint, there.path(3)) == (data_set.fingerprint, data_set.path(3))
    os.utime(data_set.path(3), (1, 1))
    assert at_address(address, settings) is None, "the files have changed: this process has to list them"
    shutil.rmtree(data_set.folder)
    assert at_address(address, settings) is None, "an index on another machine's disk"


def test_second_start_decodes_nothing(painted: Path, index: Path, looks: Looks) -> None:
    first = build(settings_of(painted), index)
    assert len(looks.taken()) == 6
    calls: list[tuple[int, int]] = []
    second = build(settings_of(painted), index, progress=lambda done, total: calls.append((done, total)))
    assert looks.taken() == []
    assert calls == []
    assert second.fingerprint == first.fingerprint
    assert len(indexes_in(index)) == 1


def test_changed_bytes_with_the_same_size_and_time_are_detected(painted: Path, index: Path) -> None:
    path = painted / "001.png"
    data_set = build(settings_of(painted), index)
    assert data_set.verify(1)
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-15] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not data_set.verify(1)
    again = build(settings_of(painted), index)  # the time of change cannot be set back
    assert again.report.skipped[0][0] == "001.png"
    path.unlink()
    assert not data_set.verify(1)


def test_concurrent_builds_make_one_index(painted: Path, index: Path) -> None:
    context = multiprocessing.get_context("fork")
    runs = [context.Process(target=build, args=(settings_of(painted), index)) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(60)
    assert [run.exitcode for run in runs] == [0, 0]
    (folder,) = indexes_in(index)
    assert build(settings_of(painted), index).folder == folder
    assert not list(index.glob("*/.*"))


def test_old_indexes_are_removed(painted: Path, index: Path) -> None:
    for times in range(1, 7):
        build(settings_of(painted, repeats=times), index)
    assert len(indexes_in(index)) == 4
    assert build(settings_of(painted, repeats=6), index).folder in indexes_in(index)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ((), "no images found"),
        (("a.heic", "b.heic", "c"), "only files with other extensions: no extension (1), .heic (2)"),
        (("a.png",), "none of 1 files can be used: a.png (not an image of a known format)"),
    ],
)
def test_data_set_without_usable_files_is_an_error(
    tmp_path: Path, index: Path, names: tuple[str, ...], sentence: str
) -> None:
    painted = tmp_path / "r"
    painted.mkdir()
    for name in names:
        (painted / name).write_text("not an image at all")
    error = error_of(settings_of(painted, captions={"source": "filename"}), index)
    assert error.code == "E1202"
    assert sentence in error.message


def test_few_broken_files_are_skipped_but_many_are_an_error(painted: Path, index: Path) -> None:
    def break_files(count: int) -> DataSettings:
        for i in range(count):
            (painted / f"broken{i:02}.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
        return settings_of(painted, captions={"missing": "empty"})

    settings = break_files(20)
    data_set = build(settings, index)
    assert len(data_set) == 6
    assert len(data_set.report.skipped) == 20
    assert data_set.report.skipped[0] == ("broken00.png", "truncated")
    error = error_of(break_files(21), index)
    assert error.code == "E1205"
    assert "21 of 27 files cannot be used" in error.message
    assert "broken09.png" in error.message
    assert "broken10.png" not in error.message
    generous = settings.model_copy(update={"max_skipped": 0.9})
    assert len(build(generous, index)) == 6


def test_control_characters_in_names_are_escaped() -> None:
    assert readable("a\nb\x1b[31m\udcff ü") == "a\\nb\\x1b[31m\\udcff ü"


def test_label_of_a_sample_of_several_folders_is_its_path(painted: Path, index: Path) -> None:
    one = build(settings_of(painted), index)
    other = painted.parent / "other"
    other.mkdir()
    for file in painted.glob(f"{Path(one.key(0)).stem}.*"):
        shutil.copy(file, other)
    two = build(settings_of(painted, other), index)
    assert one.label(0) == one.key(0)
    row = list(two.keys()).index(f"1/{one.key(0)}")
    assert two.label(row) == f"{other}/{one.key(0)}"


def spread(painted: Path, index: Path, n: int) -> Catalogue:
    """A catalogue of n samples that have no files."""
    data_set = build(settings_of(painted), index)
    keys = np.asarray([draws.text_key(f"{i}.png") for i in range(n)], np.uint64)
    return replace(data_set, key_hash=keys, width=np.zeros(n, np.int32))


def test_holdout_has_exactly_the_share_and_grows_with_it(painted: Path, index: Path) -> None:
    few = spread(painted, index, 40)

    def held(share: float, seed: int = 3) -> list[int]:
        train, held_rows = few.split(HoldoutSettings(fraction=share), seed)
        assert sorted([*train.tolist(), *held_rows.tolist()]) == list(range(40))
        return held_rows.tolist()

    for share, count in ((0.001, 1), (0.05, 2), (0.1, 4), (0.15, 6), (0.151, 7), (0.3, 12), (0.7, 28), (0.999, 39)):
        assert len(held(share)) == count, share
    # as it is written: 0.07 · 100 is 7, and 7.000000000000001 in floating point
    assert len(spread(painted, index, 100).split(HoldoutSettings(fraction=0.07), 3)[1]) == 7
    assert set(held(0.1)) < set(held(0.3)) != set(held(0.3, seed=4))


def test_holdout_size_is_bounded(painted: Path, index: Path) -> None:
    many = spread(painted, index, 2000)
    most = many.split(HoldoutSettings(fraction=0.5, max_samples=10), 3)[1]
    assert len(most) == 10
    assert set(most.tolist()) <= set(many.split(HoldoutSettings(fraction=0.5, max_samples=2000), 3)[1].tolist())
    assert [len(part) for part in many.split(HoldoutSettings(), 3)] == [2000, 0]
    two = spread(painted, index, 2)
    for share in (0.0001, 0.99):
        assert [len(part) for part in two.split(HoldoutSettings(fraction=share), 0)] == [1, 1]


def test_buckets_are_the_same_when_assigned_in_chunks(
    painted: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(painted)
    draw = np.random.default_rng(1)
    sizes = [draw.integers(1, 3000, 1000).astype(np.int32) for _ in range(2)]
    many = replace(build(settings, index), width=sizes[0], height=sizes[1], set=np.zeros(1000, np.uint16))
    rows = draw.permutation(1000)[:900].astype(np.int32)
    whole = many.buckets_of(rows, settings)
    monkeypatch.setattr(catalogue, "_CHUNK", 64)
    chunked = many.buckets_of(rows, settings)
    assert np.array_equal(chunked.bucket, whole.bucket)
    assert np.array_equal(chunked.sample, np.arange(900))
    assert len(np.unique(whole.bucket)) > 1
    assert many.buckets_of([], settings).bucket.shape == (0,)
