"""Update rules: how a gradient becomes a step. `AdamWRule` and `AdamWeightDecayRule` are one fused pass,
`LionRule` and `AdaCoorRule` are a few; `LibraryRule` lets any torch optimizer stand behind `Update`.

A rule owns its state by parameter name, so that checkpoints restore it by name and in its own type.
"""

from __future__ import annotations

import importlib
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mezzotint.errors import RecipeError
from mezzotint.recipe.sections.optim import (
    AdaCoor,
    Adafactor,
    AdamW,
    AdamW8bit,
    AdamWeightDecay,
    Library,
    Lion,
    OptimizerSettings,
    Prodigy,
)

PIECE = 1 << 24
"""Numbers of which a rule that works number by number holds intermediate results at once."""


class Rule(ABC):
    """What `Update` asks of an optimizer. All tensors are float32 masters and gradients of one group.

    is_by_tensor: each tensor moves by itself, so that a group may be moved in chunks to the same bits. reads_on_host:
    `move` asks on the host whether something may move.
    """

    is_by_tensor: bool = True
    reads_on_host: bool = False

    def working_bytes(self, sizes: Sequence[int]) -> int:
        """The bytes of intermediate results that `move` holds at most. sizes: numbers of the tensors that it is given
        at once."""
        return 0

    @abstractmethod
    def move(
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
        """One step of one group, in place. scale: () what the gradients have to be divided by. found_inf: () 1 when
        nothing may move."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The state by flat name, `opt.STATE/PART/PARAMETER`."""

    @abstractmethod
    def load(self, tensors: Mapping[str, Tensor], masters: Mapping[str, Tensor]) -> None:
        """Takes back what `tensors` gave."""

    @abstractmethod
    def state_bytes(self, masters: Mapping[str, Tensor]) -> int:
        """The bytes that the state will have once it stands: what `check` counts before a first step."""


class AdamWRule(Rule):
    """AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) by torch's fused kernel: nothing is read back to the host.

    applied: () float32, the count of steps that moved, by which the moments' bias is corrected; `Update` counts it
    before it calls.
    """

    def __init__(self, settings: AdamW | AdamWeightDecay, masters: Mapping[str, Tensor], applied: Tensor) -> None:
        self._settings = settings
        self._applied = applied
        self._mean = {name: torch.zeros_like(m) for name, m in masters.items()}
        self._square = {name: torch.zeros_like(m) for name, m in masters.items()}

    def move(
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
        torch._fused_adamw_(
            list(masters),
            grads,
            [self._mean[name] for name in names],
            [self._square[name] for name in names],
            [],
            [self._applied] * len(names),
            lr=lr,
            beta1=self._settings.betas[0],
            beta2=self._settings.betas[1],
            weight_decay=weight_decay,
            eps=self._settings.eps,
            amsgrad=False,
            maximize=False,
            grad_scale=scale,
            found_inf=found_inf,
        )

    def tensors(self) -> dict[str, Tensor]:
        found = {f"opt.mean/{name}": tensor for name, tensor in self._mean.items()}
        return found | {f"opt.square/{name}": tensor for name, tensor in self._square.items()}

    def load(self, tensors: Mapping[str, Tensor], masters: Mapping[str, Tensor]) -> None:
        for name, mine in self.tensors().items():
            mine.copy_(tensors[name])

    def state_bytes(self, masters: Mapping[str, Tensor]) -> int:
        return sum(2 * master.element_size() * master.numel() for master in masters.values())


class AdamWeightDecayRule(AdamWRule):
    """MindSpore's AdamWeightDecay: p ← p − lr (m / (√v + ε) + wd p), with m and v as they are. It is the fused pass of
    AdamW after infinitely many steps, when the moments' bias is 0 and its correction is exactly 1."""

    def __init__(self, settings: AdamWeightDecay, masters: Mapping[str, Tensor]) -> None:
        device = next(iter(masters.values())).device
        super().__init__(settings, masters, torch.full((), math.inf, dtype=torch.float32, device=device))


class LionRule(Rule):
    """Lion (Chen et al. 2023, arXiv:2302.06675, algorithm 2), with m kept in float32:

        c ← β₁ m + (1 − β₁) g
        p ← p (1 − lr wd) − lr sign(c)
        m ← β₂ m + (1 − β₂) g

    Nothing is read back to the host; where found_inf is 1, neither m nor p moves.
    """

    def __init__(self, settings: Lion, masters: Mapping[str, Tensor]) -> None:
        self._settings = settings
        self._mean = {name: torch.zeros_like(m) for name, m in masters.items()}

    def move(
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
        first, second = self._settings.betas
        torch._foreach_div_(grads, scale)
        for grad in grads:
            grad.masked_fill_(found_inf > 0, 0.0)
        moved = 1.0 - found_inf  # () 0 or 1: multiplies what must not happen in a spoilt step
        means = [self._mean[name] for name in names]
        steps = torch._foreach_mul(means, first)
        torch._foreach_add_(steps, grads, alpha=1.0 - first)
        torch._foreach_sign_(steps)
        torch._foreach_mul_(steps, moved * lr)
        torch._foreach_mul_(list(masters), 1.0 - moved * (lr * weight_decay))
        torch._foreach_sub_(list(masters), steps)
        torch._foreach_mul_(means, 1.0 - moved * (1.0 - second))
        torch._foreach_add_(means, grads, alpha=1.0 - second)

    def tensors(self) -> dict[str, Tensor]:
        return {f"opt.mean/{name}": tensor for name, tensor in self._mean.items()}

    def load(self, tensors: Mapping[str, Tensor], masters: Mapping[str, Tensor]) -> None:
        for name, mine in self.tensors().items():
            mine.copy_(tensors[name])

    def state_bytes(self, masters: Mapping[str, Tensor]) -> int:
        return sum(master.element_size() * master.numel() for master in masters.values())


class AdaCoorRule(Rule):
    """EveryDream2's AdaCoor: no rate, no momentum, no weight decay. The state, kept in bfloat16, is v, the sum of
    squared gradients g times e, with e = ε in bfloat16:

        v ← v + e g², each product and the sum rounded to bfloat16
        p ← p − e g / (√v + ε), the divisor rounded to bfloat16, the rest in float32

    Nothing is read back to the host; where found_inf is 1, g counts as 0, which moves neither v nor p.
    """

    def working_bytes(self, sizes: Sequence[int]) -> int:
        return 6 * min(sum(sizes), PIECE)  # squares in float32 and bfloat16, or divisors in both

    def __init__(self, settings: AdaCoor, masters: Mapping[str, Tensor]) -> None:
        self._eps = settings.eps
        self._rounded_eps = float(torch.tensor(settings.eps, dtype=torch.bfloat16))
        self._sum = {name: torch.zeros_like(m, dtype=torch.bfloat16) for name, m in masters.items()}

    def move(
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
        torch._foreach_div_(grads, scale)
        for grad in grads:
            grad.masked_fill_(found_inf > 0, 0.0)
        sums = [self._sum[name] for name in names]
        for pieces in _in_pieces(masters, grads, sums):
            self._move_piece(*pieces)

    def _move_piece(self, masters: list[Tensor], grads: list[Tensor], sums: list[Tensor]) -> None:
        squares = torch._foreach_mul(grads, grads)
        torch._foreach_mul_(squares, self._rounded_eps)
        torch._foreach_add_(sums, [square.to(torch.bfloat16) for square in squares])
        del squares
        torch._foreach_mul_(grads, self._rounded_eps)
        divisors = torch._foreach_sqrt(sums)
        torch._foreach_add_(divisors, self._eps)
        torch._foreach_div_(grads, [divisor.to(torch.float32) for divisor in divisors])
        torch._foreach_sub_(masters, grads)

    def tensors(self) -> dict[str, Tensor]:
        return {f"opt.sum/{name}": tensor for name, tensor in self._sum.items()}

    def load(self, tensors: Mapping[str, Tensor], masters: Mapping[str, Tensor]) -> None:
        for name, mine in self.tensors().items():
            mine.copy_(tensors[name])

    def state_bytes(self, masters: Mapping[str, Tensor]) -> int:
        return sum(2 * master.numel() for master in masters.values())


def _in_pieces(*lists: Sequence[Tensor]) -> Iterator[list[list[Tensor]]]:
    """Views of tensors, the same in each list, of at most PIECE numbers together: for rules that know each number by
    itself. A tensor that does not lie in one row of memory stays whole."""
    held: list[list[Tensor]] = [[] for _ in lists]
    room = PIECE
    for alike in zip(*lists, strict=True):
        in_a_row = all(tensor.is_contiguous() for tensor in alike)
        views = [tensor.view(-1).split(PIECE) if in_a_row else (tensor,) for tensor in alike]
        for one in zip(*views, strict=True):
            if held[0] and one[0].numel() > room:
                yield held
                held, room = [[] for _ in lists], PIECE
            for kept, view in zip(held, one, strict=True):
                kept.append(view)
            room -= one[0].numel()
    if held[0]:
        yield held


class LibraryRule(Rule):
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

    def move(
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
        found = dict(self._waiting_groups)
        for names, optimizer in self._optimizers.items():
            started = self._started[names]
            found[names[0]] = {
                key: value
                for key, value in optimizer.param_groups[0].items()
                if key not in ("lr", "params") and isinstance(value, (Tensor, int, float))
                if key not in started or isinstance(value, Tensor) or value != started[key]
            }
        return found

    def tensors(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for names, optimizer in self._optimizers.items():
            for name, master in zip(names, optimizer.param_groups[0]["params"], strict=True):
                for key, value in optimizer.state[master].items():
                    assert isinstance(value, (Tensor, int, float)), (key, value)
                    found[f"opt.{_tag(key, value)}/{name}"] = _as_tensor(value)
        for name, state in self._waiting.items():
            for key, value in state.items():
                found[f"opt.{_tag(key, value)}/{name}"] = _as_tensor(value)
        for name, numbers in self._of_groups().items():
            for key, value in numbers.items():
                found[f"opt.group.{_tag(key, value)}/{name}"] = _as_tensor(value)
        return found

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


def _bytes_after_a_step(rule: LibraryRule, masters: Mapping[str, Tensor]) -> int:
    """One step of each shape and type on zeros, on the CPU, forgotten again: what a library keeps is known to it
    alone."""
    total = 0
    of_kind: dict[tuple[torch.Size, torch.dtype], int] = {}
    for master in masters.values():
        kind = master.shape, master.dtype
        if kind not in of_kind:
            trial = LibraryRule(rule.kind, rule.options)
            zeros = [torch.zeros(master.shape, dtype=master.dtype) for _ in range(2)]
            one = torch.ones(())
            trial.move(["x/x"], zeros[:1], zeros[1:], lr=0.0, weight_decay=0.0, scale=one, found_inf=0 * one)
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


def rule_for(settings: OptimizerSettings, masters: Mapping[str, Tensor], applied: Tensor) -> Rule:
    """The rule behind a recipe's optimizer. Raises RecipeError E1061 for a library that is not installed or a class
    that is no optimizer."""
    match settings:
        case AdamW():
            return AdamWRule(settings, masters, applied)
        case AdamWeightDecay():
            return AdamWeightDecayRule(settings, masters)
        case AdaCoor():
            return AdaCoorRule(settings, masters)
        case AdamW8bit():
            kind = _class("bitsandbytes.optim.AdamW8bit")
            return LibraryRule(kind, {"betas": settings.betas, "eps": settings.eps})
        case Adafactor():
            options = {"beta2_decay": settings.beta2_decay, "eps": (None, settings.eps), "d": settings.clip_update}
            return LibraryRule(torch.optim.Adafactor, options)
        case Lion():
            return LionRule(settings, masters)
        case Prodigy():
            return LibraryRule(_class("pytorch_optimizer.Prodigy"), _prodigy_options(settings))
        case Library():
            return LibraryRule(_class(settings.class_name), settings.options)
        case _:  # a choice that is settled when a run starts
            raise AssertionError(settings)


def _prodigy_options(settings: Prodigy) -> dict[str, Any]:
    kept = settings.model_dump(exclude={"kind", "weight_decay", "no_decay", "growth_rate", "d_beta"})
    limit = math.inf if settings.growth_rate is None else settings.growth_rate
    return kept | {"growth_rate": limit, "beta3": settings.d_beta}


_REMEDIES: Mapping[str, str] = {
    "bitsandbytes.optim.AdamW8bit": "install it with pip install 'mezzotint[eight-bit]', or write "
    'optim.optimizer.kind=adamw, whose moments are float32 (in EveryDream2\'s optimizer.json "optimizer": "adamw")',
    "bitsandbytes": "install it with pip install 'mezzotint[eight-bit]'",
    "pytorch_optimizer": "install it with pip install 'mezzotint[optimizers]'",
}
"""What to do where a class, or a package, is not there."""


def _class(path: str) -> type[torch.optim.Optimizer]:
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, ValueError, AttributeError) as error:
        remedy = _REMEDIES.get(path) or _REMEDIES.get(path.partition(".")[0], "install the package that has it")
        raise RecipeError(f"optim.optimizer: {path} cannot be had ({error}); {remedy}", code="E1061") from error
    if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
        raise RecipeError(f"optim.optimizer: {path} is no torch.optim.Optimizer; name a class that is", code="E1061")
    return found
