"""`mezzotint merge MODEL FILE… DESTINATION`: merges files of trained parts and adapters into the model they were
trained from, sums complete models with weights, or combines several adapters into one.

Sources are model folders and single files in any order and format, and adapters with their strengths, `FILE:0.8`;
DESTINATION is a folder, or a file that ends in .safetensors or in the suffix of another registered format.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torch import Tensor

from mezzotint import durable
from mezzotint.adapters import files, merging
from mezzotint.adapters.applying import AdaptedMerge, AppliedAdapter
from mezzotint.adapters.files import read_under_records
from mezzotint.adapters.names import LayerNames
from mezzotint.assets import MODELS
from mezzotint.diffusion.flow_objective import objective_of
from mezzotint.errors import RecipeError, WeightsError, escape_line
from mezzotint.settings import weights_formats
from mezzotint.settings.families.base import family_spec
from mezzotint.settings.reading.read import resolve_path
from mezzotint.settings.sections.objective import ObjectiveSettings
from mezzotint.tasks.reading import command_line
from mezzotint.tasks.reading.command_line import CommandLine
from mezzotint.tasks.reading.commands import REPLACE
from mezzotint.tasks.weights import adapter_files, convert
from mezzotint.tasks.weights._source import SourceComponent, refuse_run
from mezzotint.tasks.weights.args import config, destination, dtype, open_target, require_free, store_beside
from mezzotint.weights.files import learned_tokens
from mezzotint.weights.folder.components import DTypeName
from mezzotint.weights.merge import KINDS, Merge, MergedComponent, file_plan, open_base, open_other
from mezzotint.weights.single_file import known_layouts, planned, writing
from mezzotint.weights.single_file.match_tensors import ModelTensors
from mezzotint.weights.single_file.single_file import family_at


@dataclass(frozen=True, slots=True)
class MergeArgs:
    """sources: the complete model first. strengths: by source, None without one. shares: weights of a sum, one for each
    source; if empty, later sources override earlier ones. averaged: use the averaged copies of later files. report: the
    file that lists where each tensor comes from. base: the model, if all sources are adapters. layout: of the resulting
    adapter; None is the first one's. replaces: overwrite existing files."""

    sources: tuple[Path, ...]
    destination: Path
    strengths: tuple[float | None, ...] = ()
    shares: tuple[float, ...] = ()
    dtype: DTypeName | None = None
    averaged: bool = False
    config: Path | None = None
    report: Path | None = None
    base: Path | None = None
    layout: str | None = None
    replaces: bool = False


def run(arguments: Sequence[str]) -> int:
    """`mezzotint merge MODEL FILE… DESTINATION [switches]`. Returns 0.

    Raises RecipeError E1012 for unknown arguments; WeightsError E1401 to E1436 for sources that cannot be read, E1441
    to E1443, E1451 and E1452 for those of another model, E1410 for a destination that exists; StorageError
    E1701.
    """
    for line in merge(parse(arguments)):
        print(escape_line(line), flush=True)
    return 0


def merge(args: MergeArgs) -> Iterator[str]:
    """Merges; yields lines that report the result. Raises as `run`."""
    require_free(args.destination, "merge", replaces=args.replaces)
    if args.report is not None:  # before minutes of work
        durable.refuse_taken(args.report, replaces=args.replaces)
    for source in args.sources:
        if source.is_dir():
            refuse_run(source)
    with store_beside(args.destination) as store, open_target(args.destination, store) as new_path:
        adapters = [path.exists() and adapter_files.is_adapter(path, store) for path in args.sources]
        for path, strength, is_adapter in zip(args.sources, args.strengths, adapters, strict=True):
            if strength is not None and not is_adapter:
                raise WeightsError(
                    f"{path}: is not an adapter, but has the strength {strength:g}; leave it out: parts of models are "
                    "merged without a strength, complete models are summed with --weights",
                    code="E1443",
                )
        yield f"{', '.join(map(str, args.sources))} → {args.destination}"
        args = replace(args, destination=new_path)
        if adapters[0]:
            yield from _combine_adapters(args, store)
        elif any(adapters) and not _is_stable(args.sources[0]):
            yield from _merge_adapters_into_model(args, adapters, store)
        else:
            yield from _merge_into_stable(args, adapters, store)


def _merge_into_stable(args: MergeArgs, adapters: Sequence[bool], store: Path) -> Iterator[str]:
    """Merges sources into a Stable Diffusion model."""
    if args.shares and any(adapters):
        raise RecipeError(
            "mezzotint merge: --weights sums complete models; append the strength of an adapter to its name, FILE:0.8",
            code="E1012",
        )
    base = open_base(args.sources[0], config=args.config, store=store)
    names = LayerNames.of_stable(base.shapes)
    others: list[ModelTensors] = []
    applied: list[AppliedAdapter] = []
    for path, strength, is_adapter in list(zip(args.sources, args.strengths, adapters, strict=True))[1:]:
        if is_adapter:
            adapter = files.read(path, names, store)
            applied.append(AppliedAdapter(path, adapter, 1.0 if strength is None else strength, len(others)))
            yield from (f"  {note}" for note in _notes_on_tokens(path))
        else:
            others.append(open_other(path, base, averaged=args.averaged, store=store))
    merged = AdaptedMerge(base, others, args.shares, args.dtype, tuple(applied))
    for line in merged.report():
        yield f"  {line}"
    to_file = args.destination.suffix in weights_formats.suffixes()
    yield from _to_file(args, merged) if to_file else _to_folder(args, merged)
    if args.report is not None:
        origins = {"sources": [str(p) for p in args.sources], "tensors": merged.keys()}
        durable.write_new(args.report, durable.json_text(origins), replaces=args.replaces)
        yield f"  where each tensor came from: {args.report}"


def _notes_on_tokens(path: Path) -> Iterator[str]:
    """Notes on the learned tokens in the folder of an adapter, which are not weights of a model."""
    for token, file in learned_tokens.tokens_next_to(path).items():
        embedding = shlex.quote(f"{token}={file}")
        yield f"{path}: its learned token {token} is not in the result; to sample with it, add --embedding={embedding}"


def _combine_adapters(args: MergeArgs, store: Path) -> Iterator[str]:
    """Combines adapters into one."""
    if args.destination.suffix != ".safetensors" or args.shares or args.report is not None:
        raise RecipeError(
            f"mezzotint merge: {args.sources[0]} is an adapter, and adapters merge into an adapter: use a name that "
            "ends in .safetensors and strengths as FILE:0.8, without --weights and --report; to merge into a model, "
            "give the model first",
            code="E1012",
        )
    base = adapter_files.base_of(args.base, "merge", args.config)
    read = [base.read(path, store) for path in args.sources]
    weighted = [(adapter, 1.0 if s is None else s) for adapter, s in zip(read, args.strengths, strict=True)]
    for path, (adapter, strength) in zip(args.sources, weighted, strict=True):
        yield f"  {path}: {strength:g} of it, {len(adapter.modules)} layers"
        yield from (f"  {path}: {note}" for note in adapter.notes)
    joined = merging.join_loras(weighted) if len(weighted) > 1 else merging.scale_adapter(*weighted[0])
    triggers = [trigger for adapter in read if (trigger := adapter.metadata.get("modelspec.trigger_phrase"))]
    entries = {"modelspec.merged_from": ", ".join(path.stem for path in args.sources)}
    entries |= {"modelspec.trigger_phrase": ", ".join(dict.fromkeys(triggers))} if triggers else {}
    entries |= read_under_records(adapter.metadata for adapter in read)
    layout = args.layout or read[0].layout
    for line in adapter_files.write(args.destination, joined, base, layout, dtype=args.dtype, before=entries):
        yield f"  {line}"


def _is_stable(path: Path) -> bool:
    """Whether `open_base` is for this model: a Stable Diffusion model, or an unknown one that it refuses."""
    family = family_at(path)
    return family is None or bool(family_spec(family).layout)


def _merge_adapters_into_model(args: MergeArgs, adapters: Sequence[bool], store: Path) -> Iterator[str]:
    """Merges adapters into a model of another family, which is written as a folder."""
    if not all(adapters[1:]) or args.shares or args.report is not None or args.destination.suffix:
        raise WeightsError(
            f"{args.sources[0]}: only adapters can be merged into a model of this family, and the result is a folder; "
            "leave out other sources, --weights and --report",
            code="E1452",
        )
    base = adapter_files.AdapterBase.at(args.sources[0], args.config)
    model_files = base.family.files.of(base.settings)
    rest = list(zip(args.sources, args.strengths, strict=True))[1:]
    applied = [(base.read(path, store), 1.0 if strength is None else strength) for path, strength in rest]
    for (path, _), (adapter, _) in zip(rest, applied, strict=True):
        yield from (f"  {path}: {note}" for note in adapter.notes)
    parts = {part for part, folder in model_files.spec.folders.items() if any(a.of(folder) for a, _ in applied)}
    model = base.family.load(model_files, parts | {"denoiser"})
    weights: dict[str, Tensor] = {}
    for part in sorted(parts):
        network = model.parts()[part]
        merging.merge_into(network, model_files.spec.folders[part], applied)
        weights |= {f"{part}/{name}": tensor for name, tensor in network.state_dict().items()}
        count = sum(len(adapter.of(model_files.spec.folders[part])) for adapter, _ in applied)
        yield f"  {part}: {count} layers changed"
    stored = (model_files.stored_parts(model.parts()) or {}).get("denoiser")
    kinds = Counter(info.dtype for info in stored.header().values()) if stored is not None else Counter({"F32": 1})
    stored_dtype: DTypeName = next((name for name, kind in KINDS.items() if kind == kinds.most_common(1)[0][0]), "fp32")
    form = objective_of(ObjectiveSettings(), model.schedule, model.prediction).parameterization
    model.export(
        args.destination,
        model_files,
        weights=weights,
        dtype=args.dtype or stored_dtype,
        schedule=model.schedule,
        trained_form=form,
    )


def parse(arguments: Sequence[str]) -> MergeArgs:
    """Parses the arguments of `merge`. Sources may also be one comma-separated argument. Raises RecipeError E1012."""
    line = command_line.parse(arguments, "merge")
    sources = [command_line.parse_weighted(part) for argument in line.plain[:-1] for part in _split(argument)]
    paths, strengths = [path for path, _ in sources], tuple(strength for _, strength in sources)
    paths[:1] = [path if path.exists() else resolve_path(path, None, shipped=MODELS) for path in paths[:1]]
    if len(paths) < 2 and line.get("--base") is None:
        raise line.usage_error(f"merge needs at least two inputs: mezzotint merge {line.command.form}")
    target, shares = destination(line), _numbers(line)
    if shares and len(shares) != len(paths):
        raise line.usage_error(f"--weights has {len(shares)} numbers for {len(paths)} models; give one for each")
    return MergeArgs(
        tuple(paths),
        target,
        strengths,
        shares,
        dtype(line),
        line.get("--ema") == "use",
        config(line),
        line.get_path("--report"),
        line.get_path("--base"),
        line.get("--layout"),
        REPLACE.name in line,
    )


def _split(argument: str) -> list[str]:
    """Splits a comma-separated list, unless a file of that name exists."""
    return (
        [argument]
        if command_line.parse_weighted(argument)[0].exists()
        else [part for part in argument.split(",") if part]
    )


def _numbers(line: CommandLine) -> tuple[float, ...]:
    text = line.get("--weights")
    try:
        return () if text is None else tuple(float(part) for part in text.split(","))
    except ValueError:
        raise line.usage_error(
            f"--weights is a comma-separated list of numbers, such as 0.5,0.5, got {text!r}"
        ) from None


def _to_file(args: MergeArgs, merged: Merge) -> Iterator[str]:
    base = merged.base
    layout = known_layouts.require_for(tuple(base.shapes), args.destination, args.sources[0])
    plan = file_plan(merged, layout)
    predicts = "v" if base.scheduler.get("prediction_type") == "v_prediction" else "epsilon"
    description = writing.describe_folder(base.folder, predicts, args.destination.stem)
    planned.write(args.destination, plan, merged.stored, description, base.extras.metadata)
    counts = Counter(entry.kind for entry in plan)
    yield f"  {len(plan)} tensors: " + ", ".join(f"{count} {kind}" for kind, count in counts.most_common())


def _to_folder(args: MergeArgs, merged: Merge) -> Iterator[str]:
    base = merged.base
    written = {
        name: SourceComponent(
            network, base.folder.config(name), base.folder.root / name, partial(MergedComponent, merged, name)
        )
        for name, network in base.layout.networks.items()
    }
    yield f"  {convert.write_folder(args.destination, base.folder, written, base.scheduler, base.extras)}"
