"""The step of `library`: any subclass of `torch.optim.Optimizer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mezzotint.settings.optimizers.library import Library
from mezzotint.training.optimizers import _torch_class
from mezzotint.training.optimizers._torch_class import TorchStep
from mezzotint.training.optimizers.base import OptimizerStep, StepInputs


class MatricesStep(OptimizerStep):
    """A class that takes only matrices, such as `torch.optim.Muon`, and `torch.optim.AdamW` for all other weights, with
    the same rate and weight decay."""

    reads_on_host = True

    def __init__(self, matrices: TorchStep) -> None:
        super().__init__()
        self._steps = {True: matrices, False: TorchStep(torch.optim.AdamW, {"fused": True})}

    def step(self, inputs: StepInputs) -> None:
        for are_matrices, step in self._steps.items():
            chosen = [i for i, master in enumerate(inputs.masters) if (master.ndim == 2) == are_matrices]
            if chosen:
                names, masters = [inputs.names[i] for i in chosen], [inputs.masters[i] for i in chosen]
                step.step(replace(inputs, names=names, masters=masters, grads=[inputs.grads[i] for i in chosen]))

    def working_bytes(self, sizes: Sequence[int]) -> int:
        return max(step.working_bytes(sizes) for step in self._steps.values())

    def tensors(self) -> dict[str, Tensor]:
        return {name: tensor for step in self._steps.values() for name, tensor in step.tensors().items()}

    def load(self, tensors: Mapping[str, Tensor], masters: Mapping[str, Tensor]) -> None:
        for are_matrices, step in self._steps.items():
            step.load(tensors, _select(masters, are_matrices))

    def state_bytes(self, masters: Mapping[str, Tensor]) -> int:
        return sum(step.state_bytes(_select(masters, are_matrices)) for are_matrices, step in self._steps.items())


def _select(masters: Mapping[str, Tensor], are_matrices: bool) -> dict[str, Tensor]:
    return {name: master for name, master in masters.items() if (master.ndim == 2) == are_matrices}


def step_of(settings: Library, masters: Mapping[str, Tensor], applied: Tensor) -> OptimizerStep:
    """The class with a dotted name. Raises RecipeError E1061 if it cannot be imported or is not an optimizer."""
    kind = _torch_class.class_of(settings.class_name)
    _torch_class.require_stepping(kind, settings.options)
    step = TorchStep(kind, settings.options)
    return MatricesStep(step) if settings.facts.only_matrices else step
