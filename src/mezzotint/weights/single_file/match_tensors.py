"""Which of a model's tensors a file holds, whole or in part, whatever names it gives them.

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
from mezzotint.weights.folder.model_folder import ModelFolder
from mezzotint.weights.keymap import ComponentMap, Entry, KeyMap, Shape
from mezzotint.weights.single_file import known_layouts

Shapes = Mapping[str, Mapping[str, Shape]]
"""By component, the shapes of its tensors under our names."""

_LEFTOVER = re.compile(r"\._backbone|^stage[12]\.")


@dataclass(frozen=True, slots=True)
class TensorMatch:
    """What a file holds of a model. held: by component, for each of our names the name of the tensor there that has it,
    and its entry. besides: names that are of no component. averages: those of them that are an averaged copy.
    leftovers: how many names have parts that a trainer has left in them (`._backbone`, `stage1.`)."""

    path: Path
    header: Mapping[str, TensorInfo]
    held: Mapping[str, Mapping[str, tuple[str, Entry]]]
    besides: tuple[str, ...]
    averages: tuple[str, ...]
    leftovers: int

    def read(self, component: str, names: Collection[str]) -> dict[str, Tensor]:
        """Tensors under our names. Raises WeightsError as `files.read`."""
        chosen = {place: entry for name in names for place, entry in (self.held[component][name],)}
        stored = tensor_files.read(self.path, chosen)
        tensors: dict[str, Tensor] = {}
        for place, entry in chosen.items():
            tensors |= {ours: t for ours, t in entry.to_ours(stored[place]).items() if ours in names}
        return tensors

    def dtype(self, component: str, name: str) -> str:
        """The type of a tensor of ours, in safetensors' words."""
        return self.header[self.held[component][name][0]].dtype


def shapes_of(folder: ModelFolder, layout: KeyMap) -> dict[str, dict[str, Shape]]:
    """The shapes of a model's components, by the configurations of its folder."""
    return {
        component: components.shapes(network, folder.config(component), where=folder.root / component / "config.json")
        for component, network in layout.networks.items()
    }


def of_file(path: Path, layout: KeyMap, shapes: Shapes, *, averaged: bool = False) -> TensorMatch:
    """What a file of tensors holds of a model. averaged: an averaged copy takes the place of the plain tensors.

    Raises WeightsError: E1401, E1402, E1420 for a file that cannot be read; E1451 naming a tensor of another shape;
    E1452 when it holds nothing of the model, with what it seems to be; E1415 when there is no averaged copy.
    """
    header = tensor_files.read_header(path)
    rivals = [rival for rival in known_layouts.every() if rival.parts.keys() == layout.parts.keys()]
    copies = _averages(header, rivals)
    seen = {name: name for name in header if name not in copies}
    if averaged:
        seen |= {plain: name for name, plain in copies.items()}
    if averaged and not copies:
        raise WeightsError(f"{path}: has no averaged weights; leave out --ema=use", code="E1415")
    held: dict[str, dict[str, tuple[str, Entry]]] = {}
    for component, needed in shapes.items():
        entries = _held(seen, component, needed, rivals)
        if entries:
            held[component] = {ours: (seen[name], entry) for name, entry in entries.items() for ours in entry.ours}
    if not held:
        raise WeightsError(
            f"{path}: holds nothing of the model; it looks like {kinds.of_tensors(header)}. Give files of the same "
            "kind of model",
            code="E1452",
        )
    taken = {name for names in held.values() for name, _ in names.values()}
    _require_shapes(path, header, held, shapes)
    besides = tuple(name for name in header if name not in taken)
    return TensorMatch(
        path, header, held, besides, tuple(n for n in besides if n in copies),
        sum(_LEFTOVER.search(name) is not None for name in taken),
    )  # fmt: skip


def of_component(path: Path, component: str, network: components.Network, shapes: Shapes) -> TensorMatch:
    """What a component's weights in a model folder hold. path: the file, or the index of its shards."""
    header = tensor_files.read_header(path)
    names = components.modern_names(network, {name: name for name in header})
    needed = shapes[component]
    held = {component: {ours: (name, Entry(ours, (ours,))) for ours, name in names.items() if ours in needed}}
    _require_shapes(path, header, held, shapes)
    taken = {name for name, _ in held[component].values()}
    return TensorMatch(path, header, held, tuple(name for name in header if name not in taken), (), 0)


def _held(
    names: Collection[str], component: str, needed: Mapping[str, Shape], rivals: Collection[KeyMap]
) -> dict[str, Entry]:
    """The names in a file that are of a component, in the spelling that most of them have."""
    ours = list(needed)
    # of diffusers' own names those of text encoders do not say which one they are of
    own = {} if component.startswith("text_encoder") else {n: Entry(n, (n,)) for n in names if n in needed}
    ways = [way.table(ours).present(names) for way in _ways(component, rivals) if way.count(names)]
    return max([own, *ways], key=len)


def _ways(component: str, rivals: Collection[KeyMap]) -> Iterator[ComponentMap]:
    for rival in rivals:
        yield from rival.parts[component]


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


def _require_shapes(
    path: Path,
    header: Mapping[str, TensorInfo],
    held: Mapping[str, Mapping[str, tuple[str, Entry]]],
    shapes: Shapes,
) -> None:
    for component, names in held.items():
        for ours, (place, entry) in names.items():
            shape = entry.shapes(header[place].shape)[ours]
            if shape != shapes[component][ours]:
                raise WeightsError(
                    f"{path}: {place} has the shape {list(header[place].shape)}, the model's {component} needs "
                    f"{list(entry.foreign_shape(dict(shapes[component])))}; they are of different models, the file "
                    f"looks like {kinds.of_tensors(header)}",
                    code="E1451",
                )
