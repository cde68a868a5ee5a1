"""Batches of clips: the same ones whatever decodes them, with the pixels of the rules and the pictures beside them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loading import open_loader
from PIL import Image

from mezzotint.data import media
from mezzotint.data.buckets import buckets, clip_buckets
from mezzotint.data.buckets.clip_sampling import times_of
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.loading.loader import held_out
from mezzotint.data.loading.worker import to_pixels
from mezzotint.data.media import _clips
from mezzotint.data.media.clip_transforms import port_square, project_square, to_bytes
from mezzotint.errors import DatasetError
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.reports import data_report
from mezzotint.shapes import Size
from mezzotint.stages import Batch

ClipWriter = Callable[..., Path]
CPU = torch.device("cpu")
SIZES = [[9, 32, 32], [5, 32, 32], [5, 24, 40]]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory, write_clip: ClipWriter) -> Path:
    """Two lists: nine clips of several lengths and shapes, some that are none, and seven pictures."""
    folder = tmp_path_factory.mktemp("films")
    entries: list[dict[str, Any]] = []
    for n, (num, size) in enumerate([(14, (48, 32)), (7, (48, 32)), (6, (32, 48)), (9, (64, 32)), (20, (40, 40))]):
        write_clip(folder / f"media/{n}.mp4", num, size=size)
        entries += [{"path": f"{n}.mp4", "cap": f"clip {n}"}, {"path": f"{n}.mp4", "cap": f"clip {n} once more"}]
    entries[3]["frame_idx"] = "2:7"
    whole = (folder / "media/4.mp4").read_bytes()
    (folder / "media/cut.mp4").write_bytes(whole[: len(whole) // 2])
    (folder / "media/list.mp4").write_text("#EXTM3U\nhttp://127.0.0.1/a.mp4\n")
    write_clip(folder / "media/sound.mp4", 0, sound=True)
    write_clip(folder / "media/short.mp4", 3)
    entries += [{"path": f"{name}.mp4", "cap": name} for name in ("cut", "list", "sound", "short", "gone")]
    (folder / "clips.json").write_text(json.dumps(entries))
    (folder / "clips.txt").write_text("media,clips.json\n")
    (folder / "pictures").mkdir()
    for n in range(7):
        rng = np.random.Generator(np.random.Philox(key=n))
        Image.fromarray(rng.integers(0, 256, (40, 52, 3), dtype=np.uint8)).save(folder / f"pictures/{n}.png")
    listed = [{"path": f"{n}.png", "cap": f"picture {n}"} for n in range(7)]
    (folder / "pictures.json").write_text(json.dumps(listed))
    (folder / "pictures.txt").write_text("pictures,pictures.json\n")
    return folder


def settings_of(films: Path, *, clips: dict[str, Any] | None = None, **given: Any) -> DataSettings:
    chosen = {
        "frames": 9,
        "buckets": SIZES,
        "stills": 2,
        "stills_from": "images",
        "stills_path": films / "pictures.txt",
    }
    plain = {"path": films / "clips.txt", "format": "clip-list", "batch_size": 4, "workers": 0, "flip": 0.5}
    return DataSettings(
        **plain | {"crop": "random", "captions": {"dropout": 0.2}} | given, clips=chosen | (clips or {})
    )


@pytest.fixture(scope="module")
def catalogue(films: Path, tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return catalogues.build(settings_of(films), tmp_path_factory.mktemp("index"), workers=2)


def batches(catalogue: Catalogue, settings: DataSettings, first: int, last: int, **given: Any) -> list[Batch]:
    rows = np.arange(len(catalogue), dtype=np.int32)
    loader = open_loader(
        catalogue, rows, settings, **{"accumulation": 1, "seed": 3} | given, start_step=first, last_step=last
    )
    with loader:
        return [batch for step in loader for batch in step.batches]


def same(one: Batch, other: Batch) -> bool:
    """Whether two batches agree to the bit, stills included."""
    for field in fields(Batch):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, Batch):
            assert isinstance(b, Batch)
            equal = same(a, b)
        else:
            equal = torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        if not equal:
            return False
    return True


def joined(parts: Sequence[Batch]) -> dict[str, Any]:
    """Keys, captions, pixels and positions of the samples of several batches of one size, with those of their
    stills."""
    found: dict[str, Any] = {}
    for part in parts:
        assert part.stills is not None
        for number, key in enumerate(part.keys):
            beside = slice(2 * number, 2 * number + 2)
            assert part.pixels is not None
            assert part.stills.pixels is not None
            found[f"{key} {int(part.positions[number])}"] = (
                part.captions[number], part.pixels[number].tolist(), part.stills.keys[beside],
                part.stills.captions[beside], part.stills.pixels[beside].tolist(),
                part.stills.posterior_keys[beside].tolist(),
            )  # fmt: skip
    return found


def test_batches_are_the_same_whatever_workers_and_wherever_one_goes_on(catalogue: Catalogue, films: Path) -> None:
    alone = batches(catalogue, settings_of(films), 0, 6)
    assert {tuple(batch.pixels.shape[2:]) for batch in alone if batch.pixels is not None} == {tuple(s) for s in SIZES}
    assert all(batch.stills is not None and batch.stills.size == 2 * batch.size for batch in alone)
    with_workers = batches(catalogue, settings_of(films, workers=2), 0, 6)
    later = batches(catalogue, settings_of(films), 2, 6)
    assert all(same(a, b) for a, b in zip(alone, with_workers, strict=True))
    assert all(same(a, b) for a, b in zip(alone[2:], later, strict=True))
    other = batches(catalogue, settings_of(films), 0, 6, seed=4)
    assert not any(same(a, b) for a, b in zip(alone, other, strict=True))


def test_two_processes_share_each_batch_and_its_stills(catalogue: Catalogue, films: Path) -> None:
    alone = batches(catalogue, settings_of(films), 0, 4)
    ranks = [batches(catalogue, settings_of(films), 0, 4, rank=rank, world_size=2) for rank in (0, 1)]
    for whole, *parts in zip(alone, *ranks, strict=True):
        assert len({tuple(part.pixels.shape[2:]) for part in parts if part.pixels is not None}) == 1
        assert joined(parts) == joined([whole])


def test_visits_of_one_clip_see_other_frames_and_other_pictures(catalogue: Catalogue, films: Path) -> None:
    seen = [batch for batch in batches(catalogue, settings_of(films), 0, 12) if batch.pixels is not None]
    of_last = [
        (batch.pixels[n].numpy().tobytes(), batch.stills.keys[2 * n : 2 * n + 2])
        for batch in seen
        for n, key in enumerate(batch.keys)
        if key == "4.mp4" and batch.stills is not None and batch.pixels is not None
    ]
    assert len({pixels for pixels, _ in of_last}) > 2
    assert len({keys for _, keys in of_last}) > 1


def test_files_that_are_no_clips_are_named_with_their_reason(films: Path, catalogue: Catalogue, tmp_path: Path) -> None:
    reasons = dict(catalogue.report.skipped)
    assert set(reasons) == {"cut.mp4", "list.mp4", "sound.mp4"}
    assert reasons["list.mp4"] == "a playlist, not a clip; put the clips that it names there"
    assert reasons["sound.mp4"] == "holds sound and no moving picture"
    assert "damaged" in reasons["cut.mp4"]
    left_out = dict(catalogue.report.left_out)
    assert left_out["short.mp4"] == "too short: 3 frames, and 5 are needed"
    assert left_out["gone.mp4"].endswith("gone.mp4 is not there")
    lines = [
        json.loads(line) for line in data_report.write(catalogue, tmp_path, settings_of(films)).read_text().splitlines()
    ]
    assert {line["id"]: line["reason"] for line in lines if line["class"] == "skipped"} == reasons | left_out
    assert sum(line.get("set") == "stills" for line in lines) == 7
    told = data_report.summary(catalogue)
    assert "3 skipped:" in told
    assert "7 samples" in told.partition("beside them:")[2]


def test_a_second_start_decodes_nothing_and_another_choice_of_frames_neither(films: Path, tmp_path: Path) -> None:
    settings = settings_of(films, clips={"stills": 0, "stills_from": "none", "stills_path": ()})
    first = catalogues.build(settings, tmp_path, workers=1)
    assert first.report.decoded == 9  # five clips, each named twice, a short one and three that are none
    assert catalogues.build(settings, tmp_path, workers=1).folder == first.folder
    alone = {"stills": 0, "stills_from": "none", "stills_path": (), "frames": 5, "buckets": []}
    fewer = settings_of(films, clips=alone, resolution=32, buckets={"step": 8})
    again = catalogues.build(fewer, tmp_path, workers=1)
    assert again.folder != first.folder
    assert again.report.decoded == 4  # what cannot be used is looked at again
    assert again.frames.tolist() == first.frames.tolist() == [14, 14, 7, 7, 6, 6, 9, 9, 20, 20]
    assert again.rate.tolist() == [10.0] * 10


@pytest.mark.parametrize("rule", ["open-sora-plan", "open-sora-plan-port"])
def test_both_rules_of_open_sora_plan_give_their_pixels(rule: str, films: Path, tmp_path: Path) -> None:
    more = {"begin": "first", "buckets": [], "frames": 5}
    settings = settings_of(
        films, clips=more, resize=rule, resolution=32, buckets={"shape": "square", "step": 8}, flip=1.0, crop="center"
    )
    found = catalogues.build(settings, tmp_path, workers=1)
    (batch, *_) = batches(found, settings, 0, 1)
    assert batch.pixels is not None
    assert batch.stills is not None
    assert batch.stills.pixels is not None
    for number, key in enumerate(batch.keys):
        name, _, start = key.partition("@")
        stored = _clips.frames(films / "media" / name.partition("#")[0], times_of(range(5), begin=0.0, rate=10.0))
        if start:
            continue
        frames = torch.from_numpy(stored).to(torch.uint8)
        wanted = port_square(frames, 32) if "port" in rule else to_bytes(project_square(frames, 32))
        assert torch.equal(batch.pixels[number].transpose(0, 1), to_pixels(wanted.flip(-1), CPU))
    picture = torch.from_numpy(np.array(Image.open(films / "pictures" / batch.stills.keys[0]))).permute(2, 0, 1)[None]
    wanted = port_square(picture, 32) if "port" in rule else to_bytes(project_square(picture, 32))
    assert torch.equal(batch.stills.pixels[:1], to_pixels(wanted.flip(-1), CPU))


def test_held_out_clips_are_always_the_same(catalogue: Catalogue, films: Path) -> None:
    rows = np.asarray([0, 4, 9], dtype=np.int32)
    found, again = (held_out(catalogue, rows, settings_of(films), seed=3) for _ in range(2))
    assert sum(batch.size for batch in found) == 3
    assert all(same(a, b) for a, b in zip(found, again, strict=True))
    assert all("" not in batch.captions for batch in found)


def test_a_clip_that_is_gone_in_a_run_is_named(tmp_path: Path, write_clip: ClipWriter) -> None:
    write_clip(tmp_path / "a.mp4", 8)
    (tmp_path / "a.txt").write_text("a clip")
    plain = {"path": tmp_path, "format": "videofolder", "resolution": 32, "buckets": {"step": 8}, "workers": 0}
    settings = DataSettings(**plain, clips={"frames": 5})
    found = catalogues.build(settings, tmp_path / "index", workers=1)
    (tmp_path / "a.mp4").unlink()
    with pytest.raises(DatasetError, match=r"sample 'a\.mp4' could be read .* cannot be now") as caught:
        batches(found, settings, 0, 1)
    assert caught.value.code == "E1250"


def test_a_folder_of_clips_has_sidecars_or_a_table(tmp_path: Path, write_clip: ClipWriter) -> None:
    for name in ("a", "b", "sub/c"):
        write_clip(tmp_path / f"set/{name}.mp4", 6)
        (tmp_path / f"set/{name}.txt").write_text(f"beside {name}")
    plain = {"path": tmp_path / "set", "format": "videofolder", "resolution": 32, "buckets": {"step": 8}}
    settings = DataSettings(**plain, clips={"frames": 5})
    found = catalogues.build(settings, tmp_path / "index", workers=1)
    assert [(found.key(row), found.captions(row)) for row in range(3)] == [
        ("a.mp4", ("beside a",)), ("b.mp4", ("beside b",)), ("sub/c.mp4", ("beside sub/c",)),
    ]  # fmt: skip
    rows = [{"file_name": "sub/c.mp4", "text": "told"}, {"file_name": "gone.mp4", "text": "x"}]
    (tmp_path / "set/metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = catalogues.build(settings, tmp_path / "index", workers=1)
    assert [(found.key(row), found.captions(row)) for row in range(len(found))] == [("sub/c.mp4", ("told",))]
    assert dict(found.report.left_out) == {f"{name}.mp4": "no row of a table names it" for name in "ab"}
    assert dict(found.report.skipped) == {
        "metadata.jsonl:2": "'gone.mp4': no such file below the folder of the table"
    }  # fmt: skip
    (tmp_path / "set/metadata.jsonl").unlink()
    (tmp_path / "set/b.txt").unlink()
    with pytest.raises(DatasetError, match=r"1 clip has no caption: b\.mp4") as caught:
        catalogues.build(settings, tmp_path / "index", workers=1)
    assert caught.value.code == "E1203"


def test_a_clip_goes_to_the_most_frames_then_to_its_shape_then_to_what_it_fills() -> None:
    listed = [[5, 32, 32], [5, 64, 64], [5, 128, 128], [5, 32, 64], [9, 32, 32]]
    settings = DataSettings(format="clip-list", clips={"frames": 9, "buckets": listed})
    table = buckets.table(settings)
    assert [size.frames for size in table] == [5, 5, 5, 5, 9]

    def bucket(width: int, height: int, most: int) -> Size:
        sides = (np.array([width], np.int32), np.array([height], np.int32), np.array([most], np.int32))
        return table[int(clip_buckets.of_clips(*sides, table)[0])]

    assert bucket(500, 500, 9) == Size(32, 32, 9)
    assert bucket(100, 100, 5) == Size(64, 64, 5)
    assert bucket(16, 16, 5) == Size(32, 32, 5)
    assert bucket(500, 480, 5) == Size(128, 128, 5)
    assert bucket(90, 50, 5) == Size(64, 32, 5)
    frames, rate, start = np.array([4, 5, 8, 9, 9, 1]), np.array([10.0] * 5 + [0.0]), np.array([-1, -1, -1, -1, 2, -1])
    most = clip_buckets.most_frames(frames.astype(np.int32), rate, start.astype(np.int32), settings.clips)
    assert most.tolist() == [0, 5, 5, 9, 5, 0]


def test_without_the_decoder_the_sentence_says_what_to_install(
    films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_clips", "_containers"):
        monkeypatch.delitem(sys.modules, f"mezzotint.data.media.{name}", raising=False)
        monkeypatch.delattr(media, name, raising=False)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(DatasetError, match=r"pip install 'mezzotint\[video\]'") as caught:
        catalogues.build(settings_of(films), tmp_path, workers=1)
    assert caught.value.code == "E1290"
