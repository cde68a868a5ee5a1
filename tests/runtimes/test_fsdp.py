"""Rows held by each process. Complete runs with sharded weights are in tests/journeys."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from torch.distributed.fsdp import FSDPModule

from mezzotint.errors import RecipeError
from mezzotint.families import sd
from mezzotint.runtimes import base, fsdp
from mezzotint.settings.sections.run import RunSettings, ShardSettings
from mezzotint.training.loop import Trainer
from mezzotint.training.update import Update
from support.forked import free_port, import_all
from support.model_export import tiny_model
from support.trainers import batch_of, latents_at, step_batches, trainer_over


@pytest.mark.parametrize(("rows", "held"), [(8, [2, 2, 2, 2]), (5, [2, 2, 1, 0]), (1, [1, 0, 0, 0])])
def test_rows_are_sharded_as_torch_shards_them(rows: int, held: list[int]) -> None:
    shares = [fsdp._share((rows, 3), count, place, 4) for place, count in enumerate(held)]
    assert [share.stop - share.start for share in shares] == held
    assert shares[0].start == 0
    assert shares[-1].stop == rows
    with pytest.raises(AssertionError, match="another way"):
        fsdp._share((rows, 3), held[0] + 1, 0, 4)


def test_group_size_must_divide_the_number_of_processes() -> None:
    assert [fsdp.group_size(ShardSettings(group=group), 6) for group in (None, 2, 6)] == [6, 2, 6]
    with pytest.raises(RecipeError, match="write one of 1, 2, 3, 6"):
        fsdp.group_size(ShardSettings(group=4), 6)


def one_of_two(rank: int, port: int, folder: str, cases: list[tuple[int, str]]) -> None:
    """Two processes over three steps, with three and two samples; rank 1 runs out of memory in one of the steps."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2",
                      GLOO_SOCKET_IFNAME="lo")  # fmt: skip
    torch.set_num_threads(1)
    for fails in cases:
        torch.save(_end_of(rank, *fails), f"{folder}/{fails[0]}-{rank}.pt")


def _end_of(rank: int, step: int, where: str) -> tuple[Any, ...]:
    model, output = tiny_model(sd.Family), []
    size = 3 - rank
    with torch.no_grad():
        text = model.encode_text(["a", "b", "c"][:size])
    batches = [batch_of(latents_at(rank, size), text, first=3 * rank)]
    steps = [replace(step_batches(batches, number), count=5) for number in range(3)]
    trainer = trainer_over(model, steps, optim={"lr": 1e-3}, warn=output.append)
    settings = RunSettings(runtime="fsdp", timeout_seconds=60)
    runtime = fsdp.Runtime(torch.device("cpu"), base.Launch(rank, rank, 2), settings)
    here = runtime.prepare(model.parts(), trainer.model.trained, list(model.blocks()))
    update = Update(here, trainer.model.optim, separate_masters=False, written=runtime.refresh_copies)
    model_here = replace(trainer.model, trained=here, update=update)
    trainer = replace(trainer, model=model_here, runtime=runtime, update_check=None)
    trainer.callbacks[0].on_all_ranks = True
    block = [*model.blocks()][3][0]
    watch = block.register_full_backward_pre_hook if where == "backward" else block.register_forward_pre_hook
    watch(lambda _, tensors: _run_out(rank == 1, trainer, step, len(tensors[0])))
    trainer.run()
    losses = [r.loss for r in trainer.callbacks[0].seen]  # type: ignore[attr-defined]
    weights = {name: tensor.clone() for name, tensor in runtime.gather_shards(update.masters).items()}
    keys = [r.keys for r in trainer.callbacks[0].seen]  # type: ignore[attr-defined]
    runtime.barrier()
    runtime.close()
    return weights, losses, trainer.train_step.micro_batch, len(output), keys


def _run_out(is_second: bool, trainer: Trainer, fails: int, samples: int) -> None:
    if is_second and (trainer.progress.step, samples, trainer.train_step.micro_batch) == (fails, 2, None):
        raise torch.OutOfMemoryError("out of memory")


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.skipif(not hasattr(FSDPModule, "reset_iter_state"), reason="torch forgets a failed pass since 2.13")
def test_out_of_memory_with_sharded_weights_halves_the_micro_batch(tmp_path: Path) -> None:
    """While the other process waits for blocks and gradients in the middle of its own pass; shares are uneven."""
    cases = [(-1, "backward"), (0, "forward"), (1, "backward")]
    import_all()  # once, and not in each process
    mp.start_processes(one_of_two, args=(free_port(), str(tmp_path), cases), nprocs=2, start_method="fork")
    ends = {}
    for step, _ in cases:
        first, second = (torch.load(tmp_path / f"{step}-{rank}.pt") for rank in (0, 1))
        assert first[1] == second[1]
        assert first[2:4] == second[2:4] == ((None, 0) if step < 0 else (2, 1))
        assert [[len(keys) for keys in end[4]] for end in (first, second)] == [[3] * 3, [2] * 3]
        ends[step] = first
    whole = ends.pop(-1)
    for end in ends.values():
        assert end[1] == pytest.approx(whole[1], rel=1e-5)
        for name, tensor in whole[0].items():
            torch.testing.assert_close(end[0][name], tensor, rtol=1e-3, atol=1e-4)
