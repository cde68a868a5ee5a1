"""What MindONE's SDXL example teaches and moves: the loss by classes, and which tensors decay."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mezzotint.compat.mindone import sdxl_layout as mindone_sdxl
from mezzotint.compat.mindone.adam_weight_decay_settings import AdamWeightDecay
from mezzotint.diffusion import noise
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.diffusion.schedule import Schedule
from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.settings.sections.objective import ObjectiveSettings
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.tasks.check.meta_model import MetaModel

DATA = Path(__file__).parents[2] / "parity" / "data" / "mindone-sdxl"
RECORD = load_file(DATA / "scalings.safetensors")
SIGMAS = RECORD["probe_sigmas"]
SCALINGS = {"epsilon": "eps", "v": "v", "v-edm": "v_edm_cnoise", "edm": "edm0.5"}
WEIGHTINGS = {"unit": "unit", "epsilon": "eps", "v": "v", "edm": "edm0.5"}


@pytest.mark.parametrize(("kind", "weighting", "loss"), list(product(SCALINGS, WEIGHTINGS, ("mse", "l1"))))
@pytest.mark.parametrize("gamma", [None, 5.0])
def test_loss_matches_mindone_for_all_classes(kind: str, weighting: str, loss: str, gamma: float | None) -> None:
    """StandardDiffusionLoss: the mean of w |D − x_0|^p with D = c_skip x_σ + c_out F(c_in x_σ, …) and w ← min(w, γ),
    from the recorded factors and weights, at the recorded σ that are entries of the table."""
    settings = ObjectiveSettings.model_validate(
        {"weighting": weighting, "loss": loss, "min_snr_gamma": gamma, "min_snr_form": "x0"}
    )
    objective = Objective(settings, Schedule.scaled_linear(), kind)
    index = RECORD["probe_sigma_to_idx"]
    sigma = RECORD["probe_quantized_sigma"]
    count = len(sigma)
    x_0, output = (noise.normal(torch.arange(count) + 100 * n, (4, 3, 3)) for n in (1, 2))
    noised = objective.noise_at(x_0, StepDraws.at(0, 0, np.arange(count), "cpu"), index)
    at = sigma.view(-1, 1, 1, 1)
    x_sigma = x_0 + at * noised.noise
    half = torch.tensor(0.5)
    c_skip, c_out = {
        "epsilon": (torch.ones_like(at), -at),
        "v": (1 / (at**2 + 1), -at / (at**2 + 1).sqrt()),
        "v-edm": (1 / (at**2 + 1), -at / (at**2 + 1).sqrt()),
        "edm": (half**2 / (at**2 + half**2), at * half / (at**2 + half**2).sqrt()),
    }[kind]
    w = {"unit": torch.ones_like(sigma), "epsilon": sigma**-2, "v": (sigma**2 + 1) / sigma**2,
         "edm": (sigma**2 + 0.25) / (0.5 * sigma) ** 2}[weighting]  # fmt: skip
    w = w if gamma is None else w.clamp_max(gamma)
    error = (c_skip * x_sigma + c_out * output - x_0).abs() ** (2 if loss == "mse" else 1)
    expected = (w.view(-1, 1, 1, 1) * error).flatten(1).mean(1)
    losses = objective.loss(output, noised, torch.ones(count))
    torch.testing.assert_close(losses.per_sample * losses.weight, expected, rtol=3e-4, atol=1e-6)


def test_preconditioning_factors_match_the_record() -> None:
    at = SIGMAS
    for kind, name in SCALINGS.items():
        c_skip = RECORD[f"scaling.{name}.c_skip"]
        expected = {"epsilon": torch.ones_like(at), "edm": 0.25 / (at**2 + 0.25)}.get(kind, 1 / (at**2 + 1))
        torch.testing.assert_close(c_skip, expected, rtol=1e-5, atol=0)
    for kind, name in WEIGHTINGS.items():
        expected = {"unit": torch.ones_like(at), "epsilon": at**-2, "v": at**-2 + 1, "edm": at**-2 + 4}[kind]
        torch.testing.assert_close(RECORD[f"weighting.{name}"], expected, rtol=1e-5, atol=0)


@pytest.mark.slow
def test_decay_groups_of_the_full_size_base_match_the_record() -> None:
    record = json.loads((DATA / "decay_groups.json").read_text())
    optim = OptimSettings(optimizer=AdamWeightDecay(no_decay=("@mindone",)))
    words = ["optim.optimizer.kind=adam-weight-decay", "optim.optimizer.no_decay=['@mindone']"]
    assert resolve_paths(read_text("schema: 1", overrides=words)).optim.optimizer == optim.optimizer
    outline = MetaModel(resolve_paths(read_text("model: {family: sdxl, path: sdxl}", "test", words)))
    groups = {group.name: group for group in outline.update.groups}
    sizes = {name: p.numel() for name, p in outline.trained.items()}
    decayed, spared = groups["denoiser"].names, groups["denoiser.no_decay"].names
    assert {
        "decayed_tensors": len(decayed), "undecayed_tensors": len(spared),
        "decayed_elements": sum(sizes[name] for name in decayed),
        "undecayed_elements": sum(sizes[name] for name in spared),
    } == record["counts"]  # fmt: skip
    ours = [name.removeprefix("denoiser/") for name in outline.trained]
    places = {name: entry.foreign for entry in mindone_sdxl.entries("denoiser", ours) for name in entry.ours}
    norms = {
        mindone_sdxl.stability_name(places[name.removeprefix("denoiser/")])
        for name in decayed
        if places[name.removeprefix("denoiser/")].endswith((".gamma", ".beta"))
    }
    assert norms == set(record["decayed_norm_tensors_torch_names"])
    assert len(norms) == 70
