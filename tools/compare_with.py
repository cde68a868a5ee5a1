"""Behaviour is unchanged: the same small journeys with another commit's code and with this tree's, to the byte.

    python tools/compare_with.py COMMIT              a table; ends with 1 if something differs
    python tools/compare_with.py COMMIT --keep=DIR   keeps what both have written, to look at

The commit is taken out of git into a temporary folder. Both trees run with this interpreter, on this machine, with one
thread, in the same environment, over the same data (`compared_journeys.py`), beside each other; nothing of Mezzotint is
imported here, and of either tree only the command line is used. So the trees may differ in form as they like.

Compared to the bit: exit statuses; losses and every other number of the metrics but clocks; weights, moments and
averages of checkpoints, by name, whatever file they lie in; exported tensors and their names, and the configurations
beside them; addresses and bytes of cached latents and texts; drawn pictures and clips; schedule files; what of samples
was logged; settings that lines of other trainers and shipped recipes amount to, and the numbers of `check --json`; a
run that the commit begins and this tree ends, against a whole run of this tree; pictures that this tree draws from the
commit's run, and that it finds nothing missing in the commit's cache.

Shown but not judged, for words and forms may change: notes and messages, the JSON of runs and checkpoints, recipes as
runs write them, the columns of catalogues. A setting that moved to another path with its value is the same and is
counted. Names are compared with the old words of RENAMED put into the new ones.

Not seen: records of a cache that say when its files were written, other devices, several processes, workers, compiled
steps, MindSpore's files, pickles, the network (nothing is fetched), Weights & Biases and TensorBoard, 8-bit
optimizers, the live line, models of real size. Journeys with clips are left out where PyAV is not installed.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

import compared_journeys

ROOT = Path(__file__).parents[1]
CLOCKS = re.compile(
    r"(^|[/_.])(time|times|seconds|seconds_since|images_per_s|clips_per_s|frames_per_s|data_wait|data_wait_avg|version|"
    r"versions|_diffusers_version|transformers_version|memory_bytes|date|free|free_cache|free_run|at_hand)$"
)
"""Fields whose values no two runs share."""
RENAMED = {"shadow": "ema"}
SKIPPED = re.compile(
    r"\.(words|err|log|lock)$|/ledgers/|/complete/[0-9a-f]{32}\.json$|"
    r"(^|/)(lock|empty\.yaml|loss\.png|report\.txt|environment\.json|manifest\.json|stats\.npy|root\.npy)$"
)
FORMS = "forms (not judged)"
SENTENCES = "sentences (not judged)"
NOT_JUDGED = (FORMS, SENTENCES)

Items = dict[str, Any]
"""What is compared, by name: bytes, numbers or strings."""


@dataclass
class Line:
    """A line of the table: of a journey, one kind of thing. moved: settings that lie elsewhere with their value."""

    journey: str
    kind: str
    items: int = 0
    moved: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def is_judged(self) -> bool:
        return self.kind not in NOT_JUDGED

    @property
    def verdict(self) -> str:
        if not self.differences:
            return f"same ({self.moved} moved)" if self.moved else "same"
        word = "DIFFERENT" if self.is_judged else "differ"
        return f"{word}: {len(self.differences)}, first {self.differences[0]}"


# --- reading what a tree has written --------------------------------------------------------------------------------


def kind_of(path: PurePosixPath) -> str:
    """Which line of the table a file belongs to; "" if it is not compared."""
    name = str(path)
    if SKIPPED.search(name):
        return ""
    if path.suffix == ".status":
        return "exit statuses"
    if path.suffix == ".out":
        return "answers"
    if path.name == "metrics.jsonl":
        return "losses and metrics"
    if "checkpoints" in path.parts and path.suffix == ".safetensors":
        return "checkpoint tensors"
    if path.suffix == ".safetensors":
        return "exported tensors"
    if path.parts[0] == "cache":
        return FORMS if "catalogues" in path.parts else "cache entries"
    if path.name.endswith("batch_schedule.txt"):
        return "schedules"
    if path.suffix in (".png", ".jpg", ".mp4"):
        return "pictures"
    if path.suffix == ".jsonl":
        return "logged samples" if path.name.startswith("samples.") else FORMS
    if "exports" in path.parts or path.parts[0] == "folder":
        return "configurations"
    return FORMS


def tensors(path: Path) -> Iterator[tuple[str, tuple[str, tuple[int, ...], bytes]]]:
    """(name, (type, shape, bytes)) of a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        start = file.tell()
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                file.seek(start + begin)
                yield name, (entry["dtype"], tuple(entry["shape"]), file.read(end - begin))


def cache_rows(index: Path) -> Iterator[tuple[str, bytes]]:
    """(address, bytes) of what a shard of a cache holds, in the order of addresses: records of 48 bytes, an address of
    32 and the number of its row first; rows of one size in the file beside. Shards are called by chance."""
    records = index.read_bytes()
    places = [(records[n : n + 32].hex(), int.from_bytes(records[n + 32 : n + 36], "little"))
              for n in range(0, len(records) - 47, 48)]  # fmt: skip
    rows = index.with_suffix(".rows").read_bytes()
    size = len(rows) // (1 + max((row for _, row in places), default=0))
    yield from sorted((address, rows[row * size : (row + 1) * size]) for address, row in places)


def parse(text: str, suffix: str) -> Any:
    """What JSON, lines of JSON or YAML say."""
    if suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text) if suffix == ".json" else yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of whatever JSON or YAML holds; clocks are left out."""
    if CLOCKS.search(path):
        return
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{path}.{number}" if path else str(number))
    else:
        yield path, value


def renamed(name: str) -> str:
    for old, new in RENAMED.items():
        name = re.sub(rf"(?<![a-z]){old}(?![a-z])", new, name)
    return name


@dataclass(frozen=True)
class Side:
    """What one tree has written. masks: what its texts have of their own, such as its folders."""

    work: Path
    masks: Mapping[str, str]

    def masked(self, text: str) -> str:
        for old, new in self.masks.items():
            text = text.replace(old, new)
        return text

    def read(self, journey: str) -> dict[str, Items]:
        """Of a journey, by kind and then by name, what there is to compare."""
        folder = self.work / journey
        kinds: dict[str, Items] = {}
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()):
            inner = PurePosixPath(path.relative_to(folder).as_posix())
            kind = kind_of(inner)
            for where, name, value in self._items(kind, path, inner):
                kinds.setdefault(where, {})[renamed(name)] = value
        return kinds

    def _items(self, kind: str, path: Path, inner: PurePosixPath) -> Iterator[tuple[str, str, Any]]:
        """(kind, name, value) of what is in a file."""
        if kind == "":
            return
        if kind == "checkpoint tensors":
            yield from ((kind, f"{inner.parent}: {name}", value) for name, value in tensors(path))
        elif path.suffix == ".safetensors":
            yield from ((kind, f"{inner}: {name}", value) for name, value in tensors(path))
        elif kind == "answers":
            yield from self._answer(path, inner)
        elif kind == "cache entries" and path.suffix in (".index", ".rows"):
            if path.suffix == ".index":
                yield from ((kind, f"{inner.parent}: {name}", value) for name, value in cache_rows(path))
        elif path.suffix in (".json", ".jsonl", ".yaml", ".yml"):
            parsed = parse(self.masked(path.read_text(encoding="utf-8")), path.suffix)
            yield from ((kind, f"{inner}: {name}", value) for name, value in leaves(parsed))
        elif "catalogues" in inner.parts:  # whose folders are called after the place of the data, which may be a tree's
            yield kind, f"cache/catalogues/{inner.name}", path.read_bytes()
        elif path.suffix == ".txt":
            yield kind, str(inner), self.masked(path.read_text(encoding="utf-8"))
        else:
            yield kind, str(inner), path.read_bytes()

    def _answer(self, path: Path, inner: PurePosixPath) -> Iterator[tuple[str, str, Any]]:
        """What a command has printed. Settings and numbers are judged, words are not, and what only reports progress
        is not kept at all."""
        words = path.with_suffix(".words").read_text(encoding="utf-8").split()
        text = self.masked(path.read_text(encoding="utf-8"))
        if words[0] == "translate":
            settings = parse(text, ".yaml")
            yield from (("translated settings", f"{inner}: {name}", value) for name, value in leaves(settings))
            notes = text + self.masked(path.with_suffix(".err").read_text(encoding="utf-8"))
            yield SENTENCES, str(inner), notes
        elif words[0] == "check" and text.startswith("{"):
            page = json.loads(text)
            settings = page.get("recipe", {}).pop("settings", {})
            yield from (("checked settings", f"{inner}: {name}", value) for name, value in leaves(settings))
            for name, value in leaves(page):
                kind = SENTENCES if isinstance(value, str) else "checked numbers"
                yield kind, f"{inner}: {name}", value
        elif words[0] == "ls":
            yield "names", str(inner), [line.split("  ")[1] if "  " in line else line for line in text.splitlines()]


# --- comparing ------------------------------------------------------------------------------------------------------


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{value[0]} {list(value[1])}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = str(value)
    return repr(text if len(text) < 60 else f"{text[:57]}…")


def difference(name: str, old: Any, new: Any) -> str:
    """One sentence on two values that are not the same."""
    if isinstance(old, tuple) and isinstance(new, tuple) and old[:2] == new[:2]:
        at = next(i for i, (a, b) in enumerate(zip(old[2], new[2], strict=True)) if a != b)
        return f"{name}: {_shown(old)} from byte {at} of {len(old[2])}"
    if isinstance(old, str) and isinstance(new, str):
        pairs = zip(f"{old}\n(end)".splitlines(), f"{new}\n(end)".splitlines(), strict=False)
        before, after = next(pair for pair in pairs if pair[0] != pair[1])
        return f"{name}: {_shown(before)} is {_shown(after)}"
    return f"{name}: {_shown(old)} is {_shown(new)}"


def compare(journey: str, kind: str, old: Items, new: Items) -> Line:
    """A line of the table of what one kind of thing is on both sides."""
    line = Line(journey, kind, len(old.keys() | new.keys()))
    gone, come = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    if "settings" in kind:
        gone, come, line.moved = without_moved(old, new, gone, come)
    line.differences += [
        difference(n, old[n], new[n]) for n in sorted(old.keys() & new.keys()) if _unequal(old[n], new[n])
    ]
    line.differences += [f"{name}: no longer there" for name in gone]
    line.differences += [f"{name}: was not there" for name in come]
    return line


def _unequal(old: Any, new: Any) -> bool:
    return bool(old != new and not (old != old and new != new))  # nan is the same as nan


def last_key(path: str) -> str:
    """`betas.0` of `optim.optimizer.betas.0`: what stays of a setting's path wherever its section moves."""
    return str(re.search(r"[^.]*(\.\d+)*$", path)[0])  # type: ignore[index]  # it matches the empty string, too


def without_moved(old: Items, new: Items, gone: Sequence[str], come: Sequence[str]) -> tuple[list[str], list[str], int]:
    """Takes away pairs of settings of one file that have the last part of their path and their value in common."""

    def mark(items: Items, name: str) -> tuple[str, str, str]:
        file, _, path = name.partition(": ")
        return file, last_key(path), repr(items[name])

    left, kept = Counter(mark(new, name) for name in come), []
    for name in gone:
        if left[mark(old, name)]:
            left[mark(old, name)] -= 1
        else:
            kept.append(name)
    moved = len(gone) - len(kept)
    return kept, [name for name in come if left[mark(new, name)] > 0], moved


def compare_journey(journey: str, old: Mapping[str, Items], new: Mapping[str, Items]) -> list[Line]:
    kinds = sorted(old.keys() | new.keys(), key=lambda kind: (kind in NOT_JUDGED, kind))
    return [compare(journey, kind, old.get(kind, {}), new.get(kind, {})) for kind in kinds]


def last_checkpoint(items: Items) -> Items:
    """Of a run's tensors those of its last step; places are left out of the names."""
    steps = sorted({name.partition(": ")[0] for name in items})
    return {name.partition(": ")[2]: value for name, value in items.items() if name.startswith(f"{steps[-1]}: ")}


def losses(items: Items) -> Items:
    """The loss of every step, the last that was written of each."""
    by_line: dict[str, dict[str, Any]] = {}
    for name, value in items.items():
        line, _, key = name.partition(": ")[2].partition(".")
        by_line.setdefault(line, {})[key] = value
    rows = sorted(by_line.items(), key=lambda pair: int(pair[0]))
    return {
        f"step {row['step']} {key}": row[key]
        for _, row in rows
        if "step" in row
        for key in ("loss", "norm")
        if key in row
    }


def compare_ended(new: Side, begun: Side) -> list[Line]:
    """Runs that the commit began and this tree ended, against whole ones; what this tree makes of the commit's files.
    begun: where this tree went on in copies of the commit's folders."""
    lines = []
    for name in compared_journeys.RESUMED:
        whole, ended = new.read(f"whole {name}"), begun.read(f"begun {name}")
        if not whole:
            continue
        kind = "checkpoint tensors"
        lines.append(
            compare(f"begun there, ended here: {name}", kind, *(last_checkpoint(s[kind]) for s in (whole, ended)))
        )
        kind = "losses and metrics"
        lines.append(compare(f"begun there, ended here: {name}", "losses", *(losses(s[kind]) for s in (whole, ended))))
    drawn = {
        name: value for name, value in new.read("tiny_cpu")["pictures"].items() if name.startswith(("drawn/", "ema/"))
    }
    again = {
        name.replace("-again/", "/"): value
        for name, value in begun.read("tiny_cpu")["pictures"].items()
        if "-again/" in name
    }
    lines.append(compare("drawn here from a run made there", "pictures", drawn, again))
    kind = "cache entries"
    lines.append(
        compare("a cache made there is complete here", kind, new.read("cached")[kind], begun.read("cached")[kind])
    )
    return lines


# --- running both ---------------------------------------------------------------------------------------------------


def extract(commit: str, folder: Path) -> Path:
    """The files of a commit in a folder."""
    done = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def environment(tree: Path, base: Mapping[str, str]) -> dict[str, str]:
    """One thread, no network, this tree's sources; of Mezzotint's and torch's own variables none."""
    kept = {
        k: v for k, v in base.items() if not k.startswith(("MEZZOTINT_", "PYTHON", "TORCH", "ATEN", "ONEDNN", "MKL_"))
    }
    own = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "HF_HUB_OFFLINE": "1"}
    plain = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb", "PYTHONHASHSEED": "0", "TZ": "UTC"}
    return kept | own | plain | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def start(tree: Path, work: Path, world: Path, items: Sequence[compared_journeys.Journey]) -> subprocess.Popen[bytes]:
    """Begins journeys with a tree."""
    work.mkdir(exist_ok=True)
    plan = work.parent / f"{work.name}-{len(list(work.parent.glob('*.json')))}.json"
    plan.write_text(compared_journeys.written(items), encoding="utf-8")
    script = str(Path(compared_journeys.__file__))
    words = [sys.executable, script, *map(str, (tree, work, world, plan))]
    return subprocess.Popen(words, env=environment(tree, os.environ), cwd=work)


def waited(*runs: subprocess.Popen[bytes]) -> None:
    statuses = [run.wait() for run in runs]  # of all of them, before anything is said
    if any(statuses):
        raise SystemExit("compare_with: the journeys could not be taken; see above")


def recipes_of(*trees: Path) -> list[str]:
    """Names of the recipes that ship with all of the trees."""
    names = [{path.stem for path in tree.rglob("recipes/*.yaml") if "tests" not in path.parts} for tree in trees]
    return sorted(set.intersection(*names))


def shipped_recipes(tree: Path) -> Items:
    """Every setting of every recipe that ships with a tree."""
    items: Items = {}
    for path in sorted(tree.glob("recipes/*.yaml")):
        items |= {f"{path.name}: {name}": value for name, value in leaves(parse(path.read_text("utf-8"), ".yaml"))}
    return items


def assets_of(tree: Path) -> Path:
    """The folder of models and data that ship."""
    return next(path.parents[1] for path in sorted((tree / "src").rglob("models/tiny-sd")))


def take(old: Path, new: Path, folder: Path) -> None:
    """Every journey with both trees, below a folder."""
    world = folder / "world"
    compared_journeys.make_world(world, assets_of(old))
    common = compared_journeys.journeys(recipes_of(old, new))
    waited(
        start(old, folder / "old", world, [*compared_journeys.begun(), *common]),
        start(new, folder / "new", world, [*common, *compared_journeys.whole()]),
    )
    for name in ("tiny_cpu", "cached", *(f"begun {name}" for name in compared_journeys.RESUMED)):
        if (folder / "old" / name).is_dir():
            shutil.copytree(folder / "old" / name, folder / "end" / name, symlinks=True)
    waited(start(new, folder / "end", world, compared_journeys.ended()))


def judge(old: Path, new: Path, folder: Path) -> list[Line]:
    """The lines of the table of what `take` has left below a folder."""
    sides = [
        Side(folder / name, {str(folder / name): "WORK", str(tree): "TREE"})
        for name, tree in (("old", old), ("new", new), ("end", new))
    ]
    lines = [compare("recipes that ship", "shipped settings", shipped_recipes(old), shipped_recipes(new))]
    for journey in compared_journeys.journeys(recipes_of(old, new)):
        lines += compare_journey(journey.name, sides[0].read(journey.name), sides[1].read(journey.name))
    return lines + compare_ended(sides[1], sides[2])


# --- the table ------------------------------------------------------------------------------------------------------


def table(lines: Iterable[Line]) -> str:
    rows = [f"| {line.journey} | {line.kind} | {line.items:,} | {line.verdict} |" for line in lines]
    return "\n".join(["| journey | what | compared | verdict |", "|---|---|---|---|", *rows])


def failed_there(folder: Path) -> list[str]:
    """Commands of the commit that did not end as they should: they compare less than they could."""
    wrong = []
    for path in sorted(folder.glob("*/*.status")):
        expected = 137 if path.parent.name.startswith("begun ") else 0
        if int(path.read_text()) != expected:
            lines = path.with_suffix(".err").read_text(encoding="utf-8").strip().splitlines()
            wrong.append(f"{path.parent.name}, {path.with_suffix('.words').read_text()[:60]}…: {lines[-1:] or ''}")
    return wrong


def main(words: Sequence[str] | None = None) -> int:
    """The exit status: 1 if something that is judged differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the tree to compare; this one")
    parser.add_argument("--all", action="store_true", help="every difference, not the first of each line")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a folder, not there yet, for what both write")
    options = parser.parse_args(words)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="compare-") as temporary:
        folder = options.keep.resolve() if options.keep else Path(temporary).resolve()
        folder.mkdir(parents=True, exist_ok=not options.keep)
        (folder / "tree").mkdir()
        trees = extract(options.commit, folder / "tree"), options.tree.resolve()
        take(*trees, folder)
        lines = judge(*trees, folder)
        wrong = failed_there(folder / "old")
    print(table(lines))
    for line in lines if options.all else ():
        print(*(f"{line.journey}, {line.kind}: {text}" for text in line.differences), sep="\n")
    for message in wrong:
        print(f"there already it fails: {message}")
    different = [line for line in lines if line.differences and line.is_judged]
    print(
        f"{sum(line.items for line in lines if line.is_judged):,} things in {len(lines)} lines, "
        f"{len(different)} lines DIFFERENT, {time.monotonic() - begun:.0f} s"
    )
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
