"""Exports of a run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mezzotint.training.checkpoints import state
from mezzotint.weights.files import tensor_files


@pytest.mark.slow
def test_exported_ema_can_be_trained(world: Any) -> None:
    settings = {"optim__ema__rule": "constant", "optim__ema__decay": 0.7, "run__steps": 2}
    assert world.train("first", **settings) == 0
    [export] = (world.root / "first" / "exports").glob("*-ema")
    assert world.train("second", model__path=export, model__weights="files", run__steps=1, optim__lr=1e-5) == 0
    average = state.read(next((world.root / "first" / "checkpoints").iterdir())).tensors
    exported = tensor_files.read(export / "unet" / "diffusion_pytorch_model.safetensors")
    trained = state.read(next((world.root / "second" / "checkpoints").iterdir())).tensors
    for name, tensor in exported.items():
        assert torch.equal(tensor, average[f"ema/denoiser/{name}"])
        torch.testing.assert_close(trained[f"w/denoiser/{name}"], tensor, rtol=0, atol=2e-5)
