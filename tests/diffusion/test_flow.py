"""Flow-matching schedules against diffusers' tables: training, sampling, μ by tokens and steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.diffusion import flow
from mezzotint.diffusion.flow import FlowSchedule, Tokens
from mezzotint.errors import WeightsError

DATA = Path(__file__).parents[1] / "parity" / "data" / "flow"
CONFIGS: dict[str, dict[str, Any]] = {
    "flux": {"base_shift": 0.5, "max_shift": 1.15, "base_image_seq_len": 256, "max_image_seq_len": 4096},
    "qwen_image": {"base_shift": 0.5, "max_shift": 0.9, "base_image_seq_len": 256, "max_image_seq_len": 8192},
    "ltx": {"base_shift": 0.95, "max_shift": 2.05, "base_image_seq_len": 1024, "max_image_seq_len": 4096},
}


@pytest.fixture(scope="module")
def tables() -> dict[str, Tensor]:
    return load_file(DATA / "schedules.safetensors")


def of(**config: Any) -> FlowSchedule:
    return FlowSchedule.of(config, Tokens())


@pytest.mark.parametrize("shift", [1.0, 1.15, 3.0, 5.0, 6.0])
def test_table_equals_the_schedulers(tables: dict[str, Tensor], shift: float) -> None:
    plain = torch.arange(1000, 0, -1) / 1000
    torch.testing.assert_close(flow.shift_sigma(plain, shift), tables[f"train.shift_{shift}.sigmas"], rtol=1e-6, atol=0)
    schedule = of(shift=shift)
    signal = (1 - tables[f"train.shift_{shift}.sigmas"].double().flip(0)).square()
    noise = tables[f"train.shift_{shift}.sigmas"].double().flip(0).square()
    torch.testing.assert_close(schedule.alpha_bar.double(), signal / (signal + noise), rtol=1e-5, atol=1e-7)
    assert schedule.zero_terminal
    assert schedule.shift == shift


def test_unshift_inverts_shift() -> None:
    for shift in (0.5, 1.0, 3.0, 6.0):
        for sigma in (0.0, 0.1, 0.875, 1.0):
            there = float(flow.shift_sigma(torch.tensor(sigma, dtype=torch.float64), shift))
            assert flow.unshift_sigma(there, shift) == pytest.approx(sigma, abs=1e-12)


@pytest.mark.parametrize("name", CONFIGS)
def test_mu_is_linear_in_tokens(name: str) -> None:
    recorded = json.loads((DATA / "schedules.json").read_text())
    schedule = of(**CONFIGS[name], use_dynamic_shifting=True, shift=3.0)
    assert schedule.by_resolution
    assert schedule.shift == 1.0
    for tokens in (256, 1024, 2048, 4096, 8192):
        assert schedule.mu(tokens) == pytest.approx(recorded[f"mu.{name}.{tokens}"], rel=1e-12)
    assert schedule.shift_of((4, 64, 64)) == pytest.approx(np.exp(recorded[f"mu.{name}.1024"]))
    linear = of(**CONFIGS[name], use_dynamic_shifting=True, time_shift_type="linear")
    assert linear.shift_of((4, 64, 64)) == pytest.approx(recorded[f"mu.{name}.1024"])


def test_mu_by_tokens_and_steps_equals_flux() -> None:
    for key, mu in json.loads((DATA / "schedules.json").read_text()).items():
        if key.startswith("mu.flux2."):
            _, _, tokens, steps = key.split(".")
            assert flow.mu_by_steps(int(tokens), int(steps.removeprefix("steps_"))) == pytest.approx(mu, rel=1e-12)


def test_tokens_count_cells_and_frames() -> None:
    assert Tokens().count((16, 64, 96)) == 32 * 48
    assert Tokens(cell=1).count((128, 5, 16, 22)) == 5 * 16 * 22


@pytest.mark.parametrize("config", [{"shift": 0}, {"shift": "3"}, {"flow_shift": -1.0}, {"num_train_timesteps": 500}])
def test_non_flow_scheduler_files_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(WeightsError) as caught:
        of(**config)
    assert caught.value.code == "E1450"
