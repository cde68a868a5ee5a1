"""Behaviour is unchanged: the same small journeys with another commit's code and with this tree's, to the byte.

    python tools/compare_with.py COMMIT                 a table; ends with 1 if something differs
    python tools/compare_with.py COMMIT --only sdxl 'diffusers-*'    chosen journeys
    python tools/compare_with.py --list                 the names of the journeys
    python tools/compare_with.py COMMIT --keep=DIR      keeps what both have written, to look at

The commit is taken out of git into a temporary folder. Both trees run with this interpreter, on this machine, with one
thread, in the same environment, over the same data (`compared_world.py`), beside each other; nothing of Mezzotint is
imported here, and of either tree only the command line is used. So the trees may differ in form as they like.

`compare_with.toml` has a table of renamed words, by which journeys written in the oldest words are translated for each
tree and what they wrote is compared in the newest words; and a table of differences that are expected, each with its
reason. These are listed and not judged.

Compared to the bit: exit statuses; losses and every other number of the metrics but clocks; weights, moments and
averages of checkpoints, by name, whatever file they lie in; exported tensors and their names, and the configurations
beside them; files of MindSpore; addresses and bytes of cached latents and texts; sampled images and clips; schedule
files; what of samples was logged; settings that lines of other trainers and shipped recipes amount to, and the numbers
of `check --json`; a run that the commit begins and this tree ends, against a whole run of this tree; images that this
tree samples from the commit's run, and that it finds nothing missing in the commit's cache.

Shown but not judged, for words and forms may change: notes and messages, the JSON of runs and checkpoints, recipes as
runs write them, the columns of catalogues. A setting that moved to another path with its value is the same and is
counted. Files that only one of the trees writes are listed at the end.

Not seen: records of a cache that say when its files were written, other devices, workers, compiled steps, pickles, the
network (nothing is fetched), Weights & Biases and TensorBoard, 8-bit optimizers, the live line, models of real size.
Journeys with clips are left out where PyAV is not installed.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import compared_journeys
import compared_runs
import compared_world
from compared_files import NOT_JUDGED, Items, Side, leaves, parse
from compared_journeys import Journey
from compared_words import Expected, Tables, read_tables

ROOT = Path(__file__).parents[1]


@dataclass
class Line:
    """A line of the table: of a journey, one kind of thing. moved: settings that lie elsewhere with their value.
    expected: by reason, how many differences are. one_sided: files that only one tree writes."""

    journey: str
    kind: str
    items: int = 0
    moved: int = 0
    differences: list[str] = field(default_factory=list)
    expected: Counter[str] = field(default_factory=Counter)
    one_sided: list[str] = field(default_factory=list)

    @property
    def is_judged(self) -> bool:
        return self.kind not in NOT_JUDGED

    @property
    def verdict(self) -> str:
        parts = [f"{count} expected: {reason}" for reason, count in self.expected.items()]
        if self.differences:
            word = "DIFFERENT" if self.is_judged else "differ"
            parts.insert(0, f"{word}: {len(self.differences)}, first {self.differences[0]}")
        elif not self.expected:
            parts.append(f"same ({self.moved} moved)" if self.moved else "same")
        return "; ".join(parts)


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
    for side, names, others in (("only the commit", gone, new), ("only this tree", come, old)):
        line.one_sided += [f"{file}: {side} writes it ({count:,} items)" for file, count in whole_files(names, others)]
    line.differences += line.one_sided
    line.differences += [
        difference(n, old[n], new[n]) for n in sorted(old.keys() & new.keys()) if _unequal(old[n], new[n])
    ]
    for word, names, others in (("no longer there", gone, new), ("was not there", come, old)):
        whole = {file for file, _ in whole_files(names, others)}
        line.differences += [f"{name}: {word}" for name in names if name.partition(": ")[0] not in whole]
    return line


def whole_files(names: Iterable[str], others: Iterable[str]) -> list[tuple[str, int]]:
    """Of names that one tree has alone, the files of which the other tree has nothing, and how much is in them."""
    known = {name.partition(": ")[0] for name in others}
    counts = Counter(name.partition(": ")[0] for name in names)
    return sorted((file, count) for file, count in counts.items() if file not in known)


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
    steps = sorted({name.partition(": ")[0] for name in items}) or [""]
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


def set_aside(lines: Iterable[Line], rows: Sequence[Expected]) -> list[Expected]:
    """Takes expected differences out of lines that are judged; returns the rows that match nothing."""
    used = set()
    for line in lines:
        left = []
        for text in line.differences:
            row = next((row for row in rows if row.matches(line.journey, line.kind, text)), None)
            if row is None:
                left.append(text)
            else:
                used.add(row)
                line.expected[row.reason] += 1
        line.differences = left
    return [row for row in rows if row not in used]


def compare_ended(new: Side, ended: Side, chosen: Iterable[str]) -> list[Line]:
    """Runs that the commit began and this tree ended, against whole ones; what this tree makes of the commit's files.
    ended: where this tree went on in copies of the commit's folders. chosen: names of the journeys."""
    lines = []
    for name in (name for name in compared_journeys.RESUMED if f"resume {name}" in chosen):
        sides = new.read(f"resume {name}"), ended.read(f"begun {name}")
        if not sides[0]:
            continue
        journey = f"begun there, ended here: {name}"
        kind = "checkpoint tensors"
        lines.append(compare(journey, kind, *(last_checkpoint(side.get(kind, {})) for side in sides)))
        kind = "losses and metrics"
        lines.append(compare(journey, "losses", *(losses(side.get(kind, {})) for side in sides)))
    if "tiny_cpu" in chosen:
        images = new.read("tiny_cpu").get("images", {})
        sampled = {name: value for name, value in images.items() if name.startswith(("drawn/", "ema/"))}
        again = {
            name.replace("-again/", "/"): value
            for name, value in ended.read("tiny_cpu").get("images", {}).items()
            if "-again/" in name
        }
        lines.append(compare("sampled here from a run made there", "images", sampled, again))
    if "cached" in chosen:
        entries = [side.read("cached").get("cache entries", {}) for side in (new, ended)]
        lines.append(compare("a cache made there is complete here", "cache entries", *entries))
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


def start(tree: Path, work: Path, world: Path, items: Sequence[Journey]) -> subprocess.Popen[bytes]:
    """Begins journeys with a tree, in its words."""
    work.mkdir(exist_ok=True)
    words = read_tables(tree).words
    plan = work.parent / f"{work.name}-{len(list(work.parent.glob('*.json')))}.json"
    translated = [compared_journeys.translate(journey, words) for journey in items]
    plan.write_text(compared_journeys.written(translated), encoding="utf-8")
    script = str(Path(compared_runs.__file__))
    line = [sys.executable, script, *map(str, (tree, work, world, plan))]
    return subprocess.Popen(line, env=environment(tree, os.environ), cwd=work)


def waited(*runs: subprocess.Popen[bytes]) -> None:
    statuses = [run.wait() for run in runs]  # of all of them, before anything is said
    if any(statuses):
        raise SystemExit("compare_with: the journeys could not be taken; see above")


def recipes_of(*trees: Path) -> list[str]:
    """The oldest names of the recipes that ship with all of the trees."""
    names = []
    for tree in trees:
        words = read_tables(tree).words
        names.append({words.restore_recipe(path.stem) for path in recipe_files(tree)})
    return sorted(set.intersection(*names))


def recipe_files(tree: Path) -> list[Path]:
    """The recipes that ship with a tree, those of its folders of `compat` among them."""
    return sorted([*tree.glob("recipes/*.yaml"), *tree.glob("src/mezzotint/compat/*/recipes/*.yaml")])


def shipped_recipes(tree: Path, tables: Tables) -> Items:
    """Every setting of every recipe that ships with a tree, in the newest words."""
    items: Items = {}
    for path in recipe_files(tree):
        name = tables.words.recipes.get(path.stem, path.stem)
        for setting, value in leaves(parse(path.read_text("utf-8"), ".yaml")):
            items |= {f"{name}: {new}": changed for new, changed in tables.words.translate_setting(setting, value)}
    return items


def assets_of(tree: Path) -> Path:
    """The folder of models and data that ship."""
    return next(path.parents[1] for path in sorted((tree / "src").rglob("models/tiny-sd")))


def choose(items: Iterable[Journey], only: Sequence[str]) -> list[Journey]:
    """Journeys whose names match one of the patterns; without patterns all. Of one that the commit begins and this tree
    ends, the name is that of the whole run."""
    if not only:
        return list(items)
    return [item for item in items if any(fnmatchcase(re.sub("^begun ", "resume ", item.name), one) for one in only)]


def take(old: Path, new: Path, folder: Path, only: Sequence[str] = ()) -> None:
    """Journeys with both trees, below a folder."""
    world = folder / "world"
    compared_world.make_world(world, assets_of(old))
    common = choose(compared_journeys.journeys(recipes_of(old, new)), only)
    is_continued = not read_tables(new).across_versions
    begun = choose(compared_journeys.begun(), only) if is_continued else []
    waited(start(old, folder / "old", world, [*begun, *common]), start(new, folder / "new", world, common))
    ended = choose(compared_journeys.ended(), only) if is_continued else []
    for journey in ended:
        if (folder / "old" / journey.name).is_dir():
            shutil.copytree(folder / "old" / journey.name, folder / "end" / journey.name, symlinks=True)
    if ended:
        waited(*(start(new, folder / "end", world, half) for half in (ended[::2], ended[1::2]) if half))


def judge(old: Path, new: Path, folder: Path, only: Sequence[str] = ()) -> list[Line]:
    """The lines of the table of what `take` has left below a folder."""
    tables = read_tables(new)
    sides = [
        Side(folder / name, {str(folder / name): "WORK", str(tree): "TREE"}, tables.words)
        for name, tree in (("old", old), ("new", new), ("end", new))
    ]
    lines = [compare("recipes that ship", "shipped settings", *(shipped_recipes(tree, tables) for tree in (old, new)))]
    chosen = [journey.name for journey in choose(compared_journeys.journeys(recipes_of(old, new)), only)]
    for name in chosen:
        lines += compare_journey(name, sides[0].read(name), sides[1].read(name))
    if tables.across_versions:
        return [*lines, Line("begun there, ended here", "not run", expected=Counter({tables.across_versions: 1}))]
    return lines + compare_ended(sides[1], sides[2], chosen)


# --- the table ------------------------------------------------------------------------------------------------------


def table(lines: Iterable[Line]) -> str:
    rows = [f"| {line.journey} | {line.kind} | {line.items:,} | {line.verdict} |" for line in lines]
    return "\n".join(["| journey | what | compared | verdict |", "|---|---|---|---|", *rows])


def failed_there(folder: Path) -> list[str]:
    """Commands of the commit that did not end as they should: they compare less than they could."""
    wrong = []
    for path in sorted(folder.glob("*/*.status")):
        command = json.loads(path.with_suffix(".words").read_text(encoding="utf-8"))
        if int(path.read_text()) != command["status"]:
            lines = path.with_suffix(".err").read_text(encoding="utf-8").strip().splitlines()
            wrong.append(f"{path.parent.name}, {' '.join(command['words'])[:60]}…: {lines[-1:] or ''}")
    return wrong


def main(words: Sequence[str] | None = None) -> int:
    """The exit status: 1 if something that is judged differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the tree to compare; this one")
    parser.add_argument("--all", action="store_true", help="every difference, not the first of each line")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a folder, not there yet, for what both write")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these journeys; * is any text")
    parser.add_argument("--list", action="store_true", help="prints the names of the journeys")
    options = parser.parse_args(words)
    names = [journey.name for journey in compared_journeys.journeys(recipes_of(options.tree))]
    if options.list:
        print(*names, sep="\n")
        return 0
    if options.commit is None:
        parser.error("name a commit, such as HEAD or main")
    for one in options.only:
        if not any(fnmatchcase(name, one) for name in names):
            parser.error(f"no journey is called {one}; --list prints all")
    return run(options)


def run(options: argparse.Namespace) -> int:
    """Takes the journeys and prints the table."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="compare-") as temporary:
        folder = options.keep.resolve() if options.keep else Path(temporary).resolve()
        folder.mkdir(parents=True, exist_ok=not options.keep)
        (folder / "tree").mkdir()
        trees = extract(options.commit, folder / "tree"), options.tree.resolve()
        take(*trees, folder, options.only)
        lines = judge(*trees, folder, options.only)
        wrong = failed_there(folder / "old")
    one_sided = [f"{line.journey}: {text}" for line in lines if line.is_judged for text in line.one_sided]
    unmatched = set_aside(lines, read_tables(trees[1]).expected)
    print(table(lines))
    for line in lines if options.all else ():
        print(*(f"{line.journey}, {line.kind}: {text}" for text in line.differences), sep="\n")
    print(*one_sided, sep="\n", end="\n" if one_sided else "")
    for message in wrong:
        print(f"the commit's own run fails: {message}")
    for row in () if options.only else unmatched:
        print(f"matches nothing, delete it: [[expected]] {row.journey}, {row.kind}, {row.difference} ({row.reason})")
    different = [line for line in lines if line.differences and line.is_judged]
    print(
        f"{sum(line.items for line in lines if line.is_judged):,} things in {len(lines)} lines, "
        f"{len(different)} lines DIFFERENT, {sum(sum(line.expected.values()) for line in lines)} differences expected, "
        f"{time.monotonic() - begun:.0f} s"
    )
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
