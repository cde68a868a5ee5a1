"""Learned-range variance against Open-Sora-Plan's own functions: tables, and both terms of the loss by sample."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.diffusion import iddpm
from mezzotint.diffusion.schedule import Schedule

POSTERIOR = iddpm.Posterior.of(Schedule.linear())


@pytest.fixture(scope="module")
def record() -> dict[str, Tensor]:
    return load_file(Path(__file__).parent / "data" / "open-sora-plan" / "diffusion_losses.safetensors")


def test_tables_are_the_records_in_float32(record: dict[str, Tensor]) -> None:
    for ours, name in (
        (POSTERIOR.log_least, "posterior_log_variance_clipped"),
        (POSTERIOR.share_x_0, "posterior_mean_coef1"),
        (POSTERIOR.share_x_t, "posterior_mean_coef2"),
    ):
        torch.testing.assert_close(ours.double(), record[f"table.{name}"], rtol=3e-7, atol=0)
    torch.testing.assert_close(POSTERIOR.log_most.double(), record["table.betas"].log(), rtol=3e-7, atol=0)


@pytest.mark.parametrize("mask", ["ones", "partial"])
def test_both_terms_of_each_sample_are_the_records(mask: str, record: dict[str, Tensor]) -> None:
    assert record["in.t"].tolist() == [0, 1, 500, 999]
    found = iddpm.losses(
        record["in.model_output"],
        record["in.noise"],
        record["in.x_start"],
        record[f"out.{mask}.x_t"],
        record["in.t"],
        posterior=POSTERIOR,
        mask=record["in.attention_mask"] if mask == "partial" else None,
    )
    torch.testing.assert_close(found.mse, record[f"out.{mask}.mse"], rtol=1e-6, atol=0)
    torch.testing.assert_close(found.variational, record[f"out.{mask}.vb"], rtol=1e-6, atol=0)
    torch.testing.assert_close(found.mse + found.variational, record[f"out.{mask}.loss"], rtol=1e-6, atol=0)


def test_a_mask_of_ones_says_what_no_mask_says(record: dict[str, Tensor]) -> None:
    inputs = [record[f"in.{name}"] for name in ("model_output", "noise", "x_start")]
    x_t, t = record["out.ones.x_t"], record["in.t"]
    plain = iddpm.losses(*inputs, x_t, t, posterior=POSTERIOR)
    for shape in ((4, 3, 6, 6), (4, 1, 3, 6, 6)):
        masked = iddpm.losses(*inputs, x_t, t, posterior=POSTERIOR, mask=torch.ones(shape))
        assert torch.equal(masked.mse, plain.mse)
        assert torch.equal(masked.variational, plain.variational)
