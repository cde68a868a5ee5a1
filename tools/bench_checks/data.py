"""What the data path costs: latents against one .npz an image, the plan of ten million visits, the listing of files,
the first look at an image.
CPU seconds, in turn, the median of several rounds."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from mezzotint.data.cache.store import Store
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.files.listing import walk
from mezzotint.data.media import decoding
from mezzotint.data.schedule.columns import PlanColumns
from mezzotint.data.schedule.plan import plan
from mezzotint.settings.sections.data import DataSettings

ROUNDS = 5
SHAPE = (4, 128, 128)
"""Of a latent: 128 KiB in fp16, that of an image of 1024 × 1024 pixels."""


def rows(rounds: int = ROUNDS, latents: int = 1024, visits: int = 10_000_000) -> list[tuple[str, str, str]]:
    """(mark, goal, figure) of each mark."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        write, first, again = _latents(Path(folder), rounds, latents)
        listing = _listing(Path(folder) / "files", 20_000)
        glance = _first_look(Path(folder) / "image.jpg", rounds)
        hashed, decoded, opened = first_listing(Path(folder), rounds)
    seconds, peak = _plan(visits)
    return [
        ("npz / latent written, with syncs", "≥ 4", f"{write:.1f}"),
        ("npz / latent read for the first time", "≥ 5", f"{first:.1f}"),
        ("npz / latent read again", "≥ 10", f"{again:.1f}"),
        (f"plan of {visits:,} visits", "≤ 1 s", f"{seconds:.2f} s"),
        ("memory of that plan", "≤ 100 MB", f"{peak / 1e6:.0f} MB"),
        ("listing an image with its caption", "≤ 2 µs", f"{listing * 1e6:.1f} µs"),
        ("decoding and hashing it / data.verify=on_first_use", "", f"{glance:.1f}"),
        ("first listing of JPEGs, data.verify=on_first_use, each", "", f"{hashed * 1e6:.0f} µs"),
        ("first listing of JPEGs, data.verify=on_start, each", "", f"{decoded * 1e6:.0f} µs"),
        ("first listing with data.verify=on_first_use / opening one with Pillow", "", f"{hashed / opened:.1f}"),
    ]


def _latents(folder: Path, rounds: int, num: int) -> tuple[float, ...]:
    values = torch.randn(num, *SHAPE).to(torch.float16)
    addresses = np.random.default_rng(0).integers(0, 256, (num, 32), dtype=np.uint8)
    batches = [slice(i, i + 8) for i in range(0, num, 8)]
    order = np.random.default_rng(1).permutation(num)
    ratios = []
    for number in range(rounds):
        # each is removed before the other is written, so that both get memory that this machine has in use
        npz, ours = folder / f"npz-{number}", folder / f"store-{number}"
        npz.mkdir()
        seconds = [
            cpu_seconds(partial(_write_npz, npz, values)),
            cpu_seconds(partial(_read_npz, npz, [order[s] for s in batches])),
        ]
        shutil.rmtree(npz)
        write = cpu_seconds(partial(_fill, ours, addresses, values, batches))
        store = Store(ours, shape=SHAPE, dtype="fp16")
        first, again = (cpu_seconds(partial(_fetch, store, [addresses[order[s]] for s in batches])) for _ in range(2))
        shutil.rmtree(ours)
        ratios.append((seconds[0] / write, seconds[1] / first, seconds[1] / again))
    return tuple(statistics.median(column) for column in zip(*ratios, strict=True))


def _fetch(store: Store, batches: Sequence[NDArray[np.uint8]]) -> None:
    for addresses in batches:
        store.fetch(addresses)


def _fill(folder: Path, addresses: NDArray[np.uint8], values: Tensor, batches: Sequence[slice]) -> None:
    store = Store(folder, shape=SHAPE, dtype="fp16")
    for some in batches:
        store.append(addresses[some], values[some], at_once=False)
    store.close_writer()


def _write_npz(folder: Path, values: Tensor) -> None:
    for number, value in enumerate(values.numpy()):
        np.savez(folder / f"{number}.npz", latents=value)


def _read_npz(folder: Path, batches: Sequence[NDArray[np.int64]]) -> None:
    for some in batches:
        torch.stack([torch.from_numpy(np.load(folder / f"{number}.npz")["latents"]) for number in some])


def planning(num: int) -> Callable[[], object]:
    """Plans an epoch of so many samples in 35 buckets."""
    draw = np.random.default_rng(0)
    buckets = draw.integers(0, 35, num).astype(np.int16)
    columns = PlanColumns(draw.integers(0, 2**63, num, dtype=np.uint64), buckets, np.ones(num, np.float32))
    settings = DataSettings(resolution=1024, batch_size=8)
    return partial(plan, columns, settings, accumulation=1, seed=1, epoch=0)


def _plan(num: int) -> tuple[float, int]:
    """Seconds, and bytes at the most."""
    plan_once = planning(num)
    seconds = min(cpu_seconds(plan_once) for _ in range(2))
    tracemalloc.start()
    plan_once()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak


def _listing(folder: Path, num: int) -> float:
    """Seconds an image."""
    for number in range(num):
        place = folder / f"{number // 1000:04d}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.jpg").touch()
        (place / f"{number}.txt").touch()
    return min(cpu_seconds(lambda: walk(folder, {".jpg", ".txt"})) for _ in range(3)) / num


def photo() -> Image.Image:
    """Half a megapixel, about 140 kB as a JPEG of quality 90."""
    small = np.random.default_rng(0).integers(0, 256, (64, 80, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((800, 640), Image.Resampling.BICUBIC)


def first_listing(folder: Path, rounds: int, num: int = 500) -> tuple[float, float, float]:
    """Seconds per image of all that happens before a first run over a folder of JPEGs: listing, hashing each file and
    opening (`data.verify=on_first_use`) or decoding it (`start`), writing the index. Last what Pillow needs to open a
    file, which is all that a plain loop over sizes does."""
    images, small = folder / "jpegs", photo()
    images.mkdir()
    for number in range(num):
        small.save(images / f"{number:04d}.jpg", quality=90, comment=str(number))  # no two are alike
        (images / f"{number:04d}.txt").write_text("an image", "utf-8")
    seconds = []
    for number in range(rounds):
        one = []
        for verify in ("on_first_use", "on_start"):
            settings = DataSettings(path=(images,), verify=verify)
            index = folder / f"index-{verify}-{number}"
            one.append(cpu_seconds(partial(catalogues.build, settings, index, workers=1)))
        one.append(cpu_seconds(lambda: [_size(path) for path in images.glob("*.jpg")]))
        seconds.append(one)
    hashed, decoded, opened = (statistics.median(column) / num for column in zip(*seconds, strict=True))
    return hashed, decoded, opened


def _size(path: Path) -> tuple[int, int]:
    with Image.open(path) as file:
        return file.size


def _first_look(path: Path, rounds: int, num: int = 100) -> float:
    """How many times as long decoding and hashing a file takes as opening and hashing it. The file is in memory."""
    photo().save(path, quality=90)
    ratios = []

    def times(num: int, work: Callable[[], object]) -> float:
        return cpu_seconds(lambda: [work() for _ in range(num)]) / num

    for _ in range(rounds):
        probed = times(num // 5, lambda: decoding.probe(path, 10**8))
        ratios.append(probed / times(num, lambda: decoding.probe_quickly(path, 10**8)))
    return statistics.median(ratios)


def cpu_seconds(work: Callable[[], object]) -> float:
    """Of the work, done once."""
    began = time.process_time()
    work()
    return time.process_time() - began
