"""Schedules, SNR, Min-SNR weights and noising against stored results of four trainers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mezzotint.diffusion import prediction
from mezzotint.diffusion.schedule import Schedule
from mezzotint.diffusion.weighting import min_snr

DATA = Path(__file__).parent / "data"
PLAIN = Schedule.scaled_linear()
ZERO = PLAIN.rescaled_to_zero_terminal_snr()


def test_the_table_is_diffusers_to_the_last_bit() -> None:
    record = load_file(DATA / "diffusers/snr_weights.safetensors")
    assert torch.equal(PLAIN.betas(), record["betas"])
    assert torch.equal(PLAIN.alpha_bar, record["alphas_cumprod"])
    assert torch.equal(ZERO.alpha_bar, record["zero_terminal_alphas_cumprod"])
    torch.testing.assert_close(PLAIN.snr, record["snr"], rtol=1e-6, atol=0)
    torch.testing.assert_close(ZERO.snr, record["zero_terminal_snr"], rtol=1e-6, atol=0)


@pytest.mark.parametrize("gamma", [1, 5, 20])
@pytest.mark.parametrize(("kind", "name"), [("epsilon", "epsilon"), ("v", "v_prediction")])
def test_min_snr_in_diffusers_form(gamma: int, kind: str, name: str) -> None:
    record = load_file(DATA / "diffusers/snr_weights.safetensors")
    weight = min_snr(PLAIN.snr, gamma, kind, "prediction")
    torch.testing.assert_close(weight, record[f"weight_{name}_gamma_{gamma}"], rtol=1e-6, atol=0)


def test_min_snr_in_diffusers_form_at_zero_terminal_snr() -> None:
    record = load_file(DATA / "diffusers/snr_weights.safetensors")
    weight = min_snr(ZERO.snr, 5, "v", "prediction")
    torch.testing.assert_close(weight, record["zero_terminal_weight_v_prediction_gamma_5"], rtol=1e-6, atol=0)


def test_rescaled_betas_are_everydreams() -> None:
    record = load_file(DATA / "everydream2/schedule_snr.safetensors")
    assert torch.equal(ZERO.betas(), record["betas_rescaled"])
    assert torch.equal(Schedule.linear().rescaled_to_zero_terminal_snr().betas(), record["linear_betas_rescaled"])
    # it writes 1e-9 for an SNR of 0
    torch.testing.assert_close(ZERO.snr, record["snr_rescaled"], rtol=1e-6, atol=1.1e-9)


@pytest.mark.parametrize(("name", "kind"), [("eps", "epsilon"), ("v", "v"), ("eps_z", "epsilon"), ("v_z", "v")])
def test_min_snr_in_everydreams_form(name: str, kind: str) -> None:
    record = load_file(DATA / "everydream2/schedule_snr.safetensors")
    snr = (ZERO if name.endswith("_z") else PLAIN).snr
    weight = min_snr(snr, 5, kind, "ratio")
    torch.testing.assert_close(weight, record[f"minsnr_weight.{name}.gamma5"], rtol=1e-6, atol=0)


def test_sigmas_are_stabilitys_and_mindones() -> None:
    record = load_file(DATA / "mindone-sdxl/sigmas.safetensors")["sigmas"]
    torch.testing.assert_close(PLAIN.sigma, record, rtol=2e-5, atol=0)


@pytest.mark.parametrize("gamma", [1.0, 5.0, 20.0])
@pytest.mark.parametrize(("kind", "name"), [("epsilon", "weighting.eps"), ("v", "weighting.v")])
def test_min_snr_in_mindones_form_clamps_the_weight_in_x0_space(kind: str, name: str, gamma: float) -> None:
    record = json.loads((DATA / "mindone-sdxl/weighting.json").read_text())
    snr = torch.tensor(record["probe_sigmas"]) ** -2
    in_x_0 = torch.tensor(record[name])
    expected = in_x_0.clamp_max(gamma) / in_x_0
    torch.testing.assert_close(min_snr(snr, gamma, kind, "x0"), expected, rtol=2e-6, atol=0)


def test_noised_latents_and_targets_are_the_diffusers_examples() -> None:
    record = load_file(DATA / "diffusers/noising.safetensors")
    x_0, a = record["input.latents"], PLAIN.alpha_bar[record["input.timesteps"]]
    cases = {
        "epsilon": ("epsilon", record["input.noise"]),
        "v_prediction": ("v", record["input.noise"]),
        "noise_offset_0.1": ("epsilon", record["input.noise"] + 0.1 * record["input.offset_noise"]),
    }
    for name, (kind, eps) in cases.items():
        noised = prediction.add_noise(x_0, eps, a)
        torch.testing.assert_close(noised, record[f"{name}.noisy_latents"], rtol=1e-6, atol=1e-6)
        target = prediction.target(kind, x_0, eps, a)
        torch.testing.assert_close(target, record[f"{name}.target"], rtol=1e-6, atol=1e-6)


def test_noised_clips_are_open_sora_plans() -> None:
    record = load_file(DATA / "open-sora-plan/noising.safetensors")
    schedule = Schedule.linear()
    # its table is worked out in float64
    torch.testing.assert_close(schedule.alpha_bar.double(), record["table.alphas_cumprod"], rtol=2e-5, atol=0)
    noised = prediction.add_noise(record["in.x_start"], record["in.noise"], schedule.alpha_bar[record["in.t"]])
    torch.testing.assert_close(noised, record["out.ones.x_t"], rtol=1e-4, atol=1e-5)
