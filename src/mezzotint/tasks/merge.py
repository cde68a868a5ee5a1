"""`mezzotint merge MODEL FILE… DESTINATION`: files of trained parts laid over the model they were trained from, or
whole models summed up with weights.

Sources are model folders, single files and checkpoints of MindSpore's in any order and form; DESTINATION is a folder, a
file that ends in .safetensors, or a checkpoint of MindSpore's, which ends in .ckpt.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import ItemsView, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from torch import Tensor

from mezzotint import durable
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.recipe.reading.read import MODELS, locate
from mezzotint.tasks.convert import convert
from mezzotint.weights.files import mindspore, pickled, tensor_files
from mezzotint.weights.folder.components import DTypeName
from mezzotint.weights.folder.export import Replaced, write_model
from mezzotint.weights.merge import Merge, made, open_base, open_other, planned
from mezzotint.weights.single_file import known_layouts, writing
from mezzotint.weights.single_file.extras import drop_average

_FLAGS = ("--weights", "--dtype", "--ema", "--config", "--report")


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked. sources: the whole model first. shares: of a sum, one for each source; empty lays one over the
    other. averaged: of later files the averaged copy is taken. report: where to write where each tensor came
    from."""

    sources: tuple[Path, ...]
    destination: Path
    shares: tuple[float, ...] = ()
    dtype: DTypeName | None = None
    averaged: bool = False
    config: Path | None = None
    report: Path | None = None


def run(arguments: Sequence[str]) -> int:
    """`mezzotint merge MODEL FILE… DESTINATION [switches]`. Returns 0.

    Raises RecipeError E1012 for words that make no wish; WeightsError E1401 to E1420 for sources that cannot be read,
    E1451 and E1452 for those of another model, E1410 for a destination that is taken; StorageError E1701.
    """
    for line in merge(parse(arguments)):
        print(line, flush=True)
    return 0


def merge(wish: Wish) -> Iterator[str]:
    """Merges; yields what is to be said. Raises as `run`."""
    convert.require_free(wish.destination, "merge")
    if wish.report is not None:  # before minutes of work
        durable.refuse_taken(wish.report)
    for source in wish.sources:
        if source.is_dir():
            convert.refuse_run(source)
    with convert.store_beside(wish.destination) as store:
        base = open_base(wish.sources[0], config=wish.config, store=store)
        others = [open_other(path, base, averaged=wish.averaged, store=store) for path in wish.sources[1:]]
        merged = Merge(base, others, wish.shares, wish.dtype)
        yield f"{', '.join(map(str, wish.sources))} → {wish.destination}"
        for line in merged.report():
            yield f"  {line}"
        to_file = wish.destination.suffix in (".safetensors", mindspore.SUFFIX)
        yield from _to_file(wish, merged) if to_file else _to_folder(wish, merged)
    if wish.report is not None:
        told = {"sources": [str(p) for p in wish.sources], "tensors": merged.keys()}
        durable.write_new(wish.report, durable.json_text(told))
        yield f"  where each tensor came from: {wish.report}"


def parse(arguments: Sequence[str]) -> Wish:
    """Reads the words after `merge`. Sources may also be given as one word with commas. Raises RecipeError E1012."""
    words, given = _split(arguments)
    if len(words) < 2:
        raise _wrong("write mezzotint merge MODEL FILE… DESTINATION")
    paths = [part for word in words[:-1] for part in _parted(word)]
    if len(paths) < 2:
        raise _wrong("one model alone merges with nothing; write mezzotint merge MODEL FILE… DESTINATION")
    destination = Path(words[-1]).expanduser()
    if destination.suffix in pickled.SUFFIXES and destination.suffix != mindspore.SUFFIX:
        name = destination.with_suffix(".safetensors").name
        raise _wrong(f"{destination.name} would be a pickle, which is never written; write {name}")
    shares = _numbers(given["--weights"]) if "--weights" in given else ()
    if shares and len(shares) != len(paths):
        raise _wrong(f"--weights has {len(shares)} numbers for {len(paths)} models; write one for each")
    for flag, known in (("--dtype", ("fp32", "fp16", "bf16")), ("--ema", ("ignore", "use"))):
        if given.get(flag, known[0]) not in known:
            raise _wrong(f"{flag} is {' or '.join(known)}, got {given[flag]}")
    return Wish(
        tuple(Path(path).expanduser() for path in paths),
        destination,
        shares,
        cast("DTypeName | None", given.get("--dtype")),
        given.get("--ema") == "use",
        locate(Path(given["--config"]), None, shipped=MODELS) if "--config" in given else None,
        Path(given["--report"]).expanduser() if "--report" in given else None,
    )


def _split(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    words: list[str] = []
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        flag, sign, value = word.partition("=")
        if flag not in _FLAGS:
            near = difflib.get_close_matches(flag, _FLAGS, n=1)
            raise _wrong(f"there is no switch {flag}; " + (f"did you mean {near[0]}?" if near else f"known: {_FLAGS}"))
        if not sign:
            value = rest.pop(0) if rest else ""
        if not value:
            raise _wrong(f"{flag} needs a value; write {flag}=…")
        given[flag] = value
    return words, given


def _parted(word: str) -> list[str]:
    """A list with commas, unless a file of that very name is there."""
    return [word] if Path(word).expanduser().exists() else [part for part in word.split(",") if part]


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise _wrong(f"--weights is numbers with commas between, such as 0.5,0.5, got {text!r}") from None


def _to_file(wish: Wish, merged: Merge) -> Iterator[str]:
    base = merged.base
    style = "mindone" if wish.destination.suffix == mindspore.SUFFIX else ""
    layout = known_layouts.for_components(tuple(base.shapes), style=style)
    if layout is None:
        raise WeightsError(
            f"{wish.destination}: SDXL and its refiner are written as checkpoints of MindSpore's, {wish.sources[0]} is "
            "neither; write a name that ends in .safetensors",
            code="E1406",
        )
    plan = planned(merged, layout)
    if style:
        lenient = tuple(one.name for one in plan if one.entry is None)
        mindspore.write(wish.destination, _finite(wish.destination, made(merged, plan), lenient))
    else:
        predicts = "v" if base.scheduler.get("prediction_type") == "v_prediction" else "epsilon"
        described = writing.described(base.folder, predicts, wish.destination.stem)
        convert.write_plan(wish.destination, merged, plan, described)
    counts = Counter(one.kind for one in plan)
    yield f"  {len(plan)} tensors: " + ", ".join(f"{count} {kind}" for kind, count in counts.most_common())


def _finite(path: Path, tensors: Iterator[tuple[str, Tensor]], lenient: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors:
        tensor_files.require_finite(path, {name: tensor}, unchecked=lenient)
        yield name, tensor


def _to_folder(wish: Wish, merged: Merge) -> Iterator[str]:
    base = merged.base
    replaced = {
        component: Replaced(
            base.layout.networks[component], _Lazily(merged, component), base.folder.config(component), keep_types=True
        )
        for component in base.shapes
    }

    def besides(root: Path) -> None:
        base.extras.write(root)
        drop_average(root)

    write_model(wish.destination, base.folder, replaced, scheduler=base.scheduler, dtype=None, besides=besides)
    pipeline = base.folder.index.get("_class_name", "StableDiffusionPipeline")
    yield f"  opens with {pipeline}.from_pretrained, and as model.path"


class _Lazily(Mapping[str, Tensor]):
    """A component's tensors, read when they are asked for, so that one component at a time is held."""

    def __init__(self, merged: Merge, component: str) -> None:
        self._merged = merged
        self._component = component

    def __getitem__(self, name: str) -> Tensor:
        return self._merged.read(self._component, [name])[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._merged.base.shapes[self._component])

    def __len__(self) -> int:
        return len(self._merged.base.shapes[self._component])

    def items(self) -> ItemsView[str, Tensor]:
        """All of them, read at once."""
        return self._merged.read(self._component, list(self)).items()


def _wrong(what: str) -> RecipeError:
    return RecipeError(f"mezzotint merge: {what}", code="E1012")
