"""Gradient exchange between processes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from mezzotint.families import sd, sdxl
from mezzotint.families.base import ModelFamily
from mezzotint.runtimes import base, ddp, single
from mezzotint.settings.sections.run import RunSettings
from mezzotint.training.step import TrainStep
from support.forked import free_port, import_all
from support.model_export import tiny_model
from support.trainers import batch_of, latents_at, short_of_memory, step_batches, trainer_over


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.unused = nn.Linear(3, 3)
        self.b = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.tanh(self.a(x)))


def gradients(runtime: base.Runtime, share: slice, steps: int = 2) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    net = Net()
    trained = {f"denoiser/{name}": p for name, p in net.named_parameters()}
    runtime.prepare({"denoiser": net}, trained)
    torch.manual_seed(4)
    data = torch.randn(5, 4)
    for _ in range(steps):
        for p in trained.values():
            p.grad = None
        pieces = list(data[share].split(2)) or [data[:0]]
        pieces += [data[:0]] * (3 - len(pieces))
        for i, piece in enumerate(pieces):
            with runtime.micro_batch(last=i == len(pieces) - 1):
                if len(piece):
                    (net(piece).square().sum() / 5).backward()
    result = {name: p.grad.clone() for name, p in trained.items() if p.grad is not None}
    result["norms"] = runtime.grad_norms(trained, "all")
    result["total"] = runtime.sum_over_processes(torch.ones(2))
    return result


def work(rank: int, port: int, folder: str, shares: list[slice]) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(len(shares)),
        GLOO_SOCKET_IFNAME="lo",
    )  # fmt: skip
    torch.set_num_threads(1)
    settings = RunSettings(timeout_seconds=60)
    runtime = ddp.Runtime(torch.device("cpu"), base.Launch(rank, rank, len(shares)), settings)
    result = gradients(runtime, shares[rank])
    assert runtime.agree(1 << rank) == (1 << len(shares)) - 1
    assert runtime.share(f"from {rank} ε") == "from 0 ε"
    assert (runtime.share(""), runtime.gather("")) == ("", ("",) * 2)
    assert runtime.gather(f"{rank} ε" * rank) == ("", "1 ε"), "texts of several lengths, also empty"
    torch.save(result, f"{folder}/{rank}.pt")
    runtime.barrier()
    runtime.close()


@pytest.mark.distributed
@pytest.mark.parametrize("shares", [[slice(0, 2), slice(2, 5)], [slice(0, 5), slice(5, 5)]])
def test_gradients_are_summed_over_processes_with_uneven_shares(tmp_path: Path, shares: list[slice]) -> None:
    whole = gradients(single.Runtime(torch.device("cpu"), base.Launch(), RunSettings()), slice(0, 5))
    mp.start_processes(work, args=(free_port(), str(tmp_path), shares), nprocs=len(shares), start_method="fork")
    for rank in range(len(shares)):
        mine = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert mine.keys() == whole.keys(), "a parameter without gradient stays without one"
        assert mine.pop("total").tolist() == [2.0, 2.0]
        for name, value in mine.items():
            torch.testing.assert_close(value, whole[name], rtol=1e-5, atol=1e-7)


class Sent:
    """Replaces the collectives; counts the bytes sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        for name in ("all_reduce", "broadcast"):
            monkeypatch.setattr(ddp.dist, name, self)

    def __call__(self, tensor: torch.Tensor, *, async_op: bool = False, **named: object) -> Sent:
        self.bytes += tensor.nbytes if async_op else 0
        return self

    def wait(self) -> None:
        """The handle of an asynchronous collective."""


@pytest.mark.parametrize("family", [sd.Family, sdxl.Family])
def test_gradients_are_sent_while_others_are_computed(
    family: type[ModelFamily], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the second step, whose order the first has shown: at 60 % of the gradients at least 60 % of the bytes. Buckets
    are the same fraction of the tiny model as 25 MB of the full one."""
    sent = Sent(monkeypatch)
    model = tiny_model(family)
    with torch.no_grad():
        batches = [batch_of(latents_at(0, 2), model.encode_text(["a", "b"]))]
    trainer = trainer_over(model, [step_batches(batches, n) for n in range(2)])
    trained = trainer.model.trained
    whole = sum(p.nbytes for p in trained.values())
    monkeypatch.setattr(ddp, "_BUCKET_BYTES", whole // 130)  # as of SD's 3.4 GB
    exchange = ddp._Exchange(list(trained.values()))
    shares: list[float] = []
    for p in trained.values():
        p.register_post_accumulate_grad_hook(lambda _: shares.append(sent.bytes))
    places = []
    for step in range(2):
        exchange.begin(last=True)
        shares.clear()
        sent.bytes = 0
        loss, _ = trainer.train_step.loss(batches[0], step)
        loss.total.backward()
        assert step or not sent.bytes, "nothing is sent before the order is known"
        if step:
            assert len(shares) == len(trained)
            assert shares[int(0.6 * len(shares)) - 1] >= 0.6 * whole
        exchange.finish(torch.zeros(0))
        assert sent.bytes == whole
        places.append([p.grad.data_ptr() for p in trained.values() if p.grad is not None])
        held = {p.grad.untyped_storage().data_ptr(): p.grad.untyped_storage().nbytes() for p in trained.values()}  # type: ignore[union-attr]
        assert sum(held.values()) == whole, "gradients are views of the buckets, which hold nothing else"
        for p in trained.values():
            p.grad = None
    assert places[0] == places[1]


def collectives(step: Callable[[], int], patch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """The collectives that this process calls from now on, each with its step."""
    met: list[tuple[int, str]] = []
    for name in ("all_reduce", "broadcast", "all_gather", "reduce", "barrier"):
        patch.setattr(ddp.dist, name, partial(_noted, met, step, name, getattr(ddp.dist, name)))
    return met


def _noted(met: list[tuple[int, str]], step: Callable[[], int], name: str, real: Any, *words: Any, **named: Any) -> Any:
    met.append((step(), name))
    return real(*words, **named)


@pytest.fixture
def group() -> Iterator[None]:
    """A fake process group of two; this process is rank 0."""
    importlib.import_module("torch.testing._internal.distributed.fake_pg")  # registers the backend
    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("num_buckets", [1, 4])
def test_ordinary_step_has_one_all_reduce_per_bucket_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, num_buckets: int
) -> None:
    """Flags to agree on and the sums of the losses are sent with the gradients."""
    model = tiny_model(sd.Family)
    with torch.no_grad():
        batches = [batch_of(latents_at(0, 1), model.encode_text(["a"]))]
    runtime = ddp.Runtime(torch.device("cpu"), base.Launch(0, 0, 2), RunSettings())
    steps = [step_batches(batches, step) for step in range(4)]
    trainer = trainer_over(model, steps, runtime=runtime, update_check=None)
    trained = trainer.model.trained
    if num_buckets > 1:
        monkeypatch.setattr(ddp, "_BUCKET_BYTES", sum(p.nbytes for p in trained.values()) // num_buckets)
    vars(runtime)["_long_group"] = dist.group.WORLD  # gloo would wait for the other
    runtime.prepare(model.parts(), trained)
    met = collectives(lambda: trainer.progress.step, monkeypatch)
    trainer.run()
    by_step = [[name for at, name in met if at == step] for step in (1, 2, 3)]  # step 0 agrees on the order
    assert by_step[0] == by_step[1] == by_step[2]
    assert set(by_step[0]) == {"all_reduce"}
    assert num_buckets <= len(by_step[0]) <= 2 * num_buckets - 1


def one_of_two(rank: int, port: int, folder: str, fails: int) -> None:
    """Two processes over four steps; rank 1 runs out of memory in step `fails` with two samples."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2",
                      GLOO_SOCKET_IFNAME="lo")  # fmt: skip
    torch.set_num_threads(1)
    model, output = tiny_model(sd.Family), []
    with torch.no_grad():
        text = model.encode_text(["a", "b"])
    batches = [batch_of(latents_at(rank, 2), text, first=2 * rank)]
    steps = [replace(step_batches(batches, number), count=4) for number in range(4)]
    runtime = ddp.Runtime(torch.device("cpu"), base.Launch(rank, rank, 2), RunSettings(timeout_seconds=60))
    trainer = trainer_over(model, steps, optim={"lr": 1e-3}, warn=output.append, runtime=runtime)
    runtime.prepare(model.parts(), trainer.model.trained)
    here = trainer.progress
    TrainStep.loss = short_of_memory(  # type: ignore[method-assign]
        lambda batch: (rank, here.step, batch.size) == (1, fails, 2)
    )
    if fails < 0:
        trainer.train_step.update_check = None  # which agrees in the first steps
    met = collectives(lambda: here.step, pytest.MonkeyPatch())
    trainer.run()
    losses = [r.loss for r in trainer.callbacks[0].seen]  # type: ignore[attr-defined]
    torch.save(
        (trainer.tensors(), losses, trainer.train_step.micro_batch, len(output), met), f"{folder}/{fails}-{rank}.pt"
    )
    runtime.barrier()
    runtime.close()


@pytest.mark.slow
@pytest.mark.distributed
def test_out_of_memory_in_one_process_halves_the_micro_batch_of_all(tmp_path: Path) -> None:
    """In the first step, before an order is agreed, and in a later one, while buckets are being sent."""
    import_all()  # once, and not in each process
    ends = {}
    for fails in (-1, 0, 2):
        mp.start_processes(one_of_two, args=(free_port(), str(tmp_path), fails), nprocs=2, start_method="fork")
        first, second = (torch.load(tmp_path / f"{fails}-{rank}.pt") for rank in (0, 1))
        assert all(torch.equal(tensor, second[0][name]) for name, tensor in first[0].items())
        assert first[2:] == second[2:]
        assert first[2:4] == ((None, 0) if fails < 0 else (1, 1))
        if fails < 0:  # gradients, losses and flags share one bucket
            assert [name for step, name in first[4] if step in (2, 3)] == ["all_reduce"] * 2
        ends[fails] = first
    for fails in (0, 2):
        assert ends[fails][1] == pytest.approx(ends[-1][1], rel=1e-5)
        for name, tensor in ends[-1][0].items():
            torch.testing.assert_close(ends[fails][0][name], tensor, rtol=1e-3, atol=1e-4)
