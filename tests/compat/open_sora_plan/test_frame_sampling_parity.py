"""Frames that Open-Sora-Plan has sampled, recorded, against ours."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from mezzotint.data.buckets.clip_sampling import (
    annotated_frames,
    num_starts,
    spread,
    stills_of_clip,
    window,
)
from mezzotint.settings.sections.clips import ClipsSettings

RECORD: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "parity" / "data" / "open-sora-plan" / "frame_sampling.json").read_text()
)


@pytest.mark.parametrize("entry", RECORD["temporal_random_crop"], ids=lambda e: f"{e['total_frames']}-{e['window']}")
def test_clip_windows_match_the_record(entry: dict[str, Any]) -> None:
    frames = entry["num_frames"]
    clips = ClipsSettings(interval=entry["window"] // frames, start="not-last", short="repeat")
    assert window(frames, clips) == entry["window"]
    # the reference uses Python's random; its number is reproduced if the number of positions is the same
    places = num_starts(entry["total_frames"], frames, clips)
    begin = random.Random(entry["python_random_seed"]).randint(0, places - 1)
    assert begin == entry["begin"]
    assert min(begin + entry["window"], entry["total_frames"]) == entry["end"]
    assert spread(begin, entry["end"], entry["num_frames"]).tolist() == entry["indices"]


@pytest.mark.parametrize("entry", RECORD["image_from_video"], ids=lambda e: f"{e['num_frames']}-{e['use_image_num']}")
def test_image_frames_of_a_clip_match_the_record(entry: dict[str, Any]) -> None:
    assert stills_of_clip(entry["num_frames"], entry["use_image_num"]).tolist() == entry["indices"]


@pytest.mark.parametrize("entry", RECORD["frame_idx_annotation"], ids=lambda e: e["frame_idx"])
def test_annotated_frames_match_the_record(entry: dict[str, Any]) -> None:
    start = int(entry["frame_idx"].partition(":")[0])
    assert annotated_frames(start, entry["num_frames"]).tolist() == entry["indices"]
