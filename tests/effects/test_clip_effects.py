"""Rows of the section `data.clips`: frames of a clip, skipped clips, joined images."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint.data.media import timeouts
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import Batch
from support.messages import refused

Make = Callable[..., Any]
SHADE = 12
SQUARE = {"format": "videofolder", "buckets__shape": "square", "max_skipped": 1.0}


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory, write_clip: Callable[..., Path]) -> Path:
    """A folder of clips: `a` and `b` of 12 frames, `short` of 3, `wide` and `large` of other sizes; 10 fps."""
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
    """`listed("a.mp4", …)`: a folder of these clips, with a table of their captions; `name` is the folder's."""

    def write(*names: str, name: str = "listed") -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        for one in names:
            if not (folder / one).exists():
                os.link(films / one, folder / one)
        rows = [{"file_name": one, "text": f"caption of {one}"} for one in names]
        (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return folder

    return write


def numbers(pixels: torch.Tensor) -> list[int]:
    """The frame numbers of a clip (3, F, H, W), encoded in its grey levels."""
    return [round(float((frame[:, -4:, -4:].mean() + 1) * 127.5) / SHADE) for frame in pixels.transpose(0, 1)]


def seen(fed: Any) -> list[list[int]]:
    return [numbers(one) for batch in fed.batches() for one in batch.pixels]


def reasons(files: Sequence[tuple[str, str]]) -> dict[str, str]:
    return dict(files)


def shapes(batches: Sequence[Batch]) -> set[tuple[int, ...]]:
    return {tuple(batch.pixels.shape[2:]) for batch in batches if batch.pixels is not None}


def refusal(*words: str) -> str:
    with pytest.raises(RecipeError) as caught:
        read_text("schema: 1", overrides=["data.format=videofolder", *words])
    return str(caught.value)


# breaks if the number of frames is not the recipe's, or an even number is accepted
@pytest.mark.effect("data.clips.frames")
def test_clip_frames_sets_frames_per_sample(feed: Make, listed: Make) -> None:
    path = listed("a.mp4")
    for count in (1, 5, 9):
        (sample,) = seen(feed(path, **SQUARE, clips__frames=count))
        assert sample == list(range(sample[0], sample[0] + count))
    assert "got 16; write 15 or 17" in refusal("data.clips.frames=16")


# breaks if all frames are used whatever the interval
@pytest.mark.effect("data.clips.interval")
def test_clip_interval_skips_frames(feed: Make, listed: Make) -> None:
    (drawn,) = seen(feed(listed("a.mp4"), **SQUARE, clips__frames=5, clips__interval=2))
    assert np.diff(drawn).tolist() == [2, 2, 2, 2]


# breaks if a clip without progress never times out, or a slow one with progress does
@pytest.mark.slow
@pytest.mark.effect("data.decode_timeout")
def test_hanging_clip_is_skipped_at_start_and_stops_a_run(
    feed: Make, listed: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asleep, report_progress = listed("a.mp4", "b.mp4"), threading.Event(), timeouts.Sign.__call__
    monkeypatch.setattr(timeouts, "GRACE", 0.05)

    def wait_after_each_frame(seconds: float) -> None:
        def call(sign: timeouts.Sign) -> None:
            if threading.current_thread() is not threading.main_thread():
                asleep.wait(seconds)
            report_progress(sign)

        monkeypatch.setattr(timeouts.Sign, "__call__", call)

    wait_after_each_frame(0.05)
    patient = feed(path, **SQUARE, clips__frames=5, decode_timeout=0.5)
    assert len(patient.catalogue) == 2, "12 frames take 0.6 s"

    wait_after_each_frame(20)
    with refused("E1233", r"'a\.mp4' .*: not decoded within 0\.2 s|'b\.mp4' .*: not decoded within 0\.2 s"):
        feed(path, **SQUARE, clips__frames=5, decode_timeout=0.2).batches()
    os.utime(path / "b.mp4", (1, 1))  # probed again
    hasty = feed(path, **SQUARE, clips__frames=5, decode_timeout=0.2)
    asleep.set()
    assert len(hasty.catalogue) == 1
    assert "not decoded within 0.2 s" in reasons(hasty.report.skipped)["b.mp4"]


# breaks if the rate is the clip's own
@pytest.mark.effect("data.clips.fps")
def test_clip_fps_is_independent_of_the_file(feed: Make, listed: Make) -> None:
    (sample,) = seen(feed(listed("a.mp4"), **SQUARE, clips__frames=3, clips__fps=2.5))
    assert np.diff(sample).tolist() == [4, 4]
    report = feed(listed("a.mp4", "short.mp4"), **SQUARE, clips__frames=3, clips__fps=2.5).report
    assert reasons(report.left_out) == {"short.mp4": "too short: 0.30 s, but 0.90 s are needed (3 frames at 2.5 fps)"}
    assert "replaces data.clips.interval" in refusal("data.clips.fps=5", "data.clips.interval=2")


# breaks if the start is not drawn at random, differs at the same visit, or is the last possible one by default
@pytest.mark.effect("data.clips.start")
def test_clip_start_is_random_or_the_first_frame(feed: Make, listed: Make) -> None:
    path = listed("a.mp4")

    def starts(start: str, steps: int, seed: int = 0) -> list[int]:
        usual = {"clips__frames": 9, "clips__start": start}
        return [one[0] for one in seen(feed(path, **SQUARE, **usual, steps=steps, seed=seed))]

    assert set(starts("first", 8)) == {0}
    assert set(starts("not-last", 16)) == {0, 1, 2}
    several = starts("random", 20)
    assert set(several) == {0, 1, 2, 3}
    assert starts("random", 8) == several[:8] != starts("random", 8, seed=1)


# breaks if a short clip is used or skipped whatever the recipe says
@pytest.mark.effect("data.clips.short")
def test_short_clips_are_skipped_or_repeated(feed: Make, listed: Make) -> None:
    path = listed("a.mp4", "short.mp4")
    fed = feed(path, **SQUARE, clips__frames=5)
    assert fed.report.used == 1
    assert reasons(fed.report.left_out) == {"short.mp4": "too short: 3 frames, but 5 are needed"}
    assert [0, 0, 1, 1, 2] in seen(feed(path, **SQUARE, clips__frames=5, clips__short="repeat"))


# breaks if a short clip is left out, or its length is not of the form 4 k + 1
@pytest.mark.effect("data.clips.short")
def test_short_clips_are_trimmed(feed: Make, listed: Make) -> None:
    path = listed("a.mp4", "short.mp4", "wide.mp4")
    fed = feed(path, **SQUARE, clips__frames=9, clips__short="trim", clips__start="first")
    assert sorted(seen(fed)) == [[0], list(range(5)), list(range(9))]
    assert "which list the lengths" in refusal("data.clips.short=trim", "data.clips.buckets=[[17, 64, 64]]")


# breaks if a piece is read with random starts, is missing, or is twice in an epoch
@pytest.mark.effect("data.clips.pieces", "data.clips.piece_stride")
@pytest.mark.parametrize(
    ("cut", "firsts"),
    [
        ({"pieces": 3}, [0, 3, 7]), ({"pieces": 20}, list(range(8))), ({"piece_stride": 5}, [0, 5]),
        ({"piece_stride": 3}, [0, 3, 6]), ({"piece_stride": 1, "interval": 2}, [0, 2]),
        ({"piece_stride": 2, "fps": 5.0}, [0]),
    ],
)  # fmt: skip
def test_clips_are_cut_into_pieces(cut: dict[str, Any], firsts: list[int], feed: Make, listed: Make) -> None:
    step = 2 if {"interval", "fps"} & cut.keys() else 1
    fed = feed(listed("a.mp4", "short.mp4"), **SQUARE, clips__frames=5, **{f"clips__{k}": v for k, v in cut.items()})
    expected = [[first + step * number for number in range(5)] for first in firsts]
    assert sorted(seen(fed)) == expected
    assert len({fed.catalogue.key(row) for row in range(len(fed.catalogue))}) == len(firsts)
    assert reasons(fed.catalogue.report.left_out)["short.mp4"].startswith("too short")


def test_pieces_set_their_start() -> None:
    assert "data.clips.start does not work" in refusal("data.clips.pieces=2", "data.clips.start=first")
    assert "give one of them" in refusal("data.clips.pieces=2", "data.clips.piece_stride=2")


# breaks if the lengths of all sets are those of the first one, or sets of other lengths share batches
@pytest.mark.effect("data.sets")
def test_sets_have_their_own_clip_settings(feed: Make, listed: Make) -> None:
    path = listed("a.mp4", "wide.mp4")
    sets = (
        {"path": path, "clips": {"frames": 1, "piece_stride": 6}},
        {"path": path, "clips": {"frames": 5}},
        {"path": path, "clips": {"frames": 9}},
    )
    by_set: dict[str, list[list[int]]] = {}
    for batch in feed(*sets, **SQUARE, batch_size=8).batches():
        for key, pixels in zip(batch.keys, batch.pixels, strict=True):
            by_set.setdefault(key[0], []).append(numbers(pixels))
    assert sorted(by_set["0"]) == [[0], [0], [6]]
    assert sorted(map(len, by_set["1"])) == [5, 5]
    assert sorted(map(len, by_set["2"])) == [9]


# breaks if a clip is not assigned first to its maximum number of frames and then by shape, or a batch mixes sizes
@pytest.mark.effect("data.clips.buckets")
def test_clip_buckets_are_frames_height_and_width(feed: Make, listed: Make) -> None:
    path = listed("a.mp4", "b.mp4", "wide.mp4", "large.mp4")
    sizes = [[9, 32, 32], [9, 32, 48], [5, 24, 24], [5, 24, 72], [5, 64, 64]]
    plain = {"resolution": 512, "buckets__step": 64, "format": "videofolder"}
    fed = feed(path, **plain, clips__frames=9, clips__buckets=sizes, batch_size=2)
    by_size = {tuple(batch.pixels.shape[2:]): batch.keys for batch in fed.batches()}
    assert set(by_size) == {(9, 32, 48), (5, 24, 72), (5, 64, 64)}
    assert set(by_size[9, 32, 48]) == {"a.mp4", "b.mp4"}
    assert "the longest of data.clips.buckets has 5" in refusal("data.clips.buckets=[[5,32,32]]")


# breaks if clips of any size are used
@pytest.mark.effect("data.clips.min_size", "data.clips.max_size", "data.clips.max_aspect")
def test_clip_size_limits_skip_other_clips(feed: Make, listed: Make) -> None:
    path = listed("a.mp4", "wide.mp4", "large.mp4")
    for setting, value, names in (
        ("min_size", 40, {"a.mp4", "wide.mp4"}), ("max_size", 90, {"wide.mp4", "large.mp4"}), ("max_aspect", 2,
        {"wide.mp4"}),
    ):  # fmt: skip
        report = feed(path, **SQUARE, clips__frames=5, **{f"clips__{setting}": value}).report
        assert set(reasons(report.left_out)) == names
        assert not report.skipped


# breaks if images come from another source, are not those of their clip, or a number without a source is accepted
@pytest.mark.effect("data.clips.images", "data.clips.images_from")
def test_joined_images_come_from_clips_or_a_folder(feed: Make, listed: Make) -> None:
    path = listed("a.mp4", "b.mp4")
    usual = SQUARE | {"clips__frames": 5, "clips__images": 3, "batch_size": 2, "captions__dropout": 0.5, "flip": 0.5}
    for batch in feed(path, **usual, clips__images_from="clips", steps=4).batches():
        assert batch.joined_images.captions == tuple(one for one in batch.captions for _ in range(3))
        assert batch.joined_images.positions.tolist() == [0, 0, 0, 1, 1, 1]
        frames_of_clips = batch.pixels[:, :, [0, 2, 4]].transpose(1, 2).flatten(0, 1)
        assert torch.equal(batch.joined_images.pixels, frames_of_clips)
        assert len(set(batch.joined_images.posterior_keys.tolist()) - set(batch.posterior_keys.tolist())) == 6
    images = listed("0.png", "1.png", "2.png", name="images")
    (batch,) = feed(
        path, **usual, clips__images_from="images", clips__images_path=[str(images)], clips__images_format="metadata"
    ).batches()
    assert {key.removesuffix(".png") for key in batch.joined_images.keys} == {"0", "1", "2"}
    assert "data.clips.images_from is none" in refusal("data.clips.images=4")
    assert "data.clips.images_from has no effect" in refusal("data.clips.images_from=clips")
    assert "more than a sample has frames" in refusal("data.clips.images=19", "data.clips.images_from=clips")


# breaks if the images are not those of the path, or are read in another format than theirs
@pytest.mark.effect("data.clips.images_path", "data.clips.images_format")
def test_joined_images_are_read_from_table_or_folder(feed: Make, listed: Make, films: Path) -> None:
    path, images = listed("a.mp4"), listed("0.png", "4.png", name="images")
    usual = SQUARE | {"clips__frames": 5, "clips__images": 2, "clips__images_from": "images"}
    (of_table,) = feed(path, **usual, clips__images_path=[str(images)], clips__images_format="metadata").batches()
    assert set(of_table.joined_images.captions) == {"caption of 0.png", "caption of 4.png"}
    of_folder = feed(path, **usual, clips__images_path=[str(films)], clips__images_format="image-folder", steps=30)
    captions = {caption for batch in of_folder.batches() for caption in batch.joined_images.captions}
    assert captions == {f"image {number}" for number in range(5)}
    with refused("E1291", r"2 images, but data\.clips\.images=3"):
        feed(path, **(usual | {"clips__images": 3}), clips__images_path=[str(images)], clips__images_format="metadata")


# breaks if groups are drawn at random, the last group is used, or drawn images are the same at every visit
@pytest.mark.effect("data.clips.images_order")
def test_joined_images_are_random_or_in_groups(feed: Make, listed: Make) -> None:
    images = listed(*(f"{number}.png" for number in range(5)), name="images")
    usual = SQUARE | {"clips__frames": 5, "clips__images": 2, "clips__images_from": "images", "batch_size": 3}
    usual |= {"clips__images_path": [str(images)], "clips__images_format": "metadata"}
    path = listed("a.mp4", "b.mp4", "wide.mp4")
    groups = {"a.mp4": ("0.png", "1.png"), "b.mp4": ("2.png", "3.png"), "wide.mp4": ("0.png", "1.png")}
    for batch in feed(path, **usual, clips__images_order="groups", steps=3).batches():
        assert batch.joined_images.keys == tuple(one for key in batch.keys for one in groups[key])
    drawn = [batch.joined_images.keys for batch in feed(path, **usual, steps=20).batches()]
    assert {key for keys in drawn for key in keys} == {f"{number}.png" for number in range(5)}
    assert len({keys[:2] for keys in drawn}) > 5


def test_clip_settings_are_refused_for_image_folders() -> None:
    with pytest.raises(RecipeError, match=r"data\.clips has no effect with data\.format=image-folder"):
        read_text("schema: 1", overrides=["data.clips.frames=5"])
    assert DataSettings().clips.frames == 17
