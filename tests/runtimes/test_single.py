"""One process: nothing is exchanged."""

from __future__ import annotations

import torch
from torch import nn

from mezzotint.runtimes import base, single
from mezzotint.settings.sections.run import RunSettings


def test_single_runtime_moves_tensors_and_has_one_process() -> None:
    runtime = single.Runtime(torch.device("meta"), base.Launch(), RunSettings())
    part = nn.Linear(2, 2)
    trained = dict(part.named_parameters(prefix="denoiser"))
    assert runtime.prepare({"denoiser": part}, trained) is trained
    assert part.weight.device.type == "meta"
    assert (runtime.is_first, runtime.is_writer, runtime.agree(5), runtime.share("a")) == (True, True, 5, "a")
    assert runtime.gather("a") == ("a",)
    assert runtime.gather_shards(trained) is trained
