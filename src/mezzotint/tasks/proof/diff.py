"""`mezzotint diff A B`: how two runs differ, and from which step on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.errors import escape_line
from mezzotint.reports import data_report
from mezzotint.reports.curves import read_metrics
from mezzotint.run_folder import RunFolder
from mezzotint.settings.reading.read import read
from mezzotint.settings.resume_rules import find_differences
from mezzotint.tasks.proof import manifest
from mezzotint.tasks.reading import command_line

_SAMPLES = 3


def run(arguments: Sequence[str]) -> int:
    """`mezzotint diff A B [--json]`, two run folders. Returns 0, whether they differ or not.

    Raises CheckpointError E1515 for a folder without a manifest.
    """
    line = command_line.parse(arguments, "diff")
    first, second = (RunFolder(Path(word).expanduser()) for word in line.plain)
    differing = compare_runs(first, second)
    if "--json" in line:
        print(json.dumps(differing, indent=1, ensure_ascii=False))
    else:
        print("\n".join(map(escape_line, _page(differing))))
    return 0


def compare_runs(first: RunFolder, second: RunFolder) -> dict[str, Any]:
    """What differs, by kind: settings, data, weights, versions, determinism; and the first step whose loss differs."""
    first_manifest, second_manifest = manifest.read(first.path), manifest.read(second.path)
    recipe = read(str(second.recipe)).recipe
    settings = find_differences(read(str(first.recipe)).recipe.model_dump(mode="json", by_alias=True), recipe)
    return {
        "settings": {change.path: [change.old, change.new] for change in settings},
        "data": _data(first, second) if first_manifest["data"] != second_manifest["data"] else {},
        "weights": _pairs(first_manifest["weights"], second_manifest["weights"]),
        "versions": _pairs(_flatten(first_manifest["environment"]), _flatten(second_manifest["environment"])),
        "determinism": _pairs(first_manifest["determinism"], second_manifest["determinism"]),
        "loss": _first_step(first, second),
    }


def _data(first: RunFolder, second: RunFolder) -> dict[str, Any]:
    digests = [_digests(folder) for folder in (first, second)]
    keys = [key for key in sorted({*digests[0], *digests[1]}) if digests[0].get(key) != digests[1].get(key)]
    return {"samples": len(keys), "first": keys[:_SAMPLES], "captions": not keys}


def _digests(folder: RunFolder) -> dict[str, str]:
    lines = outside.read_lines(folder.path / data_report.FILE)
    return {f"{line.get('set', '')}{line['id']}": line["sha256"] for line in lines if "sha256" in line}


def _pairs(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[Any]]:
    names = sorted({*first, *second})
    return {name: [first.get(name), second.get(name)] for name in names if first.get(name) != second.get(name)}


def _flatten(tree: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= _flatten(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": value}
    return flat


def _first_step(first: RunFolder, second: RunFolder) -> dict[str, Any]:
    """The first logged step of both runs whose losses are not bitwise identical; None if there is none."""
    first_losses, second_losses = (
        {line["step"]: line["loss"] for line in read_metrics(run).steps} for run in (first, second)
    )
    common = sorted(first_losses.keys() & second_losses.keys())
    step = next((step for step in common if first_losses[step] != second_losses[step]), None)
    losses = None if step is None else [first_losses[step], second_losses[step]]
    return {"steps": len(common), "first_step": step, "losses": losses}


def _page(differing: dict[str, Any]) -> Iterator[str]:
    for kind in ("settings", "weights", "versions", "determinism"):
        pairs = differing[kind]
        yield f"{kind:<12} {'the same' if not pairs else f'{len(pairs)} differ'}"
        yield from (f"  {name}: {old} → {new}" for name, (old, new) in pairs.items())
        if kind == "settings":
            yield f"{'data':<12} {_of_data(differing['data'])}"
    loss = differing["loss"]
    if loss["first_step"] is None:
        yield f"{'loss':<12} bitwise identical in {loss['steps']} logged steps of both"
    else:
        yield f"{'loss':<12} differs from step {loss['first_step']} on: {loss['losses'][0]} → {loss['losses'][1]}"


def _of_data(data: dict[str, Any]) -> str:
    if not data:
        return "the same"
    if data["captions"]:
        return "captions, repeats or weights differ; images are the same"
    ellipsis = ", …" if data["samples"] > _SAMPLES else ""
    count = "1 sample differs" if data["samples"] == 1 else f"{data['samples']:,} samples differ"
    return f"{count}: {', '.join(data['first'])}{ellipsis}"
