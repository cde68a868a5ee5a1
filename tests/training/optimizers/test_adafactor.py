"""Adafactor matches that of torch."""

from __future__ import annotations

import torch

from mezzotint.settings.optimizers.adafactor import Adafactor
from mezzotint.training.optimizers.adafactor import AdafactorStep
from mezzotint.training.optimizers.base import StepInputs
from support.stepping import Parameters, as_the_class_alone, give_gradients, parameters, same, steps, update_of


def test_adafactor_is_that_of_torch_with_recipe_settings() -> None:
    as_the_class_alone("adafactor", torch.optim.Adafactor)
    options = {"beta2_decay": -0.5, "eps": (None, 1e-2), "d": 1.5}
    as_the_class_alone({"kind": "adafactor", "beta2_decay": -0.5, "eps": 1e-2, "clip_update": 1.5},
                       torch.optim.Adafactor, **options)  # fmt: skip


SHAPES = {"denoiser/a": (9, 7), "denoiser/b": (9,), "denoiser/c": (4, 3, 3, 3)}


def test_adafactor_resumes_from_state_of_the_library() -> None:
    """Names, dtypes and values of the state are equal."""

    def train_and_resume(with_library: bool) -> tuple[Parameters, dict[str, torch.Tensor]]:
        trained = parameters(SHAPES)
        library = {"kind": "library", "class_name": "torch.optim.Adafactor"}
        update = update_of(library if with_library else "adafactor", trained)
        steps(update, trained, range(3))
        before = {name: tensor.clone() for name, tensor in update.tensors().items()}
        again = parameters(SHAPES)
        resumed = update_of("adafactor", again)
        resumed.load(before)
        assert same(resumed.tensors(), before)
        steps(resumed, again, range(3, 6))
        return again, before

    (old, kept), (new, kept_now) = train_and_resume(True), train_and_resume(False)
    assert {n: (t.shape, t.dtype) for n, t in kept.items()} == {n: (t.shape, t.dtype) for n, t in kept_now.items()}
    for name, tensor in old.items():
        torch.testing.assert_close(tensor, new[name], rtol=1e-6, atol=1e-7)


def test_adafactor_updates_low_precision_masters_like_the_library() -> None:
    """The step for GPUs; on the CPU that of the library is used."""
    alone, mine = (parameters(SHAPES, torch.bfloat16) for _ in range(2))
    library = torch.optim.Adafactor(list(alone.values()), lr=1e-2)
    step, one = AdafactorStep(Adafactor(kind="adafactor")), torch.tensor(1.0)
    for seed in range(6):
        for weights in (alone, mine):
            give_gradients(weights, seed)
        library.step()
        grads = [p.grad for p in mine.values() if p.grad is not None]
        step.step(StepInputs(list(mine), [p.detach() for p in mine.values()], grads, 1e-2, 0.0, one, 0 * one))
    for name, p in alone.items():
        torch.testing.assert_close(mine[name], p, rtol=2e-2, atol=2e-2)
        assert not torch.equal(p, parameters(SHAPES, torch.bfloat16)[name])
