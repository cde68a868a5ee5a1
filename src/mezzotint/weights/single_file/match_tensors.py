"""Which of a model's tensors a file or a folder holds, whole or in part, whatever names it gives them.

A file of a trained denoiser alone says little of itself: its names are told from those that the model's tensors have in
each layout of its kind, and in diffusers' folders, and its shapes are held against the model's.
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
    """A network's tensors in a file, under our names: `files.Stored`. place: what messages call it. file: what is read.
    all_: the tensors of the whole file. places: which of ours the tensors there hold, by their names. strange: names
    that seem to be of this network, and that it does not have."""

    place: Path
    file: Path
    all_: Mapping[str, TensorInfo]
    places: Mapping[str, Entry]
    strange: Collection[str] = ()

    def names(self) -> dict[str, str]:
        """By our names, those in the file."""
        return {ours: name for name, entry in self.places.items() for ours in entry.ours}

    def header(self) -> dict[str, TensorInfo]:
        """Our names with types and shapes; strange ones as they are, so that they are refused."""
        known = {
            ours: TensorInfo(self.all_[name].dtype, shape)
            for name, entry in self.places.items()
            for ours, shape in entry.shapes(self.all_[name].shape).items()
        }
        return known | {name: self.all_[name] for name in self.strange}

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        """See Stored. Values and types are the file's."""
        names = set(names)
        chosen = {name: entry for name, entry in self.places.items() if names.intersection(entry.ours)}
        stored = tensor_files.read(self.file, chosen)
        tensors: dict[str, Tensor] = {}
        for name, entry in chosen.items():
            tensors |= {ours: t for ours, t in entry.to_ours(stored.pop(name)).items() if ours in names}
        return tensors

    def each(self, names: Collection[str], *, parts: bool = False) -> Iterator[tuple[str, Tensor]]:
        """See InTurn."""
        names = set(names)
        chosen = {name: entry for name, entry in self.places.items() if names.intersection(entry.ours)}
        for name, tensor in tensor_files.in_turn(self.file, chosen, parts=parts):
            yield from ((ours, own) for ours, own in chosen[name].to_ours(tensor).items() if ours in names)

    def require_known(self) -> None:
        """Raises WeightsError E1405 when the file has strange tensors."""
        if self.strange:
            raise WeightsError(
                f"{self.place}: has {tensor_files.listed(self.strange)} that the network of its configuration does not "
                "have; give the folder of its configurations",
                code="E1405",
            )

    def everything(self) -> dict[str, Tensor]:
        """All tensors. Raises WeightsError E1405 when the file has strange ones."""
        self.require_known()
        return self.read(tuple(self.header()))

    def digest(self) -> str:
        """A name for the weights: of these tensors alone, so that another denoiser in the file changes nothing of its
        autoencoder's."""
        return tensor_files.digest(self.file, self.places)


@dataclass(frozen=True, eq=False, slots=True)
class ModelTensors:
    """What a file or folder holds of a model. held: by component, its tensors. besides: names that are of no component.
    averages: those of them that are an averaged copy. leftovers: how many names have parts that a trainer has left in
    them (`._backbone`, `stage1.`)."""

    path: Path
    held: Mapping[str, ComponentInFile]
    besides: tuple[str, ...]
    averages: tuple[str, ...] = ()
    leftovers: int = 0

    def lacks(self, component: str, names: Collection[str]) -> list[str]:
        """Those of a component's names that it has not got."""
        there = self.held[component].names() if component in self.held else {}
        return [name for name in names if name not in there]


def shapes_of(folder: ModelFolder, layout: KeyMap) -> dict[str, dict[str, Shape]]:
    """The shapes of a model's components, by the configurations of its folder."""
    return {
        component: components.shapes(network, folder.config(component), where=folder.root / component / "config.json")
        for component, network in layout.networks.items()
    }


def of_file(path: Path, file: Path, layout: KeyMap, shapes: Shapes, *, averaged: bool = False) -> ModelTensors:
    """What a file of tensors holds of a model. path: as the user named it; file: what is read. averaged: an averaged
    copy takes the place of the plain tensors.

    Raises WeightsError: E1401, E1402, E1420 for a file that cannot be read; E1451 naming a tensor of another shape;
    E1452 when it holds nothing of the model, with what it seems to be; E1415 when there is no averaged copy.
    """
    header = tensor_files.read_header(file)
    rivals = [rival for rival in known_layouts.every() if rival.parts.keys() == layout.parts.keys()]
    copies = _averages(header, rivals)
    seen = {name: name for name in header if name not in copies}
    if averaged:
        seen |= {plain: name for name, plain in copies.items()}
    if averaged and not copies:
        raise WeightsError(f"{file}: has no averaged weights; leave out --ema=use", code="E1415")
    held = {}
    for component, needed in shapes.items():
        places = {seen[name]: entry for name, entry in _places(seen, component, needed, rivals).items()}
        if places:
            held[component] = ComponentInFile(path, file, header, places)
            _require_shapes(held[component], component, needed)
    if not held:
        raise WeightsError(
            f"{file}: holds nothing of the model; it looks like {kinds.of_tensors(header)}. Give files of the same "
            "kind of model",
            code="E1452",
        )
    taken = {name for part in held.values() for name in part.places}
    besides = tuple(name for name in header if name not in taken)
    leftovers = sum(_LEFTOVER.search(name) is not None for name in taken)
    return ModelTensors(path, held, besides, tuple(name for name in besides if name in copies), leftovers)


def of_folder(path: Path, layout: KeyMap, shapes: Shapes) -> ModelTensors:
    """What the folder of a model, or of one of its components, holds of a model. Raises WeightsError as `of_file`."""
    if (path / "model_index.json").is_file():
        folders = {component: path / component for component in layout.networks if (path / component).is_dir()}
    else:
        folders = {path.name: path} if path.name in layout.networks else {}
    held = {}
    besides: list[str] = []
    for component, folder in folders.items():
        weights = find_weights(folder)
        if weights is not None:
            header = tensor_files.read_header(weights.path)
            names = components.modern_names(layout.networks[component], {name: name for name in header})
            places = {name: Entry(ours, (ours,)) for ours, name in names.items() if ours in shapes[component]}
            held[component] = ComponentInFile(path, weights.path, header, places)
            _require_shapes(held[component], component, shapes[component])
            besides += [name for name in header if name not in places]
    if not held:
        raise WeightsError(
            f"{path}: holds no weights of the model; give its folder, or that of one of its components "
            f"({', '.join(layout.networks)})",
            code="E1452",
        )
    return ModelTensors(path, held, tuple(besides))


def _places(
    names: Collection[str], component: str, needed: Mapping[str, Shape], rivals: Collection[KeyMap]
) -> dict[str, Entry]:
    """The names in a file that are of a component, in the spelling that most of them have."""
    # of diffusers' own names those of text encoders do not say which one they are of
    own = {} if component.startswith("text_encoder") else {n: Entry(n, (n,)) for n in names if n in needed}
    ways = (way for rival in rivals for way in rival.parts[component] if way.count(names))
    return max([own, *(way.table(list(needed)).present(names) for way in ways)], key=len)


def _averages(header: Collection[str], rivals: Collection[KeyMap]) -> dict[str, str]:
    """Names of averaged copies, each with the plain name it stands for. A copy whose plain name is not there is told by
    its start alone (`ema.model.…`), as trainers leave it that wrote nothing else."""
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
    for name, entry in stored.places.items():
        shape = stored.all_[name].shape
        if any(ours_shape != needed[ours] for ours, ours_shape in entry.shapes(shape).items()):
            raise WeightsError(
                f"{stored.file}: {name} has the shape {list(shape)}, the model's {component} needs "
                f"{list(entry.foreign_shape(needed))}; they are of different models, the file looks like "
                f"{kinds.of_tensors(stored.all_)}",
                code="E1451",
            )
