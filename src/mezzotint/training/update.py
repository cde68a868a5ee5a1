"""How weights move. One object owns the float32 masters, the moments, the clip scale and the shadow, so that they can
become one pass over memory.

A step whose gradients are not finite moves nothing: weights, moments, bias correction and shadow stay, decided on the
device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar

import torch
from torch import Tensor, nn

from mezzotint.errors import RecipeError
from mezzotint.recipe.sections.optim import AdaCoor, OptimSettings
from mezzotint.training.ema import decay_at
from mezzotint.training.optimizers.rules import rule_for
from mezzotint.training.patterns import MAY_BE_IDLE, bare

Item = TypeVar("Item")
_COUNTS = ("opt.applied", "opt.shadow_updates")
CHUNK = 256 * 2**20
"""Bytes that a step may take for copies and intermediate results at once; one tensor alone may need more."""


@dataclass(slots=True)
class Group:
    """Parameters that share part and weight decay. live: those that have a gradient, known after the first backward
    pass."""

    name: str
    part: str
    weight_decay: float
    names: list[str] = field(default_factory=list)


class Update:
    """A rule for each part, clipping and the averaged copy, over float32 masters.

    trained: parameters by `part/parameter`, or the rows of them that this process holds. separate_masters: the
    parameters are of a smaller type; float32 masters are kept beside them. written: called when parameters were written
    in place outside of a step.
    """

    def __init__(
        self,
        trained: Mapping[str, nn.Parameter],
        settings: OptimSettings,
        *,
        separate_masters: bool,
        written: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._written = written
        self._trained = dict(trained)
        self._separate = separate_masters
        self.device = next(iter(self._trained.values())).device
        self._masters = {
            name: p.detach().to(torch.float32, copy=True) if separate_masters else p.detach()
            for name, p in self._trained.items()
        }
        self.applied = torch.zeros((), dtype=torch.float32, device=self.device)
        self.groups = _groups(self._trained, settings)
        self._place = {name: number for number, name in enumerate(self._trained)}
        self._parts = list(dict.fromkeys(name.split("/")[0] for name in self._trained))
        self._rules = {
            part: rule_for(settings.part_optimizer.get(part, settings.optimizer), self._of(part), self.applied)
            for part in self._parts
        }
        self._chunks = {group.name: self._chunks_of(group) for group in self.groups}
        self.shadow = Shadow(self._masters, settings) if settings.ema.rule != "none" else None

    @property
    def masters(self) -> Mapping[str, Tensor]:
        """The float32 weights by name: what is saved and exported."""
        return self._masters

    def apply(
        self, *, loss_scale: Tensor, norms: Tensor, found_inf: Tensor, lr: Mapping[str, float], moves_shadow: bool
    ) -> None:
        """One optimizer step from the gradients that lie in the parameters; takes them away afterwards.

        loss_scale: () what the loss was multiplied by. norms: unscaled gradient norms in the scope of
        `optim.clip.scope`. found_inf: () float32, 1 when something was not finite: then nothing moves. lr: rate by
        group name. moves_shadow: the average is due.
        """
        with torch.no_grad():
            # the count comes before the kernel, which corrects the moments' bias by it
            self.applied.add_(1.0 - found_inf)
            coefficients = self._clip_coefficients(norms)
            # read by the host once a step, however many chunks want to know
            told = found_inf.cpu() if any(rule.reads_on_host for rule in self._rules.values()) else found_inf
            for group in self.groups:
                reads = self._rules[group.part].reads_on_host
                for names in self._chunks[group.name]:
                    self._move(group, names, coefficients, loss_scale, told if reads else found_inf, lr[group.name])
            if self._separate:
                torch._foreach_copy_([p.detach() for p in self._trained.values()], list(self._masters.values()))
            if moves_shadow and self.shadow is not None:
                self.shadow.follow(self._masters, found_inf)
        self.forget_gradients()

    def state_bytes(self) -> int:
        """The bytes of the optimizer's own state once it stands, averages and counts apart."""
        return sum(rule.state_bytes(self._of(part)) for part, rule in self._rules.items())

    def checkpoint_bytes(self, whole: Callable[[str, Tensor], tuple[int, ...]] = lambda name, t: tuple(t.shape)) -> int:
        """The bytes of a checkpoint's tensors once the state stands, which some optimizers make with their first step.

        whole: the shape of a tensor of which this process holds some rows, by its flat name.
        """
        kept = {n: t for n, t in self.tensors().items() if not n.startswith("opt.") or n in _COUNTS}
        size = sum(math.prod(whole(name, tensor)) * tensor.element_size() for name, tensor in kept.items())
        masters = {
            name: torch.empty(whole(f"w/{name}", m), dtype=m.dtype, device="meta") for name, m in self._masters.items()
        }
        of_parts = (self._of(part, masters) for part in self._rules)
        return size + sum(rule.state_bytes(mine) for rule, mine in zip(self._rules.values(), of_parts, strict=True))

    def working_bytes(self) -> int:
        """The bytes that a step takes at most beside weights, gradients and states: float32 copies of the gradients
        and intermediate results of one chunk."""
        return max(
            max(self._bytes_of_chunk(group, names) for group in self.groups for names in self._chunks[group.name]),
            0 if self.shadow is None else self.shadow.working_bytes(),
        )

    def _chunks_of(self, group: Group) -> list[list[str]]:
        if not self._rules[group.part].is_by_tensor:
            return [group.names]
        return chunked(group.names, lambda names: self._bytes_of_chunk(group, names), CHUNK)

    def _bytes_of_chunk(self, group: Group, names: Sequence[str]) -> int:
        sizes = [self._masters[name].numel() for name in names]
        copied = 4 * sum(sizes) if self._separate else 0
        return copied + self._rules[group.part].working_bytes(sizes)

    def _of(self, part: str, masters: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """The masters of a part."""
        among = self._masters if masters is None else masters
        return {name: master for name, master in among.items() if name.split("/")[0] == part}

    def forget_gradients(self) -> None:
        """Takes all gradients away."""
        for parameter in self._trained.values():
            parameter.grad = None

    def _clip_coefficients(self, norms: Tensor) -> Tensor | None:
        if self._settings.clip.norm is None:
            return None
        return (self._settings.clip.norm / (norms + 1e-6)).clamp(max=1.0)

    def _move(
        self,
        group: Group,
        among: Sequence[str],
        coefficients: Tensor | None,
        loss_scale: Tensor,
        found_inf: Tensor,
        lr: float,
    ) -> None:
        names = [name for name in among if self._trained[name].grad is not None]
        if not names:
            return
        grads = [self._taken_gradient(name) for name in names]
        scale = loss_scale
        if coefficients is not None:
            match self._settings.clip.scope:
                case "all":
                    scale = loss_scale / coefficients[0]
                case "part":
                    scale = loss_scale / coefficients[self._parts.index(group.part)]
                case "tensor":
                    torch._foreach_mul_(grads, [coefficients[self._place[name]] for name in names])
        self._rules[group.part].move(
            names,
            [self._masters[name] for name in names],
            grads,
            lr=lr,
            weight_decay=group.weight_decay,
            scale=scale,
            found_inf=found_inf,
        )

    def _taken_gradient(self, name: str) -> Tensor:
        """In the master's type. The parameter lets its own go, so that both lie there for one tensor alone."""
        parameter = self._trained[name]
        grad, parameter.grad = parameter.grad, None
        assert grad is not None
        return grad.to(self._masters[name].dtype)

    def tensors(self) -> dict[str, Tensor]:
        """Everything to be remembered, by flat name: `w/…`, `ema/…`, `opt.STATE/…`, and the counts."""
        found = {f"w/{name}": tensor for name, tensor in self._masters.items()}
        for rule in self._rules.values():
            found |= rule.tensors()
        found["opt.applied"] = self.applied
        if self.shadow is not None:
            found |= self.shadow.tensors()
        return found

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes back what `tensors` gave, by name and bit by bit. A missing or misshapen name is an error of the
        caller's checks."""
        with torch.no_grad():
            for part, rule in self._rules.items():
                rule.load(tensors, self._of(part))
            for name, mine in self.tensors().items():
                mine.copy_(tensors[name])
            if self._separate:
                torch._foreach_copy_([p.detach() for p in self._trained.values()], list(self._masters.values()))
        self._written()

    @contextmanager
    def shadow_swapped_in(self) -> Iterator[None]:
        """Within, the networks compute with the averaged weights. Never open during a save, which reads the masters."""
        assert self.shadow is not None
        parameters = [p.detach() for p in self._trained.values()]
        kept = [p.clone() for p in parameters]
        with torch.no_grad():
            averages = self.shadow.weights
            for parameter, name in zip(parameters, self._trained, strict=True):
                parameter.copy_(averages[name])  # one after the other: they may lie on another device
        self._written()
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(parameters, kept)
            self._written()


class Shadow:
    """The exponential moving average of the masters, in float32, beside them or on the CPU.

    Beside them it is a few operations of the step. On the CPU with masters elsewhere the weights are copied to pinned
    memory behind the step, and a thread takes them up while the next steps run: neither the host nor the device waits,
    unless an update is due before the last one is through. apart: takes that second way whatever the devices (tests).
    """

    def __init__(self, masters: Mapping[str, Tensor], settings: OptimSettings, *, apart: bool | None = None) -> None:
        self._rule = settings.ema
        on_cpu = settings.ema.device == "cpu"
        self._weights = {
            name: m.detach().to("cpu" if on_cpu else m.device, torch.float32, copy=True) for name, m in masters.items()
        }
        self.device = next(iter(self._weights.values())).device
        # float64: 1 − decay loses four digits in float32 when the decay is near 1
        self._updates = torch.zeros((), dtype=torch.float64, device=self.device)
        self._chunks = chunked(list(self._weights), self._bytes_of, CHUNK)
        there = next(iter(masters.values())).device
        self._behind = _Behind(masters) if (there != self.device if apart is None else apart) else None

    @property
    def weights(self) -> dict[str, Tensor]:
        """The averaged weights by name, with every update so far in them."""
        if self._behind is not None:
            self._behind.settle()
        return self._weights

    @property
    def updates(self) -> Tensor:
        """() float64, the updates made so far."""
        if self._behind is not None:
            self._behind.settle()
        return self._updates

    def working_bytes(self) -> int:
        """Bytes that an update takes at most on the masters' device beside what lies there."""
        if self._behind is not None:
            return 0
        return max(self._bytes_of(names) for names in self._chunks)

    def _bytes_of(self, names: Sequence[str]) -> int:
        return 4 * sum(self._weights[name].numel() for name in names)

    def start_from(self, weights: Mapping[str, Tensor]) -> None:
        """Takes other weights in the place of the masters' before the first update, by the masters' names."""
        with torch.no_grad():
            for name, mine in self.weights.items():
                mine.copy_(weights[name])

    def follow(self, masters: Mapping[str, Tensor], found_inf: Tensor) -> None:
        """Moves towards the masters by the rule's decay; where found_inf is 1 nothing moves. Nothing is read back to
        the host."""
        if self._behind is None:
            self._move(list(masters.values()), found_inf)
        else:
            self._behind.take(masters, found_inf, self._move)

    def _move(self, masters: list[Tensor], found_inf: Tensor) -> None:
        with torch.no_grad():  # a thread has its own mode
            moved = 1.0 - found_inf
            weight = ((1.0 - decay_at(self._rule.rule, self._rule.decay, self._updates)) * moved).to(torch.float32)
            theirs = dict(zip(self._weights, masters, strict=True))
            for names in self._chunks:
                here = [self._weights[name] for name in names]
                step = torch._foreach_sub([theirs[name] for name in names], here)
                torch._foreach_mul_(step, weight)
                torch._foreach_add_(here, step)
                del step  # before the next
            self._updates.add_(moved)

    def tensors(self) -> dict[str, Tensor]:
        """`ema/…` by name, and the count of updates."""
        return {f"ema/{name}": tensor for name, tensor in self.weights.items()} | {"opt.shadow_updates": self.updates}


class _Behind:
    """Copies of the masters on the host, and the one thread that works on them."""

    def __init__(self, masters: Mapping[str, Tensor]) -> None:
        there = next(iter(masters.values())).device
        pinned = there.type == "cuda" and torch.cuda.is_available()
        self._event = torch.cuda.Event() if pinned else None
        self._copies = [torch.empty(m.shape, dtype=m.dtype, pin_memory=pinned) for m in masters.values()]
        self._found_inf = torch.empty((), pin_memory=pinned)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="shadow")
        self._work: Future[None] | None = None

    def take(
        self, masters: Mapping[str, Tensor], found_inf: Tensor, move: Callable[[list[Tensor], Tensor], None]
    ) -> None:
        """Copies the masters as they are at this place of the device's queue and lets the thread `move` by them."""
        self.settle()  # the copies are still being read
        with torch.no_grad():
            for copy, master in zip(self._copies, masters.values(), strict=True):
                copy.copy_(master, non_blocking=True)
            self._found_inf.copy_(found_inf, non_blocking=True)
        if self._event is not None:
            self._event.record()
        self._work = self._thread.submit(self._when_copied, move)

    def settle(self) -> None:
        """Waits for the update under way, and raises what it raised."""
        if self._work is not None:
            work, self._work = self._work, None
            work.result()

    def _when_copied(self, move: Callable[[list[Tensor], Tensor], None]) -> None:
        if self._event is not None:
            self._event.synchronize()
        move(self._copies, self._found_inf)


def chunked(items: Sequence[Item], size: Callable[[Sequence[Item]], int], limit: int) -> list[list[Item]]:
    """Neighbours in chunks, as many as stay within a limit together; what is larger alone stands alone."""
    chunks: list[list[Item]] = []
    for item in items:
        if chunks and size([*chunks[-1], item]) <= limit:
            chunks[-1].append(item)
        else:
            chunks.append([item])
    return chunks


def _groups(trained: Mapping[str, nn.Parameter], settings: OptimSettings) -> list[Group]:
    """One group for each part, and another for its parameters without weight decay. Raises RecipeError E1022 for a
    pattern without match."""
    groups: dict[str, Group] = {}
    parts = {name: name.split("/")[0] for name in trained}
    _refuse_unmatched(settings, parts)
    exactly: dict[int, frozenset[str]] = {}
    for name, part in parts.items():
        rule = settings.part_optimizer.get(part, settings.optimizer)
        decay, spared = (0.0, ()) if isinstance(rule, AdaCoor) else (rule.weight_decay, rule.no_decay)
        # names that `decay.resolved` has put there are many: they are looked up, not tried one after the other
        names = exactly.setdefault(id(spared), frozenset(spared))
        undecayed = name in names or any(fnmatchcase(name, bare(one)) for one in spared if _is_pattern(one))
        key = f"{part}.no_decay" if undecayed else part
        if key not in groups:
            groups[key] = Group(key, part, 0.0 if undecayed else decay)
        groups[key].names.append(name)
    return list(groups.values())


def _refuse_unmatched(settings: OptimSettings, parts: Mapping[str, str]) -> None:
    """parts: the part of each trained parameter. A rule's patterns are held against the parts that it moves."""
    here = {f"optim.part_optimizer.{part}": ({part}, rule) for part, rule in settings.part_optimizer.items()}
    others = set(parts.values()) - set(settings.part_optimizer)
    for where, (moved, rule) in ({"optim.optimizer": (others, settings.optimizer)} | here).items():
        for pattern in () if isinstance(rule, AdaCoor) or not moved else rule.no_decay:
            if parts.get(pattern) in moved or pattern.startswith(MAY_BE_IDLE):
                continue
            if not any(fnmatchcase(name, pattern) for name, part in parts.items() if part in moved):
                raise RecipeError(f"{where}.no_decay: {pattern!r} matches no trained parameter", code="E1022")


def _is_pattern(text: str) -> bool:
    return any(sign in text for sign in "*?[")
