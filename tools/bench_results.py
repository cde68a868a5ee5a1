"""`make benchmarks`: measures what `benchmarks/` keeps for this device, and writes its README's table.

    python tools/bench_results.py            some minutes; on a quiet machine
    python tools/bench_results.py --table    the table alone, of what lies there

Each result is the JSON document of one `mezzotint bench`, as it is: `benchmarks/DEVICE/NAME.json`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mezzotint.cli import main as mezzotint
from mezzotint.tasks.bench.origin import processor

ROOT = Path(__file__).parents[1]
RUNS: Mapping[str, Sequence[str]] = {
    "tiny_cpu": ("tiny_cpu", "--steps=65", "--fast", "--against=stock"),
}
"""By name, the words behind `mezzotint bench`."""

_PLACES = ("data.cache.path=", "--out=")
"""What a command says of places, which changes no figure."""

BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def device() -> str:
    """What computes here, as a folder's name."""
    name = processor()
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name(0)
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def measure(folder: Path) -> None:
    """Every run, into a device's folder; results that lie there are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in RUNS.items():
        with tempfile.TemporaryDirectory() as out:
            cached = f"data.cache.path={out}/cache"
            if mezzotint(["bench", words[0], cached, *words[1:], f"--out={out}/result"]):
                raise SystemExit(f"{name} could not be measured")
            shutil.copyfile(Path(out, "result", "bench.json"), folder / f"{name}.json")


def table(root: Path) -> str:
    """Markdown of all results: device, file, result, command."""
    lines = ["| device | file | result | command |", "|---|---|---|---|"]
    for file in sorted(root.glob("*/*.json")):
        document = json.loads(file.read_text("utf-8"))
        how = _how(document)
        results = "; ".join(_results(document))
        lines.append(f"| {file.parent.name} | [{file.stem}]({file.relative_to(root)}) | {results} | {how} |")
    return "\n".join(lines)


def _how(document: Mapping[str, Any]) -> str:
    """The command and when it ran on which commit, where the document has them."""
    if "command" not in document:
        return ""
    words = [word for word in document["command"] if not word.startswith(_PLACES)]
    commit = document["environment"]["commit"] or "a release"
    return f"`{' '.join(words)}`, {document['date'][:10]}, {commit[:12]}"


def _results(document: Mapping[str, Any]) -> Iterator[str]:
    for name, part in document.get("parts", {}).items():  # of tools/check_gpu.py
        yield f"{name}: {'ok' if part['ok'] else 'failed'}" if part["ok"] is not None else name
    for row in document.get("rows", ()):
        if row.get("against"):
            by = row["against"]["cpu_seconds" if row["against"]["by"] == "CPU seconds" else "seconds"]
            spread = f"{by['lowest']:.2f} to {by['highest']:.2f}, {by['rounds']} rounds"
            yield f"{row['name']} is {by['median']:.2f} times as fast as {row['against']['row']} ({spread})"


def main(words: Sequence[str] | None = None, root: Path = ROOT / "benchmarks") -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="measure nothing")
    if not parser.parse_args(words).table:
        measure(root / device())
    page = root / "README.md"
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{table(root)}\n\n{END}{rest.partition(END)[2]}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
