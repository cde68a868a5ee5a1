"""Files of LatteT2V and its autoencoder, as Open-Sora-Plan, its MindSpore port and diffusers name their tensors.

Our names are the released ones. diffusers' LatteTransformer3DModel has the same but for a table that nothing reads.
The port writes gamma and beta for weight and bias of a norm, has each pair of blocks a second time under `blocks.N`,
and may put `network.` before everything.
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
from mezzotint.weights.files.tensor_files import Stored, TensorInfo, listed
from mezzotint.weights.keymap import ComponentMap, Entry, KeyMap, Table

UNREAD = "caption_projection.y_embedding"
"""A table of the released files that no arithmetic reads and diffusers' class does not have."""

_PORT = "network."
_NORM = re.compile(r"(.*(?:^|\.)norm(?:\d|_out)?)\.(weight|bias)")
_SHRINKING = re.compile(r".*\.attn1\.(sr|norm)\.(weight|bias)")
_PAIR = re.compile(r"(temporal_)?transformer_blocks\.(\d+)\.(.+)")
_MINDSPORE = {"weight": "gamma", "bias": "beta"}
_EXTRAS = (
    r"(?:network\.|ema\.)?(?:.*\.)?temp_pos_embed",  # tables of positions, which are worked out from sizes
    r"(?:network\.)?(?:blocks\.\d+\.)?pos_embed\.pos_embed",
    r"loss\..*",  # what the autoencoder was trained against
)


def denoiser(names: Sequence[str]) -> Iterator[Entry]:
    """LatteT2V under the released names."""
    for name in names:
        spellings = [name, *_in_pairs(name)]
        spellings += [other for spelling in spellings for other in _as_gamma(spelling)]
        yield Entry(name, (name,), also=(*spellings[1:], *(_PORT + spelling for spelling in spellings)))


def autoencoder(names: Sequence[str]) -> Iterator[Entry]:
    """CausalVAEModel under the released names."""
    for name in names:
        yield Entry(name, (name,), also=tuple(_as_gamma(name)))


def _in_pairs(name: str) -> Iterator[str]:
    match = _PAIR.fullmatch(name)
    if match:
        yield f"blocks.{match[2]}.{'temp_block' if match[1] else 'spatial_block'}.{match[3]}"


def _as_gamma(name: str) -> Iterator[str]:
    match = _NORM.fullmatch(name)
    if match:
        yield f"{match[1]}.{_MINDSPORE[match[2]]}"


@dataclass(frozen=True, slots=True)
class Renamed:
    """Tensors of a file under our names: `files.Stored`.

    stored: the file. table: of the network. lent: shapes of tensors that the file may lack, and the one number that
    they then hold. What the layout knows as an extra is left out; what nobody knows keeps its name, so that it is
    refused.
    """

    stored: Stored
    table: Table
    lent: Mapping[str, tuple[tuple[int, ...], float]]

    @property
    def place(self) -> Path:
        """See Stored."""
        return self.stored.place

    def header(self) -> dict[str, TensorInfo]:
        """See Stored."""
        there = self.stored.header()
        ours_there = {ours: there[name] for ours, name in self._sources(there).items()}
        strange = [n for n in there if self.table.reads(n) is None and not LAYOUT.is_extra(n)]
        lent = {name: TensorInfo("F32", shape) for name, (shape, _) in self.lent.items() if name not in ours_there}
        return ours_there | {name: there[name] for name in strange} | lent

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        """See Stored."""
        sources = self._sources(self.stored.header())
        stored_names = {name: sources[name] for name in names if name in sources}
        tensors = self.stored.read(tuple(stored_names.values()))
        read_tensors = {name: tensors[source] for name, source in stored_names.items()}
        return read_tensors | {name: torch.full(*self.lent[name]) for name in names if name not in read_tensors}

    def each(self, names: Collection[str], *, parts: bool = False) -> Iterator[tuple[str, Tensor]]:
        """See InTurn."""
        sources = self._sources(self.stored.header())
        ours = {sources[name]: name for name in names if name in sources}
        yield from ((ours[there], tensor) for there, tensor in tensor_files.each(self.stored, ours, parts=parts))
        yield from ((name, torch.full(*self.lent[name])) for name in names if name not in sources)

    def dropped(self) -> str | None:
        """What of the file is left out, in words; None when nothing is."""
        extras = [n for n in self.stored.header() if self.table.reads(n) is None and LAYOUT.is_extra(n)]
        return listed(extras) if extras else None

    def begun(self) -> str | None:
        """What the file lacks and begins anew, in words; None when that is nothing but the table that nothing reads."""
        sources = self._sources(self.stored.header())
        absent = [name for name in self.lent if name != UNREAD and name not in sources]
        return listed(absent) if absent else None

    def _sources(self, header: Mapping[str, TensorInfo]) -> dict[str, str]:
        return {entry.ours[0]: name for name, entry in self.table.present(header).items()}


def of_denoiser(stored: Stored, shapes: Mapping[str, tuple[int, ...]], *, shrinking: int | None = None) -> Renamed:
    """A file of LatteT2V, in whichever spelling, for a network whose tensors have these names and shapes.

    shrinking: the factor by which layers shrink keys and values that were not trained to; where the file has nothing
    of it they begin as means. None refuses such a file.
    """
    lent = {UNREAD: (shapes[UNREAD], 0.0)} if UNREAD in shapes else {}
    for name, shape in shapes.items() if shrinking is not None else ():
        if (match := _SHRINKING.fullmatch(name)) is not None:
            mean = 1.0 / math.prod(shape[2:]) if match[1] == "sr" else 1.0
            lent[name] = (shape, mean if match[2] == "weight" else 0.0)
    return Renamed(stored, LAYOUT.parts["denoiser"][0].table(list(shapes)), lent)


def of_autoencoder(stored: Stored, shapes: Mapping[str, tuple[int, ...]]) -> Renamed:
    """A file of CausalVAEModel for a network whose tensors have these names and shapes."""
    return Renamed(stored, LAYOUT.parts["vae"][0].table(list(shapes)), {})


LAYOUT = KeyMap(
    name="latte",
    family="latte",
    parts={"denoiser": (ComponentMap("", denoiser, "latte"),), "vae": (ComponentMap("", autoencoder, "causal_vae"),)},
    extras=_EXTRAS,
)
"""Files of LatteT2V and of CausalVAEModel."""
