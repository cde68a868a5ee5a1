"""`mezzotint convert SOURCE DESTINATION`: a model from one form of files into another.

SOURCE is a model folder in diffusers' layout, or a model in one file, MindSpore's too; DESTINATION a folder, a file
that ends in .safetensors, or a checkpoint of MindSpore's, which ends in .ckpt. Everything is kept that the other form
can hold, and what is left out is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torch import Tensor

from mezzotint import durable
from mezzotint.errors import RecipeError, WeightsError, visible
from mezzotint.tasks.weights import _straight, adapter_files
from mezzotint.tasks.weights.args import ConvertArgs, parse, place_of, require_free, store_beside
from mezzotint.weights import kinds
from mezzotint.weights.files import mindspore, pickled, tensor_files
from mezzotint.weights.files.tensor_files import SIZES, TYPES, TensorInfo
from mezzotint.weights.folder import components, scheduler_file, state
from mezzotint.weights.folder.components import DTypeName
from mezzotint.weights.folder.export import Replaced, write_model
from mezzotint.weights.folder.model_folder import ModelFolder, open_folder
from mezzotint.weights.keymap import KeyMap
from mezzotint.weights.merge import Merge, PlannedTensor, file_plan, open_base, read_in_order
from mezzotint.weights.single_file import known_layouts, modelspec, writing
from mezzotint.weights.single_file.extras import FOLDER, Extras, drop_average, extras_of, read_extras
from mezzotint.weights.single_file.modelspec import Description
from mezzotint.weights.single_file.single_file import SingleFile, open_single


@dataclass(frozen=True)
class ConvertedModel:
    """A model that was read. layout: how single files of its kind are laid out. tensors: by component, under our
    names. scheduler: its configuration."""

    folder: ModelFolder
    layout: KeyMap
    tensors: Mapping[str, Mapping[str, Tensor]]
    scheduler: Mapping[str, object]
    extras: Extras

    @property
    def prediction(self) -> str:
        return scheduler_file.prediction_of(self.scheduler) or "epsilon"


def run(arguments: Sequence[str]) -> int:
    """Converts and says what came of it.

    Raises RecipeError E1012 for words it does not know; WeightsError E1401 to E1416 for a source that cannot be read,
    or a destination that is taken (E1410); StorageError E1701.
    """
    args = parse(arguments)
    require_free(args.destination, "convert", replaces=args.replaces)
    print(visible(f"{args.source} → {args.destination}"))
    with store_beside(args.destination) as store, place_of(args.destination, store) as place:
        convert = _adapter if args.base is not None or args.layout is not None else _convert
        for line in convert(replace(args, store=store, destination=place)):
            print(visible(f"  {line}"))
    return 0


def single_file_of(folder: Path, target: Path, dtype: DTypeName | None = None) -> None:
    """An exported model folder once more, as one file in the place of what lies there. dtype: of the weights; None
    keeps the folder's. target: `.ckpt` is a checkpoint of MindSpore's; of two denoisers each has its file beside that
    name. Raises as `run`."""
    with durable.storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    for part, file in _straight.each_file(folder, target):
        for _ in _convert(ConvertArgs(folder, file, dtype=dtype, store=target.parent, part=part)):
            pass


def _adapter(args: ConvertArgs) -> Iterator[str]:
    """An adapter into another layout."""
    assert args.store is not None
    if args.layout is None or args.destination.suffix != ".safetensors":
        raise RecipeError(
            "mezzotint convert: with --base an adapter is written; write --layout=diffusers, --layout=kohya or "
            "--layout=comfy, and a name that ends in .safetensors",
            code="E1012",
        )
    base = adapter_files.base_of(args.base, "convert", args.config)
    adapter = base.read(args.source, args.store)
    yield from adapter.notes
    yield from adapter_files.write(
        args.destination, adapter, base, args.layout, dtype=args.dtype, before=adapter.metadata
    )


def _convert(args: ConvertArgs) -> Iterator[str]:
    straight = _straight.family_of(args.source)
    if straight is not None:
        yield from _straight.convert(args, straight)
        return
    if args.part:
        raise RecipeError("mezzotint convert: --part is for Wan 2.2 A14B alone; leave it out", code="E1012")
    to_file = args.destination.suffix in (".safetensors", mindspore.SUFFIX)
    if args.source.is_dir():
        opened = _opened_folder(args)
        is_pickled = any(_pickled(opened.folder.root / name) for name in opened.layout.parts)
        if args.destination.suffix == ".safetensors" and not is_pickled:
            yield from _folder_to_file(args, opened)
            return
        model = _from_folder(args, opened)
        yield from _to_file(args, model) if to_file else _to_folder(args, model)
    elif to_file and _is_something_else(args):
        yield from _plainly(args)
    else:
        single = open_single(
            args.source,
            None,
            config=args.config,
            averaged=args.ema == "use",
            prediction=args.prediction,
            store=args.store,
        )
        if not to_file:
            yield f"configurations of {single.folder.root.name}"
            yield from _besides(single, args)
            yield from _to_folder(args, _of_file(args, single))
        elif _target_layout(args, tuple(single.layout.parts)) is single.layout:
            yield from _file_to_file(args, single)
        else:
            yield from _to_file(args, _of_file(args, single))


def _is_something_else(args: ConvertArgs) -> bool:
    """Whether the source is a pickle or MindSpore's and no whole model: it becomes safetensors all the same."""
    if args.destination.suffix == mindspore.SUFFIX or not args.source.is_file():
        return False
    if mindspore.is_mindspore(args.source):
        return kinds.refusal(tensor_files.read_header(args.source), None) is not None
    if args.source.suffix not in pickled.SUFFIXES or not pickled.is_pickled(args.source):
        return False
    return kinds.refusal(tensor_files.read_header(_copy_of(args)), None) is not None


def _target_layout(args: ConvertArgs, components: Sequence[str]) -> KeyMap:
    """How the destination's file is laid out. Raises WeightsError E1406 when there is no such file of such a model."""
    to_mindspore = args.destination.suffix == mindspore.SUFFIX
    layout = known_layouts.for_components(components, args.destination.suffix)
    if layout is None:
        what = "SDXL and its refiner are written as checkpoints of MindSpore's" if to_mindspore else "no layout fits"
        raise WeightsError(
            f"{args.source}: has {', '.join(components)}; {what}, write a name that ends in .safetensors", code="E1406"
        )
    return layout


def _plainly(args: ConvertArgs) -> Iterator[str]:
    """Tensors of something else out of a pickle or a checkpoint of MindSpore's, under the names that they have."""
    copy = args.source if mindspore.is_mindspore(args.source) else _copy_of(args)
    header = tensor_files.read_header(copy)
    tensors = tensor_files.read(copy)
    if args.dtype is not None:
        tensors = writing.cast_component(args.source, tensors, args.dtype)
    tensor_files.write(tensors, args.destination)
    yield f"looks like {kinds.of_tensors(header)}; its tensors keep their names"
    yield _types("tensors", tensors)


def _copy_of(args: ConvertArgs) -> Path:
    assert args.store is not None
    return pickled.as_safetensors(args.source, args.store)


def _of_file(args: ConvertArgs, single: SingleFile) -> ConvertedModel:
    tensors = {component: single.component(component).everything() for component in single.layout.networks}
    _require_whole(args.source, single.folder, single.layout, tensors)
    scheduler = single.scheduler(single.folder.config("scheduler", "scheduler_config.json"))
    return ConvertedModel(
        single.folder, single.layout, tensors, scheduler, extras_of(single, averages=args.ema == "keep")
    )


def _file_to_file(args: ConvertArgs, single: SingleFile) -> Iterator[str]:
    """The file's own names stay, in every spelling; only values, types and the header change."""
    besides = single.besides
    lenient = (*besides.extras, *besides.unknown)
    left = set(besides.averages) if args.ema != "keep" else set()
    names = [name for name in single.header if name not in left]
    tensors = tensor_files.read(single.file, names, unchecked=lenient)
    for component in single.layout.networks:
        single.component(component).require_known()
    if single.averaged:
        plain = single.tables["unet"].present(single.header)
        copies = {name: single.layout.average(entry.foreign) for name, entry in plain.items()}
        averaged = tensor_files.read(single.file, tuple(copies.values()))
        tensors |= {name: averaged[copy].reshape(tensors[name].shape) for name, copy in copies.items()}
    scheduler = single.scheduler(single.folder.config("scheduler", "scheduler_config.json"))
    prediction = scheduler_file.prediction_of(scheduler) or "epsilon"
    description = writing.described(single.folder, prediction, args.destination.stem)
    yield from _besides(single, args)
    yield from _written(args, single.layout, tensors, description, single.metadata)


@dataclass(frozen=True)
class _Opened:
    """A model's folder whose weights have not been read. scheduler: its configuration, with the args's prediction."""

    folder: ModelFolder
    layout: KeyMap
    scheduler: Mapping[str, object]


def _opened_folder(args: ConvertArgs) -> _Opened:
    refuse_run(args.source)
    kinds.refuse_adapter(args.source)
    guess = kinds.of_path(args.source)
    folder = open_folder(args.source) if guess is None else None
    unet = folder.config("unet") if folder is not None and folder.has("unet") else {}
    other = guess or (kinds.of_index(folder.index, unet, None) if folder is not None else None)
    held = [name for name in known_layouts.component_names() if folder is not None and folder.has(name)]
    layout = known_layouts.for_components(held)
    if folder is None or other is not None or layout is None:
        raise WeightsError(
            f"{args.source}: looks like {other or 'a part of a model'}; a whole model of SD 1.x, SD 2.x or SDXL is "
            "converted, and LatteT2V needs no converting: its forms are read as they are",
            code="E1406",
        )
    if args.destination.suffix == mindspore.SUFFIX:
        _target_layout(args, held)  # refused before anything is read
    scheduler = folder.config("scheduler", "scheduler_config.json")
    if args.prediction is not None:
        zero = bool(scheduler.get("rescale_betas_zero_snr"))
        scheduler = scheduler_file.corrected(scheduler, prediction=args.prediction, zero_terminal=zero)
    return _Opened(folder, layout, scheduler)


def _from_folder(args: ConvertArgs, opened: _Opened) -> ConvertedModel:
    """Tensors also of a folder of the time when weights were pickled."""
    folder, tensors = opened.folder, {}
    for name, network in opened.layout.networks.items():
        where = folder.root / name
        pickle = _pickled(where)
        if pickle is not None:
            path = _copy_of(replace(args, source=pickle))
        elif (weights := folder.weights(name)) is not None:
            path = weights.path
        else:
            raise WeightsError(f"{where}: has a configuration and no weights; fetch the whole model", code="E1407")
        tensors[name] = components.modern_names(network, tensor_files.read(path))
    return ConvertedModel(folder, opened.layout, tensors, opened.scheduler, read_extras(folder.root))


def _folder_to_file(args: ConvertArgs, opened: _Opened) -> Iterator[str]:
    """A folder's tensors into one file a few at a time, so that the model is never held as a whole."""
    base = open_base(args.source)
    extras = _kept(args, base.extras)
    if args.dtype is not None:
        cast = partial(writing.cast, args.source, dtype=args.dtype)
        extras = replace(extras, rest=cast(extras.rest), averages=cast(extras.averages))
    merged = Merge(replace(base, extras=extras), (), (), args.dtype)
    plan = file_plan(merged, opened.layout)
    yield from _left_out(opened.folder, tuple(opened.layout.networks))
    prediction = scheduler_file.prediction_of(opened.scheduler) or "epsilon"
    description = writing.described(opened.folder, prediction, args.destination.stem)
    write_plan(args.destination, merged, plan, description)
    for component in opened.layout.networks:
        mine = [one for one in plan if one.component == component]
        numbers = sum(one.bytes // SIZES[one.kind] for one in mine)
        counts = Counter(str(TYPES[one.kind]).removeprefix("torch.") for one in mine)
        yield _types_line(component, len(mine), numbers, counts)
    yield f"predicts {prediction}, as its header says (ModelSpec)"


def write_plan(target: Path, merged: Merge, plan: Sequence[PlannedTensor], description: Description) -> None:
    """Writes a planned single file of safetensors. Raises as `files.write_in_turn`."""
    tensor_files.write_in_turn(
        target,
        {one.name: TensorInfo(one.kind, one.shape) for one in plan},
        read_in_order(merged, plan),
        description.metadata(merged.base.extras.metadata),
        unchecked=tuple(one.name for one in plan if one.entry is None),
        seal=modelspec.seal,
    )


def refuse_run(source: Path) -> None:
    """Raises WeightsError E1406 for a run folder, which holds checkpoints; its models are the exports."""
    if not (source / "checkpoints").is_dir() or (source / "model_index.json").is_file():
        return
    exports = sorted(path for path in (source / "exports").glob("step-*") if path.is_dir())
    there = f", such as {exports[-1]}" if exports else "; it has none yet, which a run writes at its end"
    raise WeightsError(f"{source}: is a run folder; name one of its exports{there}", code="E1406")


def _pickled(where: Path) -> Path | None:
    if any(where.glob("*.safetensors*")):
        return None
    names = (where / name for name in ("diffusion_pytorch_model.bin", "pytorch_model.bin"))
    return next((path for path in names if path.is_file()), None)


def _to_folder(args: ConvertArgs, model: ConvertedModel) -> Iterator[str]:
    _require_whole(args.source, model.folder, model.layout, model.tensors)
    cast = partial(writing.cast_component, args.source, dtype=args.dtype) if args.dtype is not None else dict
    tensors = {component: cast(tensors) for component, tensors in model.tensors.items()}
    opens = write_folder(
        args.destination,
        model.folder,
        model.layout,
        tensors,
        model.scheduler,
        model.extras,
        averages=args.ema == "keep",
    )
    for component, of_component in tensors.items():
        yield _types(component, of_component)
    yield f"predicts {model.prediction}; {opens}"


def write_folder(
    target: Path, folder: ModelFolder, layout: KeyMap, tensors: Mapping[str, Mapping[str, Tensor]],
    scheduler: Mapping[str, object], extras: Extras, *, averages: bool,
) -> str:  # fmt: skip
    """Writes a model folder of tensors by component, and what was kept besides, averages if they are to be. Returns how
    it is opened."""
    replaced = {
        component: Replaced(layout.networks[component], of_component, folder.config(component), keep_types=True)
        for component, of_component in tensors.items()
    }

    def besides(root: Path) -> None:
        extras.write(root)
        if not averages:
            drop_average(root)

    write_model(target, folder, replaced, scheduler=scheduler, dtype=None, besides=besides)
    pipeline = folder.index.get("_class_name", "StableDiffusionPipeline")
    return f"opens with {pipeline}.from_pretrained, and as model.path"


def _to_file(args: ConvertArgs, model: ConvertedModel) -> Iterator[str]:
    extras = _kept(args, model.extras)
    layout = _target_layout(args, tuple(model.tensors))
    tensors = writing.assemble(layout, model.folder, model.tensors, extras)
    yield from _left_out(model.folder, tuple(model.tensors))
    description = writing.described(model.folder, model.prediction, args.destination.stem)
    yield from _written(args, layout, tensors, description, model.extras.metadata)


def _left_out(folder: ModelFolder, written: Sequence[str]) -> Iterator[str]:
    held = {*written, "scheduler", "tokenizer", "tokenizer_2", FOLDER}
    left = [name for name in folder.components() if name not in held]
    if left:
        yield f"left out, since a single file has no place for them: {', '.join(left)}"


def _written(
    args: ConvertArgs,
    layout: KeyMap,
    tensors: Mapping[str, Tensor],
    description: Description,
    before: Mapping[str, str],
) -> Iterator[str]:
    converted = dict(tensors) if args.dtype is None else writing.cast(args.source, tensors, args.dtype)
    writing.write(args.destination, converted, description, before)
    for component, parts in layout.parts.items():
        starts = tuple(part.start for part in parts)
        yield _types(component, {n: t for n, t in converted.items() if n.startswith(starts)})
    header = ", as its header says (ModelSpec)" if args.destination.suffix != mindspore.SUFFIX else ""
    yield f"predicts {description.prediction}{header}"


def _besides(single: SingleFile, args: ConvertArgs) -> Iterator[str]:
    besides = single.besides
    if single.averaged:
        yield f"the averaged copy took the denoiser's place ({len(besides.averages)} tensors)"
    elif besides.averages and args.ema == "ignore":
        yield f"left out: {len(besides.averages)} averaged tensors; --ema=use takes them, --ema=keep keeps both"
    if besides.extras:
        yield f"kept along: {tensor_files.listed(besides.extras, 3)} that no network needs"
    if besides.unknown:
        yield f"kept along, and not known: {tensor_files.listed(besides.unknown)}"


def _require_whole(
    source: Path, folder: ModelFolder, layout: KeyMap, tensors: Mapping[str, Mapping[str, Tensor]]
) -> None:
    for component, network in layout.networks.items():
        shapes = components.shapes(network, folder.config(component), where=folder.root / component / "config.json")
        in_file = {name: tuple(tensor.shape) for name, tensor in tensors[component].items()}
        state.require_shapes(source / component if source.is_dir() else source, shapes, in_file)


def _kept(args: ConvertArgs, extras: Extras) -> Extras:
    return extras if args.ema == "keep" else replace(extras, averages={})


def _types(what: str, tensors: Mapping[str, Tensor]) -> str:
    counts = Counter(str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values())
    return _types_line(what, len(tensors), sum(tensor.numel() for tensor in tensors.values()), counts)


def _types_line(what: str, count: int, numbers: int, types: Counter[str]) -> str:
    return f"{what}: {count} tensors, {numbers:,} numbers, {' and '.join(name for name, _ in types.most_common())}"
