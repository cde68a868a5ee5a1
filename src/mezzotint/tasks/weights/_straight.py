"""`convert` for models on straight paths: a folder in diffusers' layout, or a file of the model's makers with such a
folder beside it, into either. One tensor after the other, so that the model is never held as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mezzotint import registry
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.families.base import ModelFamily
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.recipe.families.base import family_spec, is_denoiser
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.tasks.weights.args import ConvertArgs
from mezzotint.weights import kinds
from mezzotint.weights.files import tensor_files
from mezzotint.weights.files.tensor_files import TYPES, Stored, TensorInfo
from mezzotint.weights.folder import components, model_folder
from mezzotint.weights.folder.components import DTYPES, DTypeName
from mezzotint.weights.single_file import original, writing


def family_of(source: Path) -> str | None:
    """The family on a straight path that a folder or a file is of, by its small files or header; None of others."""
    family = None
    if source.is_file() and source.suffix == ".safetensors":
        family = kinds.family_of(tensor_files.read_header(source).keys())
    elif (source / "model_index.json").is_file():
        family = kinds.family_at(source)
    return family if family is not None and family_spec(family).is_straight else None


def convert(args: ConvertArgs, family: str) -> Iterator[str]:
    """Converts, and says what came of it. Raises WeightsError as files are opened and read; E1479 for a model that is
    not written as one file; StorageError E1701."""
    kind: type[ModelFamily] = registry.find("families", family).Family
    train = (args.part,) if args.part else ModelSettings().train
    files = kind.files.of(ModelSettings(family=family, path=args.source, config=args.config, train=train))
    assert isinstance(files, FlowFiles)
    if args.part and args.part not in files.parts:
        raise RecipeError(
            f"mezzotint convert: --part={args.part} is for Wan 2.2 A14B, which has two denoisers, and this model has "
            "one; leave it out",
            code="E1012",
        )
    yield from files.notes(files.parts) if files.single is not None else ()
    yield from (_to_file if args.destination.suffix == ".safetensors" else _to_folder)(args, files)


def _to_file(args: ConvertArgs, files: FlowFiles) -> Iterator[str]:
    if len([part for part in files.parts if is_denoiser(part)]) > 1 and not args.part:
        raise WeightsError(
            f"{args.source}: has two denoisers, and each is a file of its own; write --part=denoiser for that of much "
            "noise, --part=denoiser_2 for that of little",
            code="E1479",
        )
    chosen = args.part or "denoiser"
    written = files.plan_original(chosen)
    original.write(args.destination, written, files.stored(chosen), args.dtype)
    yield f"{chosen}: {len(written.shapes)} tensors under the names that its makers give them, as ComfyUI reads them"
    left = ", ".join(part for part in files.parts if part != chosen)
    yield f"left out, since such a file has the denoiser alone: {left}"


def each_file(folder: Path, target: Path) -> tuple[tuple[str, Path], ...]:
    """Which parts of an exported folder become which files: of a model with two denoisers two, told apart as its makers
    do; of all others one, and "" for its part."""
    family = family_of(folder)
    spec = None if family is None else family_spec(family)
    others = () if spec is None else spec.denoisers()[1:]
    if spec is None or not any((folder / spec.folders[part] / "config.json").is_file() for part in others):
        return (("", target),)
    noise = {"denoiser": "high_noise", "denoiser_2": "low_noise"}
    return tuple((part, target.with_stem(f"{target.stem}-{word}")) for part, word in noise.items())


def _to_folder(args: ConvertArgs, files: FlowFiles) -> Iterator[str]:
    if args.destination.suffix:
        raise WeightsError(
            f"{args.source}: models of family {files.spec.name} are written as folders, and their denoisers as files; "
            f"write a name without {args.destination.suffix}, or one that ends in .safetensors",
            code="E1479",
        )
    parts = {files.spec.folders[part]: part for part in files.parts}
    with model_folder.new_folder(args.destination) as folder:
        for name in files.folder.components():
            part = parts.get(name)
            if part is None or (files.is_in_folder(part) and args.dtype is None):
                model_folder.copy_component(files.root / name, folder / name)
                if name.startswith("tokenizer"):
                    model_folder.complete_tokenizer(folder / name)
                continue
            _write(folder / name, files.spec.networks[part], files.stored(part), args.dtype)
            components.write_config(files.spec.networks[part], files.configs[part], folder / name)
            yield f"{part}: {len(files.stored(part).header())} tensors"
        index = {key: value for key, value in files.folder.index.items() if key != "_name_or_path"}
        model_folder.write_json(folder / "model_index.json", index)
    yield f"opens with {files.folder.index['_class_name']}.from_pretrained, and as model.path"


def _write(folder: Path, network: str, stored: Stored, dtype: DTypeName | None) -> None:
    """A part's tensors under the library's names."""
    folder.mkdir(parents=True)
    target = folder / components.file_name(network)

    def kind_in_file(kind: str) -> str:
        is_float = TYPES[kind].is_floating_point
        return tensor_files.kind_of(DTYPES[dtype]) if dtype is not None and is_float else kind

    header = {name: TensorInfo(kind_in_file(info.dtype), info.shape) for name, info in stored.header().items()}
    header = tensor_files.in_order(header)
    each = ((name, stored.read([name])) for name in header)
    cast = ((n, (t if dtype is None else writing.cast_component(target, t, dtype))[n]) for n, t in each)
    tensor_files.write_in_turn(target, header, cast)
