"""How weights move. One object owns the float32 masters, the moments, the clip scale and the shadow, so that they can
become one pass over memory.

A step whose gradients are not finite moves nothing: weights, moments, bias correction and shadow stay, decided on the
device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from mezzotint.errors import RecipeError
from mezzotint.recipe.optim import AdaCoor, OptimSettings
from mezzotint.training.patterns import MAY_BE_IDLE, bare
from mezzotint.training.rules import rule_for
from mezzotint.training.shadow import decay_at


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
            for group in self.groups:
                self._move(group, coefficients, loss_scale, found_inf, lr[group.name])
            if self._separate:
                torch._foreach_copy_([p.detach() for p in self._trained.values()], list(self._masters.values()))
            if moves_shadow and self.shadow is not None:
                self.shadow.follow(self._masters, found_inf)
        self.forget_gradients()

    def state_bytes(self) -> int:
        """The bytes of the optimizer's own state once it stands, averages and counts apart."""
        return sum(rule.state_bytes(self._of(part)) for part, rule in self._rules.items())

    def _of(self, part: str) -> dict[str, Tensor]:
        """The masters of a part."""
        return {name: master for name, master in self._masters.items() if name.split("/")[0] == part}

    def forget_gradients(self) -> None:
        """Takes all gradients away."""
        for parameter in self._trained.values():
            parameter.grad = None

    def _clip_coefficients(self, norms: Tensor) -> Tensor | None:
        if self._settings.clip.norm is None:
            return None
        return (self._settings.clip.norm / (norms + 1e-6)).clamp(max=1.0)

    def _move(
        self, group: Group, coefficients: Tensor | None, loss_scale: Tensor, found_inf: Tensor, lr: float
    ) -> None:
        names = [name for name in group.names if self._trained[name].grad is not None]
        if not names:
            return
        grads = [self._gradient(name) for name in names]
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

    def _gradient(self, name: str) -> Tensor:
        grad = self._trained[name].grad
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
            torch._foreach_copy_(parameters, [self.shadow.weights[name].to(self.device) for name in self._trained])
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
            mine = list(self._weights.values())
            step = torch._foreach_sub(masters, mine)
            torch._foreach_mul_(step, weight)
            torch._foreach_add_(mine, step)
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
