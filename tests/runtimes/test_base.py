"""Choosing a runtime, gradient norms, activation checkpointing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mezzotint.errors import RecipeError
from mezzotint.runtimes import base
from mezzotint.runtimes.base import norms_of
from mezzotint.settings.sections.run import RecomputeSettings, RunSettings


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.tanh(self.a(x)))


def test_single_with_several_processes_names_the_setting() -> None:
    with pytest.raises(RecipeError, match=r"run\.runtime"):
        base.open_runtime(RunSettings(runtime="single"), base.Launch(0, 0, 2, 2, None, "torchrun"))


def test_recomputation_gives_the_same_gradients() -> None:
    torch.manual_seed(0)
    data = torch.randn(3, 4)
    gradients = []
    for recompute in (False, True):
        torch.manual_seed(1)
        net = Net()
        if recompute:
            assert base.recompute_blocks([(net.a,), (net.b,)], RecomputeSettings(enabled=True, skip_first=1)) == 1
        net(data).sum().backward()
        gradients.append([p.grad for p in (net.a.weight, net.b.bias)])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_ddp_without_a_launcher_is_refused_with_a_command() -> None:
    with pytest.raises(RecipeError, match="torchrun"):
        base.open_runtime(RunSettings(runtime="ddp"), base.Launch())


def test_norms_of_tensors_are_in_order_and_zero_without_a_gradient() -> None:
    trained = {name: torch.nn.Parameter(torch.zeros(2)) for name in ("denoiser/a", "denoiser/b", "denoiser/c")}
    assert norms_of(trained, "tensor").tolist() == [0.0, 0.0, 0.0]
    trained["denoiser/a"].grad = torch.tensor([3.0, 4.0])
    trained["denoiser/c"].grad = torch.tensor([0.0, 2.0])
    assert norms_of(trained, "tensor").tolist() == [5.0, 0.0, 2.0]


def test_norms_of_parts_are_in_order_of_appearance() -> None:
    trained = {name: nn.Parameter(torch.zeros(2)) for name in ("b/x", "a/y", "b/z")}
    trained["b/x"].grad, trained["b/z"].grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
    assert norms_of(trained, "part").tolist() == [5.0, 0.0]
    assert norms_of(trained, "all").tolist() == [5.0]


@pytest.mark.parametrize(("text", "count"), [("59GB", 59 * 10**9), ("48 GiB", 48 << 30), ("1.5MB", 1_500_000)])
def test_memory_sizes_are_parsed_with_their_unit(text: str, count: int) -> None:
    assert base.bytes_of(text) == count
