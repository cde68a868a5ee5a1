"""Tensor names of LatteT2V and its autoencoder in files of Open-Sora-Plan, its MindSpore port and diffusers.

Mezzotint uses the released names. diffusers' LatteTransformer3DModel has the same ones, except for an unused table. The
port writes gamma and beta for weight and bias of a norm, repeats each pair of blocks under `blocks.N`, and may add the
prefix `network.` to all names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mezzotint.weights.files import tensor_files
from mezzotint.weights.files.tensor_files import Stored, TensorInfo, summary
from mezzotint.weights.keymap import ComponentMap, Entry, KeyMap, Table

UNREAD = "caption_projection.y_embedding"
"""A table of the released files that is not used and that diffusers' class does not have."""

_PORT = "network."
_NORM = re.compile(r"(.*(?:^|\.)norm(?:\d|_out)?)\.(weight|bias)")
_SHRINKING = re.compile(r".*\.attn1\.(sr|norm)\.(weight|bias)")
_PAIR = re.compile(r"(temporal_)?transformer_blocks\.(\d+)\.(.+)")
_MINDSPORE = {"weight": "gamma", "bias": "beta"}
_EXTRAS = (
    r"(?:network\.|ema\.)?(?:.*\.)?temp_pos_embed",  # position tables, which are computed from sizes
    r"(?:network\.)?(?:blocks\.\d+\.)?pos_embed\.pos_embed",
    r"loss\..*",  # the loss network of the autoencoder's training
)


def denoiser(names: Sequence[str]) -> Iterator[Entry]:
    """Yields the entries of LatteT2V under the released names."""
    for name in names:
        spellings = [name, *_names_in_pairs(name)]
        spellings += [other for spelling in spellings for other in _mindspore_names(spelling)]
        yield Entry(name, (name,), also=(*spellings[1:], *(_PORT + spelling for spelling in spellings)))


def autoencoder(names: Sequence[str]) -> Iterator[Entry]:
    """Yields the entries of CausalVAEModel under the released names."""
    for name in names:
        yield Entry(name, (name,), also=tuple(_mindspore_names(name)))


def _names_in_pairs(name: str) -> Iterator[str]:
    match = _PAIR.fullmatch(name)
    if match:
        yield f"blocks.{match[2]}.{'temp_block' if match[1] else 'spatial_block'}.{match[3]}"


def _mindspore_names(name: str) -> Iterator[str]:
    match = _NORM.fullmatch(name)
    if match:
        yield f"{match[1]}.{_MINDSPORE[match[2]]}"


@dataclass(frozen=True, slots=True)
class RenamedTensors:
    """Tensors of a file under the network's names: a `files.Stored`.

    stored: the file. table: of the network. lent: shapes and the constant values of tensors that the file may lack.
    Extras of the layout are left out; unknown tensors keep their names, and are refused later.
    """

    stored: Stored
    table: Table
    lent: Mapping[str, tuple[tuple[int, ...], float]]

    @property
    def path(self) -> Path:
        """See Stored."""
        return self.stored.path

    def header(self) -> dict[str, TensorInfo]:
        """See Stored."""
        header = self.stored.header()
        renamed = {ours: header[name] for ours, name in self._sources(header).items()}
        unknown = [n for n in header if self.table.find_foreign(n) is None and not LAYOUT.is_extra(n)]
        lent = {name: TensorInfo("F32", shape) for name, (shape, _) in self.lent.items() if name not in renamed}
        return renamed | {name: header[name] for name in unknown} | lent

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        """See Stored."""
        sources = self._sources(self.stored.header())
        stored_names = {name: sources[name] for name in names if name in sources}
        tensors = self.stored.read(tuple(stored_names.values()))
        read_tensors = {name: tensors[source] for name, source in stored_names.items()}
        return read_tensors | {name: torch.full(*self.lent[name]) for name in names if name not in read_tensors}

    def iterate(self, names: Collection[str], *, parts: bool = False) -> Iterator[tuple[str, Tensor]]:
        """See IterableStored."""
        sources = self._sources(self.stored.header())
        ours = {sources[name]: name for name in names if name in sources}
        yield from (
            (ours[source], tensor) for source, tensor in tensor_files.iterate_stored(self.stored, ours, parts=parts)
        )
        yield from ((name, torch.full(*self.lent[name])) for name in names if name not in sources)

    def dropped(self) -> str | None:
        """A description of the file's tensors that are left out; None if there are none."""
        extras = [n for n in self.stored.header() if self.table.find_foreign(n) is None and LAYOUT.is_extra(n)]
        return summary(extras) if extras else None

    def initialised(self) -> str | None:
        """A description of the tensors that the file lacks and that are initialised; None if there are none but the
        unused table."""
        sources = self._sources(self.stored.header())
        absent = [name for name in self.lent if name != UNREAD and name not in sources]
        return summary(absent) if absent else None

    def _sources(self, header: Mapping[str, TensorInfo]) -> dict[str, str]:
        return {entry.ours[0]: name for name, entry in self.table.match_names(header).items()}


def open_denoiser(
    stored: Stored, shapes: Mapping[str, tuple[int, ...]], *, shrinking: int | None = None
) -> RenamedTensors:
    """A file of LatteT2V, with any of the names, for a network whose tensors have these names and shapes.

    shrinking: the factor of layers that compress keys and values; layers that are not in the file are initialised as
    means. None refuses such a file.
    """
    lent = {UNREAD: (shapes[UNREAD], 0.0)} if UNREAD in shapes else {}
    for name, shape in shapes.items() if shrinking is not None else ():
        if (match := _SHRINKING.fullmatch(name)) is not None:
            mean = 1.0 / math.prod(shape[2:]) if match[1] == "sr" else 1.0
            lent[name] = (shape, mean if match[2] == "weight" else 0.0)
    return RenamedTensors(stored, LAYOUT.parts["denoiser"][0].table(list(shapes)), lent)


def open_autoencoder(stored: Stored, shapes: Mapping[str, tuple[int, ...]]) -> RenamedTensors:
    """A file of CausalVAEModel for a network whose tensors have these names and shapes."""
    return RenamedTensors(stored, LAYOUT.parts["vae"][0].table(list(shapes)), {})


LAYOUT = KeyMap(
    name="latte",
    family="latte",
    parts={"denoiser": (ComponentMap("", denoiser, "latte"),), "vae": (ComponentMap("", autoencoder, "causal_vae"),)},
    extras=_EXTRAS,
)
"""Files of LatteT2V and of CausalVAEModel."""
