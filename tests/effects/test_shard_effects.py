"""`run.shard`: which weights are sharded among processes."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

from mezzotint.runtimes import fsdp
from mezzotint.runtimes.base import Launch
from mezzotint.settings.sections.run import RunSettings
from support.forked import each_of_two

KEPT = 3
"""Rows of a weight of 6 that each of two processes has."""


def in_two_processes(shard: dict[str, Any], folder: Any) -> list[dict[str, Any]]:
    """What each of two processes sees of a linear layer under `run.shard`."""
    each_of_two(lambda rank: (folder / f"{rank}.json").write_text(json.dumps(_seen(rank, shard))))
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def _seen(rank: int, shard: dict[str, Any]) -> dict[str, Any]:
    settings = RunSettings.model_validate({"runtime": "fsdp", "device": "cpu", "threads": 1, "shard": shard})
    runtime = fsdp.Runtime(torch.device("cpu"), Launch(rank, rank, 2, 2, launcher="torchrun"), settings)
    block = nn.Linear(4, 6)
    network = nn.Sequential(block, nn.Tanh())
    trained = {f"denoiser/{name}": p for name, p in network.named_parameters()}
    here = runtime.prepare({"denoiser": network}, trained, [(block,)])
    with runtime.micro_batch(last=True):
        total = network(torch.ones(1, 4)).sum()
        gathered = not hasattr(block.weight, "to_local")  # between forward and backward
        total.backward()
    share = runtime.shares["denoiser/0.weight"]
    return {"rows": len(here["denoiser/0.weight"]), "at": share.start, "gathered": gathered,
            "writes": runtime.is_writer}  # fmt: skip


# breaks if blocks are always freed, or never
@pytest.mark.effect("run.shard.parameters")
@pytest.mark.distributed
def test_shard_parameters_frees_weights_before_backward(tmp_path: Any) -> None:
    assert [seen["gathered"] for seen in in_two_processes({"parameters": True}, tmp_path)] == [False, False]
    assert [seen["gathered"] for seen in in_two_processes({"parameters": False}, tmp_path)] == [True, True]


# breaks if all processes always shard together, or every group writes
@pytest.mark.effect("run.shard.group")
@pytest.mark.distributed
def test_shard_group_is_the_number_of_sharing_processes(tmp_path: Any) -> None:
    together = in_two_processes({}, tmp_path)
    assert [(seen["rows"], seen["at"], seen["writes"]) for seen in together] == [(KEPT, 0, True), (KEPT, KEPT, True)]
    apart = in_two_processes({"group": 1}, tmp_path)
    assert [(seen["rows"], seen["at"], seen["writes"]) for seen in apart] == [(2 * KEPT, 0, True), (2 * KEPT, 0, False)]
