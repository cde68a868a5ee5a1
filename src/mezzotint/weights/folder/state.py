"""From a file's tensors to a network's parameters: what must fit, checked before anything is loaded; random values when
nothing is to be loaded.
"""

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
from mezzotint.weights.files.tensor_files import Stored, each, listed, require_finite
from mezzotint.weights.low_bit import FLOAT32, WeightForm

Module = TypeVar("Module", bound=nn.Module)
Rename = Callable[[str], str]
_LATER = "mezzotint_filling"


def on_meta(build: Callable[[], Module]) -> Module:
    """A network without memory for its values, built by `build`; `load_into` or a copy gives it some."""
    with torch.device("meta"), _NotInitialized():
        return build()


class _NotInitialized(TorchFunctionMode):
    """Within, `torch.nn.init` leaves tensors on the meta device alone, which have no values to set."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if getattr(func, "__module__", "") == "torch.nn.init":
            tensor = args[0] if args else named["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **named)


class EmptyOnMeta(_NotInitialized):
    """Within, memory that is asked for without values and without a device is not given: that is how networks make
    their parameters. Tables of numbers, which some work out and no file holds, are made as ever."""

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

    form: in which weights are kept, and where; tensor by tensor is brought into it. rename: the network's name of a
    file's tensor. ignorable: endings of names that a file may have in excess. kind: what the file seems to be, for
    the message, when it does not fit.
    Raises WeightsError E1405 with counts and first names of missing, unexpected and misshapen tensors, before reading
    any; E1402 and E1403 as `files.read`; E1445 for a form that needs torchao.
    """
    taken = require_fit(module, stored, rename=rename, ignorable=ignorable, kind=kind)
    filling = Filling(module, stored, taken, form)
    if form.is_later:
        filling.fill(name for name, _ in module.named_buffers() if name in taken)
        vars(module)[_LATER] = filling
    elif form.in_turn is None:
        filling.fill(taken)
    else:
        header = stored.header()
        sizes = {n: math.prod(header[there].shape) * form.dtype.itemsize for n, there in taken.items()}
        form.in_turn.take(module, filling, sizes)
    module.requires_grad_(True)
    module.eval()


class Filling:
    """What fills a network's tensors from stored ones, each straight into the form in which it stays, so that beside
    what stays there is memory for one tensor at most. taken: by the network's names, those of the stored ones."""

    def __init__(self, module: nn.Module, stored: Stored, taken: Mapping[str, str], form: WeightForm) -> None:
        self._module, self._stored, self._taken, self._form = module, stored, taken, form
        self._layers = low_bit.prepare(module, form)

    def fill(self, names: Iterable[str]) -> None:
        """Gives tensors of these names their values. Raises WeightsError E1402, E1403."""
        ours = {self._taken[name]: name for name in names}
        for source, tensor in each(self._stored, ours):
            name = ours[source]
            require_finite(self._stored.place, {source: tensor})
            if name in self._layers:
                self._layers[name].pack(tensor, self._form.device)
                continue
            held, before = self._form.held(tensor, self._module, name), named(self._module, name)
            # what was let go keeps the type that it was cast to since
            put(self._module, name, held if before is None or before.is_meta else held.to(before.dtype))

    def rows(self, places: Mapping[str, slice]) -> Iterator[tuple[str, Tensor]]:
        """Some rows of tensors of these names, as they are held, one after the other; of what lies in a file as it is
        called there, no others are read. Raises WeightsError E1402, E1403."""
        ours = {self._taken[name]: name for name in places}
        for source, tensor in each(self._stored, ours, parts=True):
            part = tensor[places[ours[source]]]
            require_finite(self._stored.place, {source: part})
            yield ours[source], self._form.held(part, self._module, ours[source])

    def sample(self) -> str:
        """A name for what is stored: of files with other tensors, or with other first numbers of any, it is another."""
        header = self._stored.header()
        in_turn = each(self._stored, self._taken.values(), parts=True)
        first = {name: tensor.reshape(-1)[:64].float().tolist() for name, tensor in in_turn}
        facts = [(name, header[name].shape, first[name]) for name in sorted(first)]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def let_go(self, names: Iterable[str]) -> None:
        """Leaves tensors of no numbers in the place of these, of the same type and on the same device."""
        for name in names:
            if name in self._layers:
                self._layers[name]._buffers.clear()
                continue
            before = named(self._module, name)
            dtype = self._form.dtype_of(self._module, name) if before is None or before.is_meta else before.dtype
            put(self._module, name, torch.empty(0, dtype=dtype, device=self._form.device))


def left_for_later(module: nn.Module) -> Filling | None:
    """What fills a network that was opened to be filled later; None of others."""
    filling: Filling | None = vars(module).get(_LATER)
    return filling


def named(module: nn.Module, name: str) -> Tensor | None:
    """The parameter or buffer of a network's name."""
    path, _, own = name.rpartition(".")
    holder = module.get_submodule(path)
    return holder._parameters.get(own, holder._buffers.get(own))


def put(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Makes a tensor the parameter, or the buffer, of a network's name."""
    path, _, own = name.rpartition(".")
    holder = module.get_submodule(path)
    if own in holder._parameters:
        before = holder._parameters[own]
        setattr(holder, own, nn.Parameter(tensor, requires_grad=before is None or before.requires_grad))
    else:
        holder._buffers[own] = tensor


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
