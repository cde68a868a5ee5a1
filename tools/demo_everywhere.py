"""The demonstration's lesson and examination, on several seeds, kinds of processor and numbers of threads; a table.

    python tools/demo_everywhere.py             # goes on where it stopped; about three minutes a run on one core
    python tools/demo_everywhere.py pages       # writes stored results into README.md and docs/start/demonstration.md

A kind of processor is a setting of PyTorch's libraries: which instructions they may use, and with that in which order
they add. Results lie in tools/mini/demo_everywhere.json, a run at a time; images, cache and the run that is going on
in demo/everywhere/. Each run is a process of its own; the first seed comes first under all settings.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mezzotint import durable
from mezzotint.settings.counting import format_count

sys.path.insert(0, str(Path(__file__).resolve().parent))
from mini import lesson

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tools" / "mini" / "demo_everywhere.json"
README, PAGE = ROOT / "README.md", ROOT / "docs" / "start" / "demonstration.md"
HERE = Path("demo/everywhere")
SEEDS = (0, 1, 2, 3, 4)
THREADS = (1, 2)
PROCESSORS: dict[str, dict[str, str]] = {
    "its own": {},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "SSE4": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}
"""Name → environment of a process, read by PyTorch, oneDNN and MKL when they are loaded."""

LEFT_OUT = ("run.preview.every=null", "run.save.every=null", "run.tensorboard=false")
"""What a run of the demonstration shows or keeps on its way; its weights do not depend on it."""

COLUMNS = ("shape", "colour", "position", "all")
Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("all", "pages", "one"), default="all")
    parser.add_argument("--processor", choices=tuple(PROCESSORS), help="of `one`: what its environment is set for")
    parser.add_argument("--threads", type=int, choices=THREADS, help="of `one`")
    parser.add_argument("--seed", type=int, choices=SEEDS, help="of `one`")
    options = parser.parse_args(arguments)
    if options.what == "one":
        return run_one(options.processor, options.threads, options.seed)
    if options.what == "all":
        for processor, threads, seed in missing(stored()):
            start_one(processor, threads, seed)
            lay_pages()
    lay_pages()
    print(table(stored()))
    return 0


def start_one(processor: str, threads: int, seed: int) -> None:
    """A run in a process with the setting's environment. Raises CalledProcessError when it fails."""
    words = [sys.executable, __file__, "one", f"--processor={processor}", f"--threads={threads}", f"--seed={seed}"]
    env = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, **PROCESSORS[processor], "OMP_NUM_THREADS": str(threads)}
    subprocess.run(words, env=env, check=True)


def run_one(processor: str, threads: int, seed: int) -> int:
    """One run in this process, whose environment is the setting's; returns the exit status."""
    import torch

    import demo
    from mezzotint.cli import main as mezzotint
    from mini import measure

    torch.set_num_threads(threads)
    folders = lesson.write(HERE / "images")
    began, cpu = time.monotonic(), time.process_time()
    name = processor.replace(" ", "-")
    place, cache = HERE / f"{name}-{threads}-{seed}", HERE / f"cache-{name}"
    line = [*demo.words(folders, cache, place), f"run.seed={seed}", f"run.threads={threads}", *LEFT_OUT]
    status = mezzotint(["train", "mini", *line])
    if status != 0:
        return status
    answers = lesson.examine(measure.load(demo.newest(place / "exports")))
    row: Row = {
        "processor": processor,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "seed": seed,
        "new": dict(answers.new),
        "old": dict(answers.old),
        "seconds": round(time.monotonic() - began),
        "cpu_seconds": round(time.process_time() - cpu),
    }
    keep([*stored(), row])
    shutil.rmtree(place)
    print(row, flush=True)
    return 0


def stored() -> list[Row]:
    """The runs that are done."""
    if not RESULTS.is_file():
        return []
    rows: list[Row] = json.loads(RESULTS.read_text("utf-8"))["runs"]
    return rows


def keep(rows: Sequence[Row]) -> None:
    """Writes the runs, in the order of the table."""
    order = list(PROCESSORS)
    ordered = sorted(rows, key=lambda row: (order.index(row["processor"]), row["threads"], row["seed"]))
    lines = ",\n".join(json.dumps(row) for row in ordered)
    machine = json.dumps({"system": platform.system(), "processor": processor_name()})
    RESULTS.write_text(f'{{"machine": {machine},\n"runs": [\n{lines}\n]}}\n', encoding="utf-8", newline="\n")


def processor_name() -> str:
    """What Linux calls this machine's processor."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text("utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def missing(rows: Sequence[Row]) -> list[tuple[str, int, int]]:
    """Processor, threads and seed of the runs that no row tells of, in the order in which they are made."""
    done = {(row["processor"], row["threads"], row["seed"]) for row in rows}
    runs = [(processor, threads, seed) for seed in SEEDS for threads in THREADS for processor in PROCESSORS]
    return [run for run in runs if run not in done]


def worst(rows: Sequence[Row], world: str, column: str) -> float:
    """The smallest share of the runs. world: `new` or `old`."""
    return float(min(row[world][column] for row in rows))


def usual(rows: Sequence[Row], world: str, column: str) -> float:
    """The median share of the runs."""
    return float(statistics.median(row[world][column] for row in rows))


def table(rows: Sequence[Row]) -> str:
    """Every run, and below them the worst and the usual of each column, in Markdown."""
    heads = [*(f"new word: {name}" for name in COLUMNS), "old world: all", "seconds", "CPU seconds"]
    lines = ["| processor | threads | seed | " + " | ".join(heads) + " |", "| --- " * (3 + len(heads)) + "|"]
    for row in rows:
        cells = [*(f"{row['new'][name]:.0%}" for name in COLUMNS), f"{row['old']['all']:.0%}"]
        cells += [str(row["seconds"]), str(row["cpu_seconds"])]
        lines.append(f"| {row['processor']} | {row['threads']} | {row['seed']} | " + " | ".join(cells) + " |")
    if rows:
        for name, pick in (("worst", worst), ("usual", usual)):
            cells = [*(f"{pick(rows, 'new', column):.0%}" for column in COLUMNS), f"{pick(rows, 'old', 'all'):.0%}"]
            lines.append(f"| **{name}** | | | " + " | ".join(cells) + " | | |")
    return "\n".join(lines)


def said(rows: Sequence[Row]) -> str:
    """The usual and the worst in words, as README has it; nothing of no runs."""
    if not rows:
        return ""
    seeds, processors = (len({row[name] for row in rows}) for name in ("seed", "processor"))

    def pair(world: str) -> str:
        return f"{usual(rows, world, 'all'):.0%} (worst run {worst(rows, world, 'all'):.0%})"

    text = (
        f"In {format_count(len(rows), 'run')} ({format_count(seeds, 'seed')}, "
        f"{format_count(processors, 'processor setting')}), of "
        "100 wugs in colours and at places that it was never shown, this share was right in shape, colour and "
        f"position: {pair('new')}; of 100 objects that it knew before: {pair('old')}. "
        "[All runs](docs/start/demonstration.md)."
    )
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def lay_pages() -> None:
    """Writes README and the page with what is stored."""
    for page in (README, PAGE):
        durable.write_file(page, laid_in(page.read_text("utf-8"), stored()))


def laid_in(text: str, rows: Sequence[Row]) -> str:
    """A page with what is said, or the table, between its marks."""
    for name, content in (("runs", said(rows)), ("table of runs", table(rows) + "\n")):
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if begin in text:
            head, rest = text.split(begin)
            text = head + begin + content + end + rest.split(end)[1]
    return text


if __name__ == "__main__":
    sys.exit(main())
