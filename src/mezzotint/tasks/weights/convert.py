"""`mezzotint convert SOURCE DESTINATION`: converts a model between folders and single files.

SOURCE is a model folder in diffusers' layout, or a single file (a complete Stable Diffusion or SDXL; a flow-matching
model's original-format checkpoint with `--config=FOLDER`); DESTINATION a folder, or a file that ends in .safetensors or
in the suffix of another registered format. Everything that the destination can contain is kept, and the rest is
reported. Tensors are read a few at a time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mezzotint import durable
from mezzotint.errors import RecipeError, escape_line
from mezzotint.settings import weights_formats
from mezzotint.tasks.weights import adapter_files
from mezzotint.tasks.weights._source import ConvertSource, SourceComponent, each_file, open_source
from mezzotint.tasks.weights.args import ConvertArgs, open_target, parse, require_free, store_beside
from mezzotint.weights import kinds
from mezzotint.weights.files import formats, pickled, tensor_files
from mezzotint.weights.files.tensor_files import TYPES, TensorInfo
from mezzotint.weights.folder import components, model_folder
from mezzotint.weights.folder.components import DTypeName
from mezzotint.weights.folder.model_folder import ModelFolder
from mezzotint.weights.single_file import planned, writing
from mezzotint.weights.single_file.extras import FOLDER, Extras, drop_average
from mezzotint.weights.single_file.planned import PlannedTensor


def run(arguments: Sequence[str]) -> int:
    """Converts and reports the result.

    Raises RecipeError E1012 for unknown arguments; WeightsError E1401 to E1416 for a source that cannot be read, or a
    destination that exists (E1410), E1479 for a model that cannot be written as one file; StorageError E1701.
    """
    args = parse(arguments)
    require_free(args.destination, "convert", replaces=args.replaces)
    print(escape_line(f"{args.source} → {args.destination}"))
    with store_beside(args.destination) as store, open_target(args.destination, store) as target:
        convert = _convert_adapter if args.base is not None or args.layout is not None else _convert
        for line in convert(replace(args, store=store, destination=target)):
            print(escape_line(f"  {line}"))
    return 0


def single_file_of(folder: Path, target: Path, dtype: DTypeName | None = None) -> None:
    """Writes an exported model folder as one file that replaces `target`. dtype: of the weights; None keeps the
    folder's. target: its suffix chooses the format; a model with two denoisers gives two files next to that name.
    Raises as `run`."""
    with durable.storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    for part, file in each_file(folder, target):
        for _ in _convert(ConvertArgs(folder, file, dtype=dtype, store=target.parent, part=part)):
            pass


def _convert_adapter(args: ConvertArgs) -> Iterator[str]:
    """Converts an adapter to another layout."""
    assert args.store is not None
    if args.layout is None or args.destination.suffix != ".safetensors":
        raise RecipeError(
            "mezzotint convert: --base is for adapters; add --layout, such as --layout=kohya, and "
            "use a name that ends in .safetensors",
            code="E1012",
        )
    base = adapter_files.base_of(args.base, "convert", args.config)
    adapter = base.read(args.source, args.store)
    yield from adapter.notes
    yield from adapter_files.write(
        args.destination, adapter, base, args.layout, dtype=args.dtype, before=adapter.metadata
    )


def _convert(args: ConvertArgs) -> Iterator[str]:
    to_file = args.destination.suffix in weights_formats.suffixes()
    if to_file and _is_something_else(args):
        yield from _convert_tensors(args)
        return
    source = open_source(args)
    if to_file:
        source.require_writable(args)
    yield from source.notes
    yield from (_to_file if to_file else _to_folder)(args, source)


def _is_something_else(args: ConvertArgs) -> bool:
    """Whether the source is a pickle or a file of a registered format, and not a complete model: it is converted to
    safetensors."""
    if formats.format_for(args.destination) is not None or not args.source.is_file():
        return False
    if formats.name_at(args.source) is not None:
        return kinds.refusal(tensor_files.read_header(args.source), None) is not None
    if args.source.suffix not in pickled.SUFFIXES or not pickled.is_pickled(args.source):
        return False
    return kinds.refusal(tensor_files.read_header(_copy_of(args)), None) is not None


def _convert_tensors(args: ConvertArgs) -> Iterator[str]:
    """Writes the tensors of a pickle or a file of a registered format under their names."""
    copy = args.source if formats.name_at(args.source) is not None else _copy_of(args)
    header = tensor_files.read_header(copy)
    tensors = tensor_files.read(copy)
    if args.dtype is not None:
        tensors = writing.cast_component(args.source, tensors, args.dtype)
    tensor_files.write(tensors, args.destination)
    yield f"looks like {kinds.describe_tensors(header)}; its tensors keep their names"
    yield _types("tensors", tensor_files.read_header(args.destination).values())


def _copy_of(args: ConvertArgs) -> Path:
    assert args.store is not None
    return pickled.as_safetensors(args.source, args.store)


def _to_file(args: ConvertArgs, source: ConvertSource) -> Iterator[str]:
    plan = source.plan(args)
    stored = {name: source.open_component(name, args.dtype) for name in source.components if _of(name, plan)}
    held = (*stored, "scheduler", FOLDER)
    left = [name for name in source.folder.components() if name not in held and not name.startswith("tokenizer")]
    if left:
        yield f"left out, since a single file cannot contain them: {', '.join(left)}"
    planned.write(args.destination, plan, stored, source.description(args.destination.stem), source.extras.metadata)
    for name in stored:
        yield _types(name, [TensorInfo(entry.kind, entry.shape) for entry in _of(name, plan)])
    if source.predicts:
        header = "" if formats.format_for(args.destination) is not None else ", which its header contains (ModelSpec)"
        yield f"predicts {source.predicts}{header}"
    else:
        yield "tensors have the names of the original format, as ComfyUI reads them"


def _of(component: str, plan: Sequence[PlannedTensor]) -> list[PlannedTensor]:
    return [entry for entry in plan if entry.component == component]


def _to_folder(args: ConvertArgs, source: ConvertSource) -> Iterator[str]:
    written: dict[str, SourceComponent] = {}
    for name, component in source.components.items():
        if not component.is_copied or args.dtype is not None:
            component.require_fit()
            written[name] = replace(component, open=partial(source.open_component, name, args.dtype))
    opens = write_folder(
        args.destination, source.folder, written, source.scheduler, source.extras, averages=args.ema == "keep"
    )
    for name, component in written.items():
        yield _types(name, component.open().header().values())
    yield f"predicts {source.predicts}; {opens}" if source.predicts else opens


def write_folder(
    target: Path,
    source: ModelFolder,
    written: Mapping[str, SourceComponent],
    scheduler: Mapping[str, Any] | None,
    extras: Extras,
    *,
    averages: bool = False,
) -> str:
    """Writes a model folder, which must not exist. written: components to write; all others are copied. scheduler: its
    configuration; None copies it, too. extras: kept in the folder; averages: including the averaged copy. Returns a
    line on how to open the folder. Raises WeightsError E1403, E1410, E1416, StorageError E1701."""
    index = {key: value for key, value in source.index.items() if key != "_name_or_path"}
    with model_folder.new_folder(target) as folder:
        for name in source.components():
            if name in written:
                _write_component(folder / name, written[name])
            elif name == "scheduler" and scheduler is not None:
                model_folder.write_json(folder / name / "scheduler_config.json", scheduler)
            else:
                model_folder.copy_component(source.root / name, folder / name)
                if name.startswith("tokenizer"):
                    model_folder.complete_tokenizer(folder / name)
        extras.write(folder)
        if not averages:
            drop_average(folder)
        if scheduler is not None and "_class_name" in scheduler:
            index["scheduler"] = ["diffusers", scheduler["_class_name"]]
        model_folder.write_json(folder / "model_index.json", index)
    return f"opens with {index.get('_class_name', 'StableDiffusionPipeline')}.from_pretrained, and as model.path"


def _write_component(folder: Path, component: SourceComponent) -> None:
    folder.mkdir(parents=True)
    stored = component.open()
    planned.write(folder / components.file_name(component.network), planned.plan_component(stored), {"model": stored})
    components.write_config(component.network, component.config, folder)


def _types(name: str, tensors: Iterable[TensorInfo]) -> str:
    infos = list(tensors)
    types = Counter(str(TYPES[info.dtype]).removeprefix("torch.") for info in infos)
    numbers = sum(math.prod(info.shape) for info in infos)
    listed = " and ".join(kind for kind, _ in types.most_common())
    return f"{name}: {len(infos)} tensors, {numbers:,} numbers, {listed}"
