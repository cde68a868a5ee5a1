"""Any `torch.optim.Optimizer` behind `Update`, and how a class is had by its dotted name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mezzotint.errors import RecipeError
from mezzotint.training.optimizers.base import OptimizerStep


class TorchStep(OptimizerStep):
    """Any `torch.optim.Optimizer`, one instance a group. A library's optimizer does not know bad steps, so the host
    reads one number a step.

    Some keep what they have learnt of the whole group among its settings, such as Prodigy's and D-Adaptation's
    distance d. What has changed there since the start is part of the state: `opt.group.KEY/PART/PARAMETER` with the
    group's first parameter. Such a group is moved as a whole; the classes of torch and bitsandbytes keep no such
    numbers and know each tensor by itself.
    """

    reads_on_host = True

    def __init__(self, kind: type[torch.optim.Optimizer], options: Mapping[str, Any]) -> None:
        self.kind = kind
        self.options = dict(options)
        self._optimizers: dict[tuple[str, ...], torch.optim.Optimizer] = {}
        self._started: dict[tuple[str, ...], dict[str, Any]] = {}
        self._waiting: dict[str, dict[str, Any]] = {}
        self._waiting_groups: dict[str, dict[str, Any]] = {}
        self.is_by_tensor = kind.__module__.split(".")[0] in ("torch", "bitsandbytes") and kind is not torch.optim.LBFGS
        self._decays = "weight_decay" in inspect.signature(kind).parameters

    def step(
        self,
        names: Sequence[str],
        masters: Sequence[Tensor],
        grads: list[Tensor],
        *,
        lr: float,
        weight_decay: float,
        scale: Tensor,
        found_inf: Tensor,
    ) -> None:
        if bool(found_inf):
            return
        optimizer = self._optimizer(tuple(names), masters, lr, weight_decay)
        torch._foreach_div_(grads, scale)
        for group in optimizer.param_groups:
            group["lr"] = lr
        for master, grad in zip(masters, grads, strict=True):
            master.grad = grad
        optimizer.step()
        for master in masters:
            master.grad = None

    def working_bytes(self, sizes: Sequence[int]) -> int:
        if self.kind.__module__.startswith("bitsandbytes"):
            return 0  # one kernel
        if self.kind is torch.optim.Adafactor:
            return 4 * sum(sorted(sizes)[-2:])  # one tensor after the other, while the last one's is still held
        # three float32 results: what torch's own classes hold, of a list where they work through lists
        return 12 * (sum(sizes) if self.is_by_tensor else max(sizes))

    def _optimizer(
        self, names: tuple[str, ...], masters: Sequence[Tensor], lr: float, weight_decay: float
    ) -> torch.optim.Optimizer:
        if names not in self._optimizers:
            # said even when it is 0: a class may have another default
            decay = {"weight_decay": weight_decay} if weight_decay or self._decays else {}
            optimizer = self.kind(list(masters), **self.options | {"lr": lr} | decay)
            group = optimizer.param_groups[0]
            self._started[names] = dict(group)
            for name, master in zip(names, masters, strict=True):
                if name in self._waiting:
                    optimizer.state[master] = self._waiting.pop(name)
                group.update(self._waiting_groups.pop(name, {}))
            self._optimizers[names] = optimizer
        return self._optimizers[names]

    def _of_groups(self) -> dict[str, dict[str, Any]]:
        """By a group's first parameter: the numbers among its settings that are not what they were at the start."""
        numbers = dict(self._waiting_groups)
        for names, optimizer in self._optimizers.items():
            started = self._started[names]
            numbers[names[0]] = {
                key: value
                for key, value in optimizer.param_groups[0].items()
                if key not in ("lr", "params") and isinstance(value, (Tensor, int, float))
                if key not in started or isinstance(value, Tensor) or value != started[key]
            }
        return numbers

    def tensors(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for names, optimizer in self._optimizers.items():
            for name, master in zip(names, optimizer.param_groups[0]["params"], strict=True):
                for key, value in optimizer.state[master].items():
                    assert isinstance(value, (Tensor, int, float)), (key, value)
                    tensors[f"opt.{_tag(key, value)}/{name}"] = _as_tensor(value)
        for name, state in self._waiting.items():
            for key, value in state.items():
                tensors[f"opt.{_tag(key, value)}/{name}"] = _as_tensor(value)
        for name, numbers in self._of_groups().items():
            for key, value in numbers.items():
                tensors[f"opt.group.{_tag(key, value)}/{name}"] = _as_tensor(value)
        return tensors

    def load(self, tensors: Mapping[str, Tensor], masters: Mapping[str, Tensor]) -> None:
        for kept in (self._optimizers, self._started, self._waiting, self._waiting_groups):
            kept.clear()
        for flat, tensor in tensors.items():
            tag, _, name = flat.removeprefix("opt.").partition("/")
            if not flat.startswith("opt.") or name not in masters:
                continue
            key, _, number = tag.partition("#")
            # counts that a library keeps on the host stay there
            waiting = self._waiting_groups if key.startswith("group.") else self._waiting
            key = key.removeprefix("group.")
            value = _NUMBERS[number](tensor.item()) if number else tensor.to(_home(key, masters[name]), copy=True)
            waiting.setdefault(name, {})[key] = value

    def state_bytes(self, masters: Mapping[str, Tensor]) -> int:
        if self.kind.__module__.startswith("bitsandbytes"):
            # two moments of a byte, and a float32 scale for each block of 256 (its kernels run on a GPU alone)
            return sum(2 * master.numel() + 2 * 4 * -(-master.numel() // 256) for master in masters.values())
        return _bytes_after_a_step(self, masters)


def _bytes_after_a_step(rule: TorchStep, masters: Mapping[str, Tensor]) -> int:
    """One step of each shape and type on zeros, on the CPU, forgotten again: what a library keeps is known to it
    alone."""
    total = 0
    of_kind: dict[tuple[torch.Size, torch.dtype], int] = {}
    for master in masters.values():
        kind = master.shape, master.dtype
        if kind not in of_kind:
            trial = TorchStep(rule.kind, rule.options)
            zeros = [torch.zeros(master.shape, dtype=master.dtype) for _ in range(2)]
            one = torch.ones(())
            trial.step(["x/x"], zeros[:1], zeros[1:], lr=0.0, weight_decay=0.0, scale=one, found_inf=0 * one)
            kept = {n: t for n, t in trial.tensors().items() if not n.startswith("opt.group.")}
            of_kind[kind] = sum(t.numel() * t.element_size() for t in kept.values())
        total += of_kind[kind]
    return total


def _as_tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return torch.tensor(value, dtype=torch.int64 if isinstance(value, int) else torch.float64)


def _tag(key: str, value: Any) -> str:
    return key if isinstance(value, Tensor) else f"{key}#{type(value).__name__}"


_NUMBERS: Mapping[str, type] = {"int": int, "float": float, "bool": bool}


def _home(key: str, master: Tensor) -> torch.device:
    return torch.device("cpu") if key == "step" else master.device


_REMEDIES: Mapping[str, str] = {
    "bitsandbytes.optim.AdamW8bit": "install it with pip install 'mezzotint[eight-bit]', or write "
    'optim.optimizer.kind=adamw, whose moments are float32 (in EveryDream2\'s optimizer.json "optimizer": "adamw")',
    "bitsandbytes": "install it with pip install 'mezzotint[eight-bit]'",
    "pytorch_optimizer": "install it with pip install 'mezzotint[optimizers]'",
}
"""What to do where a class, or a package, is not there."""


def class_of(path: str) -> type[torch.optim.Optimizer]:
    module, _, name = path.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, ValueError, AttributeError) as error:
        remedy = _REMEDIES.get(path) or _REMEDIES.get(path.partition(".")[0], "install the package that has it")
        raise RecipeError(f"optim.optimizer: {path} cannot be had ({error}); {remedy}", code="E1061") from error
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        raise RecipeError(f"optim.optimizer: {path} is no torch.optim.Optimizer; name a class that is", code="E1061")
    return kind
