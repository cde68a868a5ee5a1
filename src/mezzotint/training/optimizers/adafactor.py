"""The step of `adafactor`: bitwise identical to torch's, without host synchronization."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mezzotint.settings.optimizers.adafactor import Adafactor
from mezzotint.training.optimizers._torch_class import TorchStep
from mezzotint.training.optimizers.base import OptimizerStep, StepInputs


class AdafactorStep(OptimizerStep):
    """Adafactor (Shazeer and Stern 2018, arXiv:1804.04235) as in `torch.optim.Adafactor`, which reads two norms of each
    tensor back to the host; in this class norms, counts and rates stay on the device.

    The state of a parameter is created with its first gradient, as in torch. If found_inf is 1, gradients count as 0
    and nothing changes.
    """

    def __init__(self, settings: Adafactor) -> None:
        super().__init__(step={}, row_var={}, col_var={}, variance={})
        self._settings = settings

    def working_bytes(self, sizes: Sequence[int]) -> int:
        return 4 * max(sizes)  # tensors are updated one at a time

    def step(self, inputs: StepInputs) -> None:
        moved = 1.0 - inputs.found_inf.to(torch.float64)
        decay = 1.0 - moved * (inputs.lr * inputs.weight_decay) if inputs.weight_decay else None
        for name, master, grad in zip(inputs.names, inputs.masters, inputs.unscale(), strict=True):
            self._move(name, master, grad, inputs.lr, decay, moved)

    def _move(self, name: str, master: Tensor, grad: Tensor, lr: float, decay: Tensor | None, moved: Tensor) -> None:
        settings, root = self._settings, math.sqrt(master.numel())
        step = self._step_count(name, master).add_(moved)
        count = step.to(torch.float64).clamp_min_(1.0)  # 0 after a first step that was not finite
        rate = count.rsqrt().clamp_max_(lr) * moved
        scale = (torch.linalg.vector_norm(master).to(torch.float64) / root).clamp_min_(settings.eps)
        if decay is not None:
            master.mul_(decay)
        update = self._second_moment(name, grad, count.pow_(settings.beta2_decay) * moved)
        update.clamp_min_(torch.finfo(master.dtype).eps ** 2).rsqrt_().mul_(grad)
        size = torch.linalg.vector_norm(update).to(torch.float64)
        _add(master, update, -scale * rate / (size / (root * settings.clip_update)).clamp_min_(1.0))

    def _second_moment(self, name: str, grad: Tensor, weight: Tensor) -> Tensor:
        """The estimate after this gradient, a new tensor. weight: () weight of the squared gradient."""
        if grad.ndim < 2:
            variance = self.state["variance"][name]
            _lerp(variance, grad * grad, weight)
            return variance.clone()
        row, col = self.state["row_var"][name], self.state["col_var"][name]
        _lerp(row, torch.norm(grad, dim=-1, keepdim=True).square_().div_(grad.size(-1)), weight)
        _lerp(col, torch.norm(grad, dim=-2, keepdim=True).square_().div_(grad.size(-2)), weight)
        mean = row.mean(dim=-2, keepdim=True).clamp_min_(torch.finfo(grad.dtype).eps)
        return (row @ col).div_(mean)

    def _step_count(self, name: str, master: Tensor) -> Tensor:
        """The number of a parameter's steps; creates its state at the first one."""
        if name not in self.state["step"]:
            for kind, shape in _shapes(master).items():
                dtype = torch.float32 if kind == "step" else master.dtype
                self.state[kind][name] = torch.zeros(shape, dtype=dtype, device=master.device)
        return self.state["step"][name]

    def load(self, tensors: Mapping[str, Tensor], masters: Mapping[str, Tensor]) -> None:
        for kind, by_name in self.state.items():
            by_name.clear()
            saved = {name: tensors.get(f"opt.{kind}/{name}") for name in masters}
            by_name.update({n: t.to(masters[n].device, copy=True) for n, t in saved.items() if t is not None})

    def state_bytes(self, masters: Mapping[str, Tensor]) -> int:
        return sum(
            math.prod(shape) * (4 if kind == "step" else master.element_size())
            for master in masters.values()
            for kind, shape in _shapes(master).items()
        )


def _shapes(master: Tensor) -> dict[str, tuple[int, ...]]:
    """Shapes of a parameter's state, by kind."""
    shape = tuple(master.shape)
    if len(shape) < 2:
        return {"step": (), "variance": shape}
    return {"step": (), "row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, shape[-1])}


def _lerp(target: Tensor, other: Tensor, weight: Tensor) -> None:
    """target ← target + weight (other − target), rounded once."""
    if target.dtype == torch.float32:
        target.lerp_(other, weight.to(torch.float32))
    else:  # lerp would round the weight to the smaller dtype
        target.copy_(target.float().lerp_(other.float(), weight.to(torch.float32)))


def _add(target: Tensor, other: Tensor, factor: Tensor) -> None:
    """target ← target + factor · other, rounded once."""
    if target.dtype == torch.float32:
        target.addcmul_(other, factor.to(torch.float32))
    else:
        target.copy_(target.float().addcmul_(other.float(), factor.to(torch.float32)))


def step_of(settings: Adafactor, masters: Mapping[str, Tensor], applied: Tensor) -> OptimizerStep:
    """Adafactor with its state in the masters' dtype. Masters of a smaller dtype on a CPU, which needs no
    synchronization, use torch's step: its rounding depends on the position of a number in the tensor."""
    first = next(iter(masters.values()))
    if first.dtype == torch.float32 or first.device.type != "cpu":
        return AdafactorStep(settings)
    options = {"beta2_decay": settings.beta2_decay, "eps": (None, settings.eps), "d": settings.clip_update}
    return TorchStep(torch.optim.Adafactor, options)
