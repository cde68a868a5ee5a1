"""Schedule-free AdamW against stored results of the package `schedulefree`, and against the package itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mezzotint.weights.files import tensor_files
from support.rounding import within
from support.stepping import apply, update_of

DATA = Path(__file__).parent / "data/schedulefree/adamw.safetensors"
STEPS, RATE, NAME = 20, 1e-2, "denoiser/weight"
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "warm_up_and_decay": {"warmup_steps": 5, "weight_decay": 0.1, "betas": (0.95, 0.99), "eps": 1e-6},
    "late_steps_weigh_more": {"r": 1.0, "weight_lr_power": 1.0, "warmup_steps": 30},
}


def results_of_package(gradients: Tensor, start: Tensor, settings: dict[str, Any]) -> dict[str, Tensor]:
    """y, z, v and x after steps of `schedulefree.AdamWScheduleFree`, from which the record was made."""
    weight = nn.Parameter(start.clone())
    optimizer = pytest.importorskip("schedulefree").AdamWScheduleFree([weight], lr=RATE, **settings)
    optimizer.train()
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
    state = optimizer.state[weight]
    trained = {"y": weight.detach().clone(), "z": state["z"], "v": state["exp_avg_sq"]}
    optimizer.eval()
    return trained | {"x": weight.detach()}


def results_of_ours(gradients: Tensor, start: Tensor, settings: dict[str, Any]) -> dict[str, Tensor]:
    trained = {NAME: nn.Parameter(start.clone())}
    update = update_of({"kind": "schedule-free-adamw", **settings}, trained)
    for gradient in gradients:
        trained[NAME].grad = gradient.clone()
        apply(update, lr=RATE)
    tensors = update.tensors()
    x = update.evaluation_weights()[NAME]
    return {"y": tensors[f"w/{NAME}"], "z": tensors[f"opt.z/{NAME}"], "v": tensors[f"opt.square/{NAME}"], "x": x}


# of the largest number, in the 256 roundings: twenty steps of about five operations each, and x from a
# difference of y and z that is multiplied by up to 19
@pytest.mark.parametrize("case", CASES)
def test_schedule_free_adamw_follows_the_record_of_the_package(case: str) -> None:
    record = tensor_files.read(DATA)
    ours = results_of_ours(record["gradients"], record["start"], CASES[case])
    for name, tensor in ours.items():
        within(tensor, record[f"{case}.{name}"], roundings=256, name=f"{case} {name}")


@pytest.mark.parametrize("case", CASES)
def test_schedule_free_adamw_follows_the_package(case: str) -> None:
    pytest.importorskip("schedulefree")
    generator = torch.Generator().manual_seed(1)
    gradients, start = torch.randn(STEPS, 7, 9, generator=generator), torch.randn(7, 9, generator=generator)
    ours = results_of_ours(gradients, start, CASES[case])
    for name, tensor in results_of_package(gradients, start, CASES[case]).items():
        within(ours[name], tensor, roundings=256, name=f"{case} {name}")
