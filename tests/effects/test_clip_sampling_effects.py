"""Rows of `sample.clip`: length and format of sampled clips."""

from __future__ import annotations

import json
from pathlib import Path

import av
import pytest

from mezzotint.cli import main
from support.clip_folders import probe

QUICK = ("model.family=wan", "model.weights=random", "run.device=cpu", "--size=32x32", "--steps=2", "--guidance=2")


def sampled(folder: Path, *words: str) -> list[Path]:
    assert main(["sample", "tiny-wan", "--prompt=a red ball", f"--out={folder}", *QUICK, *words]) == 0
    return sorted(folder.glob("*-seed*"))


# breaks if the file has another length, rate or codec than requested, or does not record how it was sampled
@pytest.mark.effect("sample.clip.frames", "sample.clip.rate", "sample.clip.codec", "sample.clip.quality")
def test_sampled_clips_play_and_record_their_settings(tmp_path: Path) -> None:
    (one,) = sampled(tmp_path / "h264", "--frames=5", "--rate=12.5", "--seed=3")
    count, width, height, rate, metadata = probe(one)
    assert (count, width, height, rate) == (5, 32, 32, 12.5)
    facts = json.loads(metadata["comment"])
    assert (facts["prompt"], facts["frames"], facts["seed"]) == ("a red ball", "5", "3")
    (old,) = sampled(tmp_path / "mpeg4", "--frames=5", "sample.clip.codec=mpeg4", "--seed=3")
    for path, codec in ((one, "h264"), (old, "mpeg4")):
        with av.open(str(path)) as container:
            assert container.streams.video[0].codec_context.name == codec
    (rough,) = sampled(tmp_path / "rough", "--frames=5", "--seed=3", "sample.clip.quality=31")
    assert rough.stat().st_size < one.stat().st_size
