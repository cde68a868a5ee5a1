"""Loads a file's tensors into a network's parameters, after checking that they fit, and creates random ones."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mezzotint import draws
from mezzotint.errors import WeightsError
from mezzotint.weights import low_bit
from mezzotint.weights.files.tensor_files import Stored, iterate_stored, require_finite, summary
from mezzotint.weights.low_bit import FLOAT32, WeightForm

Module = TypeVar("Module", bound=nn.Module)
Rename = Callable[[str], str]
_LATER = "mezzotint_filling"


def build_on_meta(build: Callable[[], Module]) -> Module:
    """A network on the meta device, built by `build`; `load_into` or a copy gives it values."""
    with torch.device("meta"), _NotInitialized():
        return build()


class _NotInitialized(TorchFunctionMode):
    """Makes `torch.nn.init` skip tensors on the meta device, which have no values to set."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if getattr(func, "__module__", "") == "torch.nn.init":
            tensor = args[0] if args else named["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **named)


class EmptyOnMeta(_NotInitialized):
    """Makes `torch.empty` without a device, by which networks allocate parameters, use the meta device. Buffers with
    computed values, which no file contains, are created as usual."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if func is torch.empty and named.get("device") is None:
            named["device"] = "meta"
        return super().__torch_function__(func, types, args, named)


def load_into(
    module: nn.Module,
    stored: Stored,
    form: WeightForm = FLOAT32,
    *,
    rename: Rename = str,
    ignorable: Collection[str] = (),
    kind: str = "",
) -> None:
    """Fills a network on the meta device from stored weights, and leaves it in eval mode.

    form: dtype, quantization and device of the weights, which are converted tensor by tensor. rename: the network's
    name of a file's tensor. ignorable: suffixes of names that a file may have in excess. kind: what the file seems to
    be, for the message when it does not fit.
    Raises WeightsError E1405 with counts and first names of missing, unexpected and misshapen tensors, before reading
    any; E1402 and E1403 as `tensor_files.read`; E1445 for a form that needs torchao.
    """
    taken = require_fit(module, stored, rename=rename, ignorable=ignorable, kind=kind)
    filling = Filling(module, stored, taken, form)
    if form.is_deferred:
        filling.fill(name for name, _ in module.named_buffers() if name in taken)
        vars(module)[_LATER] = filling
    elif form.layer_streamer is None:
        filling.fill(taken)
    else:
        header = stored.header()
        sizes = {n: math.prod(header[source].shape) * form.dtype.itemsize for n, source in taken.items()}
        form.layer_streamer.take(module, filling, sizes)
    module.requires_grad_(True)
    module.eval()


class Filling:
    """Fills a network's tensors from stored ones, each directly in its final form, with temporary memory for one tensor
    at most. taken: the stored names by the network's names."""

    def __init__(self, module: nn.Module, stored: Stored, taken: Mapping[str, str], form: WeightForm) -> None:
        self._module, self._stored, self._taken, self._form = module, stored, taken, form
        self._layers = low_bit.prepare(module, form)

    def fill(self, names: Iterable[str]) -> None:
        """Loads the tensors of these names. Raises WeightsError E1402, E1403."""
        ours = {self._taken[name]: name for name in names}
        for source, tensor in iterate_stored(self._stored, ours):
            name = ours[source]
            require_finite(self._stored.path, {source: tensor})
            if name in self._layers:
                self._layers[name].pack(tensor, self._form.device)
                continue
            value, before = self._form.convert(tensor, self._module, name), get_tensor(self._module, name)
            # a freed tensor keeps the dtype that it was cast to since loading
            set_tensor(self._module, name, value if before is None or before.is_meta else value.to(before.dtype))

    def rows(self, slices: Mapping[str, slice]) -> Iterator[tuple[str, Tensor]]:
        """Rows of tensors of these names, in their final form, one tensor after the other. Where the source is a file
        with the same tensors, only these rows are read. Raises WeightsError E1402, E1403."""
        ours = {self._taken[name]: name for name in slices}
        for source, tensor in iterate_stored(self._stored, ours, parts=True):
            part = tensor[slices[ours[source]]]
            require_finite(self._stored.path, {source: part})
            yield ours[source], self._form.convert(part, self._module, ours[source])

    def sample(self) -> str:
        """A cheap hash of the stored tensors: of their names, shapes and first 64 numbers."""
        header = self._stored.header()
        layer_streamer = iterate_stored(self._stored, self._taken.values(), parts=True)
        first = {name: tensor.reshape(-1)[:64].float().tolist() for name, tensor in layer_streamer}
        facts = [(name, header[name].shape, first[name]) for name in sorted(first)]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def free(self, names: Iterable[str]) -> None:
        """Frees these tensors: replaces them by empty ones of the same dtype and device."""
        for name in names:
            if name in self._layers:
                self._layers[name]._buffers.clear()
                continue
            before = get_tensor(self._module, name)
            dtype = self._form.dtype_of(self._module, name) if before is None or before.is_meta else before.dtype
            set_tensor(self._module, name, torch.empty(0, dtype=dtype, device=self._form.device))


def get_deferred_filling(module: nn.Module) -> Filling | None:
    """The Filling of a network that was opened with `is_deferred`; None for other networks."""
    filling: Filling | None = vars(module).get(_LATER)
    return filling


def get_tensor(module: nn.Module, name: str) -> Tensor | None:
    """The parameter or buffer of this name."""
    path, _, leaf = name.rpartition(".")
    holder = module.get_submodule(path)
    return holder._parameters.get(leaf, holder._buffers.get(leaf))


def set_tensor(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Sets the parameter or buffer of this name."""
    path, _, leaf = name.rpartition(".")
    holder = module.get_submodule(path)
    if leaf in holder._parameters:
        before = holder._parameters[leaf]
        setattr(holder, leaf, nn.Parameter(tensor, requires_grad=before is None or before.requires_grad))
    else:
        holder._buffers[leaf] = tensor


def require_fit(
    module: nn.Module, stored: Stored, *, rename: Rename = str, ignorable: Collection[str] = (), kind: str = ""
) -> dict[str, str]:
    """The stored names that fill a network, by its names. Raises WeightsError E1405 as `load_into`."""
    in_file = {rename(name): (name, info.shape) for name, info in stored.header().items()}
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    taken = {name: source for name, (source, _) in in_file.items() if not name.endswith(tuple(ignorable))}
    require_shapes(stored.path, expected, {name: in_file[name][1] for name in taken}, kind)
    return taken


def build_random(build: Callable[[], Module], seed: int, part: str) -> Module:
    """A network with the random values of its own initialisation, a function of only (seed, part): float32, eval mode.

    torch's global generator keeps its state.
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(draws.key(seed, "init", part) & 0x7FFF_FFFF)  # a CPU generator uses 32 bits
        module = build()
    return module.float().eval()


def require_shapes(
    path: Path, expected: Mapping[str, tuple[int, ...]], in_file: Mapping[str, tuple[int, ...]], kind: str = ""
) -> None:
    """Raises WeightsError E1405 as `load_into` when tensors are not those of the configuration."""
    missing = [name for name in expected if name not in in_file]
    unexpected = [name for name in in_file if name not in expected]
    misshapen = [
        f"{name} is {_format_shape(in_file[name])} in the file, {_format_shape(expected[name])} by config.json"
        for name in expected
        if name in in_file and in_file[name] != expected[name]
    ]
    differences = [
        f"{label}: {summary(names, 3)}"
        for label, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen))
        if names
    ]
    if differences:
        guess = f"; {kind}" if kind else "; configuration and weights are of different models"
        raise WeightsError(f"{path}: does not fit its config.json; {'; '.join(differences)}{guess}", code="E1405")


def _format_shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "a scalar"
