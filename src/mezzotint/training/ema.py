"""The exponential moving average of the weights (EMA) and its decay rules.

The rules are functions of a counter on the device, so the host never waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.training.optimizers.base import cast, split_into_chunks

SATURATION_UPDATES = 2000.0
"""The time constant of the saturating rule, in updates of the average (MindONE, Open-Sora-Plan)."""


def decay_for(strength: float, *, interval: int, steps: int) -> float:
    """The decay with which a share `strength` of the initial weights is left in the average at the end of a run
    (EveryDream2's strength target).

    strength: in (0, 1). interval: steps between updates. steps: length of the run. Returns strength^(1/U) for U =
    steps / interval updates, not rounded; 0 if that is too small for a float.
    """
    return float(strength ** (interval / steps))


def decay_at(rule: str, decay: float, updates: Tensor) -> Tensor:
    """The decay d of the next update: ema ← d · ema + (1 − d) · weights.

    rule: of `EmaSettings.rule`. decay: the highest d, in (0, 1). updates: u, the number of updates before this one;
    0-dim float32 or float64, on any device. Returns d, 0-dim, of the same dtype and device. Raises ValueError for
    another rule.

    constant: d = decay.
    ramp: d = min(decay, (1 + u)/(10 + u)), and 0 at the first update, which copies: diffusers' `EMAModel` with its
    defaults, whose update k = 1, 2, … has u = k − 1.
    saturating: d = decay · (1 − exp(−(u + 1)/2000)): MindONE and Open-Sora-Plan, whose counter starts at 1.
    """
    match rule:
        case "constant":
            return torch.full_like(updates, decay)
        case "ramp":
            # (u > 0) copies at the first update, where (1 + u)/(10 + u) would keep a tenth
            return ((1 + updates) / (10 + updates)).clamp_max(decay) * (updates > 0)
        case "saturating":
            # expm1: 1 − exp(−x) loses half its digits for the first updates
            return -decay * torch.expm1(-(updates + 1) / SATURATION_UPDATES)
        case _:
            raise ValueError(f"unknown rule of optim.ema: {rule!r}")


class Ema:
    """The exponential moving average of the masters, in float32, on the same device or on the CPU.

    On the same device it is a few operations of the step. On the CPU with masters on a GPU, the weights are copied to
    pinned memory after the step, on a separate stream, and a thread updates the average while the next steps run. The
    host waits if an update is due before the previous one is finished; the device waits if weights are about to change
    before they have been copied (`hold`), but not in the forward and backward passes before that. is_asynchronous: uses
    the second way on any device (tests).
    """

    def __init__(
        self,
        masters: Mapping[str, Tensor],
        settings: OptimSettings,
        *,
        decay: float | None = None,
        is_asynchronous: bool | None = None,
    ) -> None:
        self._decay = settings.ema.decay if decay is None else decay
        self._rule = settings.ema
        on_cpu = settings.ema.device == "cpu"
        self._weights = {
            name: m.detach().to("cpu" if on_cpu else m.device, torch.float32, copy=True) for name, m in masters.items()
        }
        self.device = next(iter(self._weights.values())).device
        # float64: 1 − decay loses four digits in float32 when the decay is near 1
        self._updates = torch.zeros((), dtype=torch.float64, device=self.device)
        self._needs_no_casts = all(master.dtype == torch.float32 for master in masters.values())
        self._chunks = split_into_chunks(list(self._weights), self._bytes_of)
        of_masters = next(iter(masters.values())).device
        self._async = (
            AsyncEma(masters) if (of_masters != self.device if is_asynchronous is None else is_asynchronous) else None
        )

    @property
    def weights(self) -> dict[str, Tensor]:
        """The averaged weights by name, including every update so far."""
        if self._async is not None:
            self._async.settle()
        return self._weights

    @property
    def updates(self) -> Tensor:
        """() float64, the number of updates so far."""
        if self._async is not None:
            self._async.settle()
        return self._updates

    def working_bytes(self) -> int:
        """Peak of additional bytes that an update needs on the masters' device."""
        if self._async is not None or self._needs_no_casts:
            return 0
        return max(self._bytes_of(names) for names in self._chunks)

    def _bytes_of(self, names: Sequence[str]) -> int:
        return 4 * sum(self._weights[name].numel() for name in names)

    def start_from(self, weights: Mapping[str, Tensor]) -> None:
        """Starts the average from other weights than the masters, before the first update. weights: by their names."""
        with torch.no_grad():
            for name, average in self.weights.items():
                average.copy_(weights[name])

    def hold(self) -> None:
        """Called before weights change: copies in progress finish first. Queued on the device."""
        if self._async is not None:
            self._async.copies.hold()

    def follow(self, masters: Mapping[str, Tensor], found_inf: Tensor) -> None:
        """Updates the average by the rule's decay; no change if found_inf is 1. Does not synchronize with the host."""
        if self._async is None:
            self._move(list(masters.values()), found_inf)
        else:
            self._async.take(masters, found_inf, self._move)

    def _move(self, masters: list[Tensor], found_inf: Tensor) -> None:
        with torch.no_grad():  # the grad mode is per thread
            is_applied = 1.0 - found_inf
            weight = ((1.0 - decay_at(self._rule.rule, self._decay, self._updates)) * is_applied).to(torch.float32)
            master_of = dict(zip(self._weights, masters, strict=True))
            for names in [list(master_of)] if self._needs_no_casts else self._chunks:
                averages, current = [self._weights[name] for name in names], [master_of[name] for name in names]
                current = current if self._needs_no_casts else cast(current, torch.float32)
                torch._foreach_lerp_(averages, current, [weight] * len(averages))
                del current
            self._updates.add_(is_applied)

    def tensors(self) -> dict[str, Tensor]:
        """`ema/…` by name, and the count of updates."""
        return {f"ema/{name}": tensor for name, tensor in self.weights.items()} | {"opt.shadow_updates": self.updates}


class HostCopies:
    """Copies of a device's tensors in host memory, refreshed repeatedly on a separate stream."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._device = tensors[0].device
        self._is_cuda = self._device.type == "cuda"
        self.tensors = [torch.empty_like(t, device="cpu", pin_memory=self._is_cuda) for t in tensors]
        self._stream = torch.cuda.Stream(self._device) if self._is_cuda else None
        self._arrived = torch.cuda.Event() if self._is_cuda else None

    def take(self, tensors: Sequence[Tensor]) -> None:
        """Copies the tensors as they are at this point of the device's queue; later work does not wait."""
        if self._stream is None or self._arrived is None:
            for copy, tensor in zip(self.tensors, tensors, strict=True):
                copy.copy_(tensor)
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for copy, tensor in zip(self.tensors, tensors, strict=True):
                copy.copy_(tensor, non_blocking=True)
                tensor.record_stream(self._stream)  # its memory is not reused before it has been read
            self._arrived.record(self._stream)

    def hold(self) -> None:
        """Work queued on the device from now on runs after the copies."""
        if self._arrived is not None:
            torch.cuda.current_stream(self._device).wait_event(self._arrived)

    def wait(self) -> None:
        """Blocks until the copies are complete."""
        if self._arrived is not None:
            self._arrived.synchronize()


class AsyncEma:
    """Copies of the masters on the host, and the single thread that works on them."""

    def __init__(self, masters: Mapping[str, Tensor]) -> None:
        first = next(iter(masters.values()))
        self.copies = HostCopies([*masters.values(), torch.empty((), device=first.device)])
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ema")
        self._work: Future[None] | None = None

    def take(
        self, masters: Mapping[str, Tensor], found_inf: Tensor, move: Callable[[list[Tensor], Tensor], None]
    ) -> None:
        """Copies the masters as they are at this point of the device's queue; the thread calls `move` with them."""
        self.settle()  # the copies are still being read
        with torch.no_grad():
            self.copies.take([*masters.values(), found_inf])
        self._work = self._thread.submit(self._when_copied, move)

    def settle(self) -> None:
        """Waits for the update in progress, and raises its error if it failed."""
        if self._work is not None:
            work, self._work = self._work, None
            work.result()

    def _when_copied(self, move: Callable[[list[Tensor], Tensor], None]) -> None:
        self.copies.wait()
        *masters, found_inf = self.copies.tensors
        move(masters, found_inf)
