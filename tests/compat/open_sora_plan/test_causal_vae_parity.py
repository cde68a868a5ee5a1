"""The causal video autoencoder against Open-Sora-Plan's own class."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.compat.open_sora_plan.nets.causal_vae import CausalVAE, CausalVAEConfig, posterior
from support.rounding import within

DATA = Path(__file__).parents[2] / "parity" / "data" / "open-sora-plan"
RECORDED = 128
"""Roundings of the largest number that the record is from the float64 result: some thirty layers, each of which sums up
to 1,700 products of float32, whose errors grow with the root of their number."""
TWICE = 2 * RECORDED
"""The record and a float32 result of another machine, each so far from the exact one."""


@pytest.fixture(scope="module")
def record() -> dict[str, Tensor]:
    return load_file(DATA / "vae_488.safetensors")


@pytest.fixture(scope="module")
def network(record: dict[str, Tensor]) -> CausalVAE:
    vae = CausalVAE(CausalVAEConfig.read(json.loads((DATA / "vae_488.json").read_text())["config"]))
    vae.load_state_dict({k.removeprefix("state."): v for k, v in record.items() if k.startswith("state.")})
    return vae.eval()


@pytest.mark.parametrize("case", ["f1", "f5", "f9", "even4", "even8"])
def test_moments_match_the_record(case: str, network: CausalVAE, record: dict[str, Tensor]) -> None:
    with torch.no_grad():
        moments = network.encode(record[f"{case}.in.video"])
        exact = copy.deepcopy(network).double().encode(record[f"{case}.in.video"].double())
    within(exact, record[f"{case}.out.moments"], roundings=RECORDED)
    within(moments, record[f"{case}.out.moments"], roundings=TWICE)


@pytest.mark.parametrize("case", ["f1", "f5", "f9"])
def test_posterior_and_decoded_clip_match_the_record(case: str, network: CausalVAE, record: dict[str, Tensor]) -> None:
    mean, log_variance = posterior(record[f"{case}.out.moments"])
    assert torch.equal(mean, record[f"{case}.out.mean"])
    assert torch.equal(log_variance, record[f"{case}.out.logvar"])
    with torch.no_grad():
        decoded = network.decode(mean)
    within(decoded, record[f"{case}.out.decoded_from_mean"], roundings=TWICE)
