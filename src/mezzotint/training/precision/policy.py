"""The precision policy of a run, and the loss scale for fp16.

| | fp32 | bf16, fp16 |
|---|---|---|
| trained weights | float32 | float32, or the half type (`run.weight_dtype`), with or without float32 masters |
| their forward and backward | float32 | by `run.half_precision`: see `mixed.py` |
| frozen text encoders, the base of an adapter | float32 | the half type, float32, another (`run.frozen_dtype`) |
| their matrices | as the rest | as the rest, or quantized to 8 or 4 bits |
| VAE, image encoder | float32 | as frozen parts, or by `run.vae_dtype` |
| noise, coefficients, loss, gradient norms, moments, average | float32 | float32 |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mezzotint.settings.families.base import MEDIA_PARTS
from mezzotint.settings.sections.run import GradientSums, LowBit, RunSettings, ScalerSettings
from mezzotint.weights.low_bit import WeightForm, fp32_tensors, keeps_in_fp32

DTYPES: Mapping[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class Precision:
    """compute: dtype of the networks' computation. weights: of trained weights in the forward pass. frozen: of frozen
    parts. vae: of the VAE and the image encoder."""

    compute: torch.dtype
    weights: torch.dtype
    frozen: torch.dtype
    vae: torch.dtype
    gradients: torch.dtype = torch.float32
    """dtype in which gradients of trained weights are accumulated."""
    has_no_masters: bool = False
    """Whether there are no float32 masters, only the weights of the forward pass."""
    low_bit: LowBit | None = None
    """Quantization of the matrices of frozen parts except those that encode pixels; None for `frozen`."""
    keeps_fp32: bool = False
    """Whether denoisers keep those modules in float32 that their library keeps in fp32."""

    @staticmethod
    def of(settings: RunSettings, gradient_sums: GradientSums = "same") -> Precision:
        """The policy of a recipe. gradient_sums: as in `Resolved`."""
        compute = DTYPES[settings.precision]
        weights = compute if settings.weight_dtype != "fp32" else torch.float32
        # many VAEs overflow in fp16, so fp16 must be set explicitly
        vae = "fp32" if (settings.frozen_dtype, settings.precision) == ("auto", "fp16") else settings.frozen_dtype
        return Precision(
            compute,
            weights,
            DTYPES.get(settings.frozen_dtype, compute),
            DTYPES.get(settings.vae_dtype or vae, compute),
            torch.float32 if gradient_sums == "fp32" else weights,
            has_no_masters=settings.weight_dtype == "pure" and compute != torch.float32,
            low_bit=settings.low_bit,
            keeps_fp32=settings.keep_in_fp32,
        )

    def of_frozen(self, part: str) -> torch.dtype:
        """The dtype of a frozen part."""
        return self.vae if part in MEDIA_PARTS else self.frozen

    def form_of(self, part: str) -> WeightForm:
        """The form of the weights of a frozen part."""
        dtype, low_bit = self.of_frozen(part), None if part in MEDIA_PARTS else self.low_bit
        return WeightForm(
            dtype, low_bit, keeps_fp32=self.keeps_fp32 and (dtype != torch.float32 or low_bit is not None)
        )

    def fp32_tensors(self, network: nn.Module) -> list[Tensor]:
        """Tensors of a network that keep their dtype when the network is cast."""
        return fp32_tensors(network) if self.keeps_fp32 else []

    def keep_modules_in_fp32(self, network: nn.Module) -> None:
        """Makes the modules kept in fp32 compute in float32 under autocast, too."""
        if not self.keeps_fp32 or self.compute == torch.float32:
            return
        for name, module in network.named_modules():
            last = name.rpartition(".")[2]
            if keeps_in_fp32(network, last) and any(isinstance(inner, nn.Linear) for inner in module.modules()):
                module.forward = _without_autocast(module.forward)

    @property
    def form_of_trained(self) -> WeightForm:
        """The form in which the weights of a trained part are read: that of the weights, or of the masters."""
        return WeightForm(self.weights if self.has_no_masters else torch.float32)

    @property
    def separate_masters(self) -> bool:
        """Whether the optimizer keeps float32 masters in addition to the weights of the forward pass."""
        return self.weights != torch.float32 and not self.has_no_masters

    @property
    def has_loss_scale(self) -> bool:
        """Whether the loss is scaled; only with fp16."""
        return self.compute == torch.float16

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """The context of forward passes of trained parts."""
        if self.compute == torch.float32:
            return nullcontext()
        return torch.autocast(device.type, dtype=self.compute, cache_enabled=True)

    def __str__(self) -> str:
        name = {value: key for key, value in DTYPES.items()}
        masters = "float32 masters" if self.separate_masters else "no masters" if self.has_no_masters else "float32"
        return (
            f"{name[self.compute]} computation, trained weights {name[self.weights]} ({masters}), "
            f"frozen {name[self.frozen]}"
            + (f", matrices quantized to {self.low_bit}" if self.low_bit else "")
            + (f", VAE {name[self.vae]}" if self.vae != self.frozen else "")
        )


def _without_autocast(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(x: Tensor, *others: Any) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return forward(x, *others)

    return run


def set_gradient_dtype(parameters: Iterable[nn.Parameter], dtype: torch.dtype) -> None:
    """Casts gradients of these parameters to a dtype as they arrive, and accumulates them in it."""
    for parameter in parameters:
        parameter.grad_dtype = dtype


def cast(module: nn.Module, dtype: torch.dtype, *, exclude: Iterable[Tensor] = ()) -> None:
    """Casts a module's floating-point tensors in place, as torch's own `Module.to`, which libraries override. but:
    parameters that keep their dtype."""
    excluded = {id(parameter) for parameter in exclude}
    nn.Module._apply(module, lambda t: t.to(dtype) if t.is_floating_point() and id(t) not in excluded else t)


def cast_parameters(parameters: Mapping[str, nn.Parameter], dtype: torch.dtype) -> None:
    """Casts single parameters in place."""
    for parameter in parameters.values():
        parameter.data = parameter.data.to(dtype)


class LossScale:
    """The dynamic loss scale of fp16, on the device: it grows by a factor after a window without overflow and is
    divided by it on an overflow (Micikevicius et al. 2018, arXiv:1710.03740). Factor and window may change at given
    steps. A static scale never changes.

    Without fp16 it is always 1.
    """

    def __init__(self, settings: ScalerSettings, precision: Precision, device: torch.device) -> None:
        self.active = precision.has_loss_scale
        self._is_static = settings.kind == "static"
        self._stages = ((0, settings.growth, settings.growth_interval), *settings.stages)
        self.scale = torch.tensor(settings.init if self.active else 1.0, dtype=torch.float32, device=device)
        self._clean_steps = torch.zeros((), dtype=torch.int32, device=device)

    def update(self, found_inf: Tensor, step: int) -> None:
        """Updates the scale after a step. found_inf: () float32, 1 if a gradient was not finite. step: counted from
        0."""
        if self.active and not self._is_static:
            growth, interval = self.pace(step)
            torch._amp_update_scale_(self.scale, self._clean_steps, found_inf, growth, 1.0 / growth, interval)

    def pace(self, step: int) -> tuple[float, int]:
        """The factor and the window, in steps, at a step."""
        return next(stage[1:] for stage in reversed(self._stages) if stage[0] <= step)

    def tensors(self) -> dict[str, Tensor]:
        """The state to save in a checkpoint."""
        return {"scaler/scale": self.scale, "scaler/clean_steps": self._clean_steps} if self.active else {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores a result of `tensors`; keeps its initial values if the checkpoint was written without fp16."""
        if self.active and "scaler/scale" in tensors:
            self.scale.copy_(tensors["scaler/scale"])
            self._clean_steps.copy_(tensors["scaler/clean_steps"])
