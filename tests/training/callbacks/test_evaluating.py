"""Using networks without changing their state, and ignoring out-of-memory errors."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn

from mezzotint.training.callbacks._evaluating import set_eval_mode, skip_when_out_of_memory


def test_evaluating_restores_module_modes_after_an_error() -> None:
    part = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    part[1].eval()
    with contextlib.suppress(KeyError), set_eval_mode({"denoiser": part}):
        assert not any(module.training for module in part.modules())
        assert not torch.is_grad_enabled()
        raise KeyError
    assert [module.training for module in part.modules()] == [True, True, False]
    assert torch.is_grad_enabled()


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_only_out_of_memory_is_ignored(error: Exception) -> None:
    said: list[str] = []
    with skip_when_out_of_memory("previews", said.append):
        raise error
    assert said == ["previews: skipped, not enough memory; training continues"]
    with pytest.raises(RuntimeError, match="shapes"), skip_when_out_of_memory("previews", said.append):
        raise RuntimeError("shapes")
