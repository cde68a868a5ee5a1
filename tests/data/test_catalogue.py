"""The catalogue: made once, found again, mended when damaged, refused when the data set is not usable."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mezzotint import draws, fault_injection
from mezzotint.data.catalogue.catalogue import Catalogue, build, readable
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError, StorageError
from mezzotint.recipe.sections.data import DataSettings, HoldoutSettings


def settings_of(*roots: Path, **values: Any) -> DataSettings:
    return DataSettings.model_validate({"path": list(roots), "resolution": 64, "buckets": {"step": 8}, **values})


def paint(root: Path, count: int, start: int = 0, size: tuple[int, int] = (80, 70)) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for i in range(start, start + count):
        Image.new("RGB", size, (i % 256, 7, 9)).save(root / f"{i:03}.png")
        (root / f"{i:03}.txt").write_text(f"picture {i}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    paint(tmp_path / "pictures", 6)
    return tmp_path / "pictures"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / "index"


class Looks:
    """Counts the pictures that are decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        original = decoding.probe

        def counted(path: Path, max_pixels: int) -> decoding.Probe:
            self.names.append(path.name)
            return original(path, max_pixels)

        monkeypatch.setattr(decoding, "probe", counted)

    def taken(self) -> list[str]:
        names, self.names = sorted(self.names), []
        return names


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def indexes_in(index: Path) -> list[Path]:
    return sorted(path.parent for path in index.glob("*/*/manifest.json"))


def test_columns_say_what_the_files_are(root: Path, index: Path) -> None:
    Image.new("RGBA", (40, 90), (0, 0, 0, 0)).save(root / "100.png")
    (root / "100.txt").write_text("one\ntwo\n")
    found = build(settings_of(root, captions={"lines": "choose"}, repeats=2.5), index)
    assert len(found) == 7
    assert found.key(6) == "100.png"
    assert found.path(6) == root / "100.png"
    assert found.captions(6) == ("one", "two")
    assert [found.captions(row) for row in (0, 6)] == [("picture 0",), ("one", "two")]
    assert (int(found.width[6]), int(found.height[6])) == (40, 90)
    assert found.digest[6].tobytes() == decoding.probe(root / "100.png", 10**6).digest
    assert int(found.key_hash[6]) == draws.text_key("100.png")
    assert set(found.repeats.tolist()) == {2.5}
    assert set(found.weight.tolist()) == {1.0}
    assert found.report.converted == (("transparency laid on the background colour", 1),)
    assert found.report.upscaled == 1
    assert [found.key(row) for row in range(7)] == sorted(found.key(row) for row in range(7))


def test_columns_are_memory_maps_and_travel_as_an_address(root: Path, index: Path) -> None:
    found = build(settings_of(root), index)
    assert isinstance(found.digest, np.memmap) or found.digest.nbytes < 256
    with pytest.raises(ValueError, match="read-only"):
        found.key_hash[0] = 1
    sent = pickle.dumps(found)
    assert len(sent) < 1000
    there = pickle.loads(sent)
    assert there.fingerprint == found.fingerprint
    assert there.path(3) == found.path(3)


def test_second_start_decodes_nothing(root: Path, index: Path, looks: Looks) -> None:
    first = build(settings_of(root), index)
    assert len(looks.taken()) == 6
    calls: list[tuple[int, int]] = []
    second = build(settings_of(root), index, progress=lambda done, total: calls.append((done, total)))
    assert looks.taken() == []
    assert calls == []
    assert second.fingerprint == first.fingerprint
    assert len(indexes_in(index)) == 1


def test_only_changed_files_are_decoded_again(root: Path, index: Path, looks: Looks) -> None:
    first = build(settings_of(root), index)
    looks.taken()
    Image.new("RGB", (99, 70)).save(root / "002.png")
    (root / "003.txt").write_text("another caption")
    (root / "004.png").unlink()
    (root / "004.txt").unlink()
    paint(root, 1, start=50)
    second = build(settings_of(root), index)
    assert looks.taken() == ["002.png", "050.png"]
    assert second.report.decoded == 2
    assert [second.key(row) for row in range(len(second))] == [
        "000.png",
        "001.png",
        "002.png",
        "003.png",
        "005.png",
        "050.png",
    ]
    assert int(second.width[2]) == 99
    assert second.captions(3) == ("another caption",)
    assert (second.digest[4] == first.digest[5]).all()
    assert second.fingerprint != first.fingerprint


def test_other_settings_take_over_what_is_known(root: Path, index: Path, looks: Looks) -> None:
    build(settings_of(root), index)
    looks.taken()
    build(settings_of(root, resolution=32, repeats=3, captions={"source": "filename"}), index)
    assert looks.taken() == []
    with pytest.raises(DatasetError, match="none of 6 files"):
        build(settings_of(root, max_pixels=100), index)
    assert len(looks.taken()) == 6


def test_same_size_and_time_but_other_bytes_is_noticed(root: Path, index: Path) -> None:
    path = root / "001.png"
    found = build(settings_of(root), index)
    assert found.verify(1)
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-15] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not found.verify(1)
    again = build(settings_of(root), index)  # the time of change cannot be set back
    assert again.report.skipped[0][0] == "001.png"
    path.unlink()
    assert not found.verify(1)


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: (folder / "width.npy").write_bytes(b""),
        lambda folder: (folder / "caption.npy").unlink(),
        lambda folder: flip(folder / "digest.npy", -1),
        lambda folder: flip(folder / "manifest.json", 40),
        lambda folder: (folder / "manifest.json").write_text("{}"),
        lambda folder: (folder / "manifest.json").write_text("[1]"),
        lambda folder: (folder / "manifest.json").unlink(),
    ],
)
def test_damaged_index_is_made_again(root: Path, index: Path, harm: Callable[[Path], Any]) -> None:
    first = build(settings_of(root), index)
    harm(first.folder)
    second = build(settings_of(root), index)
    assert second.fingerprint == first.fingerprint
    assert second.captions(5) == ("picture 5",)
    assert second.report.decoded == 6


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_fingerprint_is_the_content_not_the_place(root: Path, index: Path, tmp_path: Path) -> None:
    first = build(settings_of(root), index)
    moved = root.rename(tmp_path / "moved")
    assert build(settings_of(moved), index).fingerprint == first.fingerprint
    (moved / "000.txt").write_text("other")
    assert build(settings_of(moved), index).fingerprint != first.fingerprint
    (moved / "000.txt").write_text("picture 0")
    assert build(settings_of(moved), index).fingerprint == first.fingerprint
    assert build(settings_of(moved, repeats=2), index).fingerprint != first.fingerprint


def test_several_folders_have_keys_and_repeats_of_their_own(tmp_path: Path, index: Path) -> None:
    paint(tmp_path / "a", 2)
    paint(tmp_path / "b", 2)
    found = build(settings_of(tmp_path / "a", tmp_path / "b", repeats=[1, 0.5]), index)
    assert [found.key(row) for row in range(4)] == ["0/000.png", "0/001.png", "1/000.png", "1/001.png"]
    assert found.path(3) == tmp_path / "b" / "001.png"
    assert found.repeats.tolist() == [1, 1, 0.5, 0.5]


def test_two_processes_at_once_make_one_index(root: Path, index: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from mezzotint.data.catalogue.catalogue import build; "
        "from mezzotint.recipe.sections.data import DataSettings; "
        "s = DataSettings(path=[Path(sys.argv[1])], resolution=64, buckets={'step': 8}); "
        "print(build(s, Path(sys.argv[2])).fingerprint)"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", code, root, index], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = {run.communicate()[0] for run in runs}
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert answers == {build(settings_of(root), index).fingerprint + "\n"}
    assert len(indexes_in(index)) == 1
    assert not list(index.glob("*/.*"))


def test_a_killed_start_loses_nothing_that_was_decoded(
    root: Path, index: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    paint(root, 60, start=200)
    monkeypatch.setattr("mezzotint.data.catalogue._probing._CHUNK", 4)
    try:
        fault_injection.arm("data.decode@40:raise")
        with pytest.raises(RuntimeError, match="a fault was injected"):
            build(settings_of(root), index, workers=1)
    finally:
        fault_injection.arm("")
    journal = next(index.glob("*/journal-*.jsonl"))
    with journal.open("a") as file:
        file.write('["torn')  # what a crash leaves of its last line
    looks.taken()
    assert len(build(settings_of(root), index, workers=1)) == 66
    assert 66 - 40 <= len(looks.taken()) <= 66 - 28
    assert not journal.exists()


def test_old_indexes_are_removed(root: Path, index: Path) -> None:
    for times in range(1, 9):
        build(settings_of(root, repeats=times), index)
    assert len(indexes_in(index)) == 4
    assert build(settings_of(root, repeats=8), index).folder in indexes_in(index)


# --- what is refused ----------------------------------------------------------------------------------------


def error_of(settings: DataSettings, index: Path) -> DatasetError:
    with pytest.raises(DatasetError) as found:
        build(settings, index)
    return found.value


def test_no_path_is_an_error(index: Path) -> None:
    assert error_of(settings_of(), index).code == "E1201"


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ((), "holds no pictures"),
        (("a.heic", "b.heic", "c"), "only files with other endings: no ending (1), .heic (2)"),
        (("a.png",), "none of 1 files can be used: a.png (not a picture of a known format)"),
    ],
)
def test_nothing_usable_is_an_error(tmp_path: Path, index: Path, names: tuple[str, ...], sentence: str) -> None:
    root = tmp_path / "r"
    root.mkdir()
    for name in names:
        (root / name).write_text("not a picture at all")
    error = error_of(settings_of(root, captions={"source": "filename"}), index)
    assert error.code == "E1202"
    assert sentence in error.message


def test_a_few_broken_files_pass_and_many_do_not(root: Path, index: Path) -> None:
    def break_files(count: int) -> DataSettings:
        for i in range(count):
            (root / f"broken{i:02}.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
        return settings_of(root, captions={"missing": "empty"})

    settings = break_files(20)
    found = build(settings, index)
    assert len(found) == 6
    assert len(found.report.skipped) == 20
    assert found.report.skipped[0] == ("broken00.png", "truncated")
    error = error_of(break_files(21), index)
    assert error.code == "E1205"
    assert "21 of 27 files cannot be used" in error.message
    assert "broken09.png" in error.message
    assert "broken10.png" not in error.message
    generous = settings.model_copy(update={"max_skipped": 0.9})
    assert len(build(generous, index)) == 6


def test_what_the_recipe_leaves_out_is_no_fault(root: Path, index: Path) -> None:
    for i in range(30):
        Image.new("RGB", (80, 80)).save(root / f"mute{i:02}.png")
    paint(root, 1, start=90, size=(20, 20))
    found = build(settings_of(root, small="skip", captions={"missing": "skip"}), index)
    assert len(found) == 6
    assert found.report.skipped == ()
    assert len(found.report.left_out) == 31
    assert found.report.left_out[0] == ("090.png", "20×20 is smaller than its bucket, and data.small=skip")


def test_captions_are_counted(root: Path, index: Path) -> None:
    (root / "000.txt").write_text("")
    (root / "001.txt").write_text("word " * 61)
    report = build(settings_of(root), index).report
    assert (report.empty_captions, report.long_captions) == (1, 1)


def test_index_folder_that_cannot_be_made_is_named(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match=r"set data\.cache\.path to another folder") as found:
        build(settings_of(root), tmp_path / "file")
    assert str(tmp_path / "file") in found.value.message
    assert "make room" not in found.value.message
    assert found.value.code == "E1720"


def test_full_disk_is_named_and_leaves_no_index(root: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(np, "save", full)
        with pytest.raises(
            StorageError, match=r"No space left on device .*make room there, or set data\.cache"
        ) as found:
            build(settings_of(root), index)
    assert found.value.code == "E1720"
    assert indexes_in(index) == []
    assert len(build(settings_of(root), index)) == 6


def test_names_on_one_line() -> None:
    assert readable("a\nb\x1b[31m\udcff ü") == "a\\nb\\x1b[31m\\udcff ü"


# --- holdout ------------------------------------------------------------------------------------------------


def spread(root: Path, index: Path, n: int) -> Catalogue:
    """A catalogue of n samples that have no files."""
    found = build(settings_of(root), index)
    keys = np.asarray([draws.text_key(f"{i}.png") for i in range(n)], np.uint64)
    return replace(found, key_hash=keys, width=np.zeros(n, np.int32))


def test_holdout_by_chance_is_drawn_by_key_alone(root: Path, index: Path) -> None:
    many = spread(root, index, 2000)
    holdout = HoldoutSettings(share=0.1, max_samples=500, rule="chance")
    train, held = many.split(holdout, 3)
    assert 150 < len(held) < 250
    assert sorted([*train.tolist(), *held.tolist()]) == list(range(2000))
    assert [str(part.dtype) for part in (train, held)] == ["int32", "int32"]
    fewer = replace(many, key_hash=many.key_hash[:1000], width=many.width[:1000])
    assert fewer.split(holdout, 3)[1].tolist() == [row for row in held.tolist() if row < 1000]
    assert many.split(holdout, 4)[1].tolist() != held.tolist()


def test_holdout_takes_the_share_exactly_with_the_smallest_draws(root: Path, index: Path) -> None:
    few = spread(root, index, 40)

    def held(share: float, rule: Any = "exact", seed: int = 3) -> list[int]:
        train, found = few.split(HoldoutSettings(share=share, rule=rule), seed)
        assert sorted([*train.tolist(), *found.tolist()]) == list(range(40))
        return found.tolist()

    for share, count in ((0.001, 1), (0.05, 2), (0.1, 4), (0.15, 6), (0.151, 7), (0.3, 12), (0.7, 28), (0.999, 39)):
        assert len(held(share)) == count, share
    # as it is written: 0.07 · 100 is 7, and 7.000000000000001 in floating point
    assert len(spread(root, index, 100).split(HoldoutSettings(share=0.07), 3)[1]) == 7
    assert set(held(0.1)) < set(held(0.3)) != set(held(0.3, seed=4))
    by_chance = held(0.3, "chance")
    assert set(by_chance) <= set(held(0.3)) or set(held(0.3)) <= set(by_chance), "of the same draws"


def test_holdout_is_bounded(root: Path, index: Path) -> None:
    many = spread(root, index, 2000)
    most = many.split(HoldoutSettings(share=0.5, max_samples=10), 3)[1]
    assert len(most) == 10
    assert set(most.tolist()) <= set(many.split(HoldoutSettings(share=0.5, max_samples=2000), 3)[1].tolist())
    assert [len(part) for part in many.split(HoldoutSettings(), 3)] == [2000, 0]
    two = spread(root, index, 2)
    for share in (0.0001, 0.99):
        assert [len(part) for part in two.split(HoldoutSettings(share=share), 0)] == [1, 1]
