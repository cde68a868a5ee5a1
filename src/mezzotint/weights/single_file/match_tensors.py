"""Finds which of a model's tensors a file or folder contains, complete or partial, under any known naming.

A file with only a trained denoiser does not identify itself: its names are compared with those of the model's tensors
in each suitable layout and in diffusers' folders, and its shapes with the model's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from mezzotint.errors import WeightsError
from mezzotint.weights import kinds
from mezzotint.weights.files import tensor_files
from mezzotint.weights.files.tensor_files import TensorInfo
from mezzotint.weights.folder import components
from mezzotint.weights.folder.model_folder import ModelFolder, find_weights
from mezzotint.weights.keymap import Entry, KeyMap, Shape
from mezzotint.weights.single_file import known_layouts

Shapes = Mapping[str, Mapping[str, Shape]]
"""By component, the shapes of its tensors under our names."""

_LEFTOVER = re.compile(r"\._backbone|^stage[12]\.")


@dataclass(frozen=True, slots=True)
class ComponentInFile:
    """A network's tensors in a file, under our names; implements `Stored`. path: for messages. file: the file
    that is read. infos: of all its tensors. entries: by name in the file, which of our tensors it contains. strange:
    names that seem to belong to this network but that it does not have."""

    path: Path
    file: Path
    infos: Mapping[str, TensorInfo]
    entries: Mapping[str, Entry]
    strange: Collection[str] = ()

    def names(self) -> dict[str, str]:
        """The names in the file, by our names."""
        return {ours: name for name, entry in self.entries.items() for ours in entry.ours}

    def header(self) -> dict[str, TensorInfo]:
        """Our names with types and shapes; strange ones unchanged, so that loading refuses them."""
        header = {
            ours: TensorInfo(self.infos[name].dtype, shape)
            for name, entry in self.entries.items()
            for ours, shape in entry.shapes(self.infos[name].shape).items()
        }
        return header | {name: self.infos[name] for name in self.strange}

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        """See Stored. Data types are the file's."""
        names = set(names)
        chosen = {name: entry for name, entry in self.entries.items() if names.intersection(entry.ours)}
        stored = tensor_files.read(self.file, chosen)
        tensors: dict[str, Tensor] = {}
        for name, entry in chosen.items():
            tensors |= {ours: t for ours, t in entry.to_ours(stored.pop(name)).items() if ours in names}
        return tensors

    def iterate(self, names: Collection[str], *, parts: bool = False) -> Iterator[tuple[str, Tensor]]:
        """See IterableStored."""
        names = set(names)
        chosen = {name: entry for name, entry in self.entries.items() if names.intersection(entry.ours)}
        for name, tensor in tensor_files.iterate(self.file, chosen, parts=parts):
            yield from ((ours, part) for ours, part in chosen[name].to_ours(tensor).items() if ours in names)

    def require_known(self) -> None:
        """Raises WeightsError E1405 when the file has strange tensors."""
        if self.strange:
            raise WeightsError(
                f"{self.path}: has {tensor_files.summary(self.strange)} that the network of its configuration "
                "does not have; give the folder of its configurations",
                code="E1405",
            )

    def read_all(self) -> dict[str, Tensor]:
        """All tensors. Raises WeightsError E1405 when the file has strange ones."""
        self.require_known()
        return self.read(tuple(self.header()))

    def digest(self) -> str:
        """A hash of these tensors only, so that another denoiser in the file does not change that of its
        autoencoder."""
        return tensor_files.digest(self.file, self.entries)


@dataclass(frozen=True, eq=False, slots=True)
class ModelTensors:
    """The tensors of a model in a file or folder. components: the tensors of each. unmapped: names that belong to no
    component. averages: those of them that are averaged copies. leftovers: how many names contain parts that a trainer
    has left in them (`._backbone`, `stage1.`)."""

    path: Path
    components: Mapping[str, ComponentInFile]
    unmapped: tuple[str, ...]
    averages: tuple[str, ...] = ()
    leftovers: int = 0

    def find_missing(self, component: str, names: Collection[str]) -> list[str]:
        """The names of a component that are missing."""
        present = self.components[component].names() if component in self.components else {}
        return [name for name in names if name not in present]


def shapes_of(folder: ModelFolder, layout: KeyMap) -> dict[str, dict[str, Shape]]:
    """The shapes of a model's components, from the configurations of its folder."""
    return {
        component: components.shapes(network, folder.config(component), where=folder.root / component / "config.json")
        for component, network in layout.networks.items()
    }


def of_file(path: Path, file: Path, layout: KeyMap, shapes: Shapes, *, averaged: bool = False) -> ModelTensors:
    """The tensors of a model in a file. path: as the user named it; file: the file that is read. averaged: use the
    averaged copy in place of the plain tensors.

    Raises WeightsError: E1401, E1402, E1420 for a file that cannot be read; E1451 with a tensor of another shape; E1452
    when it contains nothing of the model, with what it seems to be; E1415 when there is no averaged copy.
    """
    header = tensor_files.read_header(file)
    rivals = [rival for rival in known_layouts.all_layouts() if rival.parts.keys() == layout.parts.keys()]
    copies = _averages(header, rivals)
    sources = {name: name for name in header if name not in copies}
    if averaged:
        sources |= {plain: name for name, plain in copies.items()}
    if averaged and not copies:
        raise WeightsError(f"{file}: has no averaged weights; leave out --ema=use", code="E1415")
    by_component = {}
    for component, needed in shapes.items():
        entries = {sources[name]: entry for name, entry in _match_names(sources, component, needed, rivals).items()}
        if entries:
            by_component[component] = ComponentInFile(path, file, header, entries)
            _require_shapes(by_component[component], component, needed)
    if not by_component:
        raise WeightsError(
            f"{file}: contains nothing of the model; it looks like {kinds.describe_tensors(header)}. Give files of the "
            "same kind of model",
            code="E1452",
        )
    taken = {name for part in by_component.values() for name in part.entries}
    unmapped = tuple(name for name in header if name not in taken)
    leftovers = sum(_LEFTOVER.search(name) is not None for name in taken)
    return ModelTensors(path, by_component, unmapped, tuple(name for name in unmapped if name in copies), leftovers)


def of_folder(path: Path, layout: KeyMap, shapes: Shapes) -> ModelTensors:
    """The tensors of a model in its folder, or in that of one component. Raises WeightsError as `of_file`."""
    if (path / "model_index.json").is_file():
        folders = {component: path / component for component in layout.networks if (path / component).is_dir()}
    else:
        folders = {path.name: path} if path.name in layout.networks else {}
    by_component = {}
    unmapped: list[str] = []
    for component, folder in folders.items():
        weights = find_weights(folder)
        if weights is not None:
            header = tensor_files.read_header(weights.path)
            names = components.modern_names(layout.networks[component], {name: name for name in header})
            entries = {name: Entry(ours, (ours,)) for ours, name in names.items() if ours in shapes[component]}
            by_component[component] = ComponentInFile(path, weights.path, header, entries)
            _require_shapes(by_component[component], component, shapes[component])
            unmapped += [name for name in header if name not in entries]
    if not by_component:
        raise WeightsError(
            f"{path}: contains no weights of the model; give its folder, or that of one of its components "
            f"({', '.join(layout.networks)})",
            code="E1452",
        )
    return ModelTensors(path, by_component, tuple(unmapped))


def _match_names(
    names: Collection[str], component: str, needed: Mapping[str, Shape], rivals: Collection[KeyMap]
) -> dict[str, Entry]:
    """The names in a file that belong to a component, in the naming that matches most of them."""
    # diffusers' names of text encoders do not identify which encoder they belong to
    plain = {} if component.startswith("text_encoder") else {n: Entry(n, (n,)) for n in names if n in needed}
    ways = (way for rival in rivals for way in rival.parts[component] if way.count(names))
    return max([plain, *(way.table(list(needed)).match_names(names) for way in ways)], key=len)


def _averages(header: Collection[str], rivals: Collection[KeyMap]) -> dict[str, str]:
    """Names of averaged copies, each with its plain name. A copy whose plain name is not in the file is recognised by
    its prefix (`ema.model.…`), as written by trainers that save nothing else."""
    plain_names: dict[str, str] = {}
    for rival in rivals:
        start = rival.average_start
        copies = [name for name in header if name.startswith(start)]
        plain = {rival.average(name): name for name in header} if copies else {}
        for name in copies:
            if name in plain:
                plain_names[name] = plain[name]
            elif rival.average(name.removeprefix(start)) == name:
                plain_names[name] = name.removeprefix(start)
    return plain_names


def _require_shapes(stored: ComponentInFile, component: str, needed: Mapping[str, Shape]) -> None:
    for name, entry in stored.entries.items():
        shape = stored.infos[name].shape
        if any(ours_shape != needed[ours] for ours, ours_shape in entry.shapes(shape).items()):
            raise WeightsError(
                f"{stored.file}: {name} has the shape {list(shape)}, the model's {component} needs "
                f"{list(entry.foreign_shape(needed))}; they are different models, the file looks like "
                f"{kinds.describe_tensors(stored.infos)}",
                code="E1451",
            )
