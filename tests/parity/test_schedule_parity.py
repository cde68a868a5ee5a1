"""Schedules, SNR, Min-SNR weights and noising against stored results of four trainers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from diffusers import DDPMScheduler
from safetensors.torch import load_file

from mezzotint.diffusion import prediction
from mezzotint.diffusion.schedule import Schedule
from mezzotint.diffusion.weighting import min_snr
from support.rounding import within

DATA = Path(__file__).parent / "data"
PLAIN = Schedule.scaled_linear()
ZERO = PLAIN.rescale_to_zero_terminal_snr()
# β is a square of a sum of two terms, and each processor rounds square roots and such sums in its own way; the first β
# are a fourteenth of the last
BETAS = 8
# ᾱ has the roundings of up to a thousand factors 1 − β, of which chance takes most away: four times √1000
TABLE = 128
# the records' SNR is (√ᾱ/√(1 − ᾱ))², whose square doubles the roundings of two roots and a quotient; ours is a quotient
FACTOR = 16
# σ² = (1 − ᾱ)/ᾱ begins with 1 − ᾱ = 0.00085, 1/1176 of the numbers that were rounded; the root halves that
SIGMAS = 600


@pytest.mark.parametrize("zero", [False, True])
def test_alpha_bar_is_bit_identical_to_diffusers(zero: bool) -> None:
    """To the bit, as diffusers works it out on this very machine; to rounding, as it was recorded on another."""
    theirs = DDPMScheduler(
        beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, rescale_betas_zero_snr=zero
    )
    ours = ZERO if zero else PLAIN
    assert torch.equal(ours.alpha_bar, theirs.alphas_cumprod)
    assert torch.equal(ours.betas(), theirs.betas)
    record = load_file(DATA / "diffusers/snr_weights.safetensors")
    within(ours.alpha_bar, record["zero_terminal_alphas_cumprod" if zero else "alphas_cumprod"], roundings=TABLE)
    if not zero:
        within(ours.betas(), record["betas"], roundings=BETAS)
        within(ours.alpha_bar, record["alphas_cumprod"], roundings=TABLE, of="each")


def test_snr_equals_that_of_diffusers() -> None:
    record = load_file(DATA / "diffusers/snr_weights.safetensors")
    for start in ("", "zero_terminal_"):
        snr = Schedule(record[f"{start}alphas_cumprod"]).snr
        within(snr, record[f"{start}snr"], roundings=FACTOR, of="each")


@pytest.mark.parametrize("gamma", [1, 5, 20])
@pytest.mark.parametrize(("kind", "name"), [("epsilon", "epsilon"), ("v", "v_prediction")])
def test_min_snr_in_diffusers_form(gamma: int, kind: str, name: str) -> None:
    record = load_file(DATA / "diffusers/snr_weights.safetensors")
    weight = min_snr(record["snr"], gamma, kind, "prediction")
    within(weight, record[f"weight_{name}_gamma_{gamma}"], roundings=FACTOR, of="each")


def test_min_snr_in_diffusers_form_at_zero_terminal_snr() -> None:
    record = load_file(DATA / "diffusers/snr_weights.safetensors")
    weight = min_snr(record["zero_terminal_snr"], 5, "v", "prediction")
    within(weight, record["zero_terminal_weight_v_prediction_gamma_5"], roundings=FACTOR, of="each")


def test_rescaled_betas_equal_those_of_everydream() -> None:
    record = load_file(DATA / "everydream2/schedule_snr.safetensors")
    # towards the end √ᾱ − √ᾱ_T is a small difference, 4e-4, of numbers around 0.07, and β = 1 − ᾱ_t/ᾱ_{t−1} carries
    # their roundings
    within(ZERO.betas(), record["betas_rescaled"], roundings=TABLE)
    linear = Schedule.linear().rescale_to_zero_terminal_snr()
    within(linear.betas(), record["linear_betas_rescaled"], roundings=TABLE)
    # it writes 1e-9 for an SNR of 0
    snr = Schedule.from_betas(record["betas_rescaled"]).snr
    within(snr[:-1], record["snr_rescaled"][:-1], roundings=FACTOR, of="each")
    assert snr[-1] == 0
    assert record["snr_rescaled"][-1] == pytest.approx(1e-9)


@pytest.mark.parametrize(("name", "kind"), [("eps", "epsilon"), ("v", "v"), ("eps_z", "epsilon"), ("v_z", "v")])
def test_min_snr_in_everydreams_form(name: str, kind: str) -> None:
    record = load_file(DATA / "everydream2/schedule_snr.safetensors")
    of_diffusers = load_file(DATA / "diffusers/snr_weights.safetensors")
    snr = of_diffusers["zero_terminal_snr" if name.endswith("_z") else "snr"]
    weight = min_snr(snr, 5, kind, "ratio")
    within(weight, record[f"minsnr_weight.{name}.gamma5"], roundings=FACTOR, of="each")


def test_sigmas_equal_those_of_stability_and_mindone() -> None:
    record = load_file(DATA / "mindone-sdxl/sigmas.safetensors")["sigmas"]
    within(PLAIN.sigma, record, roundings=SIGMAS, of="each")  # cumulative products of float32 here, of float64 there


@pytest.mark.parametrize("gamma", [1.0, 5.0, 20.0])
@pytest.mark.parametrize(("kind", "name"), [("epsilon", "weighting.eps"), ("v", "weighting.v")])
def test_min_snr_in_mindones_form_clamps_the_weight_in_x0_space(kind: str, name: str, gamma: float) -> None:
    record = json.loads((DATA / "mindone-sdxl/weighting.json").read_text())
    snr = torch.tensor(record["probe_sigmas"]) ** -2
    in_x_0 = torch.tensor(record[name])
    expected = in_x_0.clamp_max(gamma) / in_x_0
    torch.testing.assert_close(min_snr(snr, gamma, kind, "x0"), expected, rtol=2e-6, atol=0)


def test_noisy_latents_and_targets_equal_those_of_diffusers() -> None:
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


def test_noisy_clips_equal_those_of_open_sora_plan() -> None:
    record = load_file(DATA / "open-sora-plan/noising.safetensors")
    schedule = Schedule.linear()
    # its table is worked out in float64
    torch.testing.assert_close(schedule.alpha_bar.double(), record["table.alphas_cumprod"], rtol=2e-5, atol=0)
    noised = prediction.add_noise(record["in.x_start"], record["in.noise"], schedule.alpha_bar[record["in.t"]])
    torch.testing.assert_close(noised, record["out.ones.x_t"], rtol=1e-4, atol=1e-5)
