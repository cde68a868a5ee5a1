"""`mezzotint merge MODEL FILE… DESTINATION`: files of trained parts laid over the model they were trained from, or
whole models summed up with weights.

Sources are model folders, single files and checkpoints of MindSpore's in any order and form; DESTINATION is a folder, a
file that ends in .safetensors, or a checkpoint of MindSpore's, which ends in .ckpt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import ItemsView, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from mezzotint import durable
from mezzotint.errors import WeightsError
from mezzotint.tasks.convert import convert
from mezzotint.tasks.convert.args import config, destination, dtype
from mezzotint.tasks.reading import words
from mezzotint.tasks.reading.words import Words
from mezzotint.weights.files import mindspore, tensor_files
from mezzotint.weights.folder.components import DTypeName
from mezzotint.weights.merge import Merge, file_plan, open_base, open_other, read_in_order
from mezzotint.weights.single_file import known_layouts, writing


@dataclass(frozen=True, slots=True)
class MergeArgs:
    """sources: the whole model first. shares: of a sum, one for each source; empty lays one over the
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

    Raises RecipeError E1012 for words it does not know; WeightsError E1401 to E1420 for sources that cannot be read,
    E1451 and E1452 for those of another model, E1410 for a destination that is taken; StorageError E1701.
    """
    for line in merge(parse(arguments)):
        print(line, flush=True)
    return 0


def merge(args: MergeArgs) -> Iterator[str]:
    """Merges; yields what is to be said. Raises as `run`."""
    convert.require_free(args.destination, "merge")
    if args.report is not None:  # before minutes of work
        durable.refuse_taken(args.report)
    for source in args.sources:
        if source.is_dir():
            convert.refuse_run(source)
    with convert.store_beside(args.destination) as store:
        base = open_base(args.sources[0], config=args.config, store=store)
        others = [open_other(path, base, averaged=args.averaged, store=store) for path in args.sources[1:]]
        merged = Merge(base, others, args.shares, args.dtype)
        yield f"{', '.join(map(str, args.sources))} → {args.destination}"
        for line in merged.report():
            yield f"  {line}"
        to_file = args.destination.suffix in (".safetensors", mindspore.SUFFIX)
        yield from _to_file(args, merged) if to_file else _to_folder(args, merged)
    if args.report is not None:
        origins = {"sources": [str(p) for p in args.sources], "tensors": merged.keys()}
        durable.write_new(args.report, durable.json_text(origins))
        yield f"  where each tensor came from: {args.report}"


def parse(arguments: Sequence[str]) -> MergeArgs:
    """Reads the words after `merge`. Sources may also be given as one word with commas. Raises RecipeError E1012."""
    line = words.parse(arguments, "merge")
    paths = [part for word in line.plain[:-1] for part in _parted(word)]
    if len(paths) < 2:
        raise line.wrong(f"one model alone merges with nothing; write mezzotint merge {line.verb.form}")
    target, shares = destination(line), _numbers(line)
    if shares and len(shares) != len(paths):
        raise line.wrong(f"--weights has {len(shares)} numbers for {len(paths)} models; write one for each")
    return MergeArgs(
        tuple(Path(path).expanduser() for path in paths),
        target,
        shares,
        dtype(line),
        line.get("--ema") == "use",
        config(line),
        line.path("--report"),
    )


def _parted(word: str) -> list[str]:
    """A list with commas, unless a file of that very name is there."""
    return [word] if Path(word).expanduser().exists() else [part for part in word.split(",") if part]


def _numbers(line: Words) -> tuple[float, ...]:
    text = line.get("--weights")
    try:
        return () if text is None else tuple(float(part) for part in text.split(","))
    except ValueError:
        raise line.wrong(f"--weights is numbers with commas between, such as 0.5,0.5, got {text!r}") from None


def _to_file(args: MergeArgs, merged: Merge) -> Iterator[str]:
    base = merged.base
    style = "mindone" if args.destination.suffix == mindspore.SUFFIX else ""
    layout = known_layouts.for_components(tuple(base.shapes), style=style)
    if layout is None:
        raise WeightsError(
            f"{args.destination}: SDXL and its refiner are written as checkpoints of MindSpore's, {args.sources[0]} is "
            "neither; write a name that ends in .safetensors",
            code="E1406",
        )
    plan = file_plan(merged, layout)
    if style:
        lenient = tuple(one.name for one in plan if one.entry is None)
        mindspore.write(args.destination, _finite(args.destination, read_in_order(merged, plan), lenient))
    else:
        predicts = "v" if base.scheduler.get("prediction_type") == "v_prediction" else "epsilon"
        described = writing.described(base.folder, predicts, args.destination.stem)
        convert.write_plan(args.destination, merged, plan, described)
    counts = Counter(one.kind for one in plan)
    yield f"  {len(plan)} tensors: " + ", ".join(f"{count} {kind}" for kind, count in counts.most_common())


def _finite(path: Path, tensors: Iterator[tuple[str, Tensor]], lenient: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors:
        tensor_files.require_finite(path, {name: tensor}, unchecked=lenient)
        yield name, tensor


def _to_folder(args: MergeArgs, merged: Merge) -> Iterator[str]:
    base = merged.base
    tensors = {component: _Lazily(merged, component) for component in base.shapes}
    opens = convert.write_folder(
        args.destination, base.folder, base.layout, tensors, base.scheduler, base.extras, averages=False
    )
    yield f"  {opens}"


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
