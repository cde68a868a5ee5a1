"""Any `torch.optim.Optimizer` as an optimizer step, and the import of a class by its dotted name."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import cached_property
from io import StringIO
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.autograd.profiler import profile

from mezzotint.errors import RecipeError
from mezzotint.settings.optimizers.library import facts_of
from mezzotint.training.optimizers.base import OptimizerStep, StepInputs


class TorchStep(OptimizerStep):
    """Any `torch.optim.Optimizer`, one instance per group. A library's optimizer cannot skip bad steps, so the host
    reads one number per step.

    Some store estimates for the whole group in its settings, such as Prodigy's and D-Adaptation's distance d. Those
    that changed since the start are part of the state: `opt.group.KEY/PART/PARAMETER` with the group's first parameter.
    Such a group is updated as a whole; the classes of torch and bitsandbytes store no such numbers and update each
    tensor separately.

    A class with `train()` and `eval()` is in training mode here; `evaluation_weights` calls its `eval()` on copies.
    """

    reads_on_host = True

    def __init__(self, kind: type[torch.optim.Optimizer], options: Mapping[str, Any]) -> None:
        super().__init__()
        self.kind = kind
        self.options = dict(options)
        self._optimizers: dict[tuple[str, ...], torch.optim.Optimizer] = {}
        self._started: dict[tuple[str, ...], dict[str, Any]] = {}
        self._waiting: dict[str, dict[str, Any]] = {}
        self._waiting_groups: dict[str, dict[str, Any]] = {}
        self.is_by_tensor = kind.__module__.split(".")[0] in ("torch", "bitsandbytes") and kind is not torch.optim.LBFGS
        self._decays = "weight_decay" in inspect.signature(kind).parameters
        self.has_evaluation_weights = all(callable(getattr(kind, name, None)) for name in ("train", "eval"))

    def step(self, inputs: StepInputs) -> None:
        if bool(inputs.found_inf):
            return
        optimizer = self._optimizer(inputs)
        for group in optimizer.param_groups:
            group["lr"] = inputs.lr
        torch._foreach_div_(inputs.grads, inputs.scale)
        for master, grad in zip(inputs.masters, inputs.grads, strict=True):
            master.grad = grad
        optimizer.step()
        for master in inputs.masters:
            master.grad = None

    def working_bytes(self, sizes: Sequence[int]) -> int:
        if self.kind.__module__.startswith("bitsandbytes"):
            return 0  # one kernel
        if self.kind is torch.optim.Adafactor:
            return 4 * sum(sorted(sizes)[-2:])  # tensor by tensor, while the previous result is still allocated
        if self.is_by_tensor:
            return 12 * sum(sizes)  # three float32 results: what torch's classes allocate for a list
        of_one, of_all = self._results
        return math.ceil(4 * max(3 * max(sizes), of_one * max(sizes) + of_all * sum(sizes)))

    @cached_property
    def _results(self) -> tuple[float, float]:
        """The peak of a step of a library's class, in float32 results: per element of the largest tensor, and of all
        tensors, for classes that process lists. Measured on small tensors on the CPU; matrices with the length of a
        side, such as Shampoo's, grow differently."""
        side, several = 64, 5
        peak_of_one, peak_of_several = (
            _peak_of_a_step(TorchStep(self.kind, self.options), side, count) for count in (1, several)
        )
        of_all = max(0.0, (peak_of_several - peak_of_one) / (several - 1))
        return max(0.0, peak_of_one - of_all) / (4 * side**2), of_all / (4 * side**2)

    def _optimizer(self, inputs: StepInputs) -> torch.optim.Optimizer:
        names = tuple(inputs.names)
        if names not in self._optimizers:
            # passed even if it is 0: a class may have another default
            decay = {"weight_decay": inputs.weight_decay} if inputs.weight_decay or self._decays else {}
            optimizer = self._create(inputs.masters, inputs.lr, decay)
            group = optimizer.param_groups[0]
            self._started[names] = dict(group)
            for name, master in zip(names, inputs.masters, strict=True):
                if name in self._waiting:
                    optimizer.state[master] = self._waiting.pop(name)
                group.update(self._waiting_groups.pop(name, {}))
            self._optimizers[names] = optimizer
        return self._optimizers[names]

    def _create(self, masters: Sequence[Tensor], lr: float, decay: dict[str, float]) -> torch.optim.Optimizer:
        """The class over these masters, in training mode. A warm-up may start at 0, which some classes refuse."""
        optimizer = self.kind(masters, **self.options | {"lr": lr or 1.0} | decay)
        if self.has_evaluation_weights:
            optimizer.train()  # type: ignore[attr-defined]
        return optimizer

    def evaluation_weights(self, masters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if not self.has_evaluation_weights:
            return masters
        states, optimizer = self._states(), self._evaluator
        weights = {name: master.detach().clone() for name, master in masters.items()}
        for name, weight in weights.items():
            optimizer.state.clear()
            optimizer.param_groups[0]["params"] = [weight]
            optimizer.train()  # type: ignore[attr-defined]
            state = {key: v.clone() if isinstance(v, Tensor) else v for key, v in states.get(name, {}).items()}
            optimizer.state[weight] = state
            optimizer.eval()  # type: ignore[attr-defined]
        return {name: weight.float() for name, weight in weights.items()}

    @cached_property
    def _evaluator(self) -> torch.optim.Optimizer:
        """Another instance, which gets copies only."""
        with redirect_stdout(StringIO()):
            return self._create([torch.zeros(1)], 1.0, {})

    def _states(self) -> dict[str, dict[str, Any]]:
        """The state of each parameter that has one."""
        return {
            name: optimizer.state[master]
            for names, optimizer in self._optimizers.items()
            for name, master in zip(names, optimizer.param_groups[0]["params"], strict=True)
        } | self._waiting

    def _changed_group_settings(self) -> dict[str, dict[str, Any]]:
        """Numeric settings of parameter groups that the optimizer changed, by the name of a group's first parameter."""
        changed = dict(self._waiting_groups)
        for names, optimizer in self._optimizers.items():
            started = self._started[names]
            changed[names[0]] = {
                key: value
                for key, value in optimizer.param_groups[0].items()
                if key not in ("lr", "params") and isinstance(value, (Tensor, int, float))
                if key not in started or isinstance(value, Tensor) or value != started[key]
            }
        return changed

    def tensors(self) -> dict[str, Tensor]:
        states = [("opt", *item) for item in self._states().items()]
        states += [("opt.group", *item) for item in self._changed_group_settings().items()]
        return {
            f"{head}.{_tag(key, value)}/{name}": _as_tensor(value)
            for head, name, values in states
            for key, value in values.items()
        }

    def load(self, tensors: Mapping[str, Tensor], masters: Mapping[str, Tensor]) -> None:
        for table in (self._optimizers, self._started, self._waiting, self._waiting_groups):
            table.clear()
        for flat, tensor in tensors.items():
            tag, _, name = flat.removeprefix("opt.").partition("/")
            if not flat.startswith("opt.") or name not in masters:
                continue
            key, _, number = tag.partition("#")
            # counts that a library stores on the host remain there
            waiting = self._waiting_groups if key.startswith("group.") else self._waiting
            key = key.removeprefix("group.")
            home = "cpu" if key == "step" else masters[name].device
            value = _NUMBERS[number](tensor.tolist()) if number else tensor.to(home, copy=True)
            waiting.setdefault(name, {})[key] = value

    def state_bytes(self, masters: Mapping[str, Tensor]) -> int:
        if self.kind.__module__.startswith("bitsandbytes"):
            # its kernels run only on a GPU; moments of a byte have a float32 scale for each block of 256
            name = self.kind.__name__
            moments = facts_of(f"bitsandbytes.optim.{name.removesuffix('32bit').removesuffix('8bit')}8bit").quantized
            sizes = [master.numel() for master in masters.values()]
            of_moment = [size + 4 * -(-size // 256) if name.endswith("8bit") else 4 * size for size in sizes]
            return moments * sum(of_moment)
        of_kind: dict[tuple[torch.Size, torch.dtype], int] = {}
        kinds = [(master.shape, master.dtype) for master in masters.values()]
        for kind in dict.fromkeys(kinds):
            of_kind[kind] = self._bytes_after_a_step(*kind)
        return sum(of_kind[kind] for kind in kinds)

    def _bytes_after_a_step(self, shape: torch.Size, dtype: torch.dtype) -> int:
        """The bytes that a library stores, measured by one step on the CPU."""
        trial = TorchStep(self.kind, self.options)
        ones, unit_scale = [torch.ones(shape, dtype=dtype) for _ in range(2)], torch.ones(())
        with redirect_stdout(StringIO()):
            trial.step(StepInputs(["x/x"], ones[:1], ones[1:], 0.0, 0.0, scale=unit_scale, found_inf=0 * unit_scale))
        states = (tensor for name, tensor in trial.tensors().items() if not name.startswith("opt.group."))
        return sum(tensor.numel() * tensor.element_size() for tensor in states)


def _peak_of_a_step(optimizer: TorchStep, side: int, count: int) -> int:
    """Peak bytes that the second step, after states exist, allocates in addition. count: of square float32 matrices."""
    masters = [torch.zeros(side, side) for _ in range(count)]
    names, unit_scale = [f"x/{number}" for number in range(count)], torch.ones(())
    for is_measured in (False, True):
        inputs = StepInputs(
            names,
            masters,
            [torch.ones(side, side) for _ in names],
            1e-4,
            0.0,
            scale=unit_scale,
            found_inf=0 * unit_scale,
        )
        with redirect_stdout(StringIO()), profile(enabled=is_measured, profile_memory=True) as recorded:
            optimizer.step(inputs)
    events = sorted(
        (event for event in recorded.kineto_results.events() if event.name() == "[memory]"),
        key=lambda event: int(event.start_ns()),
    )
    return max(accumulate(event.nbytes() for event in events), default=0)


def _as_tensor(value: Tensor | float | tuple[int, ...]) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64)


def _tag(key: str, value: Any) -> str:
    assert isinstance(value, (Tensor, int, float, tuple)), (key, value)
    return key if isinstance(value, Tensor) else f"{key}#{type(value).__name__}"


_NUMBERS: Mapping[str, type] = {"int": int, "float": float, "bool": bool, "tuple": tuple}
"""Types of what a library stores besides tensors; a tuple is of integers, such as axes."""


def require_stepping(kind: type[torch.optim.Optimizer], options: Mapping[str, Any]) -> None:
    """Tries a class on a small tensor. Raises RecipeError E1061 for one that cannot be constructed, or needs more than
    a gradient: the loss once more (LBFGS), sparse gradients, a subclass."""
    if kind.__module__.startswith("bitsandbytes"):  # runs only on a GPU
        return
    try:
        TorchStep(kind, options)._bytes_after_a_step(torch.Size((2, 2)), torch.float32)
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise RecipeError(
            f"optim.optimizer: {kind.__module__}.{kind.__name__} cannot step with only a gradient ({reason}); choose "
            "another class, or correct its options",
            code="E1061",
        ) from error


_REMEDIES: Mapping[str, str] = {
    "bitsandbytes.optim.AdamW8bit": "install it with pip install 'mezzotint[eight-bit]', or write "
    "optim.optimizer.kind=adamw, whose moments are float32",
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
