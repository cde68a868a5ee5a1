"""What filling a cache costs: photos of one to four megapixels at 512 × 512 with a small autoencoder, against the usual
way, one image after the other: Pillow, the network as it was loaded, an .npz.
CPU seconds, in turn, the median of several rounds; two processes against one by the clock as well, so the machine must
be quiet."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from mezzotint.data.buckets import buckets
from mezzotint.data.cache.entries import Caches
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.media import decoding
from mezzotint.settings.reading.read import resolve_paths
from mezzotint.shapes import Size, cover
from mezzotint.stages import Placement
from mezzotint.tasks import assemble
from mezzotint.tasks.cache import inventory
from mezzotint.tasks.cache.filling import Worker, fill
from mezzotint.tasks.reading.arguments import parse

ROUNDS = 3
IMAGES = 16
CPU = torch.device("cpu")
Prepared = tuple[Any, Caches, Any, Catalogue]
"""Recipe, its caches, a family that encodes, and what there is to encode."""


def rows(rounds: int = ROUNDS, images: int = IMAGES) -> list[tuple[str, str, str]]:
    """(mark, goal, figure) of each mark."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        draw = np.random.default_rng(0)
        for number in range(images):
            photo(draw, 1024 + 64 * (number % 16)).save(folder / f"{number:03d}.jpg", quality=92)
        ratios = []
        for number in range(rounds):
            one_by_one = _one_by_one(folder, folder / f"npz-{number}")
            prepared = _prepared(folder, folder / f"cache-{number}")
            ratios.append(one_by_one / _fill(prepared, np.arange(len(prepared[-1]), dtype=np.int32))[0])
        alike = folder / "alike" / "images"
        alike.mkdir(parents=True)
        for number in range(2 * images):
            photo(draw, 1280).save(alike / f"{number:03d}.jpg", quality=92)
        by_clock, by_cpu = by_two(alike, rounds, _processes)
        faster, decibels = _large(folder / "large.jpg", rounds)
    return [
        ("12 megapixels → 512, whole / decoded smaller", "≥ 2.4", f"{faster:.2f}"),
        ("PSNR of that", "≥ 50 dB", f"{decibels:.1f} dB"),
        ("one by one / filled", "≥ 1.3", f"{statistics.median(ratios):.2f}"),
        ("images a second by the clock, two processes / one", "≥ 1.8", f"{by_clock:.2f}"),
        ("the same a CPU second", "", f"{by_cpu:.2f}"),
    ]


def photo(draw: np.random.Generator, width: int) -> Image.Image:
    """Something like a photo: large and small shapes, and a little grain."""
    size = (width, width * 3 // 4)
    image = np.zeros((size[1], size[0], 3), np.float32)
    for cells, strength in ((6, 120.0), (40, 50.0), (250, 20.0)):
        noise = draw.random((cells * 3 // 4, cells, 3), dtype=np.float32) - 0.5
        layers = [Image.fromarray(noise[..., i]).resize(size, Image.Resampling.BICUBIC) for i in range(3)]
        image += strength * np.stack([np.asarray(layer) for layer in layers], axis=2)
    image += draw.normal(0.0, 2.0, image.shape).astype(np.float32)
    return Image.fromarray(np.clip(image + 128, 0, 255).astype(np.uint8))


def _recipe(folder: Path, cache: Path) -> Any:
    words = ["tiny_cpu", f"data.path={folder}", f"data.cache.path={cache}", "data.cache.latents=true"]
    words += ["data.cache.dtype=fp16", "data.crop=center", "data.flip=0", "data.resolution=512"]
    return resolve_paths(
        parse([*words, "data.buckets.step=64", "data.workers=1", "data.captions.missing=empty"], "cache")
    )


def _prepared(folder: Path, cache: Path) -> Prepared:
    """With the model loaded."""
    recipe = _recipe(folder, cache)
    files = assemble.open_files(recipe)
    catalogue = catalogues.build(recipe.data, folder / "catalogues", workers=1)
    return recipe, assemble.open_caches(recipe, files), assemble.encoders(recipe, files, CPU)("media"), catalogue


def _fill(prepared: Prepared, rows: NDArray[np.int32], rank: int = 0, world_size: int = 1) -> tuple[float, int]:
    """CPU seconds without loading the model, and how many images were encoded."""
    recipe, caches, family, catalogue = prepared
    share: dict[str, Any] = {"rank": rank, "world_size": world_size, "gather": lambda text: (text,) * world_size}
    worker = Worker(catalogue, recipe.data, lambda _: family, CPU, say=lambda line: None, **share)
    counts: list[int] = []
    return _cpu(lambda: counts.append(fill(worker, rows, caches).encoded)), counts[0]


@torch.no_grad()
def _one_by_one(folder: Path, npz: Path) -> float:
    """CPU seconds without loading the model."""
    npz.mkdir()
    recipe = _recipe(folder, npz)
    vae: Any = assemble.encoders(recipe, assemble.open_files(recipe), CPU)("media").parts()["vae"]
    table, began = buckets.table(recipe.data), time.process_time()
    for path in sorted(folder.glob("*.jpg")):
        with Image.open(path) as file:
            image = file.convert("RGB")
        number = buckets.assign(np.array([image.width]), np.array([image.height]), table)[0]
        bucket = table[int(number)]
        to = cover(Size(*image.size), bucket)
        left, top = (to.width - bucket.width) // 2, (to.height - bucket.height) // 2
        resized = image.resize((to.width, to.height), Image.Resampling.LANCZOS)
        cut = np.array(resized.crop((left, top, left + bucket.width, top + bucket.height)))
        pixels: Tensor = torch.from_numpy(cut).permute(2, 0, 1)[None].float().div(127.5).sub(1)
        latents = vae.encode(pixels).latent_dist.sample() * 0.18215
        np.savez(npz / f"{path.stem}.npz", latents=latents[0].half().numpy())
    return time.process_time() - began


def _large(path: Path, rounds: int) -> tuple[float, float]:
    photo(np.random.default_rng(1), 4000).save(path, quality=92)
    placed = Placement(Size(512, 512), Size(683, 512), (0, 85))

    def image(scaled: bool) -> NDArray[np.uint8]:
        return decoding.image(path, placed, resize="lanczos", background="#ffffff", max_pixels=10**8, scaled=scaled)

    ratios = [_cpu(partial(image, False)) / _cpu(partial(image, True)) for _ in range(2 * rounds)]
    error = np.mean((image(False).astype(float) - image(True).astype(float)) ** 2)
    return statistics.median(ratios), float(10 * np.log10(255**2 / error))


@dataclass(frozen=True, slots=True)
class Filled:
    """What a process has done. began, ended: by a clock that all processes share."""

    images: int
    cpu_seconds: float
    began: float
    ended: float


def by_two(folder: Path, rounds: int, filled_by: Callable[[Path, int, int], Sequence[Filled]]) -> tuple[float, float]:
    """Images a second by the clock, and images a CPU second, of two processes at once in parts of one alone.
    filled_by: fills a cache from a folder, in so many processes, for the so-manieth time."""
    ratios = [
        [two / one for two, one in zip(*(paces(filled_by(folder, count, number)) for count in (2, 1)), strict=True)]
        for number in range(rounds)
    ]
    by_clock, by_cpu = (statistics.median(column) for column in zip(*ratios, strict=True))
    return by_clock, by_cpu


def paces(processes: Sequence[Filled]) -> tuple[float, float]:
    """Images of all processes a second, from when the first began until the last had ended; the sum of what each does
    in a CPU second."""
    images = sum(one.images for one in processes)
    seconds = max(one.ended for one in processes) - min(one.began for one in processes)
    return images / seconds, sum(one.images / one.cpu_seconds for one in processes)


def _processes(folder: Path, count: int, number: int) -> list[Filled]:
    """Each on a processor of its own. They begin together, once all have loaded the model."""
    words = [sys.executable, __file__, str(folder), str(folder.parent / f"cache-of-{count}-{number}")]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([*words, str(rank), str(count)], **pipes) for rank in range(count)]
    for process in running:
        while process.stdout.readline().strip() not in ("ready", ""):
            pass
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [Filled(**json.loads(process.communicate()[0].splitlines()[-1])) for process in running]


def _fill_a_share(folder: Path, cache: Path, rank: int, count: int) -> Filled:
    """In a process of its own. Half of the images are each one's, whatever their contents say."""
    if hasattr(os, "sched_setaffinity"):
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[rank % len(processors)]})
    prepared = _prepared(folder, cache)
    is_first = inventory.images_of_process(prepared[-1].digest, 0, 2)
    fewer = min(int(is_first.sum()), int((~is_first).sum()))
    rows = np.sort(np.concatenate([np.flatnonzero(of)[:fewer] for of in (is_first, ~is_first)])).astype(np.int32)
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    seconds, images = _fill(prepared, rows, rank, count)
    return Filled(images, seconds, began, time.monotonic())


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    torch.set_num_threads(1)
    source, target, place, of = sys.argv[1:]
    print(json.dumps(asdict(_fill_a_share(Path(source), Path(target), int(place), int(of)))))
