"""What `compare_with.py` compares of what a tree has written: values by kind and name, in the newest words."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from compared_words import Words

CLOCKS = re.compile(
    r"(^|[/_.])(time|times|seconds|seconds_since|images_per_s|clips_per_s|frames_per_s|data_wait|data_wait_avg|version|"
    r"versions|_diffusers_version|transformers_version|memory_bytes|date|free|free_cache|free_run|at_hand)$"
)
"""Fields whose values no two runs share."""
SKIPPED = re.compile(
    r"\.(words|err|log|lock)$|/ledgers/|/complete/[0-9a-f]{32}\.json$|"
    r"(^|/)(lock|empty\.yaml|loss\.png|report\.txt|environment\.json|manifest\.json|stats\.npy|root\.npy)$"
)
FORMS = "forms (not judged)"
SENTENCES = "sentences (not judged)"
NOT_JUDGED = (FORMS, SENTENCES)
DATE = re.compile(r"\d{8}-\d{6}")
"""The time of day in the names of folders, as EveryDream2 has it."""

Items = dict[str, Any]
"""What is compared, by name: bytes, numbers or strings. Names are `FILE: NAME IN IT`, or the file alone."""


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
    if path.suffix == ".ckpt":
        return "MindSpore files"
    if path.parts[0] == "cache":
        return FORMS if "catalogues" in path.parts else "cache entries"
    if path.name.endswith("batch_schedule.txt"):
        return "schedules"
    if path.suffix in (".png", ".jpg", ".mp4"):
        return "images"
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


@dataclass(frozen=True)
class Side:
    """What one tree has written. masks: what its texts have of their own, such as its folders. words: the renamed
    words."""

    work: Path
    masks: Mapping[str, str]
    words: Words = field(default_factory=Words)

    def masked(self, text: str) -> str:
        for old, new in self.masks.items():
            text = text.replace(old, new)
        return DATE.sub("DATE", text)

    def read(self, journey: str) -> dict[str, Items]:
        """Of a journey, by kind and then by name, what there is to compare."""
        folder = self.work / journey
        kinds: dict[str, Items] = {}
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()):
            inner = PurePosixPath(DATE.sub("DATE", path.relative_to(folder).as_posix()))
            kind = kind_of(PurePosixPath(self.words.restore_name(str(inner))))
            for where, name, value in self._items(kind, path, inner):
                file, separator, key = name.partition(": ")
                if "settings" in where or inner.name == "recipe.yaml":
                    pairs = self.words.translate_setting(key, value)
                    kinds.setdefault(where, {}).update({f"{file}: {new}": changed for new, changed in pairs})
                else:
                    new = self.words.translate_name(file) + separator + self.words.translate_name(key)
                    kinds.setdefault(where, {})[new] = value
        return kinds

    def _items(self, kind: str, path: Path, inner: PurePosixPath) -> Iterator[tuple[str, str, Any]]:
        """(kind, name, value) of what is in a file."""
        if kind == "":
            return
        if kind == "checkpoint tensors":  # whatever file of the checkpoint has them
            yield from ((kind, f"{inner.parent}: {name}", value) for name, value in tensors(path))
        elif path.suffix == ".safetensors":
            yield from ((kind, f"{inner}: {name}", value) for name, value in tensors(path))
        elif kind == "answers":
            yield from self._answer(path, inner)
        elif kind == "cache entries" and path.suffix in (".index", ".rows"):
            if path.suffix == ".index":
                yield from ((kind, f"{inner.parent}: {name}", value) for name, value in cache_rows(path))
        elif "catalogues" in inner.parts:  # whose folders are called after the place of the data, which may be a tree's
            yield kind, f"cache/catalogues/{inner.name}", path.read_bytes()
        elif path.suffix in (".json", ".jsonl", ".yaml", ".yml"):
            parsed = parse(self.masked(path.read_text(encoding="utf-8")), path.suffix)
            yield from ((kind, f"{inner}: {name}", value) for name, value in leaves(parsed))
        elif path.suffix == ".txt":
            yield kind, str(inner), self.masked(path.read_text(encoding="utf-8"))
        else:
            yield kind, str(inner), path.read_bytes()

    def _answer(self, path: Path, inner: PurePosixPath) -> Iterator[tuple[str, str, Any]]:
        """What a command has printed. Settings and numbers are judged, words are not, and what only reports progress
        is not kept at all."""
        verb = json.loads(path.with_suffix(".words").read_text(encoding="utf-8"))["words"][0]
        text = self.masked(path.read_text(encoding="utf-8"))
        if verb == "translate":
            settings = parse(text, ".yaml")
            yield from (("translated settings", f"{inner}: {name}", value) for name, value in leaves(settings))
            notes = text + self.masked(path.with_suffix(".err").read_text(encoding="utf-8"))
            yield SENTENCES, str(inner), notes
        elif verb == "check" and text.startswith("{"):
            page = json.loads(text)
            settings = page.get("recipe", {}).pop("settings", {})
            yield from (("checked settings", f"{inner}: {name}", value) for name, value in leaves(settings))
            for name, value in leaves(page):
                kind = SENTENCES if isinstance(value, str) else "checked numbers"
                yield kind, f"{inner}: {name}", value
        elif verb == "ls":
            listed = (line.split("  ")[1] if "  " in line else line for line in text.splitlines())
            yield from (("names", f"{inner}: {self.words.translate_listed(name)}", True) for name in listed)
        elif verb == "check-adapter":
            yield SENTENCES, str(inner), text
