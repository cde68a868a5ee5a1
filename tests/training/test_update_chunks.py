"""A step works in chunks: to the same bits as all at once, and with no more memory than it says."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.profiler import profile

from mezzotint.recipe.sections.optim import OptimSettings
from mezzotint.training.optimizers import _torch_class, base
from mezzotint.training.optimizers.base import chunked
from mezzotint.training.update import Update

AT_ONCE = 1 << 60
NADAM = {"kind": "library", "class_name": "torch.optim.NAdam"}
PRODIGY = {"kind": "library", "class_name": "pytorch_optimizer.Prodigy"}
KINDS: dict[str, dict[str, Any]] = {
    "adamw": {"kind": "adamw"},
    "adam-weight-decay": {"kind": "adam-weight-decay"},
    "adafactor": {"kind": "adafactor"},
    "adacoor": {"kind": "adacoor"},
    "adamw-8bit": {"kind": "adamw-8bit"},
    "nadam": NADAM,
    "prodigy": PRODIGY,
}


@pytest.fixture(autouse=True)
def _eight_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package wants a GPU: a class of its name, which knows each tensor by itself as its own does."""
    real = _torch_class.class_of
    stand_in = type("AdamW8bit", (torch.optim.Adamax,), {"__module__": "bitsandbytes.optim.adamw"})
    monkeypatch.setattr(
        _torch_class, "class_of", lambda path, *rest: stand_in if path.startswith("bitsandbytes") else real(path, *rest)
    )


def parameters(dtype: torch.dtype) -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"denoiser/a": (9, 7), "denoiser/b": (9,), "denoiser/c": (4, 3, 3, 3), "text_encoder/d": (5, 8)}
    return {name: nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for name, shape in shapes.items()}


def made(settings: OptimSettings, dtype: torch.dtype) -> tuple[Update, dict[str, nn.Parameter]]:
    trained = parameters(dtype)
    return Update(trained, settings, separate_masters=dtype != torch.float32), trained


def steps(moved: Update, trained: dict[str, nn.Parameter], seeds: range) -> None:
    """The third step is not finite; gradients are scaled, as under fp16, and norms are of the scope `tensor`."""
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for p in trained.values():
            p.grad = (64 * torch.randn(p.shape, generator=generator)).to(p.dtype)
        norms = torch.stack([p.grad.float().norm() / 64 for p in trained.values() if p.grad is not None])
        scope = moved._settings.clip.scope
        moved.apply(
            loss_scale=torch.tensor(64.0),
            norms=norms if scope == "tensor" else norms[-2:] if scope == "part" else norms[:1],
            found_inf=torch.tensor(float(seed == 2)),
            lr=dict.fromkeys((group.name for group in moved.groups), 1e-2),
            update_ema=seed % 2 == 0,
        )
        assert all(p.grad is None for p in trained.values())


def everything(moved: Update, trained: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in (moved.tensors() | trained).items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("kind", KINDS)
def test_chunks_end_with_the_bits_of_all_at_once(kind: str, dtype: torch.dtype, monkeypatch: Any) -> None:
    """Weights, states, averages and counts; from the start, and from a checkpoint of the other way."""
    scope = {torch.float32: "tensor", torch.bfloat16: "all", torch.float16: "part"}[dtype]
    settings = OptimSettings(
        optimizer=KINDS[kind], clip={"norm": 0.5, "scope": scope}, ema={"rule": "constant", "decay": 0.9}
    )
    found = []
    for chunk in (AT_ONCE, 100):
        monkeypatch.setattr(base, "CHUNK", chunk)
        monkeypatch.setattr(base, "PIECE", 20 if chunk == 100 else AT_ONCE)
        moved, trained = made(settings, dtype)
        steps(moved, trained, range(3))
        half = everything(moved, trained)
        steps(moved, trained, range(3, 6))
        found.append((moved, half, everything(moved, trained)))
    whole, in_chunks = found
    assert same(whole[2], in_chunks[2])
    assert not same(whole[1], whole[2])
    assert len(whole[0]._chunks["denoiser"]) == 1
    takes_much = dtype != torch.float32 or kind not in ("adamw", "adam-weight-decay", "adamw-8bit")
    assert len(in_chunks[0]._chunks["denoiser"]) == (3 if takes_much and kind != "prodigy" else 1)

    again, trained = made(settings, dtype)
    again.load({name: tensor for name, tensor in whole[1].items() if name not in trained})
    steps(again, trained, range(3, 6))
    assert same(everything(again, trained), whole[2])


def peak(moved: Update, trained: dict[str, nn.Parameter]) -> int:
    """Bytes that a step takes at most beyond what lay there before it, as torch's own allocator counts them."""
    norms = torch.ones(1)
    with profile(profile_memory=True) as seen:
        moved.apply(
            loss_scale=torch.tensor(1.0),
            norms=norms,
            found_inf=torch.tensor(0.0),
            lr=dict.fromkeys((group.name for group in moved.groups), 1e-2),
            update_ema=True,
        )
    events = [event for event in seen.kineto_results.events() if event.name() == "[memory]"]
    return max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


@pytest.mark.parametrize("ema", ["none", "constant"])
@pytest.mark.parametrize("kind", ["adamw", "adafactor", "adacoor", "nadam", "prodigy"])
def test_a_step_takes_no_more_memory_than_it_says(kind: str, ema: str, monkeypatch: Any) -> None:
    """16 million numbers in bfloat16 beside float32 masters: 64 MB of copies, were they made at once."""
    chunk, each = 16 * 2**20, 2**20
    settings = OptimSettings(optimizer=KINDS[kind], ema={"rule": ema, "decay": 0.9})

    def step(limit: int) -> tuple[Update, int]:
        monkeypatch.setattr(base, "CHUNK", limit)
        monkeypatch.setattr(base, "PIECE", limit // 16)
        trained = {f"denoiser/{n}": nn.Parameter(torch.zeros(1024, each // 1024).bfloat16()) for n in range(16)}
        moved = Update(trained, settings, separate_masters=True)
        for first in (True, False):  # states come with the first
            for p in trained.values():
                p.grad = torch.ones_like(p)
            if first:
                peak(moved, trained)
        return moved, peak(moved, trained)

    moved, taken = step(chunk)
    margin = 2**20  # counts and scales
    assert taken <= moved.working_bytes() + margin
    if kind != "prodigy":
        assert moved.working_bytes() <= chunk
        whole, at_once = step(AT_ONCE)
        assert at_once > 1.5 * chunk
        assert at_once <= whole.working_bytes() + margin


def test_chunks_hold_all_in_order_and_stay_within_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "CHUNK", 6)
    assert chunked([3, 3, 3, 9, 1, 5], sum) == [[3, 3], [3], [9], [1, 5]]
    assert chunked([9, 1], sum) == [[9], [1]]
    assert chunked([2, 5, 7, 5], max) == [[2, 5], [7], [5]]
