"""From a file's tensors to a network's parameters: what must fit, checked before anything is loaded; random values when
nothing is to be loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from mezzotint import draws
from mezzotint.errors import WeightsError
from mezzotint.weights import low_bit
from mezzotint.weights.files.tensor_files import SIZES, Stored, TensorInfo, listed
from mezzotint.weights.low_bit import FLOAT32, WeightForm

Module = TypeVar("Module", bound=nn.Module)
Rename = Callable[[str], str]
AT_ONCE = 256 << 20
"""Bytes of a file's tensors that are read at once; a tensor that is larger is read alone."""


def on_meta(build: Callable[[], Module]) -> Module:
    """A network without memory for its values, built by `build`; `load_into` or a copy gives it some."""
    with torch.device("meta"):
        return build()


class EmptyOnMeta(TorchFunctionMode):
    """Within, memory that is asked for without values and without a device is not given: that is how networks make
    their parameters. Tables of numbers, which some work out and no file holds, are made as ever."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if func is torch.empty and named.get("device") is None:
            named["device"] = "meta"
        return func(*args, **named)


def load_into(
    module: nn.Module,
    stored: Stored,
    form: WeightForm = FLOAT32,
    *,
    rename: Rename = str,
    ignorable: Collection[str] = (),
    kind: str = "",
) -> None:
    """Fills a network on the meta device from stored weights, on the CPU, and leaves it in eval mode.

    form: in which weights are kept; a few tensors at a time are read and brought into it. rename: the network's name of
    a file's tensor. ignorable: endings of names that a file may have in excess. kind: what the file seems to be, for
    the message, when it does not fit.
    Raises WeightsError E1405 with counts and first names of missing, unexpected and misshapen tensors, before reading
    any; E1402 and E1403 as `files.read`; E1445 for a form that needs torchao.
    """
    taken = require_fit(module, stored, rename=rename, ignorable=ignorable, kind=kind)
    layers = low_bit.prepare(module, form)
    for names in _a_few(taken, stored.header()):
        tensors = stored.read([taken[name] for name in names])
        values = {}
        for name in names:
            tensor = tensors.pop(taken[name]).float()
            if name in layers:
                layers[name].pack(tensor)
            else:
                values[name] = tensor.to(form.dtype_of(module, name))
        module.load_state_dict(values, strict=False, assign=True)  # what there must be was looked at before
    module.requires_grad_(True)
    module.eval()


def _a_few(taken: Mapping[str, str], header: Mapping[str, TensorInfo]) -> Iterator[list[str]]:
    """Names of a network's tensors, so many at a time as may be read at once."""
    names: list[str] = []
    room = AT_ONCE
    for name, source in taken.items():
        size = math.prod(header[source].shape) * SIZES[header[source].dtype]
        if names and size > room:
            yield names
            names, room = [], AT_ONCE
        names.append(name)
        room -= size
    if names:
        yield names


def require_fit(
    module: nn.Module, stored: Stored, *, rename: Rename = str, ignorable: Collection[str] = (), kind: str = ""
) -> dict[str, str]:
    """By the network's names, those of the stored tensors that fill it. Raises WeightsError E1405 as `load_into`."""
    in_file = {rename(name): (name, info.shape) for name, info in stored.header().items()}
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    taken = {name: source for name, (source, _) in in_file.items() if not name.endswith(tuple(ignorable))}
    require_shapes(stored.place, expected, {name: in_file[name][1] for name in taken}, kind)
    return taken


def drawn(build: Callable[[], Module], seed: int, part: str) -> Module:
    """A network with the random values that its own construction gives it, as a function of (seed, part) alone.

    torch's global generator is left as it was. In float32, eval mode.
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(draws.key(seed, "init", part) & 0x7FFF_FFFF)  # a CPU generator keeps 32 bits
        module = build()
    return module.float().eval()


def require_shapes(
    path: Path, expected: Mapping[str, tuple[int, ...]], in_file: Mapping[str, tuple[int, ...]], kind: str = ""
) -> None:
    """Raises WeightsError E1405 as `load_into` when tensors are not those of a configuration."""
    missing = [name for name in expected if name not in in_file]
    unexpected = [name for name in in_file if name not in expected]
    misshapen = [
        f"{name} is {_times(in_file[name])} in the file, {_times(expected[name])} by config.json"
        for name in expected
        if name in in_file and in_file[name] != expected[name]
    ]
    differences = [
        f"{word}: {listed(names, 3)}"
        for word, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen))
        if names
    ]
    if differences:
        guess = f"; {kind}" if kind else "; configuration and weights are of different models"
        raise WeightsError(f"{path}: does not fit its config.json; {'; '.join(differences)}{guess}", code="E1405")


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "a number"
