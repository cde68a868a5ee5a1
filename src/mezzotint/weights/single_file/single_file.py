"""Single-file checkpoints of Stable Diffusion: opened by the header, read component by component.

The file contains tensors and no configurations: those are chosen among the shipped ones by the tensors' shapes, or come
from a folder that the user names. Further content is reported, and kept in conversions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mezzotint.errors import RecipeError, WeightsError
from mezzotint.settings import weights_formats
from mezzotint.settings.families.base import family_spec, specs
from mezzotint.settings.reading import yaml_rules
from mezzotint.weights import kinds
from mezzotint.weights.files import pickled, tensor_files
from mezzotint.weights.files.tensor_files import TensorInfo
from mezzotint.weights.folder import components, scheduler_file
from mezzotint.weights.folder.model_folder import ModelFolder, open_folder, shipped_folder
from mezzotint.weights.keymap import ComponentMap, KeyMap, Table
from mezzotint.weights.single_file import known_layouts, modelspec
from mezzotint.weights.single_file.match_tensors import ComponentInFile

Prediction = modelspec.Prediction


@dataclass(frozen=True, slots=True)
class UnmappedNames:
    """Names in a file that belong to no network. averages: averaged copies of the denoiser. extras: names that such
    files usually contain. unknown: all others."""

    averages: tuple[str, ...]
    extras: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class SingleFile:
    """An open file. path: as the user named it. file: the safetensors file that is read, the same unless `path` is
    pickled. folder: of its configurations. averaged: whether the averaged copy of the denoiser is used. prediction:
    from the file, or None."""

    path: Path
    file: Path
    folder: ModelFolder
    layout: KeyMap
    averaged: bool
    prediction: Prediction | None

    @cached_property
    def header(self) -> Mapping[str, TensorInfo]:
        """All tensors of the file, under their stored names."""
        return tensor_files.read_header(self.file)

    @cached_property
    def metadata(self) -> Mapping[str, str]:
        """The text metadata of the header."""
        return tensor_files.read_metadata(self.file)

    @cached_property
    def tables(self) -> Mapping[str, Table]:
        """By component, the names of its network in this file."""
        return {
            component: self._part(component).table(list(self._shapes(component))) for component in self.layout.networks
        }

    @cached_property
    def unmapped(self) -> UnmappedNames:
        """Names in the file that belong to no network."""
        taken = {name for table in self.tables.values() for name in table.match_names(self.header)}
        left = [name for name in self.header if name not in taken]
        extras = tuple(name for name in left if self.layout.is_extra(name))
        averages = tuple(n for n in left if n.startswith(self.layout.average_start) and n not in extras)
        return UnmappedNames(averages, extras, tuple(n for n in left if n not in (*extras, *averages)))

    def component(self, component: str) -> ComponentInFile:
        """The tensors of a component under our names."""
        table = self.tables[component]
        entries = table.match_names(self.header)
        if component == "unet" and self.averaged:
            copies = {self.layout.average(entry.foreign): entry for entry in entries.values()}
            entries = {copy: entry for copy, entry in copies.items() if copy in self.header}
        strange = [n for n in self.unmapped.unknown if n.startswith(self._part(component).start)]
        return ComponentInFile(self.path, self.file, self.header, entries, strange)

    def scheduler(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The scheduler configuration of its folder, corrected where the file contradicts it."""
        predicts = self.prediction or scheduler_file.prediction_of(config) or "epsilon"
        zero = "ztsnr" in self.header or bool(config.get("rescale_betas_zero_snr"))
        return scheduler_file.correct_config(config, prediction=predicts, zero_terminal=zero)

    def notes(self) -> Iterator[str]:
        """Notes about the file for the user."""
        if self.file != self.path:
            yield f"{self.path.name} is a pickle; its tensors were read from a safetensors copy, {self.file}"
        if self.averaged:
            yield "the denoiser is the averaged copy in the file"
        elif self.unmapped.averages:
            count = len(self.unmapped.averages)
            yield f"{count} averaged tensors in the file are not used; model.ema_weights=use trains from them"
        if self.unmapped.unknown:
            yield f"{self.path.name} also contains {tensor_files.summary(self.unmapped.unknown)}, which no network has"

    def spellings(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """By canonical name, the name and shape of tensors that this file spells differently."""
        differing = {}
        for component, table in self.tables.items():
            shapes = self._shapes(component)
            for name, entry in table.match_names(self.header).items():
                shape = self.header[name].shape
                if name != entry.foreign or shape != entry.foreign_shape(shapes):
                    differing[entry.foreign] = (name, shape)
        return differing

    def _part(self, component: str) -> ComponentMap:
        part = self.layout.part_in(component, self.header)
        assert part is not None, component  # `open_single` has checked that the file is complete
        return part

    def _shapes(self, component: str) -> dict[str, tuple[int, ...]]:
        where = self.folder.root / component / "config.json"
        return components.shapes(self.layout.networks[component], self.folder.config(component), where=where)


def open_single(
    path: Path,
    layout: KeyMap | None,
    *,
    config: Path | None = None,
    averaged: bool = False,
    prediction: Prediction | None = None,
    store: Path | None = None,
) -> SingleFile:
    """Opens a single-file checkpoint by its header.

    layout: selects its family, whose layout is detected from the names; None accepts any family. config: a folder of
    configurations; None chooses a shipped one that fits. averaged: use the averaged copy of the denoiser. prediction:
    what it predicts, for files that do not contain it. store: the folder for safetensors copies of pickled files.
    Raises WeightsError: E1401 and E1402 for other files; E1406 for another kind of model; E1411 for a pickle that is
    not plain weights; E1413 when the prediction of SD2 is unknown; E1414 when no shipped
    configuration fits; E1415 when there is no averaged copy.
    """
    file = _readable(path, store)
    header = tensor_files.read_header(file)
    layout = _layout(path, header, layout)
    note = (
        prediction
        or modelspec.prediction_of(tensor_files.read_metadata(file))
        or ("v" if "v_pred" in header else None)
        or _prediction_in_yaml(path)
    )
    root = config if config is not None else _shipped(path, header, layout, note)
    if averaged and not any(n.startswith(layout.average("model.diffusion_model.")) for n in header):
        raise WeightsError(f"{path}: has no averaged weights; write model.ema_weights=ignore", code="E1415")
    return SingleFile(path, file, open_folder(root), layout, averaged, note)


def family_at(path: Path) -> str | None:
    """The family of a model, folder or single file, by its configurations and headers; None if they do not identify it.

    Raises WeightsError for a file that cannot be read.
    """
    if path.is_dir():
        return kinds.family_at(path)
    return kinds.family_of(tensor_files.read_header(_readable(path, None)).keys())


def _readable(path: Path, store: Path | None) -> Path:
    if not path.is_file():
        folder = "" if path.is_absolute() else f" (looked in {Path.cwd()})"
        raise WeightsError(f"{path}: does not exist{folder}; check the path", code="E1401")
    suffixes = weights_formats.readable_suffixes()
    if path.suffix not in suffixes:
        tensor_files.refuse_known(path)
        raise WeightsError(f"{path}: a single-file model ends in {', '.join(suffixes)}; check the path", code="E1406")
    return pickled.readable(path, store)


def _layout(path: Path, header: Mapping[str, TensorInfo], requested: KeyMap | None) -> KeyMap:
    family = requested.family if requested is not None else None
    other = kinds.refusal(header, family)
    if other is not None:
        raise WeightsError(f"{path}: looks like {other.name}; {other.remedy}", code="E1406")
    layout = known_layouts.of_names(header.keys(), family)
    if layout is None:
        raise WeightsError(
            f"{path}: lacks a part of {kinds.describe_tensors(header)}; give the complete model", code="E1406"
        )
    return layout


def _prediction_in_yaml(path: Path) -> Prediction | None:
    """The prediction from NAME.yaml next to the file, the configuration of the original programs; None if there is none
    or it belongs to another program."""
    config = path.with_suffix(".yaml")
    if not config.is_file():
        return None
    try:
        model: Any = yaml_rules.load(yaml_rules.read_file(config, str(config)), str(config)).tree.get("model")
    except RecipeError:
        return None
    params = model.get("params") if isinstance(model, dict) else None
    if not isinstance(params, dict):
        return None
    match params.get("parameterization", "eps"):  # the original programs' default
        case "v":
            return "v"
        case "eps":
            return "epsilon"
        case other:
            raise WeightsError(
                f"{config}: parameterization is {other!r}; supported are eps and v; set model.prediction to choose",
                code="E1409",
            )


def _shipped(path: Path, header: Mapping[str, TensorInfo], layout: KeyMap, prediction: Prediction | None) -> Path:
    """The shipped configurations that fit a file."""
    first = header.get("model.diffusion_model.input_blocks.0.0.weight")
    channels = first.shape[0] if first is not None and first.shape else 0
    widths = (i.shape[1] for n, i in header.items() if n.endswith("attn2.to_k.weight") and len(i.shape) == 2)
    width = next(widths, 0)
    same_size = [one for spec in specs() for one in spec.shipped if (one.width, one.channels) == (width, channels)]
    matches = [one for one in same_size if one.prediction in ("", prediction)] or (same_size[:1] if prediction else [])
    if matches:
        return shipped_folder(matches[0].name)
    if same_size:
        raise WeightsError(
            f"{path}: is {kinds.WIDTHS.get(width, 'a kind with two predictions')}, and does not specify whether it "
            "predicts v (768-pixel models) or epsilon (512-pixel base models); set model.prediction=v or "
            "model.prediction=epsilon (convert: --prediction=v)",
            code="E1413",
        )
    raise WeightsError(
        f"{path}: has the layout of {family_spec(layout.family).label} in another size ({channels} channels, "
        f"cross-attention width {width}); set model.config=FOLDER to its configurations (convert: --config=FOLDER)",
        code="E1414",
    )
