"""Small parameters with an `Update`, and steps with seeded gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.training.update import Update

Parameters = dict[str, nn.Parameter]
SHAPES = {"denoiser/a.weight": (6, 5), "denoiser/a.bias": (6,)}


def parameters(shapes: Mapping[str, tuple[int, ...]] = SHAPES, dtype: torch.dtype = torch.float32) -> Parameters:
    """The same ones at each call."""
    torch.manual_seed(0)
    return {name: nn.Parameter(torch.randn(shape).to(dtype)) for name, shape in shapes.items()}


def update_of(optimizer: Any, trained: Parameters, **optim: Any) -> Update:
    """optimizer: its section, or the name of its kind. Nothing is clipped where `clip` does not say so."""
    section = {"kind": optimizer} if isinstance(optimizer, str) else optimizer
    settings = OptimSettings(**{"clip": {"norm": None}, "optimizer": section} | optim)
    return Update(trained, settings, separate_masters=next(iter(trained.values())).dtype != torch.float32)


def give_gradients(trained: Parameters, seed: int, *, scale: float = 1.0, downhill: bool = False) -> None:
    """downhill: gradients of half the squared weights, instead of noise."""
    generator = torch.Generator().manual_seed(seed)
    for p in trained.values():
        p.grad = p.detach().clone() if downhill else scale * torch.randn(p.shape, generator=generator).to(p.dtype)


def apply(
    update: Update, *, scale: float = 1.0, bad: bool = False, lr: float = 1e-2, norms: Tensor | None = None
) -> None:
    """One step from the gradients that are there. norms: all together where they are not given."""
    grads = [p.grad.float().norm() / scale for p in update.trained.values() if p.grad is not None]
    update.apply(
        loss_scale=torch.tensor(scale),
        norms=torch.linalg.vector_norm(torch.stack(grads)).reshape(1) if norms is None else norms,
        found_inf=torch.tensor(float(bad)),
        lr={group.name: lr for group in update.groups},
        update_ema=update.ema is not None,
    )


def steps(update: Update, trained: Parameters, seeds: range, *, lr: float = 1e-2, **gradients: Any) -> None:
    """A step for each seed."""
    for seed in seeds:
        give_gradients(trained, seed, **gradients)
        apply(update, lr=lr, scale=gradients.get("scale", 1.0))


def kept(update: Update) -> dict[str, Tensor]:
    """A copy of everything that a checkpoint keeps of it."""
    return {name: tensor.clone() for name, tensor in update.tensors().items()}


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether names, types and every bit are equal."""
    return one.keys() == other.keys() and all(
        torch.equal(tensor, other[name]) and tensor.dtype == other[name].dtype for name, tensor in one.items()
    )


def resumed_after_three(optimizer: Any, **gradients: Any) -> None:
    """Six steps in one go are three steps, a checkpoint, and three more, bit by bit."""
    whole, half, again = parameters(), parameters(), parameters()
    steps(update_of(optimizer, whole), whole, range(6), **gradients)
    first, second = update_of(optimizer, half), update_of(optimizer, again)
    steps(first, half, range(3), **gradients)
    second.load(kept(first))
    assert same(kept(first), second.tensors())
    steps(second, again, range(3, 6), **gradients)
    assert same(again, whole)
    assert not same(again, parameters())


def as_the_class_alone(optimizer: Any, kind: type[torch.optim.Optimizer], **options: Any) -> None:
    """Six steps are those of the class without Mezzotint around it, to rounding."""
    trained, alone = parameters(), parameters()
    steps(update_of(optimizer, trained), trained, range(6))
    reference = kind(list(alone.values()), lr=1e-2, **options)  # type: ignore[call-arg]
    for seed in range(6):
        give_gradients(alone, seed)
        reference.step()
    assert not same(trained, parameters())
    for name, p in trained.items():
        torch.testing.assert_close(p, alone[name], rtol=1e-6, atol=1e-7)
