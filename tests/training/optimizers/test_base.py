"""Every optimizer: non-finite steps, loss scales, checkpoints, estimated state, chunks and their memory."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from itertools import accumulate
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode

from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.training.optimizers import base
from mezzotint.training.optimizers.base import split_into_chunks
from mezzotint.training.update import Update
from support.installed import names_of_trainers
from support.stepping import apply, give_gradients, kept, parameters, resumed_after_three, same, steps, update_of

AT_ONCE = 1 << 60
OF_TRAINERS = names_of_trainers("settings/optimizers")
KINDS: dict[str, dict[str, Any]] = {
    "adamw": {"kind": "adamw"},
    "adafactor": {"kind": "adafactor"},
    "lion": {"kind": "lion", "weight_decay": 0.5},
    "adamw-8bit": {"kind": "adamw-8bit"},
    "nadam": {"kind": "library", "class_name": "torch.optim.NAdam", "options": {"momentum_decay": 4e-3}},
    "prodigy": {"kind": "library", "class_name": "pytorch_optimizer.Prodigy"},
} | {kind: {"kind": kind} for kind in OF_TRAINERS}
ALL = pytest.mark.parametrize("kind", KINDS)
LISTS: dict[str, dict[str, Any]] = {
    name: {"kind": "library", "class_name": f"pytorch_optimizer.{name}"} for name in ("AdEMAMix", "DAdaptAdam")
}
"""Classes that hold results of all or several tensors at once."""


@pytest.fixture(autouse=True)
def _eight_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class with the name of that of bitsandbytes, which needs a GPU; it treats tensors independently too."""
    importlib.import_module("pytorch_optimizer")  # before there is a bitsandbytes that it would import
    stand_in = type("AdamW8bit", (torch.optim.Adamax,), {"__module__": "bitsandbytes.optim.adamw"})
    for name in ("bitsandbytes", "bitsandbytes.optim"):
        monkeypatch.setitem(sys.modules, name, module := ModuleType(name))
    vars(module)["AdamW8bit"] = stand_in


@ALL
def test_optimizer_resumes_bit_exactly(kind: str) -> None:
    resumed_after_three(KINDS[kind])


@ALL
def test_nonfinite_step_changes_nothing(kind: str) -> None:
    trained = parameters()
    update = update_of(KINDS[kind], trained)
    steps(update, trained, range(2))
    before = kept(update)
    for spoilt in (float("nan"), float("inf")):
        give_gradients(trained, 2)
        trained["denoiser/a.bias"].grad[0] = spoilt  # type: ignore[index]
        apply(update, bad=True)
    assert same(kept(update), before)


@ALL
def test_loss_scale_is_removed_from_gradients(kind: str) -> None:
    ends = []
    for scale in (1.0, 1024.0):
        trained = parameters()
        steps(update_of(KINDS[kind], trained), trained, range(3), scale=scale)
        ends.append(trained)
    assert same(*ends)


@pytest.mark.parametrize("kind", ["adamw", "adafactor", "lion", "nadam", *OF_TRAINERS])
def test_state_bytes_are_known_before_the_first_step(kind: str) -> None:
    trained = parameters()
    update = update_of(KINDS[kind], trained)
    forecast = update.state_bytes()
    steps(update, trained, range(1))
    states = (t for name, t in update.tensors().items() if name.startswith("opt.") and "/" in name)
    assert forecast == sum(t.numel() * t.element_size() for t in states)


FOUR = {"denoiser/a": (9, 7), "denoiser/b": (9,), "denoiser/c": (4, 3, 3, 3), "text_encoder/d": (5, 8)}


NORMS = {"tensor": 4, "part": 2, "all": 1}
"""Number of norms by the scope of clipping."""


def scaled_steps(update: Update, trained: dict[str, nn.Parameter], seeds: range, *, scope: str) -> None:
    """The third step is not finite; gradients are scaled, as in fp16."""
    for seed in seeds:
        give_gradients(trained, seed, scale=64.0)
        norms = torch.stack([p.grad.float().norm() / 64 for p in trained.values() if p.grad is not None])
        apply(update, scale=64.0, bad=seed == 2, norms=norms[-NORMS[scope] :])
        assert all(p.grad is None for p in trained.values())


def everything(update: Update, trained: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return kept(update) | {name: p.detach().clone() for name, p in trained.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
@ALL
def test_chunked_update_is_bit_exact(kind: str, dtype: torch.dtype, monkeypatch: Any) -> None:
    """Weights, states, EMA and counts; from the start, and resumed from a checkpoint without chunks."""
    scope = {torch.float32: "tensor", torch.bfloat16: "all", torch.float16: "part"}[dtype]

    def fresh() -> tuple[Update, dict[str, nn.Parameter]]:
        trained = parameters(FOUR, dtype)
        ema = {"rule": "constant", "decay": 0.9, "interval": 2}
        return update_of(KINDS[kind], trained, clip={"norm": 0.5, "scope": scope}, ema=ema), trained

    ends = []
    for chunk in (AT_ONCE, 100):
        monkeypatch.setattr(base, "CHUNK", chunk)
        monkeypatch.setattr(base, "PIECE", 20 if chunk == 100 else AT_ONCE)
        update, trained = fresh()
        scaled_steps(update, trained, range(3), scope=scope)
        half = everything(update, trained)
        scaled_steps(update, trained, range(3, 6), scope=scope)
        ends.append((update, half, everything(update, trained)))
    whole, in_chunks = ends
    assert same(whole[2], in_chunks[2])
    assert not same(whole[1], whole[2])
    if dtype != torch.float32 and kind != "prodigy":
        assert in_chunks[0].working_bytes() < whole[0].working_bytes()

    again, trained = fresh()
    again.load({name: tensor for name, tensor in whole[1].items() if name not in trained})
    scaled_steps(again, trained, range(3, 6), scope=scope)
    assert same(everything(again, trained), whole[2])


def peak(update: Update) -> int:
    """Peak bytes allocated in a step, as counted by the allocator of torch."""
    with profile(profile_memory=True) as seen:
        apply(update, norms=torch.ones(1))
    events = [event for event in seen.kineto_results.events() if event.name() == "[memory]"]
    return max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


@pytest.mark.slow
@pytest.mark.parametrize("ema", [pytest.param("none", marks=pytest.mark.exhaustive), "constant"])
@pytest.mark.parametrize(
    "kind",
    [
        "adamw",
        "adafactor",
        "nadam",
        "prodigy",
        "AdEMAMix",
        pytest.param("DAdaptAdam", marks=pytest.mark.exhaustive),
    ],
)
def test_step_stays_within_its_stated_memory(kind: str, ema: str, monkeypatch: Any) -> None:
    """16 million bfloat16 weights with float32 masters: 64 MB of copies without chunks."""
    chunk = 16 * 2**20

    def step(limit: int) -> tuple[Update, int]:
        monkeypatch.setattr(base, "CHUNK", limit)
        monkeypatch.setattr(base, "PIECE", limit // 16)
        trained = {f"denoiser/{n}": nn.Parameter(torch.zeros(1024, 1024).bfloat16()) for n in range(16)}
        update = update_of((KINDS | LISTS)[kind], trained, ema={"rule": ema, "decay": 0.9})
        for _ in range(2):  # the first creates the states
            for p in trained.values():
                p.grad = torch.ones_like(p)
            most = peak(update)
        return update, most

    update, most = step(chunk)
    margin = 2**20  # counts and scales
    assert most <= update.working_bytes() + margin
    if kind in LISTS:
        assert update.working_bytes() < 1.5 * most
    elif kind != "prodigy":
        assert update.working_bytes() <= chunk
        whole, at_once = step(AT_ONCE)
        assert at_once > 1.5 * chunk
        assert at_once <= whole.working_bytes() + margin


def test_chunks_are_ordered_and_within_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "CHUNK", 6)
    assert split_into_chunks([3, 3, 3, 9, 1, 5], sum) == [[3, 3], [3], [9], [1, 5]]
    assert split_into_chunks([9, 1], sum) == [[9], [1]]
    assert split_into_chunks([1] * 5, sum) == [[1] * 5]
    assert split_into_chunks([], sum) == []
    assert split_into_chunks([2, 5, 7, 5], max) == [[2, 5], [7], [5]]


def test_chunking_takes_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times as many tensors are looked at about four times as often, in one chunk and in many."""

    def looks(count: int, limit: int) -> int:
        monkeypatch.setattr(base, "CHUNK", limit)
        seen: list[int] = []
        split_into_chunks([1] * count, lambda some: seen.append(len(some)) or len(some))  # type: ignore[func-returns-value]
        return sum(seen)

    for limit in (AT_ONCE, 50):
        assert looks(4000, limit) < 6 * looks(1000, limit)


class NoReadBack(TorchDispatchMode):
    """Makes every operator that would synchronize with a device an error; on a CPU they go unnoticed."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        reads = ("_local_scalar_dense", "is_nonzero", "nonzero", "equal", "masked_select")
        assert func._schema.name.removeprefix("aten::") not in reads, func
        return func(*args, **(kwargs or {}))


BUILT_IN = ("adamw", "adafactor", "lion", *OF_TRAINERS)


@pytest.mark.parametrize("scope", ["all", "part", "tensor"])
@pytest.mark.parametrize("kind", BUILT_IN)
def test_built_in_optimizers_cause_no_device_sync(kind: str, scope: str) -> None:
    """From the first step, with clipping, EMA, separate masters, and a non-finite step. Meta tensors detect copies to
    the host."""
    ema = {"rule": "ramp"}
    decays = "weight_decay" in type(OptimSettings(optimizer=KINDS[kind]).optimizer).model_fields
    section = KINDS[kind] | ({"weight_decay": 0.1} if decays else {})
    for dtype, device in ((torch.float32, "cpu"), (torch.bfloat16, "cpu"), (torch.bfloat16, "meta")):
        trained = {n: nn.Parameter(p.detach().to(device)) for n, p in parameters(FOUR, dtype).items()}
        update = update_of(section, trained, clip={"norm": 0.5, "scope": scope}, ema=ema)
        lr = {group.name: 0.1 for group in update.groups}
        for bad in (1.0, 0.0):
            for p in trained.values():
                p.grad = torch.ones_like(p)
            norms = torch.ones(NORMS[scope], device=device)
            scale, found_inf = torch.ones((), device=device), torch.full((), bad, device=device)
            with NoReadBack():
                update.apply(loss_scale=scale, norms=norms, found_inf=found_inf, lr=lr, update_ema=True)


def test_device_sync_detector_detects_syncs() -> None:
    for read in (torch.Tensor.item, bool, float, lambda t: t[t > 0]):
        with pytest.raises(AssertionError), NoReadBack():
            read(torch.ones(()))
    trained = parameters(FOUR)
    update = update_of(KINDS["nadam"], trained)
    give_gradients(trained, 0)
    norm = torch.ones(1)
    with pytest.raises(AssertionError), NoReadBack():
        apply(update, norms=norm)


class Copies(TorchDispatchMode):
    """Counts operators that copy or cast, each of them a launch on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[func._schema.name.removeprefix("aten::")] += func._schema.name in COPIES
        return func(*args, **(kwargs or {}))


COPIES = {"aten::_foreach_copy_", "aten::copy_", "aten::_to_copy", "aten::clone"}


def test_cast_of_many_tensors_is_one_launch() -> None:
    tensors = [torch.arange(float(count)) for count in range(1, 40)]
    with Copies() as copies:
        copied = base.cast(tensors, torch.bfloat16)
    assert +copies.seen == {"_foreach_copy_": 1}
    assert all(torch.equal(one, tensor.bfloat16()) for one, tensor in zip(copied, tensors, strict=True))


@pytest.mark.parametrize("kind", [kind for kind in BUILT_IN if kind != "adafactor"])
def test_number_of_casts_does_not_depend_on_tensor_count(kind: str) -> None:
    """bfloat16 weights with float32 masters and EMA. Adafactor treats tensors one by one."""
    launches = []
    for count in (4, 12):
        trained = parameters({f"denoiser/{n}": (6, 5) for n in range(count)}, torch.bfloat16)
        update = update_of(KINDS[kind], trained, ema={"rule": "constant", "decay": 0.9})
        steps(update, trained, range(1))
        give_gradients(trained, 1)
        norm, scale, found_inf = torch.ones(1), torch.ones(()), torch.zeros(())
        lr = {group.name: 0.1 for group in update.groups}
        with Copies() as copies:
            update.apply(loss_scale=scale, norms=norm, found_inf=found_inf, lr=lr, update_ema=True)
        launches.append(+copies.seen)
    assert launches[0] == launches[1]
    assert launches[0]["_foreach_copy_"] >= 2  # gradients to float32, weights from the masters
