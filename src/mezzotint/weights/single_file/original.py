"""Original-format checkpoints, as a model's authors publish it: mostly only the denoiser, as ComfyUI uses it.

Where each tensor is in such a file follows from diffusers' conversion function. It is run once on tensors without
values that record where their rows come from, so every tensor can be read separately, and the inverse of the same map
writes such a file. For writing, a family only lists names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mezzotint.errors import WeightsError
from mezzotint.weights.files import fingerprint, tensor_files
from mezzotint.weights.files.tensor_files import TensorInfo
from mezzotint.weights.folder.components import Network
from mezzotint.weights.keymap import Shape
from mezzotint.weights.single_file import planned
from mezzotint.weights.single_file.planned import PlannedTensor

Renames = Sequence[tuple[str, str]]
"""Patterns in our names and their replacements in the original format, applied in order."""
Piece = tuple[str, int, int]
"""Rows of one tensor of a file: its name, the first row, and the end (exclusive)."""

DENOISER = "model.diffusion_model."
"""The prefix of the denoiser's names in a file that contains more."""
_CLASSES = {"vae": "AutoencoderKL", "AutoencoderKLQwenImage": "AutoencoderKLWan"}
"""Classes that diffusers converts under another name: Qwen-Image's autoencoder has the same tensor names as Wan's."""
NOT_CONVERTED = (ValueError, KeyError, IndexError, AttributeError, TypeError, AssertionError)
"""Exceptions that diffusers' conversions raise for a file of another kind."""
_SCALES = re.compile(r"(^|\.)(scaled_fp8|scale_weight|weight_scale(_2)?|scale_input|input_scale|comfy_quant)$")


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part in an original-format checkpoint. start: the prefix of its names. converted: whether diffusers converts
    them; otherwise the library's names follow the prefix. keeps_start: whether the conversion expects names with their
    prefix."""

    start: str
    converted: bool = True
    keeps_start: bool = False


@dataclass(frozen=True, slots=True)
class TensorRows:
    """A tensor without values that records which rows of which tensors it consists of. Supports the operations that
    conversions use."""

    shape: Shape
    pieces: tuple[Piece, ...]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if func is torch.cat:
            return concatenate(*args, **named)
        if func in (torch.chunk, torch.split):
            return getattr(args[0], func.__name__)(*args[1:], **named)
        return NotImplemented

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def chunk(self, count: int, dim: int = 0) -> tuple[TensorRows, ...]:
        return self.split([self.shape[0] // count] * count, dim)

    def split(self, sizes: Sequence[int], dim: int = 0) -> tuple[TensorRows, ...]:
        if dim != 0 or sum(sizes) != self.shape[0]:
            raise ValueError(f"{self.pieces[0][0]} has {self.shape[0]} rows, expected {sum(sizes)}")
        ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
        return tuple(self._between(end - size, end) for size, end in zip(sizes, ends, strict=True))

    def __getitem__(self, index: tuple[Any, ...]) -> TensorRows:
        """A 1×1 convolution as a linear layer: `[:, :, 0, 0]`."""
        ndim = len([item for item in index if item == slice(None)])
        if any(side != 1 for side in self.shape[ndim:]):
            raise ValueError(f"{self.pieces[0][0]} is not a 1×1 convolution")
        return TensorRows(self.shape[:ndim], self.pieces)

    def reshape(self, rows: int, columns: int) -> TensorRows:
        """A vector as a matrix of so many rows: `reshape(rows, -1)`."""
        if columns != -1 or math.prod(self.shape) % rows or len(self.pieces) != 1:
            raise ValueError(f"{self.pieces[0][0]} cannot be reshaped to {rows} rows")
        return TensorRows((rows, math.prod(self.shape) // rows), self.pieces)

    def _between(self, start: int, end: int) -> TensorRows:
        pieces, at = [], 0
        for name, first, last in self.pieces:
            low, high = max(start, at), min(end, at + last - first)
            if low < high:
                pieces.append((name, first + low - at, first + high - at))
            at += last - first
        return TensorRows((end - start, *self.shape[1:]), tuple(pieces))


def all_rows(name: str, shape: Shape) -> TensorRows:
    """All rows of one tensor of a file."""
    return TensorRows(shape, ((name, 0, shape[0] if shape else 1),))


def concatenate(rows: Sequence[TensorRows], dim: int = 0) -> TensorRows:
    """As `torch.cat`. Consecutive rows of the same tensor are merged into one piece."""
    if dim != 0 or len({one.shape[1:] for one in rows}) > 1:
        raise ValueError("rows of different lengths")
    pieces: list[Piece] = []
    for piece in (piece for one in rows for piece in one.pieces):
        if pieces and pieces[-1][0] == piece[0] and pieces[-1][2] == piece[1]:
            piece = (piece[0], pieces.pop()[1], piece[2])
        pieces.append(piece)
    return TensorRows((sum(one.shape[0] for one in rows), *rows[0].shape[1:]), tuple(pieces))


def map_rows(
    network: Network, config: Mapping[str, Any], shapes: Mapping[str, Shape], part: FilePart, network_names: Set[str]
) -> dict[str, TensorRows]:
    """Maps a network's names to rows of the tensors of a file with these shapes, by diffusers' conversion.
    network_names: the network's names. Raises ValueError, KeyError and the like for a file of another kind."""
    of_part = {name: shape for name, shape in shapes.items() if name.startswith(part.start)}
    of_part = of_part or ({} if part.start != DENOISER else dict(shapes))
    prefix = "" if part.keeps_start or not any(name.startswith(part.start) for name in of_part) else part.start
    rows = {name.removeprefix(prefix): all_rows(name, shape) for name, shape in of_part.items()}
    if network_names <= rows.keys():
        return {name: rows[name] for name in network_names}
    if not part.converted:
        return {}
    convert = _conversion(network)
    assert convert is not None, network
    return dict(convert(checkpoint=rows, config=config))


def _conversion(network: Network) -> Callable[..., Mapping[str, TensorRows]] | None:
    from diffusers.loaders.single_file_model import SINGLE_FILE_LOADABLE_CLASSES  # takes seconds; few runs need it

    name = network.rpartition(".")[2]
    entry: Mapping[str, Any] = SINGLE_FILE_LOADABLE_CLASSES.get(_CLASSES.get(name, name), {})
    return entry.get("checkpoint_mapping_fn")


def can_convert(network: Network) -> bool:
    """Whether diffusers converts original-format checkpoints of a network."""
    return _conversion(network) is not None


@dataclass(frozen=True)
class Original:
    """An open original-format checkpoint. path: the file. infos: of its tensors. parts: by part of the family and the
    network's name, where each tensor is in the file."""

    path: Path
    infos: Mapping[str, TensorInfo]
    parts: Mapping[str, Mapping[str, TensorRows]]

    def open_part(self, part: str) -> OriginalPart:
        """Opens a part."""
        return OriginalPart(self.path, self.infos, self.parts[part])


def open_original(
    path: Path,
    parts: Mapping[str, tuple[FilePart, Network, Mapping[str, Any], Mapping[str, Shape]]],
    *,
    model_name: str,
) -> Original:
    """Opens a file by its header. parts: for each part that such files may contain, its FilePart, its network, its
    configuration, and the shapes of its tensors; the denoiser comes first and is required. An incomplete text encoder
    is skipped: some files leave out an unused projection. model_name: the name of the model, for messages.

    Raises WeightsError E1401, E1402 for files that cannot be read, E1478 for a file of another kind or with quantized
    weights.
    """
    header = tensor_files.read_header(path)
    refuse_scaled(path, header)
    shapes = {name: info.shape for name, info in header.items()}
    rows_by_part: dict[str, Mapping[str, TensorRows]] = {}
    for part, (where, network, config, part_shapes) in parts.items():
        if rows_by_part and not any(name.startswith(where.start) for name in header):
            continue
        try:
            tensors = map_rows(network, config, shapes, where, part_shapes.keys())
            if not rows_by_part and not part_shapes.keys() & tensors.keys():
                raise ValueError(f"{len(header)} tensors, none of them its own")
        except NOT_CONVERTED as error:
            raise WeightsError(
                f"{path}: does not contain the {part} of {model_name} in the original format ({error}); check "
                "model.family and model.config, whose configurations determine the model's size",
                code="E1478",
            ) from error
        if tensors:
            rows_by_part[part] = tensors
    return Original(path, header, rows_by_part)


def refuse_scaled(path: Path, header: Mapping[str, TensorInfo]) -> None:
    """Raises WeightsError E1478 for quantized weights with separate scales."""
    scale = next((name for name in header if _SCALES.search(name)), None)
    if scale is not None:
        raise WeightsError(
            f"{path}: is quantized with separate scales ({scale}), which is for inference only; use the file in bf16 "
            "and set run.frozen_dtype=int8 to quantize it",
            code="E1478",
        )


@dataclass(frozen=True, slots=True)
class OriginalPart:
    """The tensors of a part under its network's names; implements `Stored`."""

    path: Path
    infos: Mapping[str, TensorInfo]
    rows_by_name: Mapping[str, TensorRows]

    def header(self) -> dict[str, TensorInfo]:
        """See Stored."""
        return {
            name: TensorInfo(self.infos[rows.pieces[0][0]].dtype, rows.shape)
            for name, rows in self.rows_by_name.items()
        }

    def digest(self) -> str:
        """64 hexadecimal digits that identify the weights: of the file if it contains nothing else, otherwise of these
        tensors only, so that another denoiser in the file does not change those of its autoencoder."""
        names = {name for rows in self.rows_by_name.values() for name, *_ in rows.pieces}
        return fingerprint.of_file(self.path) if names == self.infos.keys() else tensor_files.digest(self.path, names)

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        """See Stored."""
        chosen = {name: self.rows_by_name[name] for name in names}
        tensors = tensor_files.read(self.path, {piece[0] for rows in chosen.values() for piece in rows.pieces})
        return {name: _gather(rows, tensors) for name, rows in chosen.items()}


def _gather(rows: TensorRows, tensors: Mapping[str, Tensor]) -> Tensor:
    first = tensors[rows.pieces[0][0]]
    if len(rows.pieces) == 1 and rows.pieces[0][1:] == (0, first.shape[0] if first.ndim else 1):
        return first.reshape(rows.shape)
    return torch.cat([tensors[name][start:end] for name, start, end in rows.pieces]).reshape(rows.shape)


@dataclass(frozen=True, slots=True)
class Written:
    """An original-format checkpoint to write. shapes: of its tensors. sources: by tensor, the rows of our tensors that
    it consists of, in order."""

    shapes: Mapping[str, Shape]
    sources: Mapping[str, tuple[Piece, ...]]

    def tensors(self, component: str, header: Mapping[str, TensorInfo]) -> list[PlannedTensor]:
        """Its tensors in order. header: of the component's own tensors."""
        plan = []
        for name, pieces in self.sources.items():
            rows, ours = TensorRows(self.shapes[name], pieces), tuple(dict.fromkeys(piece[0] for piece in pieces))
            kind, make = header[ours[0]].dtype, partial(_gather, rows)
            plan.append(PlannedTensor(name, kind, rows.shape, make, component, ours))
        return planned.in_order(plan)


def plan(
    network: Network,
    config: Mapping[str, Any],
    our_shapes: Mapping[str, Shape],
    renames: Renames,
    start: str = "",
    flat: str = "",
) -> Written:
    """Plans an original-format checkpoint of a network: names by `renames`, where tensors with the same name are
    concatenated; rows where diffusers' conversion reads them. our_shapes: by our names. start: the prefix of names.
    flat: a pattern for our tensors that are vectors there.

    Raises ValueError and the like where the conversion does not return exactly these tensors.
    """
    groups: dict[str, list[Shape]] = {}
    for name, shape in our_shapes.items():
        theirs = (math.prod(shape),) if flat and re.search(flat, name) else shape
        groups.setdefault(start + rename_tensor(name, renames), []).append(theirs)
    shapes = {name: (sum(s[0] for s in group), *group[0][1:]) if group[0] else () for name, group in groups.items()}
    rows_by_name = map_rows(network, config, shapes, FilePart(start), our_shapes.keys())
    if {name: rows.shape for name, rows in rows_by_name.items()} != dict(our_shapes):
        differing = sorted(
            name
            for name in our_shapes.keys() | rows_by_name.keys()
            if name not in our_shapes or name not in rows_by_name
        )
        raise ValueError(f"converting back gives other tensors: {tensor_files.summary(differing or list(our_shapes))}")
    return Written(shapes, _invert(rows_by_name, shapes))


def _invert(rows_by_name: Mapping[str, TensorRows], shapes: Mapping[str, Shape]) -> dict[str, tuple[Piece, ...]]:
    """By the file's names, the rows of our tensors in order. Raises ValueError where rows are read twice or never."""
    spans: dict[str, list[tuple[int, Piece]]] = {name: [] for name in shapes}
    for ours, rows in rows_by_name.items():
        at = 0
        for name, first, last in rows.pieces:
            spans[name].append((first, (ours, at, at + last - first)))
            at += last - first
    for name, pieces in spans.items():
        pieces.sort()
        at = 0
        for first, (_, low, high) in pieces:
            if first != at:
                raise ValueError(f"rows of {name} are read twice, or never")
            at += high - low
        if at != (shapes[name][0] if shapes[name] else 1):
            raise ValueError(f"rows of {name} are never read")
    return {name: tuple(piece for _, piece in pieces) for name, pieces in spans.items()}


def rename_tensor(name: str, renames: Renames) -> str:
    """Our name in the original format."""
    for pattern, replacement in renames:
        name = re.sub(pattern, replacement, name)
    return name
