"""The start of a run on a thousand processes, with the code of a real one: what each of them does, and how it grows.

    python tools/simulate_scale.py          1,000 ranks over 1 and 10 million samples; minutes, 4 GB of disk
    python tools/simulate_scale.py --samples 20000 200000 --ranks 100

A data set of a few images is indexed as always; its index is written anew with so many rows, each with a content of
its own, and shards name latents for all of them (their rows are holes in files, which take no room). Each number of
samples has a process of its own. Seconds are of the processor.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image

from mezzotint.data.cache import shard_files, store
from mezzotint.data.cache.entries import LatentCache, LatentLayout
from mezzotint.data.cache.store import Store
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue import sharing
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.files import columns
from mezzotint.data.files.listing import walk
from mezzotint.data.loading.loader import RankShare
from mezzotint.data.media import decoding
from mezzotint.data.schedule.columns import plan_columns
from mezzotint.data.schedule.plan import Timeline
from mezzotint.runtimes.base import Launch
from mezzotint.runtimes.shared.processes import Processes
from mezzotint.settings.sections.data import DataSettings
from mezzotint.settings.sections.holdout import HoldoutSettings
from mezzotint.settings.sections.run import RunSettings
from mezzotint.tasks.cache import inventory

SIZES = ((96, 64), (64, 96), (64, 64), (80, 64))
BATCH = 4000
GOAL = 100_000_000
STEPS_CUT = 100
RANKS_TIMED = 20
SHORT = 0.05  # seconds of a part that is done thrice
SHARD_ROWS = 131_072  # of 4 GiB, in rows of 32 KB

Figures = dict[str, float]
Subject = TypeVar("Subject")
Result = TypeVar("Result")


class _Measured:
    """Processor seconds of named parts, and the most anonymous memory while they ran."""

    def __init__(self) -> None:
        self.seconds: Figures = {}
        self.system: Figures = {}
        self.peak = 0.0

    def part(
        self,
        name: str,
        work: Callable[[Subject], Result],
        subject: Subject,
        again: Callable[[], Subject],
        *,
        times: int = 1,
    ) -> Result:
        """What the work makes of its subject. A part that is short is done thrice, and the least is told. again:
        makes the subject anew, so that nothing is kept from the time before. times: how many processes the part
        was done for, one of which is told."""
        result, least = self._timed(work, subject)
        if least[0] < SHORT:
            least = min(least, *(self._timed(work, again())[1] for _ in range(2)))
        self.seconds[name], self.system[name] = (seconds / times for seconds in least)
        return result

    def _timed(self, work: Callable[[Subject], Result], subject: Subject) -> tuple[Result, tuple[float, float]]:
        """With seconds, in all and of the system. No garbage is collected meanwhile: that costs what lies there from
        before, and comes when it likes."""
        ended, before = threading.Event(), _anonymous()
        watcher = threading.Thread(target=self._watch, args=(ended, before))
        watcher.start()
        gc.collect()
        gc.disable()
        start, of_system = time.thread_time(), _system_seconds()
        try:
            result = work(subject)
            seconds = time.thread_time() - start, _system_seconds() - of_system
        finally:
            gc.enable()
            ended.set()
            watcher.join()
        return result, seconds

    def _watch(self, ended: threading.Event, before: float) -> None:
        while not ended.wait(0.02):
            self.peak = max(self.peak, _anonymous())
        self.peak = max(self.peak, _anonymous())


def _system_seconds() -> float:
    """What the system has taken for this thread: above all to hand out memory that is new."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_stime


def _anonymous() -> float:
    """Bytes of this process that are no file's."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


# --- the world --------------------------------------------------------------------------------------------------------


def settings_of(folder: Path) -> DataSettings:
    """A data set of small images with cached latents, and batches of four for each of 1,000 processes."""
    values = {"path": [folder / "images"], "resolution": 64, "buckets": {"step": 8}, "batch_size": BATCH,
              "cache": {"latents": True, "path": folder / "cache"}}  # fmt: skip
    return DataSettings.model_validate(values)


def write_images(folder: Path, count: int) -> None:
    """Small images with captions."""
    folder.mkdir(parents=True)
    for i in range(count):
        Image.new("RGB", SIZES[i % len(SIZES)], (i % 256, i // 256 % 256, i // 65536)).save(folder / f"{i:06d}.png")
        (folder / f"{i:06d}.txt").write_text(f"image {i}")


def widened(folder: Path, settings: DataSettings, count: int) -> Catalogue:
    """The catalogue of a few images with `count` rows, each of its own key and content."""
    small = catalogues.build(settings, folder / "cache" / "catalogues", workers=1)
    table, about = columns.read(small.folder)
    columns.write(small.folder.with_name(f"{count:032x}"), wide_columns(table, count), about)
    return Catalogue.open(small.folder.with_name(f"{count:032x}"), small.roots)


def wide_columns(table: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The columns of an index of a few images again and again, `count` rows, each of its own key and content."""
    n, rng = len(table["width"]), np.random.default_rng(0)
    texts = {name.removesuffix("_offsets") for name in table if name.endswith("_offsets")}
    wide: dict[str, Any] = {}
    for name, column in table.items():
        if name in texts or name.endswith("_offsets") or name == "caption_starts" or not len(column):
            continue
        wide[name] = np.resize(column, (count, *column.shape[1:])) if len(column) == n else column
    for name in texts:
        wide |= _repeated(columns.Texts.in_table(table, name), name, count)
    wide["caption_starts"] = np.arange(count + 1, dtype=np.int64)
    wide["digest"] = rng.integers(0, 256, (count, 32), dtype=np.uint8)
    wide["key_hash"] = rng.integers(0, 1 << 63, count, dtype=np.uint64)
    return wide | {name: column for name, column in table.items() if name not in wide}


def _repeated(texts: columns.Texts, name: str, count: int) -> dict[str, Any]:
    """Texts again and again, `count` in all."""
    if not len(texts):
        return texts.columns(name)
    lengths = np.resize(np.diff(texts.offsets), count)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    return columns.Texts(np.resize(texts.blob, int(offsets[-1])), offsets).columns(name)


def fill_in_name(catalogue: Catalogue, settings: DataSettings, latents: LatentCache) -> None:
    """Shards that name latents of all rows, and hold none."""
    latents.define(latents.layout or LatentLayout(8, 8))
    for first in range(0, len(catalogue), 1 << 20):
        rows = np.arange(first, min(first + (1 << 20), len(catalogue)), dtype=np.int32)
        for entries in inventory.latent_entries(catalogue, rows, settings, latents):
            of_bucket = latents.store(entries.bucket)
            assert of_bucket is not None
            name_entries(of_bucket, entries.addresses)


def name_entries(entries: Store, addresses: Any) -> None:
    """Shards of rows of zeros under addresses, (n, 32): holes in files, which take no room."""
    entries.folder.mkdir(parents=True, exist_ok=True)
    factors = shard_files.checksum_factors(8)
    for start in range(0, len(addresses), SHARD_ROWS):
        some = addresses[start : start + SHARD_ROWS]
        sums = shard_files.checksums(some, np.zeros((len(some), 8), np.uint8), factors)  # whatever zeros there are
        place = entries.folder / os.urandom(8).hex()
        place.with_suffix(".index").write_bytes(shard_files.records_of(some, np.arange(len(some)), sums).tobytes())
        with place.with_suffix(".rows").open("wb") as file:
            file.truncate(len(some) * entries.row_bytes)


# --- what every process does ------------------------------------------------------------------------------------------


def a_start(folder: Path, count: int, ranks: int) -> dict[str, Any]:
    """The parts of a start over `count` samples: of one process among `ranks`."""
    settings, measured = settings_of(folder), _Measured()
    address = sharing.to_address(widened(folder, settings, count))
    index, roots = Path(json.loads(address)[0]), list(map(Path, json.loads(address)[1]))
    ordering = _fill(Catalogue.open(index, roots), settings, _cache(folder, settings))
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)  # what was freed is no part of what is counted from here on
    base = _anonymous()

    def open_index(_: None) -> Catalogue:
        return Catalogue.open(index, roots)

    def chosen(catalogue: Catalogue) -> tuple[Any, Timeline]:
        rows, _ = catalogue.split(HoldoutSettings(), 7)
        timeline = Timeline(plan_columns(catalogue, rows, settings), settings, 1, 7)
        timeline.steps_until(1)
        return rows, timeline

    def open_shards(_: None) -> LatentCache:
        latents = _cache(folder, settings)
        for entries in inventory.latent_entries(catalogue, rows[:1000], settings, latents):
            latents.store(entries.bucket)
        return latents

    def absent_in(latents: LatentCache) -> int:
        return sum(_absent(catalogue, rows, settings, latents, rank, ranks) for rank in range(timed))

    def cut(starts: Any) -> list[int]:
        return [_cuts(starts, rank, ranks) for rank in range(timed)]

    def nothing() -> None:
        return None

    timed = min(ranks, RANKS_TIMED)
    catalogue = measured.part("open the index, every byte checked", open_index, None, nothing)
    rows, timeline = measured.part(
        "choose rows, their buckets, the run's length", chosen, catalogue, lambda: Catalogue.open(index, roots)
    )
    epoch = measured.part(
        "plan an epoch", lambda one: one.epoch(0), timeline, lambda: Timeline(timeline.columns, settings, 1, 7)
    )
    every = measured.part("its part of all steps, cut", cut, epoch.starts, lambda: epoch.starts, times=timed)
    planned = measured.peak - base
    _require_whole(epoch.starts, ranks)
    latents = measured.part("open the cache's shards", open_shards, None, nothing)
    absent = measured.part("look up its part of the cache", absent_in, latents, lambda: open_shards(None), times=timed)
    assert absent == 0, f"{absent} entries are named and were not found"
    assert len(every) == timed
    figures = {"seconds": measured.seconds, "memory of a plan": planned, "memory": measured.peak - base,
               "ordering": ordering, "system": sum(measured.system.values())}  # fmt: skip
    return figures | {"index": sum(path.stat().st_size for path in index.iterdir()), "steps": epoch.num_steps}


def _cache(folder: Path, settings: DataSettings) -> LatentCache:
    return LatentCache(folder / "cache", settings, identity="simulated", compute="fp32", seed=7)


def _fill(catalogue: Catalogue, settings: DataSettings, latents: LatentCache) -> float:
    """Names latents of all rows. Returns the processor seconds of what the first process does behind a filling."""
    fill_in_name(catalogue, settings, latents)
    start = time.process_time()
    for of_bucket in latents.stores:
        of_bucket.refresh()
        of_bucket.put_in_order()
    return time.process_time() - start


def _cuts(starts: Any, rank: int, ranks: int) -> int:
    share = RankShare(rank, ranks)
    lengths = np.diff(starts[: STEPS_CUT + 1]).tolist()
    return sum(stop - start for length in lengths for start, stop in share.cuts(length))


def _require_whole(starts: Any, ranks: int) -> None:
    """All shares together are all samples of the steps."""
    total = sum(_cuts(starts, rank, ranks) for rank in range(ranks))
    assert total == int(starts[: STEPS_CUT + 1][-1]), (total, "samples are trained twice, or by nobody")


def _absent(
    catalogue: Catalogue, rows: Any, settings: DataSettings, latents: LatentCache, rank: int, ranks: int
) -> int:
    mine, absent = rows[inventory.images_of_process(catalogue.digest[rows], rank, ranks)], 0
    for entries in inventory.latent_entries(catalogue, mine, settings, latents):
        of_bucket = latents.store(entries.bucket)
        assert of_bucket is not None
        absent += int((~of_bucket.has(store.as_addresses(entries.addresses), checks=False)).sum())
    return absent


# --- agreeing, and what one process does for all ----------------------------------------------------------------------


def agreeing(ranks: int, times: int = 3) -> float:
    """Processor seconds of one process for one agreement among `ranks` threads, each a process of its own to torch."""
    from torch.testing._internal.distributed import multi_threaded_pg as threaded

    threaded._install_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    answers: list[Any] = [None] * ranks
    meeting = dist.HashStore()

    def rank_runs(rank: int) -> None:
        dist.init_process_group("threaded", rank=rank, world_size=ranks, store=meeting)
        runtime = Processes(torch.device("cpu"), Launch(rank=rank, world_size=ranks), RunSettings())
        answers[rank] = [runtime.agree(2 if rank == number % ranks else 0) for number in range(times)]

    before = threading.stack_size(256 << 10)
    start = time.process_time()
    threads = [threading.Thread(target=rank_runs, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.process_time() - start
    threading.stack_size(before)
    torch._C._distributed_c10d._set_thread_isolation_mode(False)
    threaded._uninstall_threaded_pg()
    assert answers == [[2] * times] * ranks, "what one asks all hear"
    return seconds / ranks / times


def for_all(folder: Path, count: int) -> Figures:
    """Processor seconds a sample of what the first process does for all: listing, and looking at each file."""
    write_images(folder / "many", count)
    start = time.process_time()
    walk(folder / "many", decoding.SUFFIXES | {".txt"})
    listed = time.process_time() - start
    settings = settings_of(folder).model_copy(update={"path": folder / "many", "verify": "on_first_use"})
    start = time.process_time()
    catalogues.build(settings, folder / "first", workers=1)
    return {"list": listed / count, "index, images not decoded": (time.process_time() - start - listed) / count}


# --- the table --------------------------------------------------------------------------------------------------------


def exponent(counts: Sequence[int], seconds: Sequence[float]) -> float:
    """p where the seconds grow as the count to the power of p."""
    return math.log(max(seconds[-1], 1e-9) / max(seconds[0], 1e-9)) / math.log(counts[-1] / counts[0])


def extrapolated(count: int, figure: float) -> float:
    """At `GOAL` samples, growing as n log n."""
    return figure * GOAL * math.log(GOAL) / (count * math.log(count))


def table(counts: Sequence[int], results: Sequence[dict[str, Any]]) -> list[str]:
    """Seconds of each part by number of samples, their growth, and what they would be at `GOAL`."""
    heads = ["part of a start, of each process", *(f"{count:,}" for count in counts), "grows as", f"{GOAL:,}"]
    lines = [heads, ["---"] * len(heads)]
    parts = list(results[0]["seconds"])
    for part in parts:
        seconds = [result["seconds"][part] for result in results]
        lines.append([part, *(f"{one:.3g} s" for one in seconds), f"n^{exponent(counts, seconds):.2f}",
                      f"{extrapolated(counts[-1], seconds[-1]):.3g} s"])  # fmt: skip
    sums = [sum(result["seconds"].values()) for result in results]
    lines.append(["**together**", *(f"{one:.3g} s" for one in sums), f"n^{exponent(counts, sums):.2f}",
                  f"**{extrapolated(counts[-1], sums[-1]):.3g} s**"])  # fmt: skip
    own = [total - result["system"] for total, result in zip(sums, results, strict=True)]
    lines.append(["without the system, which hands out memory", *(f"{one:.3g} s" for one in own),
                  f"n^{exponent(counts, own):.2f}", ""])  # fmt: skip
    for name in ("memory of a plan", "memory", "index"):
        sizes = [result[name] for result in results]
        lines.append([_SIZES[name], *(f"{one / 1e6:,.0f} MB" for one in sizes), f"n^{exponent(counts, sizes):.2f}",
                      f"{sizes[-1] * GOAL / counts[-1] / 1e9:.3g} GB"])  # fmt: skip
    return [f"| {' | '.join(line)} |" for line in lines]


_SIZES = {
    "memory of a plan": "memory of its own, without a cache",
    "memory": "memory of its own, with the cache's index",
    "index": "index on disk, mapped, one copy a machine",
}


def in_a_process(count: int, ranks: int, folder: Path) -> dict[str, Any]:
    """`a_start` in a process that has done nothing else."""
    words = [sys.executable, __file__, "--one", str(count), "--ranks", str(ranks), "--folder", str(folder)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def simulate(counts: Sequence[int], ranks: int, folder: Path, run: Callable[..., dict[str, Any]]) -> list[str]:
    """The lines of the report."""
    results = []
    for count in counts:
        place = folder / str(count)
        write_images(place / "images", 64)
        results.append(run(count, ranks, place))
        shutil.rmtree(place)
    lines = [f"{ranks:,} ranks, batches of {BATCH:,}", "", *table(counts, results), ""]
    few = max(2, ranks // 100)
    agreed = {world: agreeing(world) for world in sorted({few, max(2, ranks // 10), ranks})}
    lines.append("agreeing once, each process: " + ", ".join(f"{1e6 * s:.0f} µs of {w:,}" for w, s in agreed.items()))
    each = for_all(folder, min(2000, counts[0])) | {"the cache in order": results[-1]["ordering"] / counts[-1]}
    lines += [f"one process for all, {name}: {1e6 * one:.3g} µs a sample, {GOAL * one / 3600:.3g} h at {GOAL:,}"
              for name, one in each.items()]  # fmt: skip
    return lines


def main(words: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--one", type=int)
    args = parser.parse_args(words)
    torch.set_num_threads(1)
    if args.one is not None:
        print(json.dumps(a_start(args.folder, args.one, args.ranks)))
        return 0
    with suppress(FileNotFoundError), tempfile.TemporaryDirectory(dir=args.folder) as folder:
        print("\n".join(simulate(args.samples, args.ranks, Path(folder), in_a_process)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
