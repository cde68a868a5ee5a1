"""What grows with the data set, against the plain way: a second start against a first listing, the nearest bucket and
the plan of an epoch against loops over lists.
CPU seconds, in turn, the median of several rounds."""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from bench_checks.data import cpu_seconds, planning
from mezzotint.data.buckets import buckets
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.settings.sections.data import BucketSettings, DataSettings
from mezzotint.shapes import Size

ROUNDS = 3
MANY = BucketSettings(step=8, max_aspect=2.0)
"""About as many buckets as the goal was set with; the fewer there are, the less a loop over them takes."""


def rows(
    rounds: int = ROUNDS, images: int = 10_000, samples: int = 1_000_000, many: int = 10_000_000
) -> list[tuple[str, str, str]]:
    """(mark, goal, figure) of each mark."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        again = _second_start(Path(folder), rounds, images)
    planned = _plans(rounds, samples)
    of_buckets = [_of_buckets(rounds, samples, table, goal) for table, goal in ((MANY, "≥ 50"), (BucketSettings(), ""))]
    growth = _in_parts(rounds, planning(many), planning(samples))
    return [
        (f"first listing of {images:,} small images / second start", "≥ 50", f"{again:.0f}"),
        *of_buckets,
        (f"plan of {samples:,}, list of objects / ours", "≥ 5", f"{planned:.1f}"),
        (f"plan of {many:,} / of {samples:,}", "≤ 15", f"{growth:.1f}"),
    ]


def _in_parts(rounds: int, work: Callable[[], object], of: Callable[[], object]) -> float:
    """Seconds of one work in parts of the other's."""
    return statistics.median(cpu_seconds(work) / cpu_seconds(of) for _ in range(rounds))


def _second_start(folder: Path, rounds: int, num: int) -> float:
    """The catalogue made, with all images decoded, in parts of the catalogue taken from its index."""
    for number in range(num):
        place = folder / "images" / f"{number // 1000:04d}"
        place.mkdir(parents=True, exist_ok=True)
        colour = number % 256, number // 256 % 256, number // 65536
        Image.new("RGB", (96 + 8 * (number % 9), 128), colour).save(place / f"{number}.jpg")
        (place / f"{number}.txt").write_text(f"image {number}", "utf-8")
    settings = DataSettings(path=(folder / "images",), resolution=64)

    def build() -> None:
        catalogues.build(settings, folder / "index", workers=1)

    first = cpu_seconds(build)
    return first / statistics.median(cpu_seconds(build) for _ in range(rounds))


def _of_buckets(rounds: int, num: int, chosen: BucketSettings, goal: str) -> tuple[str, str, str]:
    settings = DataSettings(resolution=1024, buckets=chosen)
    count = len(buckets.table(settings))
    figure = _buckets(rounds, num, settings)
    return f"nearest of {count} buckets for {num:,} samples, loop in Python / ours", goal, f"{figure:.0f}"


def _buckets(rounds: int, num: int, settings: DataSettings) -> float:
    draw = np.random.default_rng(0)
    widths, heights = (draw.integers(512, 4096, num) for _ in range(2))
    table, some = buckets.table(settings), max(1, num // 50)  # the loop takes seconds for few already
    sizes = list(zip(widths[:some].tolist(), heights[:some].tolist(), strict=True))
    part = _in_parts(
        rounds, lambda: nearest_by_loop(sizes, table), lambda: buckets.of_images(widths, heights, settings)
    )
    return part * num / some


def nearest_by_loop(sizes: Sequence[tuple[int, int]], table: Sequence[Size]) -> list[int]:
    """For each width and height the bucket whose aspect is nearest, one after the other."""
    aspects = [bucket.width / bucket.height for bucket in table]
    return [min(range(len(aspects)), key=lambda i: abs(aspects[i] - width / height)) for width, height in sizes]


class _Item:
    __slots__ = ("bucket", "name")

    def __init__(self, name: str, bucket: int) -> None:
        self.name, self.bucket = name, bucket


def _plans(rounds: int, num: int) -> float:
    numbers = np.random.default_rng(0).integers(0, 35, num).tolist()
    items = [_Item(str(at), bucket) for at, bucket in enumerate(numbers)]
    return _in_parts(rounds, lambda: plan_of_objects(items, 8), planning(num))


def plan_of_objects(items: Sequence[_Item], batch_size: int) -> list[list[_Item]]:
    """An epoch as trainers with a list of objects have it: shuffled, one list a bucket, cut, batches shuffled."""
    draw, shuffled, by_bucket = random.Random(0), list(items), dict[int, list[_Item]]()
    draw.shuffle(shuffled)
    for item in shuffled:
        by_bucket.setdefault(item.bucket, []).append(item)
    batches = [some[at : at + batch_size] for some in by_bucket.values() for at in range(0, len(some), batch_size)]
    draw.shuffle(batches)
    return batches
