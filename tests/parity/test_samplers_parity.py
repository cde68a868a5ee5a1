"""Samplers compared with those of Stability's generative-models on a toy network, step by step, whether a scheduler of
diffusers makes the step or one of `sampling/sigma_solvers.py`."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.diffusion.parameterization import Parameterization
from mezzotint.diffusion.schedule import Schedule
from mezzotint.sampling.guidance import apply_guidance, apply_threshold
from mezzotint.sampling.network import CleanLatents
from mezzotint.sampling.sigma_solvers import SIGMA_SOLVERS, SigmaSolver
from mezzotint.sampling.sigmas import compute_sigmas
from mezzotint.settings.sections.sample import SampleSettings, SolverName

RECORD = load_file(Path(__file__).parent / "data" / "mindone-sdxl" / "samplers.safetensors")
SCHEDULE = Schedule.scaled_linear()
EPSILON = Parameterization("epsilon")
NAMES: dict[str, SolverName] = {
    "EulerEDMSampler": "euler",
    "HeunEDMSampler": "heun",
    "EulerAncestralSampler.eta1": "euler-a",
    "DPMPP2SAncestralSampler": "dpm++-2s-a",
    "DPMPP2MSampler": "dpm++",
    "LinearMultistepSampler": "lms",
}
LEVELS = {"legacy": SampleSettings(timestep_spacing="stability"), "edm": SampleSettings(sigmas="edm")}


def _toy(x: Tensor, index: Tensor, condition: Tensor) -> Tensor:
    """The recorded network: of its scaled input, the index of its level, and one number a sample."""
    return 0.5 * torch.tanh(x) + 0.1 * math.cos(float(index) / 1000) * x + 0.05 * condition.reshape(-1, 1, 1, 1)


def _plain(x: Tensor, index: Tensor) -> Tensor:
    return _toy(x, index, RECORD["cond"])


def _both(x: Tensor, index: Tensor) -> Tensor:
    return torch.cat([_toy(x, index, RECORD["uncond"]), _toy(x, index, RECORD["cond"])])


def _without() -> CleanLatents:
    return CleanLatents(_plain, SCHEDULE, EPSILON, lambda output: output)


def _with_guidance() -> CleanLatents:
    return CleanLatents(_both, SCHEDULE, EPSILON, lambda output: apply_guidance(output, lambda n, p: n + 5.0 * (p - n)))


def _walk(name: SolverName, kind: str, is_guided: bool) -> list[Tensor]:
    """The states after each step."""
    denoiser = _with_guidance() if is_guided else _without()
    sigmas = compute_sigmas(LEVELS[kind], SCHEDULE, "epsilon", 10)
    x = RECORD["x0"] * math.sqrt(1 + float(sigmas[0]) ** 2)
    solver = SigmaSolver(name, sigmas)
    states = []
    for number in range(len(solver)):
        x = solver.step(number, x, denoiser, lambda number: RECORD["noises"][number])
        states.append(x)
    return states


@pytest.mark.parametrize("theirs", NAMES)
@pytest.mark.parametrize("kind", LEVELS)
@pytest.mark.parametrize("guidance", ["id", "cfg5"])
def test_sampler_trajectory_equals_the_record(theirs: str, kind: str, guidance: str) -> None:
    latents = _walk(NAMES[theirs], kind, guidance == "cfg5")
    key = f"{theirs}.{kind}.{guidance}"
    pairs = [(latents[-1], RECORD[key])]
    if f"{key}.steps" in RECORD:
        pairs += list(zip(latents, RECORD[f"{key}.steps"], strict=True))
    worst = max(float((ours - record).abs().max() / record.abs().max()) for ours, record in pairs)
    print(f"\n{key}: {len(pairs)} states, worst deviation {worst:.1e} of the largest number")  # shown by pytest -s
    assert worst < 1e-5


def test_ddim_equals_euler_and_lcm_ends_at_the_predicted_image() -> None:
    assert torch.equal(_walk("ddim", "legacy", False)[-1], _walk("euler", "legacy", False)[-1])
    states = _walk("lcm", "legacy", False)
    sigmas = compute_sigmas(LEVELS["legacy"], SCHEDULE, "epsilon", 10)
    denoiser = _without()
    for number in (1, 5):
        clean = denoiser(states[number - 1], float(sigmas[number]))
        assert torch.allclose(states[number], clean + sigmas[number + 1] * RECORD["noises"][number])
    assert torch.equal(states[-1], denoiser(states[-2], float(sigmas[9]))), "no noise on the last one"
    assert set(NAMES.values()) | {"ddim", "lcm"} == set(SIGMA_SOLVERS)


@pytest.mark.parametrize(("ratio", "most"), [(0.995, 1.0), (0.995, 2.5), (0.9, 1.5)])
def test_thresholding_equals_the_record(ratio: float, most: float) -> None:
    bounded = apply_threshold(RECORD["dyn.input"], ratio=ratio, most=most)
    torch.testing.assert_close(bounded, RECORD[f"dyn.ratio{ratio}_max{most}"], rtol=0, atol=0)
