"""Three training steps of diffusers' script, recorded: loss, gradient norm, weights and average after each AdamW step.

The record is tests/parity/data/diffusers/train_step_sd.*; input perturbation and DREAM are settings of a later day.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.diffusion import prediction
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.families.sd import Family
from mezzotint.recipe.model import ModelSettings
from mezzotint.recipe.objective import ObjectiveSettings
from mezzotint.stages import Noised, TextEmbedding

DATA = Path(__file__).parent / "data" / "diffusers"
RECORD = json.loads((DATA / "train_step_sd.json").read_text())
TENSORS = load_file(DATA / "train_step_sd.safetensors")
CASES = {
    "epsilon": {},
    "epsilon_snr_gamma_5": {"min_snr_gamma": 5.0},
    "v_prediction": {},
    "v_prediction_snr_gamma_5": {"min_snr_gamma": 5.0},
    "noise_offset_0.1": {"noise_offset": 0.1},
}


class GivenNoise(Objective):
    """The objective with the record's noise and timesteps in place of addressed ones."""

    def noise(self, x_0: Tensor, draws: StepDraws) -> Noised:
        t = TENSORS["input.timesteps"]
        eps = TENSORS["input.noise"] + self.settings.noise_offset * TENSORS["input.offset_noise"]
        x_t = prediction.add_noise(x_0, eps, self.schedule.alpha_bar[t])
        return Noised(x_0=x_0, noise=eps, x_t=x_t, model_input=x_t, model_t=t, level=t.float())


@pytest.mark.parametrize("case", CASES)
def test_three_steps_are_the_recorded_ones(
    case: str, trainer_over: Callable[..., Any], batch_of: Callable[..., Any], step_batches: Callable[..., Any]
) -> None:
    expected = RECORD[case]
    kind = "v" if case.startswith("v_") else "epsilon"
    family = Family.load(ModelSettings(path=DATA / "tiny_sd"), only=["denoiser"])
    text = TextEmbedding(TENSORS["input.encoder_hidden_states"])
    batches = [step_batches([batch_of(TENSORS["input.latents"], text)], step) for step in range(3)]
    after: list[dict[str, Tensor]] = []
    trainer = trainer_over(
        family,
        batches,
        optim={"lr": 1e-4, "clip": {"norm": 1.0}, "ema": {"rule": "ramp", "decay": 0.9999}},
        objective=GivenNoise(ObjectiveSettings(**CASES[case]), family.schedule, kind),
    )
    first = trainer.objective.noise(TENSORS["input.latents"], StepDraws.at(0, 0, torch.arange(4).numpy(), "cpu"))
    torch.testing.assert_close(first.x_t, TENSORS[f"{case}.noisy_latents"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(trainer.objective.target(first), TENSORS[f"{case}.target"], rtol=1e-5, atol=1e-6)
    reports = []
    for step in batches:
        reports.append(trainer.step(step).resolve(0))
        after.append({name: t.clone() for name, t in trainer.update.tensors().items()})
    assert [r.loss for r in reports] == pytest.approx(expected["loss"], rel=1e-5)
    assert [r.norm for r in reports] == pytest.approx(expected["grad_norm"], rel=2e-5)
    for state, params, ema in zip(after, expected["params"], expected["ema_params"], strict=True):
        assert sums(state, "w/") == pytest.approx(params, rel=1e-6)
        assert sums(state, "ema/") == pytest.approx(ema, rel=1e-6)
    if case == "epsilon":
        for name, (total, absolute, norm) in expected["params_after_first_step"].items():
            tensor = after[0][f"w/denoiser/{name}"].double()
            assert float(tensor.abs().sum()) == pytest.approx(absolute, rel=1e-5)
            assert float(tensor.norm()) == pytest.approx(norm, rel=1e-5)
            assert float(tensor.sum()) == pytest.approx(total, rel=1e-4, abs=1e-5 * tensor.numel())


def sums(tensors: dict[str, Tensor], prefix: str) -> dict[str, float]:
    chosen = [t.double() for name, t in tensors.items() if name.startswith(prefix)]
    return {"sum": float(sum(t.sum() for t in chosen)), "abs_sum": float(sum(t.abs().sum() for t in chosen))}
