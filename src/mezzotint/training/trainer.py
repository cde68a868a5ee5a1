"""The loop. It moves values through family and objective, and it alone remembers anything.

run: for the batches of each step: report = step(batches); progress moves on; observers that are due look; wishes
are acted on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mezzotint import draws, fault_injection
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.errors import Diverged, RecipeError, StorageError
from mezzotint.families.base import ModelFamily
from mezzotint.recipe.sections.optim import OptimSettings
from mezzotint.recipe.sections.run import RunSettings
from mezzotint.runtimes.base import Runtime
from mezzotint.stages import Batch, Loss, StepBatches, StepReport, TextEmbedding
from mezzotint.training import lr
from mezzotint.training.callbacks.base import Observer, Wish
from mezzotint.training.latents import latents_of
from mezzotint.training.precision.policy import LossScale, Precision
from mezzotint.training.progress import Progress
from mezzotint.training.trainable import MovementWatch
from mezzotint.training.update import Update

_SAVE, _STOP, _FIRST_CLOCK = 1, 2, 8


@dataclass(slots=True)
class Pending:
    """A step's numbers, on their way to the host; `resolve` reads them, one step later.

    numbers: loss, norm, found_inf, loss_is_finite and scale, then the timestep of each sample, then its loss. They set
    out when the step is queued: asked for later, they would come behind the next step, and the host would wait for it.
    """

    step: int
    epoch: int
    count: int
    wait_seconds: float
    keys: tuple[str, ...]
    numbers: Tensor
    arrived: torch.cuda.Event | None
    rates: dict[str, float]
    seconds: float = 0.0

    @classmethod
    def of(cls, batches: StepBatches, keys: Sequence[str], numbers: Tensor, rates: dict[str, float]) -> Pending:
        """Sends the numbers off. keys: of the step's samples here. The batches themselves are let go with their
        step."""
        arrived = None
        if numbers.device.type == "cuda":
            numbers = numbers.to("cpu", non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        waited = batches.wait_seconds
        return cls(batches.step, batches.epoch, batches.count, waited, tuple(keys), numbers, arrived, rates)

    def resolve(self, memory_bytes: int) -> StepReport:
        """Waits for the step's numbers, and for nothing that was queued after them, and makes the report."""
        if self.arrived is not None:
            self.arrived.synchronize()
        loss, norm, found_inf, loss_is_finite, scale, *of_samples = self.numbers.tolist()
        return StepReport(
            step=self.step,
            epoch=self.epoch,
            loss=loss,
            norm=norm,
            rates=self.rates,
            samples=self.count,
            seconds=self.seconds,
            wait_seconds=self.wait_seconds,
            applied=not found_inf,
            overflow=bool(found_inf) and bool(loss_is_finite) and scale > 1.0,
            keys=self.keys,
            timesteps=tuple(of_samples[: len(self.keys)]),
            losses=tuple(of_samples[len(self.keys) :]),
            memory_bytes=memory_bytes,
            loss_scale=scale,
        )


@dataclass(slots=True)
class _Made:
    """What a step's micro-batches add up to. total: (1,), the weighted loss summed over this rank's samples; losses,
    timesteps: (B,) of each micro-batch; keys: of every sample."""

    total: Tensor
    losses: list[Tensor] = field(default_factory=list)
    timesteps: list[Tensor] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


Attention = Literal["auto", "flash", "efficient", "cudnn", "math", "slice", "xformers"]
_KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


@contextmanager
def attending(kernel: Attention, device: torch.device) -> Iterator[None]:
    """Attention by one kernel of torch alone within; `auto` leaves the choice to torch, and `slice` and `xformers` were
    set up before. Raises RecipeError E1060 when that kernel cannot compute it."""
    if kernel not in _KERNELS:
        yield
        return
    try:
        with sdpa_kernel(_KERNELS[kernel]):
            yield
    except RuntimeError as error:
        if "scaled_dot_product_attention" not in str(error) and "No available kernel" not in str(error):
            raise
        raise RecipeError(
            f"model.attention is {kernel}, and that kernel cannot compute this model's attention on {device.type} "
            "in this precision; write model.attention=auto",
            code="E1060",
        ) from error


@dataclass(slots=True)
class Trainer:
    """One run. epoch_ends: whether a step is its epoch's last; epoch_begins: called before an epoch's first. save:
    writes a checkpoint of `tensors()` and `state()`. export: writes the model. asked: flags that signals have set."""

    family: ModelFamily
    objective: Objective
    batches: Iterable[StepBatches]
    update: Update
    runtime: Runtime
    precision: Precision
    scale: LossScale
    trained: Mapping[str, nn.Parameter]
    optim: OptimSettings
    run_settings: RunSettings
    attention: Attention
    observers: Sequence[Observer]
    progress: Progress
    epoch_ends: Callable[[int], bool]
    save: Callable[[Trainer], None]
    export: Callable[[Trainer], object]
    asked: Callable[[], int]
    bad_step: Callable[[StepReport], None]
    warn: Callable[[str], None]
    epoch_begins: Callable[[int], None] = lambda epoch: None
    rate_factor: float = 1.0
    """What every rate is multiplied by: that of `optim.lr_batch_power`."""
    clock: Callable[[], float] = time.monotonic
    watch: MovementWatch | None = None
    owes_export: bool = False
    """Whether an export was due with the newest checkpoint and has not been written yet: the checkpoint knows it."""
    stopped: bool = False
    """Whether a signal ended the run; one that an observer ended early has come to its end."""
    _pending: Pending | None = None
    _mark: float = 0.0
    _last_clock: list[float] = field(default_factory=list)
    _trains_text: bool = False
    _saved_step: int = -1
    _ended: bool = False
    _failed_save: str = ""

    def __post_init__(self) -> None:
        self._trains_text = any(name.split("/")[0] in self.family.text_parts for name in self.trained)

    def run(self) -> None:
        """Trains from where progress stands to its last step. Raises Diverged, StorageError (of the final save),
        PeerLost."""
        assert len({type(o).__name__ for o in self.observers if o.state()}) == sum(
            bool(o.state()) for o in self.observers
        )
        self._mark = self.clock()
        self._last_clock = [self._mark] * len(self.observers)
        if self.progress.step == self.progress.first_step:
            for observer in self.observers:
                if observer.due(self.progress) and self._looks_here(observer):
                    self._look(observer, None)
            self.runtime.barrier()
            self._mark = self.clock()
        for batches in self.batches:
            if self.progress.step == self.progress.first_step or self.progress.epoch_ends:
                self.epoch_begins(batches.epoch)
            pending = self.step(batches)
            pending.seconds = self.clock() - self._mark
            self._mark += pending.seconds
            self._move_on(batches, pending)
            self._between_steps(pending)
            if self.stopped or self._ended or self.progress.is_done:
                break
        if self._pending is not None:
            self._flush()
        if self._failed_save:
            raise StorageError(self._failed_save, code="E1704")

    def step(self, batches: StepBatches) -> Pending:
        """One optimizer step. Nothing in it is read back to the host."""
        fault_injection.reach("step.begin")
        device = self.runtime.device
        made = _Made(torch.zeros(1, dtype=torch.float32, device=device))
        for number in range(len(batches.batches)):
            with self.runtime.micro_batch(last=number == len(batches.batches) - 1):
                batch = batches.batches[number]
                if batch.size:
                    loss, level = self._loss(batch, batches.step)
                    with attending(self.attention, device):  # what is recomputed takes the same kernel
                        (loss.total * (self.scale.scale / batches.count)).backward()
                    if not batch.is_filler:
                        made.keys += batch.keys
                        made.total += loss.total.detach()
                        made.losses.append(loss.per_sample.detach())
                        made.timesteps.append(level)
                    del loss
                del batch  # before the next one is moved to the device
        fault_injection.reach("step.backward")
        if self.watch is not None and batches.step == self.progress.first_step:
            self.watch.check_gradients(self.trained, self.runtime.agree)
        return self._apply(batches, self.runtime.total(made.total)[0] / batches.count, made)

    def _loss(self, batch: Batch, step: int) -> tuple[Loss, Tensor]:
        device = self.runtime.device
        x_0 = latents_of(self.family, batch, device)
        drawn = StepDraws.at(self.run_settings.seed, step, batch.positions.numpy(), device)
        text = self._frozen_text(batch)
        of_stills = self._frozen_text(batch.stills) if batch.stills is not None else None
        with attending(self.attention, device), self.precision.autocast(device):
            # a text encoder that is trained runs under autocast, too
            text = (text or self.family.encode_text(batch.captions)).zeroed(batch.dropped)
            text = replace(text, states=self.objective.perturbed(text.states, drawn))
            condition = replace(self.family.condition(text, batch), stills=of_stills)
            noised = self.objective.noise(x_0, drawn)
            predicted = self.family.predict(noised, condition)
        weight = batch.weight.to(device, non_blocking=True)
        loss = self.objective.loss(predicted, noised, weight, condition.masks.get("latents"))
        return loss, self.objective.timestep(noised)

    def _frozen_text(self, batch: Batch) -> TextEmbedding | None:
        """The captions' embeddings from the cache or a frozen encoder, in its own type; None when the encoder is
        trained."""
        if batch.text is not None:
            return batch.text
        if self._trains_text:
            return None
        with torch.no_grad():
            return self.family.encode_text(batch.captions)

    def _apply(self, batches: StepBatches, loss: Tensor, made: _Made) -> Pending:
        scale = self.scale.scale.clone()
        norms = self.runtime.grad_norms(self.trained, self.optim.clip.scope) / scale
        norm = torch.linalg.vector_norm(norms)
        loss_is_finite = torch.isfinite(loss).to(torch.float32)
        found_inf = 1.0 - torch.isfinite(norm).to(torch.float32) * loss_is_finite
        rates = self.rates(batches.step)
        due = self.optim.ema.rule != "none" and (batches.step + 1) % self.optim.ema.interval == 0
        self.update.apply(loss_scale=scale, norms=norms, found_inf=found_inf, lr=rates, moves_shadow=due)
        self.scale.update(found_inf, batches.step)
        fault_injection.reach("step.end")
        numbers = torch.stack([loss, norm, found_inf, loss_is_finite, scale])
        return Pending.of(batches, made.keys, torch.cat([numbers, *made.timesteps, *made.losses]), rates)

    def rates(self, step: int) -> dict[str, float]:
        """The learning rate of each parameter group at a step (counted from 0)."""
        o, steps = self.optim, self.progress.last_step
        factors = {
            part: self.rate_factor * lr.factor(o.part_schedule.get(part, o.schedule), step, steps)
            for part in {group.part for group in self.update.groups}
        }
        return {g.name: o.part_lr.get(g.part, o.lr) * factors[g.part] for g in self.update.groups}

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that a checkpoint keeps, by flat name."""
        return self.update.tensors() | self.scale.tensors()

    def state(self) -> dict[str, Any]:
        """Everything else that a checkpoint keeps, as JSON."""
        return {
            "progress": self.progress.state(),
            "observers": {type(o).__name__: o.state() for o in self.observers if o.state()},
        } | ({"owed": ["export"]} if self.owes_export else {})

    def load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Takes back a checkpoint's tensors and state."""
        self.update.load(tensors)
        self.scale.load(tensors)
        self.progress.load(state["progress"], last_step=self.progress.last_step)
        self.owes_export = "export" in state.get("owed", ())
        for observer in self.observers:
            observer.load(state["observers"].get(type(observer).__name__, {}))
        if self.progress.applied >= MovementWatch.updates:
            self.watch = None

    def _move_on(self, batches: StepBatches, pending: Pending) -> None:
        p = self.progress
        p.step = batches.step + 1
        p.epoch = batches.epoch
        p.epoch_ends = self.epoch_ends(batches.step)
        p.samples += batches.count
        p.seconds += pending.seconds
        for group in self.update.groups:
            p.rate_peak[group.part] = max(p.rate_peak.get(group.part, 0.0), pending.rates[group.name])

    def _between_steps(self, pending: Pending) -> None:
        """Everything the host does between two steps: read the last report, agree, look, act."""
        if self._pending is not None:
            self._read(self._pending)
        self._pending = pending
        flags = self.runtime.agree(self.asked() | self._clock_flags())
        due = [o for i, o in enumerate(self.observers) if not o.follows and self._is_due(i, o, flags)]
        if not due and not flags & (_SAVE | _STOP) and self.watch is None:
            return
        report = self._flush()
        wish = Wish.NOTHING
        for observer in due:
            if self._looks_here(observer):
                wish |= self._look(observer, report)
        wish = self._agreed(wish, due)
        if flags & _SAVE:
            wish |= Wish.SAVE
        if flags & _STOP:
            self.stopped = True
            wish |= Wish.STOP
        self._act(wish)
        # what saving and showing took is not the steps' time
        self._mark = self.clock()

    def _agreed(self, wish: Wish, due: Sequence[Observer]) -> Wish:
        """What any process wishes, all do: an observer may look in the first process alone."""
        if not due:
            return wish
        self.runtime.barrier()  # it may have looked for long
        return Wish(self.runtime.agree(wish.value))

    def _clock_flags(self) -> int:
        flags = 0
        if self.runtime.is_first:
            now = self.clock()
            for i, observer in enumerate(self.observers):
                minutes = [
                    e.count for e in observer.intervals or (observer.every,) if e is not None and e.unit == "minutes"
                ]
                if minutes and now - self._last_clock[i] >= 60 * min(minutes):
                    flags |= _FIRST_CLOCK << i
        return flags

    def _is_due(self, index: int, observer: Observer, flags: int) -> bool:
        if flags & (_FIRST_CLOCK << index):
            self._last_clock[index] = self.clock()
            return True
        return observer.due(self.progress)

    def _looks_here(self, observer: Observer) -> bool:
        return observer.on_all_ranks or self.runtime.is_first

    def _flush(self) -> StepReport:
        """Reads the report of the step just made, so that what is saved or shown now knows it."""
        assert self._pending is not None
        report = self._read(self._pending)
        self._pending = None
        return report

    def _read(self, pending: Pending) -> StepReport:
        report = pending.resolve(self._memory())
        self._count_bad(report)
        if report.applied:
            self.progress.applied += 1
            if self.watch is not None and self.watch.counts(*self._rates_by_part(report)):
                self.watch.check_movement(self.update.masters, self.progress.rate_peak, self.runtime.agree)
                self.watch = None
        for observer in self.observers:
            if observer.follows and self._looks_here(observer):
                self._look(observer, report)
        return report

    def _rates_by_part(self, report: StepReport) -> tuple[dict[str, float], dict[str, float]]:
        rates: dict[str, float] = {}
        for group in self.update.groups:
            rates[group.part] = max(rates.get(group.part, 0.0), report.rates[group.name])
        return rates, {part: self.optim.part_lr.get(part, self.optim.lr) for part in rates}

    def _count_bad(self, report: StepReport) -> None:
        p = self.progress
        if report.applied:
            p.bad_in_a_row = 0
            return
        if report.overflow:
            return
        p.bad_in_a_row += 1
        p.bad_steps = [step for step in p.bad_steps if step > report.step - 1000] + [report.step]
        self.bad_step(report)
        allowed = self.run_settings.max_bad_steps
        if p.bad_in_a_row > allowed or len(p.bad_steps) > max(10, allowed):
            raise Diverged(
                f"step {report.step + 1}: {p.bad_in_a_row} steps in a row and {len(p.bad_steps)} of the last 1000 "
                "were not finite; their samples are in bad_steps.jsonl; lower optim.lr"
                + (", or take run.precision=bf16 or fp32" if self.precision.scaled else ""),
                code="E1604",
            )

    def _look(self, observer: Observer, report: StepReport | None) -> Wish:
        try:
            return observer.look(report, self.progress)
        except StorageError as error:
            self.warn(f"{type(observer).__name__}: {error.message}; training goes on without it")
            return Wish.NOTHING

    def _act(self, wish: Wish) -> None:
        self.owes_export = Wish.EXPORT in wish
        if wish & (Wish.SAVE | Wish.STOP) and self._saved_step != self.progress.step:
            self._save(final=Wish.STOP in wish or self.progress.is_done)
        if Wish.EXPORT in wish:
            try:
                self.export(self)
            except StorageError as error:
                self.warn(f"the export of step {self.progress.step} could not be written: {error.message}")
            self.owes_export = False
            self.runtime.barrier()
        self._ended = Wish.STOP in wish

    def _save(self, *, final: bool) -> None:
        try:
            self.save(self)
            self._saved_step = self.progress.step
            self._failed_save = ""
        except StorageError as error:
            failed = 1
            said = f"the checkpoint of step {self.progress.step} could not be saved: {error.message}"
            if final:
                self._failed_save = said  # which ends the run, and is said once
            else:
                self.warn(said)
        else:
            failed = 0
        self.runtime.barrier()  # the first process may have written for long
        if self.runtime.agree(failed) and final and not self._failed_save:
            self._failed_save = "another process could not save the final checkpoint"

    def _memory(self) -> int:
        if self.runtime.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.runtime.device)
        return 0


def sample_keys_digest(keys: Sequence[str]) -> str:
    """Sixteen hexadecimal digits that stand for which samples made a step, in their order."""
    return f"{draws.text_key(chr(0).join(keys)):016x}"
