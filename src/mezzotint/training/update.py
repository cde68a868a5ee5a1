"""The weight update. One object owns the float32 masters, the moments, the clip scale and the average, so they can
become one pass over memory.

A step with non-finite gradients changes nothing: weights, moments, bias correction and average stay, decided on the
device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor, nn

from mezzotint import draws, registry
from mezzotint.errors import RecipeError
from mezzotint.settings.optimizers.base import Optimizer
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.training.ema import Ema
from mezzotint.training.optimizers.base import PIECE, OptimizerStep, StepInputs, cast, split_into_chunks
from mezzotint.training.precision.stochastic import round_to_bf16
from mezzotint.training.trainable import MAY_BE_IDLE, without_prefix

WhenArrived = Callable[[nn.Parameter, Callable[[nn.Parameter], None]], object]
_COUNTS = ("opt.applied", "opt.shadow_updates")


@dataclass(slots=True)
class Group:
    """Parameters with the same part, weight decay and rate. rate_key: of their rate, see `rates.find_keys`.
    rate_factor: a factor of that rate."""

    name: str
    part: str
    weight_decay: float
    rate_key: str
    rate_factor: float = 1.0
    names: list[str] = field(default_factory=list)


class Update:
    """An optimizer for each part, clipping and the averaged copy, over float32 masters.

    trained: parameters by `part/parameter`, or the rows of them that this process holds. separate_masters: the
    parameters have a smaller dtype, or will be cast to one; float32 masters are kept in addition, in the memory of the
    parameters while those are still float32. gradients: dtype of the gradients; None for that of the parameters.
    ema_decay: overrides `optim.ema.decay`. written: called when parameters were written in place outside of a step.
    when_arrived: registers a function to be called whenever a parameter's gradient is complete. moved: called after
    each step with the masters, which it may change in place. rate_keys: by parameter, see `rates.find_keys`; others
    have the rate of their part. rate_factors: by parameter, a factor of its rate; others have 1. seed: of stochastic
    rounding.
    """

    def __init__(  # noqa: PLR0913 (what a whole update depends on)
        self,
        trained: Mapping[str, nn.Parameter],
        settings: OptimSettings,
        *,
        separate_masters: bool,
        gradients: torch.dtype | None = None,
        ema_decay: float | None = None,
        written: Callable[[], None] = lambda: None,
        when_arrived: WhenArrived = nn.Parameter.register_post_accumulate_grad_hook,
        moved: Callable[[Mapping[str, Tensor]], None] = lambda masters: None,
        rate_keys: Mapping[str, str] = MappingProxyType({}),
        rate_factors: Mapping[str, float] = MappingProxyType({}),
        seed: int = 0,
    ) -> None:
        self._settings = settings
        self._seed, self._step_number = seed, 0
        self._moved = moved
        self._written = written
        self.trained = dict(trained)
        self._separate = separate_masters
        self._gradients = gradients
        self.device = next(iter(self.trained.values())).device
        self._masters = {
            name: p.detach().to(torch.float32) if separate_masters else p.detach() for name, p in self.trained.items()
        }
        self.applied = torch.zeros((), dtype=torch.float32, device=self.device)
        self.groups = _groups(self.trained, settings, rate_keys, rate_factors)
        self._index = {name: number for number, name in enumerate(self.trained)}
        self._parts = list(dict.fromkeys(group.part for group in self.groups))
        self._steps: dict[str, OptimizerStep] = {}
        for part in self._parts:
            optimizer = settings.part_optimizer.get(part, settings.optimizer)
            self._steps[part] = _open_step(optimizer, self._masters_of(part), self.applied)
        self._chunks = {group.name: self._chunks_of(group) for group in self.groups}
        self._group_of = {name: group for group in self.groups for name in group.names}
        self._norms: dict[str, Tensor] = {}
        self._rates: Mapping[str, float] = {}
        self._is_finite = torch.ones_like(self.applied)
        if self.in_backward:
            for name, parameter in self.trained.items():
                when_arrived(parameter, partial(self._move_at_once, name))
        self.ema = Ema(self._masters, settings, decay=ema_decay) if settings.ema.rule != "none" else None

    @property
    def in_backward(self) -> bool:
        """Whether weights are updated within the backward pass."""
        return self._settings.in_backward

    def largest_by_part(self, rates: Mapping[str, float]) -> dict[str, float]:
        """The largest rate of each part. rates: by group name."""
        largest: dict[str, float] = {}
        for group in self.groups:
            largest[group.part] = max(largest.get(group.part, 0.0), rates[group.name])
        return largest

    @property
    def masters(self) -> Mapping[str, Tensor]:
        """The float32 weights by name, which are trained and saved."""
        return self._masters

    @property
    def has_evaluation_weights(self) -> bool:
        """Whether an optimizer has other weights to evaluate than the masters."""
        return any(step.has_evaluation_weights for step in self._steps.values())

    def evaluation_weights(self) -> Mapping[str, Tensor]:
        """The weights to evaluate, average and export, float32 by name: the masters, except of optimizers that average
        their weights."""
        if not self.has_evaluation_weights:
            return self._masters
        weights: dict[str, Tensor] = {}
        with torch.no_grad():
            for part, step in self._steps.items():
                weights |= step.evaluation_weights(self._masters_of(part))
        return {name: weights[name] for name in self._masters}

    def apply(
        self, *, loss_scale: Tensor, norms: Tensor, found_inf: Tensor, lr: Mapping[str, float], update_ema: bool,
        step: int = 0,
    ) -> None:  # fmt: skip
        """One optimizer step from the gradients in the parameters; clears them afterwards.

        loss_scale: () factor by which the loss was multiplied. norms: unscaled gradient norms in the scope of
        `optim.clip.scope`. found_inf: () float32, 1 if something was not finite: then nothing changes. lr: rate by
        group name. update_ema: whether an update of the average is due. step: counted from 0, of stochastic rounding.
        """
        self._step_number = step
        with torch.no_grad():
            if not self.in_backward:
                self._hold_average()
                self._move_all(loss_scale, norms, found_inf, lr)
            if update_ema and self.ema is not None:
                self.ema.follow(self.evaluation_weights(), found_inf)
        for parameter in self.trained.values():
            parameter.grad = None

    def _masters_of(self, part: str) -> Mapping[str, Tensor]:
        """The masters of a part as its optimizer sees them: with stochastic rounding in float32."""
        masters = _of_part(part, self._masters)
        return _InFloat32(masters) if self._settings.stochastic_rounding else masters

    def _dtype_of_steps(self, master: Tensor) -> torch.dtype:
        return torch.float32 if self._settings.stochastic_rounding else master.dtype

    def _move_all(self, loss_scale: Tensor, norms: Tensor, found_inf: Tensor, lr: Mapping[str, float]) -> None:
        # counted before the kernel, which uses the count for bias correction
        self.applied.add_(1.0 - found_inf)
        clip = self._settings.clip.norm
        coefficients = None if clip is None else (clip / (norms + 1e-6)).clamp(max=1.0)
        self._begin_step(found_inf, lr)
        # read by the host once per step, not once per chunk
        on_host = found_inf.cpu() if any(step.reads_on_host for step in self._steps.values()) else found_inf
        for group in self.groups:
            reads_on_host = self._steps[group.part].reads_on_host
            for names in self._chunks[group.name]:
                self._step(
                    group, names, coefficients, loss_scale, on_host if reads_on_host else found_inf, lr[group.name]
                )
        self._moved(self._masters)
        if self._separate:
            torch._foreach_copy_([p.detach() for p in self.trained.values()], list(self._masters.values()))

    def begin_backward(self, loss: Tensor, lr: Mapping[str, float], *, step: int = 0) -> None:
        """With `in_backward`, called before the backward pass of a step. loss: (); if it is not finite, nothing
        changes. lr: rate by group name. step: as in `apply`."""
        self._step_number = step
        self._hold_average()
        self._is_finite = torch.isfinite(loss.detach()).to(self.device, torch.float32)
        self._rates = lr
        self._norms = {}
        self.applied.add_(self._is_finite)
        self._begin_step(1.0 - self._is_finite, lr)

    def _begin_step(self, found_inf: Tensor, lr: Mapping[str, float]) -> None:
        for part, rate in self.largest_by_part(lr).items():
            self._steps[part].begin_step(rate, found_inf)

    def _hold_average(self) -> None:
        if self.ema is not None:
            self.ema.hold()

    def norms_in_backward(self) -> Tensor:
        """(tensors,) float32, norms of the gradients that the backward pass has used and freed; 0 without gradient."""
        zero = torch.zeros_like(self.applied)
        return torch.stack([self._norms.get(name, zero) for name in self.trained])

    def _move_at_once(self, name: str, parameter: nn.Parameter) -> None:
        assert parameter.grad is not None
        with torch.no_grad():
            group, norm = self._group_of[name], torch.linalg.vector_norm(parameter.grad, dtype=torch.float32)
            self._norms[name] = norm
            found_inf = 1.0 - torch.isfinite(norm) * self._is_finite
            if self._settings.clip.norm is not None:
                parameter.grad.mul_((self._settings.clip.norm / (norm + 1e-6)).clamp(max=1.0))
            scale = torch.ones_like(norm)
            self._step(group, [name], None, scale, found_inf, self._rates[group.name])
            if self._separate:
                parameter.detach().copy_(self._masters[name])

    def state_bytes(self) -> int:
        """The bytes of the optimizer state once it is created, without averages and counts."""
        return sum(step.state_bytes(self._masters_of(part)) for part, step in self._steps.items())

    def checkpoint_bytes(
        self, full_shape: Callable[[str, Tensor], tuple[int, ...]] = lambda name, t: tuple(t.shape)
    ) -> int:
        """The bytes of a checkpoint's tensors once the state is created, which some optimizers do in their first step.

        full_shape: the full shape of a tensor of which this process holds some rows, by its flat name.
        """
        others = {n: t for n, t in self.tensors().items() if not n.startswith("opt.") or n in _COUNTS}
        size = sum(math.prod(full_shape(name, tensor)) * tensor.element_size() for name, tensor in others.items())
        masters = {
            name: torch.empty(full_shape(f"w/{name}", m), dtype=self._dtype_of_steps(m), device="meta")
            for name, m in self._masters.items()
        }
        return size + sum(step.state_bytes(_of_part(part, masters)) for part, step in self._steps.items())

    def working_bytes(self) -> int:
        """Peak of bytes that a step needs in addition to weights, gradients and states: float32 copies of the
        gradients and intermediate results of one chunk."""
        return max(
            max(self._bytes_of_chunk(group, names) for group in self.groups for names in self._chunks[group.name]),
            0 if self.ema is None else self.ema.working_bytes() + self._bytes_of_evaluation_weights(),
        )

    def _bytes_of_evaluation_weights(self) -> int:
        return 4 * sum(
            master.numel() for name, master in self._masters.items()
            if self._steps[name.split("/")[0]].has_evaluation_weights
        )  # fmt: skip

    def _chunks_of(self, group: Group) -> list[list[str]]:
        if self.in_backward:
            return [[name] for name in group.names]
        if not self._steps[group.part].is_by_tensor:
            return [group.names]
        return split_into_chunks(group.names, lambda names: self._bytes_of_chunk(group, names))

    def _bytes_of_chunk(self, group: Group, names: Sequence[str]) -> int:
        sizes = [self._masters[name].numel() for name in names]
        copied = 0
        dtype = self._dtype_of_steps(self._masters[names[0]])
        if self._separate if self._gradients is None else self._gradients != dtype:
            copied = dtype.itemsize * sum(sizes)
        if self._settings.stochastic_rounding:  # masters in float32, and what rounding a piece of one takes
            copied += 4 * sum(sizes) + 16 * min(PIECE, max(sizes))
        return copied + self._steps[group.part].working_bytes(sizes)

    def _step(
        self,
        group: Group,
        chunk: Sequence[str],
        coefficients: Tensor | None,
        loss_scale: Tensor,
        found_inf: Tensor,
        lr: float,
    ) -> None:
        names = [name for name in chunk if self.trained[name].grad is not None]
        if not names:
            return
        grads = self._take_gradients(names)
        scale = loss_scale
        if coefficients is not None:
            match self._settings.clip.scope:
                case "all":
                    scale = loss_scale / coefficients[0]
                case "part":
                    scale = loss_scale / coefficients[self._parts.index(group.part)]
                case "tensor":
                    torch._foreach_mul_(grads, [coefficients[self._index[name]] for name in names])
        rounds = self._settings.stochastic_rounding
        masters = [self._masters[name].float() if rounds else self._masters[name] for name in names]
        self._steps[group.part].step(StepInputs(names, masters, grads, lr, group.weight_decay, scale, found_inf))
        if rounds:
            self._round_at_random(names, masters)

    def _round_at_random(self, names: Sequence[str], values: Sequence[Tensor]) -> None:
        for name, value in zip(names, values, strict=True):
            if (master := self._masters[name]).dtype == torch.bfloat16:
                address = draws.key(self._seed, "stochastic rounding", self._step_number, name)
                master.copy_(round_to_bf16(value, address))

    def _take_gradients(self, names: Sequence[str]) -> list[Tensor]:
        """Returns the gradients in the masters' dtype and clears those of the parameters."""
        grads = []
        for name in names:
            grad, self.trained[name].grad = self.trained[name].grad, None
            assert grad is not None
            grads.append(grad)
        dtype = self._dtype_of_steps(self._masters[names[0]])
        return grads if grads[0].dtype == dtype else cast(grads, dtype)

    def tensors(self) -> dict[str, Tensor]:
        """All state by flat name: `w/…`, `ema/…`, `opt.STATE/…`, and the counts."""
        tensors = {f"w/{name}": tensor for name, tensor in self._masters.items()}
        for step in self._steps.values():
            tensors |= step.tensors()
        tensors["opt.applied"] = self.applied
        if self.ema is not None:
            tensors |= self.ema.tensors()
        return tensors

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores a result of `tensors`, by name and bit-exact. The caller must check names and shapes."""
        with torch.no_grad():
            for part, step in self._steps.items():
                step.load(tensors, self._masters_of(part))
            for name, tensor in self.tensors().items():
                tensor.copy_(tensors[name])
            if self._separate:
                torch._foreach_copy_([p.detach() for p in self.trained.values()], list(self._masters.values()))
        self._written()

    @contextmanager
    def swap_in(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """Context manager: the networks compute with other weights, `ema.weights` or `evaluation_weights`. On exit the
        trained ones are back, bit for bit. Not to be used during a save."""
        if weights is self._masters:
            yield
            return
        parameters = [p.detach() for p in self.trained.values()]
        originals = [p.clone() for p in parameters]
        try:
            with torch.no_grad():
                for parameter, name in zip(parameters, self.trained, strict=True):
                    parameter.copy_(weights[name])  # one at a time: they may be on another device
            del weights  # evaluation weights are a copy, which nothing else refers to
            self._written()
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(parameters, originals)
            self._written()


def evaluation_weights_of(tensors: Mapping[str, Tensor], settings: OptimSettings) -> dict[str, Tensor]:
    """The weights to evaluate of a checkpoint, by name. tensors: of the whole checkpoint, as `Update.tensors`."""
    masters = {name.removeprefix("w/"): tensor for name, tensor in tensors.items() if name.startswith("w/")}
    weights = dict(masters)
    for part in dict.fromkeys(name.split("/")[0] for name in masters):
        optimizer = settings.part_optimizer.get(part, settings.optimizer)
        if optimizer.may_have_evaluation_weights:
            of_part = _InFloat32(_of_part(part, masters))
            step = _open_step(optimizer, of_part, tensors["opt.applied"])
            step.load(tensors, of_part)
            weights |= step.evaluation_weights(of_part)
    return weights


def _open_step(optimizer: Optimizer, masters: Mapping[str, Tensor], applied: Tensor) -> OptimizerStep:
    step: OptimizerStep = registry.find("training/optimizers", optimizer.kind).step_of(optimizer, masters, applied)
    return step


class _InFloat32(Mapping[str, Tensor]):
    """Tensors that are cast to float32 when they are asked for, one at a time."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name].to(torch.float32)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _of_part(part: str, masters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The masters of a part."""
    return {name: master for name, master in masters.items() if name.split("/")[0] == part}


def _groups(
    trained: Iterable[str], settings: OptimSettings, rate_keys: Mapping[str, str], rate_factors: Mapping[str, float]
) -> list[Group]:
    """One group for each rate of a part, and another for its parameters without weight decay. Raises RecipeError E1022
    for a pattern of theirs that matches nothing."""
    names_of: dict[str, list[str]] = {}
    for name in trained:
        names_of.setdefault(name.split("/")[0], []).append(name)
    _refuse_unmatched(settings, names_of)
    groups: dict[str, Group] = {}
    for part, names in names_of.items():
        optimizer = settings.part_optimizer.get(part, settings.optimizer)
        # `weight_decay.resolve_no_decay` adds many exact names, which are looked up in a set
        exact_names = frozenset(optimizer.no_decay_patterns)
        patterns = [without_prefix(name) for name in optimizer.no_decay_patterns if any(sign in name for sign in "*?[")]
        for name in names:
            undecayed = name in exact_names or any(fnmatchcase(name, pattern) for pattern in patterns)
            rate_key, factor = rate_keys.get(name, part), rate_factors.get(name, 1.0)
            label = without_prefix(rate_key) + (f".x{factor:g}" if factor != 1.0 else "")
            key = f"{label}.no_decay" if undecayed else label
            group = groups.setdefault(key, Group(key, part, 0.0 if undecayed else optimizer.decay, rate_key, factor))
            group.names.append(name)
    return list(groups.values())


def _refuse_unmatched(settings: OptimSettings, names_of: Mapping[str, Sequence[str]]) -> None:
    """names_of: the trained parameters of each part. An optimizer's patterns are matched against the parts that it
    updates."""
    of_parts = {f"optim.part_optimizer.{part}": ({part}, opt) for part, opt in settings.part_optimizer.items()}
    others = set(names_of) - set(settings.part_optimizer)
    for path, (parts, optimizer) in ({"optim.optimizer": (others, settings.optimizer)} | of_parts).items():
        names = {name for part in parts for name in names_of.get(part, ())}
        for pattern in optimizer.no_decay_patterns if parts else ():
            if pattern in names or pattern.startswith(MAY_BE_IDLE):
                continue
            if not any(fnmatchcase(name, pattern) for name in names):
                raise RecipeError(f"{path}.no_decay: {pattern!r} matches no trained parameter", code="E1022")
