"""Previews of a recipe without prompts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
from PIL import Image

from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.sampling.image_files import read_record
from mezzotint.sampling.prompt_file import PromptFile
from mezzotint.settings.reading.read import read, read_text, resolve_paths
from mezzotint.tasks.prompts import previews
from support.run_folders import report_of


def test_previews_of_captions_differ_and_use_the_training_size(tmp_path: Path) -> None:
    """The fourth image of the shipped dataset is wide; generated as a square, training looked harmful."""
    recipe = resolve_paths(read("mini", ["data.path=shapes"]))
    dataset = _dataset(build(recipe.data, tmp_path, workers=1))
    lines = previews._lines(recipe, PromptFile(()), dataset)
    assert [(line.prompt, line.width, line.height) for line in lines][2:] == [
        ("a blue triangle on a white ground", 64, 64),
        ("a yellow circle on a black ground", 80, 48),
    ]
    square = resolve_paths(read("mini", ["data.path=shapes", "sample.size=[64,64]"]))
    assert {line.width for line in previews._lines(square, PromptFile(()), dataset)} == {None}
    of_file = previews._lines(recipe, PromptFile((), {"size": (64, 64)}), dataset)
    assert {line.width for line in of_file} == {None}


def _dataset(catalogue: Catalogue) -> Any:
    return SimpleNamespace(catalogue=catalogue, rows=np.arange(len(catalogue), dtype=np.int32))


def test_previews_use_different_captions_and_sizes(world: Any) -> None:
    for number in range(3):
        (world.images / f"{number:02d}.txt").write_text("the same for three")
    settings = {"run__steps": 1, "run__preview__every": 1, "sample__steps": 1, "optim__ema__rule": "none"}
    assert world.train("run", **settings) == 0
    drawn = []
    for path in sorted((world.root / "run" / "samples" / "step-00000001").glob("*.png")):
        with Image.open(path) as image:
            drawn.append((read_record(image)["prompt"], f"{image.width}×{image.height}"))
    prompts = [prompt for prompt, _ in drawn]
    assert len(set(prompts)) == 4
    by_caption = {
        (world.images / name).with_suffix(".txt").read_text().strip(): line["bucket"]
        for name, line in report_of(world.root / "run").items()
    }
    assert drawn[1:] == [(prompt, by_caption[prompt]) for prompt in prompts[1:]]
    assert len({size for _, size in drawn}) > 1


def probe(path: Path) -> tuple[int, int, int, float, dict[str, str]]:
    """Frames, width, height, rate and metadata of a decoded file."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        count = sum(1 for _ in container.decode(stream))
        return count, stream.width, stream.height, float(stream.average_rate or 0), dict(container.metadata)


def test_previews_of_clips_are_video_files(shared_world: Any, write_clip: Callable[..., Path], tmp_path: Path) -> None:
    for number in range(2):
        write_clip(tmp_path / "films" / f"{number}.mp4", 6)
        (tmp_path / "films" / f"{number}.txt").write_text(f"clip {number}")
    settings = {
        "model__family": "wan", "model__path": "tiny-wan", "data__path": tmp_path / "films",
        "data__format": "videofolder", "data__resolution": 32, "data__buckets__step": 16, "data__clips__frames": 5,
        "data__crop": "center", "data__flip": 0.0, "data__batch_size": 2, "run__steps": 1, "run__preview__every": 1,
        "sample__steps": 1, "sample__guidance": 1, "sample__prompts": ["a ball"],
    }  # fmt: skip
    assert shared_world.train("clip-previews", **settings) == 0
    samples = shared_world.root / "clip-previews" / "samples"
    names = sorted(path.name for path in (samples / "step-00000001").iterdir())
    assert names == ["00-raw.mp4", "00-raw.png", "00-shadow.mp4", "00-shadow.png"]
    assert probe(samples / "step-00000001" / "00-raw.mp4")[:3] == (5, 32, 32)
    assert (samples / "grid.png").is_file()
    assert read_text("schema: 1").recipe.sample.clip.rate == 24.0
