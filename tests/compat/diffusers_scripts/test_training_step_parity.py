"""Three training steps of diffusers' script, recorded: loss, gradient norm, weights and average after each AdamW step.

The record is tests/parity/data/diffusers/train_step_sd.*. Each of its cases is the script's command line, so that the
dialect, the objective's own arithmetic, the trainer and the update are what is compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.diffusion import noise
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.errors import RecipeError
from mezzotint.families.sd import Family
from mezzotint.settings.reading.translation import Launched
from mezzotint.settings.recipe import Recipe
from mezzotint.stages import Noised, TextEmbedding
from mezzotint.tasks.reading import foreign
from support.rounding import unit
from support.trainers import batch_of, step_batches, trainer_over

DATA = Path(__file__).parents[2] / "parity" / "data" / "diffusers"

pytestmark = pytest.mark.numbers
RECORD = json.loads((DATA / "train_step_sd.json").read_text())
TENSORS = load_file(DATA / "train_step_sd.safetensors")
DREAMS = [case for case in RECORD if case.startswith("dream")]
CASES = [case for case in RECORD if case not in DREAMS]
IN_OTHERS = ("input_perturbation_0.1", "noise_offset_0.1", "v_prediction")
"""Cases of which another one has all that they have."""
ROUNDINGS = {"noisy_latents": 16, "target": 16, "model_pred": 256, "loss": 256, "norm": 256}
"""How many roundings what is compared may be apart: few products for what goes in; for what comes out of the network,
whose convolutions each machine adds up in its own order, several times the 30 of a machine unlike the recording one; 8
of their sums for weights, which a step of 1e-4 hardly moves."""
STREAMS = ("input.noise", "input.offset_noise", "input.perturb_noise")
"""The record's random numbers, in the order of the addresses that represent them below."""


def line(case: str) -> list[str]:
    """The script's command of a case."""
    values = dict(RECORD[case]["case"])
    if "dream" in values:
        values |= {"dream_training": True, "dream_detail_preservation": values.pop("dream")}
    if "prediction" in values:
        values["prediction_type"] = values.pop("prediction")
    usual = {"pretrained_model_name_or_path": DATA / "tiny_sd", "train_data_dir": "images", "train_batch_size": 4,
             "learning_rate": 1e-4, "max_grad_norm": 1, "use_ema": True}  # fmt: skip
    return [f"--{flag}" if value is True else f"--{flag}={value}" for flag, value in (usual | values).items()]


def translated(case: str) -> Recipe:
    return foreign.read_command_line("diffusers-sd", line(case), (), Launched()).recipe


class AtGivenTimesteps(Objective):
    """The objective, at the record's timesteps and with addresses that represent the record's random numbers."""

    def noise(self, x_0: Tensor, draws: StepDraws) -> Noised:
        first, second, third = (torch.full((len(x_0),), place) for place in range(len(STREAMS)))
        recorded = replace(draws, noise=first, offset=second, perturbation=third)
        return self.noise_at(x_0, recorded, TENSORS["input.timesteps"])


@pytest.fixture
def _recorded_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Normal numbers are the record's."""

    def normal(addresses: Tensor, shape: Sequence[int]) -> Tensor:
        (place,) = set(addresses.tolist())
        recorded = TENSORS[STREAMS[place]]
        assert recorded.shape[1:] == tuple(shape)
        return recorded

    monkeypatch.setattr(noise, "normal", normal)


def test_record_has_these_cases() -> None:
    assert sorted(DREAMS) == ["dream_p1", "dream_p10"]
    assert sorted(CASES) == [
        "epsilon", "epsilon_snr_gamma_5", "input_perturbation_0.1", "noise_offset_0.1", "offset_and_perturbation",
        "v_prediction", "v_prediction_snr_gamma_5",
    ]  # fmt: skip


@pytest.mark.usefixtures("_recorded_noise")
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case in IN_OTHERS else case for case in CASES]
)
def test_three_training_steps_match_the_record(case: str) -> None:
    expected, recipe = RECORD[case], translated(case)
    family = Family.of(recipe.model, only=["denoiser"])
    text = TextEmbedding(TENSORS["input.encoder_hidden_states"])
    batches = [step_batches([batch_of(TENSORS["input.latents"], text)], step) for step in range(3)]
    objective = AtGivenTimesteps(recipe.objective, family.schedule, recipe.model.prediction or family.prediction)
    trainer = trainer_over(family, batches, optim=recipe.optim.model_dump(), objective=objective)
    worst = _first_step(case, family, objective, text)
    reports, after = [], []
    for step in batches:
        reports.append(trainer.train_step(step).result())
        after.append({name: t.clone() for name, t in trainer.model.update.tensors().items()})
    worst["loss"] = _relative([r.loss for r in reports], expected["loss"])
    worst["norm"] = _relative([r.norm for r in reports], expected["grad_norm"])
    for name, prefix in (("params", "w/"), ("ema_params", "ema/")):
        for kind in ("sum", "abs_sum"):
            sums = [_sums(state, prefix)[kind] for state in after]
            worst[f"{name} {kind}"] = _relative(sums, [state[kind] for state in expected[name]])
    print(f"\n{case}: " + ", ".join(f"{name} {value:.1e}" for name, value in worst.items()))  # shown by pytest -s
    assert {name: value for name, value in worst.items() if value > ROUNDINGS.get(name, 8) * unit(torch.float32)} == {}
    if case == "epsilon":
        _compare_each(after[0], expected["params_after_first_step"], lr=recipe.optim.lr, eps=recipe.optim.optimizer.eps)


@pytest.mark.parametrize("case", DREAMS)
def test_dream_training_is_refused(case: str) -> None:
    with pytest.raises(RecipeError) as caught:
        translated(case)
    assert [problem.where for problem in caught.value.problems] == ["--dream_training"]
    assert "DREAM" in caught.value.problems[0].message


def _first_step(case: str, family: Family, objective: Objective, text: TextEmbedding) -> dict[str, float]:
    """The largest differences of inputs and outputs from the record."""
    noised = objective.noise(TENSORS["input.latents"], StepDraws.at(0, 0, torch.arange(4).numpy(), "cpu"))
    with torch.no_grad():
        predicted = family.predict(noised, family.condition(text, None))
    tensors = {"noisy_latents": noised.x_t, "target": objective.target(noised), "model_pred": predicted}
    return {name: float((tensor - TENSORS[f"{case}.{name}"]).abs().max()) for name, tensor in tensors.items()}


def _relative(ours: Sequence[float], expected: Sequence[float]) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(ours, expected, strict=True))


def _sums(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, float]:
    chosen = [t.double() for name, t in tensors.items() if name.startswith(prefix)]
    return {"sum": float(sum(t.sum() for t in chosen)), "abs_sum": float(sum(t.abs().sum() for t in chosen))}


def _compare_each(
    state: Mapping[str, Tensor], expected: Mapping[str, Sequence[float]], *, lr: float, eps: float
) -> None:
    """Sums of every tensor after the first step, which is lr · g/(|g| + ε).

    It hides the size of g, except where g is as small as its own rounding, as is that of a bias whose true one is 0:
    with g uncertain by δ the step is uncertain by lr · ε δ/(|g| + ε)², and by no more than 2 lr.
    """
    moments = {name: state[f"opt.mean/denoiser/{name}"].double() for name in expected}
    gradients = {name: moment / 0.1 for name, moment in moments.items()}  # 1 − β₁ of it is the first moment
    delta = 64 * unit(torch.float32) * max(float(g.abs().max()) for g in gradients.values())
    known = 0
    for name, (total, absolute, norm) in expected.items():
        tensor, g = state[f"w/denoiser/{name}"].double(), gradients[name].abs()
        uncertain = (lr * eps * delta / (g + eps) ** 2).clamp_max(2 * lr).sum()
        rounded = 16 * unit(torch.float32) * absolute  # some six operations, a root among them, on each side
        slack = float(uncertain) + rounded
        known += slack < 0.01 * lr * tensor.numel() + rounded
        assert abs(float(tensor.abs().sum()) - absolute) <= slack, name
        assert abs(float(tensor.sum()) - total) <= slack, name
        assert abs(float(tensor.norm()) - norm) <= slack, name
    assert known > 0.9 * len(expected), "nearly all tensors are held to a hundredth of their step"
