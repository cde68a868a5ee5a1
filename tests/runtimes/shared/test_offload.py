"""Block offload: at most the requested number of blocks is on the device, and results are bitwise identical."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from mezzotint import registry
from mezzotint.families.base import ModelFamily
from mezzotint.runtimes.base import recompute_blocks
from mezzotint.runtimes.shared.offload import Offload, Unit, count_loaded_bytes
from mezzotint.settings.families.base import specs
from mezzotint.settings.sections.run import RecomputeSettings
from mezzotint.stages import Noised

CPU = torch.device("cpu")


class Block(nn.Module):
    """Two streams, of which one is handed through; a frozen buffer; perhaps a trained vector, as an adapter's."""

    def __init__(self, width: int, *, adapted: bool) -> None:
        super().__init__()
        self.wide, self.norm, self.narrow = (
            nn.Linear(width, 4 * width),
            nn.LayerNorm(width),
            nn.Linear(4 * width, width),
        )
        self.register_buffer("share", torch.tensor([0.5]))
        self.adapter = nn.Parameter(torch.zeros(width)) if adapted else None

    def forward(self, x: Tensor, other: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        y = self.share * self.narrow(functional.gelu(self.wide(self.norm(x) * (1 + t))))
        return x + (y if self.adapter is None else y * (1 + self.adapter)), other


class Net(nn.Module):
    def __init__(self, *, adapted: bool, width: int = 16, count: int = 5) -> None:
        super().__init__()
        self.first, self.time, self.last = nn.Linear(width, width), nn.Linear(1, width), nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(width, adapted=adapted) for _ in range(count))
        if adapted:
            self.requires_grad_(False)
            for block in self.blocks:
                block.adapter.requires_grad_(True)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        x, t = self.first(x), self.time(level)
        other = x * 1
        for block in self.blocks:
            x, other = block(x, other, t)
        return self.last(x) + other


@dataclass
class Trained:
    """Gradients of three steps of two micro-batches, and outputs without gradients."""

    numbers: list[Tensor] = field(default_factory=list)
    most: int = 0
    block: int = 0


def again(forward: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *x: checkpoint(forward, *x, use_reentrant=False) if torch.is_grad_enabled() else forward(*x)


def trained(
    kind: str, at_once: int, *, recompute: bool, dtype: torch.dtype | None = None, autocast: bool = False
) -> Trained:
    """kind: the trained parameters, "adapter" or "whole". at_once: blocks on the device, 0 for all and no offload."""
    torch.manual_seed(0)
    net, offload, end = Net(adapted=kind == "adapter"), None, Trained()
    moving = {name: p for name, p in net.named_parameters() if p.requires_grad}
    for block in net.blocks if recompute else ():
        block.forward = again(block.forward)
    end.block = sum(p.nbytes for p in net.blocks[0].parameters()) // (2 if dtype else 1)
    if dtype is not None and kind == "adapter":
        net.to(dtype)
    if at_once:
        offload = Offload(CPU, at_once)
        weights = None if kind == "adapter" else dtype or torch.float32
        offload.take({"denoiser": net}, [(block,) for block in net.blocks], moving, weights)
    masters = {name: p.detach().float() for name, p in moving.items()}
    if dtype is not None and kind == "whole" and offload is None:
        net.to(dtype)
    if offload is not None:
        offload.settle()
    for step in range(3):
        for number in range(2):
            x = torch.randn(3, 7, 16, generator=torch.Generator().manual_seed(10 * step + number)).to(dtype)
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                y = net(x, x[:, :1, :1])
            end.most = max(end.most, offload.bytes_on_device() if offload else 0)
            y.float().square().mean().backward()
            end.most = max(end.most, offload.bytes_on_device() if offload else 0)
        with torch.no_grad():
            for name, parameter in moving.items():
                end.numbers.append(parameter.grad.clone())
                masters[name].sub_(0.1 * parameter.grad.float())
                if dtype is not None:
                    parameter.copy_(masters[name])
                parameter.grad = None
            end.numbers.append(net(x, x[:, :1, :1]))
    return end


@pytest.mark.slow
@pytest.mark.parametrize("kind", [{}, {"dtype": torch.bfloat16}, {"autocast": True}], ids=["fp32", "bf16", "autocast"])
@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("what", ["adapter", "whole"])
def test_streamed_blocks_compute_bit_identical_results(what: str, recompute: bool, kind: dict[str, Any]) -> None:
    plain = trained(what, 0, recompute=recompute, **kind)
    for at_once in (1, 2, 9):
        away = trained(what, at_once, recompute=recompute, **kind)
        assert all(torch.equal(one, two) for one, two in zip(plain.numbers, away.numbers, strict=True))
        assert away.most <= min(at_once, 5) * away.block + 5 * 4, at_once
        assert away.most > (min(at_once, 5) - 1) * away.block, "there is something to see"


@pytest.mark.parametrize("kind", ["adapter", "whole"])
@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
def test_loaded_bytes_are_those_that_are_counted_ahead(
    kind: str, recompute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[int] = []
    load = Offload._load

    def count(offload: Offload, unit: Unit) -> None:
        loaded.append(0 if unit is offload._rest else unit.bytes)
        load(offload, unit)

    monkeypatch.setattr(Offload, "_load", count)
    for at_once in (1, 2, 4, 5):
        torch.manual_seed(0)
        net = Net(adapted=kind == "adapter")
        moving = {name: p for name, p in net.named_parameters() if p.requires_grad}
        for block in net.blocks if recompute else ():
            block.forward = again(block.forward)
        offload = Offload(CPU, at_once)
        weights = None if kind == "adapter" else torch.float32
        offload.take({"denoiser": net}, [(block,) for block in net.blocks], moving, weights)
        offload.settle()
        x = torch.randn(3, 7, 16)
        for _ in range(3):
            loaded.clear()
            net(x, x[:, :1, :1]).square().mean().backward()
        blocks = [unit.bytes for unit in offload._units]
        assert sum(loaded) == count_loaded_bytes(blocks, at_once, trains=kind == "whole"), at_once


def test_optimizer_step_may_follow_each_gradient() -> None:
    torch.manual_seed(0)
    net = Net(adapted=False)
    moving = dict(net.named_parameters())
    offload = Offload(CPU, 1)
    offload.take({"denoiser": net}, [(block,) for block in net.blocks], moving, torch.float32)
    offload.settle()
    before = {name: p.detach().clone() for name, p in moving.items()}
    arrived: list[str] = []

    def move(name: str, parameter: nn.Parameter) -> None:
        arrived.append(name)
        with torch.no_grad():
            parameter.sub_(parameter.grad)
        parameter.grad = None

    for name, parameter in moving.items():
        offload.when_arrived(parameter, partial(move, name))
    x = torch.randn(2, 3, 16)
    first = net(x, x[:, :1, :1])
    first.square().mean().backward()
    assert sorted(arrived) == sorted(moving)
    assert all(p.grad is None for p in (*moving.values(), *net.parameters()))
    plain = Net(adapted=False)
    plain.load_state_dict(before, strict=False)
    plain(x, x[:, :1, :1]).square().mean().backward()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.sub_(parameter.grad)
    assert torch.equal(net(x, x[:, :1, :1]), plain(x, x[:, :1, :1]))


def test_values_written_on_the_host_are_used_next() -> None:
    net = Net(adapted=False)
    moving = dict(net.named_parameters())
    offload = Offload(CPU, 2)
    offload.take({"denoiser": net}, [(block,) for block in net.blocks], moving, torch.float32)
    offload.settle()
    x = torch.randn(2, 3, 16)
    with torch.no_grad():
        before = net(x, x[:, :1, :1])
        for parameter in moving.values():
            parameter.mul_(0.5)
        offload.refresh_copies()
        assert not torch.equal(net(x, x[:, :1, :1]), before)


def test_block_that_fails_to_load_is_freed_and_can_be_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(adapted=True)
    moving = {name: p for name, p in net.named_parameters() if p.requires_grad}
    offload = Offload(CPU, 1)
    offload.take({"denoiser": net}, [(block,) for block in net.blocks], moving)
    x = torch.randn(2, 3, 16)
    expected = net(x, x[:, :1, :1]).detach()
    held = offload._units[2].tensors[1]
    home, held.home = held.home, torch.empty(3, 3)  # no place for it
    with pytest.raises(RuntimeError):
        net(x, x[:, :1, :1])
    assert offload.bytes_on_device() == 0
    held.home = home
    assert torch.equal(net(x, x[:, :1, :1]), expected)


FAMILIES = [spec.name for spec in specs()]


def gradients(name: str, at_once: int) -> tuple[dict[str, Tensor], Tensor]:
    """Gradients of a tiny model of a family, with recomputation, and its output without gradients afterwards."""
    family: ModelFamily = registry.find("families", name).Family.tiny()
    denoiser = family.parts()["denoiser"].train()
    for part in family.parts().values():
        part.requires_grad_(part is denoiser)
    moving = {f"denoiser/{at}": p for at, p in denoiser.named_parameters()}
    grid, frames = family.grid, (2,) if family.grid.frames > 1 else ()
    x = torch.randn(2, grid.channels, *frames, 8 * grid.cell, 8 * grid.cell, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        text = family.encode_text(["a red circle", "two blue ones, and a green one"])
    recompute_blocks(family.blocks(), RecomputeSettings(enabled=True))
    if at_once:
        offload = Offload(CPU, at_once)
        offload.take({"denoiser": denoiser}, list(family.blocks()), moving, torch.float32)
        offload.settle()
    t = torch.tensor([300, 700])
    noised = Noised(x_0=x, noise=x, x_t=x, model_input=x, model_t=t, level=t / 1000)
    family.predict(noised, family.condition(text, None)).square().mean().backward()
    assert not at_once or offload.bytes_on_device() <= at_once * max(unit.bytes for unit in offload._units)
    with torch.no_grad():
        output = family.predict(noised, family.condition(text, None))
    return {at: p.grad for at, p in moving.items() if p.grad is not None}, output


@pytest.mark.parametrize(
    "name", [name if name == "qwen-image" else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]
)
def test_blocks_of_each_family_can_be_streamed(name: str) -> None:
    plain, output = gradients(name, 0)
    assert plain
    for at_once in (1, 2):
        away, again = gradients(name, at_once)
        assert away.keys() == plain.keys()
        assert all(torch.equal(grad, plain[at]) for at, grad in away.items())
        assert torch.equal(again, output)
