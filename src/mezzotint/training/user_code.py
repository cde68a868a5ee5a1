"""User code in a run: callbacks and a loss function (`mezzotint.train`), and how a run records them."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from mezzotint.errors import RecipeError
from mezzotint.stages import Batch, Loss, Noised
from mezzotint.training.callbacks.base import Callback
from mezzotint.training.model import TrainableModel


@dataclass(frozen=True, slots=True)
class LossBatch:
    """Input of a loss function other than prediction and target. B samples; tensors are on the device.

    keys, captions: B strings, as trained (after selection and dropout). latents, noise, noisy_latents: (B, C, *spatial)
    float32. timesteps: (B,) float32, 0 to the schedule's T; 1000 σ for flow-matching models. mask: (B, *spatial)
    float32, weights of the latents (`data.mask`), or None. weight: (B,) float32, factors applied to the losses later.
    """

    keys: tuple[str, ...]
    captions: tuple[str, ...]
    latents: Tensor
    noise: Tensor
    noisy_latents: Tensor
    timesteps: Tensor
    mask: Tensor | None
    weight: Tensor


LossFunction = Callable[[Tensor, Tensor, LossBatch], Tensor]
"""(predicted, target, batch) → the loss of each sample, (B,). predicted, target: (B, C, *spatial) float32."""


@dataclass(frozen=True, slots=True)
class UserCode:
    """The callbacks and the loss function of a start from Python."""

    callbacks: Sequence[Callback] = ()
    loss: LossFunction | None = None

    def describe_sources(self) -> dict[str, str]:
        """Name and source hash of each callable, by its role in the run, for history and checkpoints."""
        sources = {f"callback {type(c).__qualname__}": source_of(type(c)) for c in self.callbacks}
        if self.loss is not None:
            sources["loss"] = source_of(self.loss)
        return sources

    def attach_to(self, model: TrainableModel) -> TrainableModel:
        """The model with the user's loss function, if there is one."""
        if self.loss is None:
            return model
        values = {field.name: getattr(model, field.name) for field in fields(TrainableModel)}
        return ModelWithUserLoss(**values, user_loss=UserLoss(self.loss))


NO_CODE = UserCode()


class UserLoss:
    """The loss of each sample by a user's function, which replaces `objective.loss`; weights by noise level
    (`objective.weighting`, Min-SNR) and by sample are applied as usual."""

    def __init__(self, function: LossFunction) -> None:
        self.function = function
        self._batch: Batch | None = None

    @contextmanager
    def of(self, batch: Batch) -> Iterator[None]:
        """Context manager: losses are computed for this batch."""
        self._batch = batch
        try:
            yield
        finally:
            self._batch = None

    def __call__(
        self, predicted: Tensor, target: Tensor, noised: Noised, timesteps: Tensor, weight: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Raises RecipeError E1095 for a result that is not one number for each sample."""
        assert self._batch is not None
        loss = self.function(
            predicted,
            target,
            LossBatch(
                self._batch.keys, self._batch.captions, noised.x_0, noised.noise, noised.x_t, timesteps, mask, weight
            ),
        )
        expected = (len(predicted),)
        if not isinstance(loss, Tensor) or tuple(loss.shape) != expected or not loss.is_floating_point():
            shape = f"shape {tuple(loss.shape)}, {loss.dtype}" if isinstance(loss, Tensor) else type(loss).__name__
            raise RecipeError(
                f"the loss function {_name_of(self.function)} returned {shape}; it must return one "
                f"floating-point loss for each sample, shape {expected}: for example "
                "(predicted - target).square().mean(dim=(1, 2, 3))",
                code="E1095",
            )
        return loss.float()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWithUserLoss(TrainableModel):
    """A model with a user's loss function."""

    user_loss: UserLoss

    def __post_init__(self) -> None:
        self.objective.user_loss = self.user_loss

    def loss(self, batch: Batch, seed: int, step: int, device: torch.device) -> tuple[Loss, Tensor]:
        """See `TrainableModel.loss`."""
        with self.user_loss.of(batch):
            return TrainableModel.loss(self, batch, seed, step, device)


def source_of(code: Any) -> str:
    """`module.qualname sha256:…` of a function, a class or a callable object. The hash covers its source text, or its
    byte code if there is no source (in a shell); for an object, that of its class; for `functools.partial`, also the
    arguments."""
    if isinstance(code, functools.partial):
        arguments = hashlib.sha256(repr((code.args, sorted(code.keywords.items()))).encode()).hexdigest()[:16]
        return f"{source_of(code.func)} partial:{arguments}"
    owner = code if inspect.isclass(code) or inspect.isroutine(code) else type(code)
    try:
        text = inspect.getsource(owner).encode("utf-8", "replace")
    except (OSError, TypeError):
        text = _byte_code_of(owner)
    return f"{_name_of(owner)} sha256:{hashlib.sha256(text).hexdigest()}"


def _byte_code_of(owner: Any) -> bytes:
    methods = vars(owner).values() if inspect.isclass(owner) else [owner]
    codes = [method.__code__ for method in methods if hasattr(method, "__code__")]
    return b"".join(code.co_code + repr(code.co_names).encode() for code in codes) or _name_of(owner).encode()


def _name_of(code: Any) -> str:
    owner = code if hasattr(code, "__qualname__") else type(code)
    return f"{owner.__module__}.{owner.__qualname__}"
