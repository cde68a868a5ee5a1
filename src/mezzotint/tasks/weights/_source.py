"""Sources of `convert`: a model of any family, opened by headers, with its components by the names of their folders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mezzotint import registry
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.families.base import ModelFamily
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.settings.families.base import family_spec, is_denoiser
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.tasks.weights.args import ConvertArgs
from mezzotint.weights import kinds
from mezzotint.weights.files import formats, pickled, tensor_files
from mezzotint.weights.files.tensor_files import InFile, Stored
from mezzotint.weights.folder import components, scheduler_file, state
from mezzotint.weights.folder.components import DTypeName, Network, StoredAs
from mezzotint.weights.folder.model_folder import ModelFolder, open_folder
from mezzotint.weights.keymap import KeyMap, Shape
from mezzotint.weights.single_file import known_layouts, planned, writing
from mezzotint.weights.single_file.extras import Extras, extras_of, read_extras
from mezzotint.weights.single_file.modelspec import Description
from mezzotint.weights.single_file.planned import Cast, PlannedTensor
from mezzotint.weights.single_file.single_file import SingleFile, open_single


@dataclass(frozen=True, slots=True)
class SourceComponent:
    """A network of the model. config, where: its configuration and the configuration's file. open: opens its tensors,
    under the names of files in diffusers' layout. is_copied: whether the files of a folder can be copied unchanged."""

    network: Network
    config: Mapping[str, Any]
    where: Path
    open: Callable[[], Stored]
    is_copied: bool = False

    def shapes(self) -> Mapping[str, Shape]:
        """Shapes by the names of files in diffusers' layout."""
        return components.shapes(self.network, self.config, where=self.where)

    def require_fit(self) -> None:
        """Raises WeightsError E1405 for tensors that are not those of the configuration."""
        stored = self.open()
        if "." in self.network:
            stored = components.stored_as(self.network, stored)
        shapes = {name: info.shape for name, info in stored.header().items()}
        state.require_shapes(stored.path, self.shapes(), components.modern_names(self.network, shapes))


@dataclass(frozen=True)
class ConvertSource(ABC):
    """An open model. folder: of its configurations. scheduler: its configuration; None if the folder's file is copied.
    extras: further content of its single file, which is kept. notes: for the user."""

    path: Path
    folder: ModelFolder
    components: Mapping[str, SourceComponent]
    scheduler: Mapping[str, Any] | None = None
    extras: Extras = field(default_factory=Extras)
    notes: tuple[str, ...] = ()

    def open_component(self, name: str, dtype: DTypeName | None) -> Stored:
        """A component's tensors, cast to `dtype` if it is not None."""
        stored = self.components[name].open()
        return stored if dtype is None else Cast(stored, dtype)

    @abstractmethod
    def require_writable(self, args: ConvertArgs) -> None:
        """Raises WeightsError E1406, E1479 for a model that cannot be written as such a file."""

    @abstractmethod
    def plan(self, args: ConvertArgs) -> list[PlannedTensor]:
        """The tensors of a single file. Raises WeightsError E1405, E1479."""

    def description(self, title: str) -> Description | None:
        """The description for the single file's header; None without one."""
        return None

    @property
    def predicts(self) -> str:
        """What the denoiser predicts; "" for families whose models all predict the same."""
        return ""


def family_at(source: Path) -> str | None:
    """The flow-matching family of a folder or a file, by its configurations or its header; None for other families."""
    family = None
    if source.is_file() and source.suffix == ".safetensors":
        family = kinds.family_of(tensor_files.read_header(source).keys())
    elif (source / "model_index.json").is_file():
        family = kinds.family_at(source)
    return family if family is not None and family_spec(family).is_flow_matching else None


def open_source(args: ConvertArgs) -> ConvertSource:
    """Opens the model to convert. Raises RecipeError E1012 for `--part` of a model without such a part, and for
    `--task` of one that has only one, WeightsError for a source that is not a model."""
    family = family_at(args.source)
    if args.task != "auto" and (family is None or "task" in family_spec(family).refuses):
        raise RecipeError("mezzotint convert: --task is only for FLUX.1; leave it out", code="E1012")
    if family is not None:
        return _open_flow(args, family)
    if args.part:
        raise RecipeError("mezzotint convert: --part is only for Wan 2.2 A14B; leave it out", code="E1012")
    return _open_folder(args) if args.source.is_dir() else _open_file(args)


# --- flow-matching models -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FlowSource(ConvertSource):
    files: FlowFiles | None = None

    def plan(self, args: ConvertArgs) -> list[PlannedTensor]:
        files = self.files
        assert files is not None
        denoisers = [part for part in files.parts if is_denoiser(part)]
        if len(denoisers) > 1 and not args.part:
            raise WeightsError(
                f"{self.path}: has two denoisers, each of which is a separate file; add --part=denoiser for the "
                "high-noise one or --part=denoiser_2 for the low-noise one",
                code="E1479",
            )
        part = args.part or "denoiser"
        name = files.spec.folders[part]
        written = files.plan_original(part)
        self.components[name].require_fit()
        return written.tensors(name, self.open_component(name, args.dtype).header())

    def require_writable(self, args: ConvertArgs) -> None:
        if formats.format_for(args.destination) is not None:
            assert self.files is not None
            raise WeightsError(
                f"{self.path}: models of family {self.files.spec.name} are written as folders, and their denoisers as "
                f"files; use a name without {args.destination.suffix}, or one that ends in .safetensors",
                code="E1479",
            )


def _open_flow(args: ConvertArgs, family: str) -> ConvertSource:
    kind: type[ModelFamily] = registry.find("families", family).Family
    train = (args.part,) if args.part else ModelSettings().train
    files = kind.files.of(
        ModelSettings(family=family, path=args.source, config=args.config, train=train, task=args.task)
    )
    assert isinstance(files, FlowFiles)
    if args.part and args.part not in files.parts:
        raise RecipeError(
            f"mezzotint convert: --part={args.part} is for Wan 2.2 A14B, which has two denoisers; this model has one; "
            "leave it out",
            code="E1012",
        )
    parts = {
        files.spec.folders[part]: SourceComponent(
            files.networks[part], files.configs[part], files.where(part), partial(files.stored, part),
            is_copied=files.is_in_folder(part),
        )
        for part in files.parts
    }  # fmt: skip
    notes = tuple(files.notes(files.parts)) if files.single is not None else ()
    return _FlowSource(args.source, files.folder, parts, notes=notes, files=files)


def each_file(folder: Path, target: Path) -> tuple[tuple[str, Path], ...]:
    """Which parts of an exported folder become which files: two for a model with two denoisers, named like its original
    files; for all others one, with "" as its part."""
    family = family_at(folder)
    spec = None if family is None else family_spec(family)
    others = () if spec is None else spec.denoisers()[1:]
    if spec is None or not any((folder / spec.folders[part] / "config.json").is_file() for part in others):
        return (("", target),)
    noise = {"denoiser": "high_noise", "denoiser_2": "low_noise"}
    return tuple((part, target.with_stem(f"{target.stem}-{suffix}")) for part, suffix in noise.items())


# --- Stable Diffusion and SDXL --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _StableSource(ConvertSource):
    def require_writable(self, args: ConvertArgs) -> None:
        known_layouts.require_for(tuple(self.components), args.destination, args.source)

    def plan(self, args: ConvertArgs) -> list[PlannedTensor]:
        for component in self.components.values():
            component.require_fit()
        extras = self.extras if args.ema == "keep" else replace(self.extras, averages={})
        if args.dtype is not None:
            cast = partial(writing.cast, self.path, dtype=args.dtype)
            extras = replace(extras, rest=cast(extras.rest), averages=cast(extras.averages))
        return planned.plan_layout(
            known_layouts.require_for(tuple(self.components), args.destination, args.source),
            {name: component.config for name, component in self.components.items()},
            {name: component.shapes() for name, component in self.components.items()},
            {name: self.open_component(name, args.dtype) for name in self.components},
            extras,
        )

    def description(self, title: str) -> Description | None:
        return writing.describe_folder(self.folder, self.predicts, title)

    @property
    def predicts(self) -> str:
        return scheduler_file.prediction_of(self.scheduler or {}) or "epsilon"


def _open_folder(args: ConvertArgs) -> ConvertSource:
    """Opens a folder, including old ones with pickled weights."""
    refuse_run(args.source)
    kinds.refuse_adapter(args.source)
    guess = kinds.describe_path(args.source)
    folder = open_folder(args.source) if guess is None else None
    unet = folder.config("unet") if folder is not None and folder.has("unet") else {}
    other = guess or (kinds.describe_folder(folder.index, unet, None) if folder is not None else None)
    components = [name for name in known_layouts.component_names() if folder is not None and folder.has(name)]
    layout = known_layouts.for_components(components)
    if folder is None or other is not None or layout is None:
        raise WeightsError(
            f"{args.source}: looks like {other or 'a part of a model'}; only complete models of SD 1.x, SD 2.x or SDXL "
            "are converted; models of other families need no conversion",
            code="E1406",
        )
    scheduler = folder.config("scheduler", "scheduler_config.json")
    if args.prediction is not None:
        zero = bool(scheduler.get("rescale_betas_zero_snr"))
        scheduler = scheduler_file.correct_config(scheduler, prediction=args.prediction, zero_terminal=zero)
    for name in layout.networks:
        for index in sorted((folder.root / name).glob("*.safetensors.index.json")):
            tensor_files.shards(index)  # a damaged index is reported before a part without weights
    stored = {name: _open_stored(args, folder, name) for name in layout.networks}
    return _StableSource(args.source, folder, _components(folder, layout, stored), scheduler, read_extras(args.source))


def _open_stored(args: ConvertArgs, folder: ModelFolder, name: str) -> Stored:
    folder_path = folder.root / name
    names = ("diffusion_pytorch_model.bin", "pytorch_model.bin")
    pickle = next((folder_path / name for name in names if (folder_path / name).is_file()), None)
    if pickle is not None and not any(folder_path.glob("*.safetensors*")):
        assert args.store is not None
        return InFile(pickled.as_safetensors(pickle, args.store))
    weights = folder.weights(name)
    if weights is None:
        raise WeightsError(
            f"{folder_path}: has a configuration but no weights; download the complete model", code="E1407"
        )
    return InFile(weights.path)


def _open_file(args: ConvertArgs) -> ConvertSource:
    single = open_single(
        args.source,
        None,
        config=args.config,
        averaged=args.ema == "use",
        prediction=args.prediction,
        store=args.store,
    )
    stored = {name: single.component(name) for name in single.layout.networks}
    scheduler = single.scheduler(single.folder.config("scheduler", "scheduler_config.json"))
    extras = extras_of(single, averages=args.ema == "keep")
    parts = _components(single.folder, single.layout, stored)
    notes = (f"configurations of {single.folder.root.name}", *_extra_notes(single, args))
    return _StableSource(args.source, single.folder, parts, scheduler, extras, notes)


def _components(folder: ModelFolder, layout: KeyMap, stored: Mapping[str, Stored]) -> dict[str, SourceComponent]:
    """Networks with their tensors under current names."""

    def current(network: Network, stored: Stored) -> Stored:
        return StoredAs(stored, components.modern_names(network, {name: name for name in stored.header()}))

    return {
        name: SourceComponent(
            network, folder.config(name), folder.root / name / "config.json", partial(current, network, stored[name])
        )
        for name, network in layout.networks.items()
    }


def _extra_notes(single: SingleFile, args: ConvertArgs) -> Iterator[str]:
    unmapped = single.unmapped
    if single.averaged:
        yield f"the averaged copy replaces the denoiser ({len(unmapped.averages)} tensors)"
    elif unmapped.averages and args.ema == "ignore":
        yield f"left out: {len(unmapped.averages)} averaged tensors; --ema=use uses them, --ema=keep keeps both"
    if unmapped.extras:
        yield f"kept: {tensor_files.summary(unmapped.extras, 3)} that no network needs"
    if unmapped.unknown:
        yield f"kept, but unknown: {tensor_files.summary(unmapped.unknown)}"


def refuse_run(source: Path) -> None:
    """Raises WeightsError E1406 for a run folder, which contains checkpoints; its models are the exports."""
    if not (source / "checkpoints").is_dir() or (source / "model_index.json").is_file():
        return
    exports = sorted(path for path in (source / "exports").glob("step-*") if path.is_dir())
    example = f", such as {exports[-1]}" if exports else "; it has none yet, a run writes one at its end"
    raise WeightsError(f"{source}: is a run folder; give one of its exports{example}", code="E1406")
