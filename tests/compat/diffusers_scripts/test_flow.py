"""What diffusers' DreamBooth scripts for flow-matching models have in common: the objective compared with diffusers'
own functions, called as the scripts call them; shapes, files for bitsandbytes, notes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dialect_cases.diffusers_dreambooth_lora_flux2_klein import LINES as KLEIN
from dialect_cases.diffusers_dreambooth_lora_sd3 import LINES as SD3
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from diffusers.training_utils import (
    compute_density_for_timestep_sampling,
    compute_loss_weighting_for_sd3,
    generate_aspect_ratio_buckets,
)
from foreign_lines import ALONE
from prepared_commands import PRIOR, folder_of_model, line

from mezzotint.diffusion.flow import FlowSchedule, Tokens
from mezzotint.diffusion.flow_objective import FlowObjective, objective_of
from mezzotint.diffusion.objective import StepDraws
from mezzotint.tasks.reading import foreign

SCHEMES: list[tuple[str, dict[str, Any]]] = [
    ("sd3", {"weighting_scheme": "logit_normal"}),
    ("sd3", {"weighting_scheme": "logit_normal", "logit_mean": 0.8, "logit_std": 0.5, "precondition_outputs": 0}),
    ("lora-sd3", {"weighting_scheme": "sigma_sqrt"}),
    ("flux", {"weighting_scheme": "none"}),
    ("lora-flux", {"weighting_scheme": "logit_normal", "logit_mean": -0.4}),
    ("lora-flux2-klein", {"weighting_scheme": "cosmap"}),
    ("lora-qwen-image", {"weighting_scheme": "sigma_sqrt"}),
    ("lora-z-image", {"weighting_scheme": "mode", "mode_scale": 1.0}),
]


def objective_from(dialect: str, message: dict[str, Any]) -> tuple[FlowObjective, FlowMatchEulerDiscreteScheduler]:
    """Our objective of a command, and the scheduler in which its script looks sigmas up."""
    name = f"diffusers-dreambooth-{dialect}"
    words = line(name, *(f"--{flag}={value}" for flag, value in message.items()))
    recipe = foreign.read_command_line(name, words, (), ALONE).recipe
    scheduler: Any = FlowMatchEulerDiscreteScheduler.from_pretrained(folder_of_model(name) / "scheduler")
    config = json.loads((folder_of_model(name) / "scheduler" / "scheduler_config.json").read_text())
    opened = objective_of(recipe.objective, FlowSchedule.of(config, Tokens()), "flow")
    assert isinstance(opened, FlowObjective)
    return opened, scheduler


@pytest.mark.parametrize(("dialect", "message"), SCHEMES, ids=lambda each: each if isinstance(each, str) else None)
def test_timesteps_and_loss_weights_match_the_script(dialect: str, message: dict[str, Any]) -> None:
    objective, scheduler = objective_from(dialect, message)
    scheme, many = message["weighting_scheme"], 20_000
    u = compute_density_for_timestep_sampling(
        scheme, many, message.get("logit_mean", 0.0), message.get("logit_std", 1.0), message.get("mode_scale", 1.29),
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    theirs = scheduler.timesteps[(u * 1000).long()] / 1000
    ours = objective.levels(StepDraws.at(0, 1, np.arange(many), "cpu"), torch.Size((4, 8, 8)))
    assert torch.cdist(ours[:500, None], scheduler.sigmas[:, None]).min(1).values.max() < 1e-5, "on their table"
    shares = torch.linspace(0.05, 0.95, 19)
    torch.testing.assert_close(ours.quantile(shares), theirs.quantile(shares), atol=0.02, rtol=0)

    x_0, predicted = torch.randn(2, 3, 4, 4, 4, generator=torch.Generator().manual_seed(1))
    noised = objective.noise(x_0, StepDraws.at(0, 1, np.arange(3), "cpu"))
    sigmas = noised.level[:, None, None, None]
    weighting = compute_loss_weighting_for_sd3(scheme, sigmas)
    is_preconditioned = "sd3" in dialect and message.get("precondition_outputs", 1)
    target = x_0 if is_preconditioned else noised.noise - x_0
    output = predicted * -sigmas + noised.x_t if is_preconditioned else predicted
    expected = (weighting * (output - target) ** 2).flatten(1).mean(1)
    loss = objective.loss(predicted, noised, torch.ones(3))
    torch.testing.assert_close(loss.per_sample * loss.weight, expected, rtol=1e-4, atol=1e-5)


def test_bucket_shapes_match_the_script() -> None:
    for side in (512, 1024, 768):
        sizes = KLEIN.translate("--use_aspect_ratio_buckets", f"--resolution={side}").settings["data"]["buckets"]
        assert [tuple(pair) for pair in sizes["sizes"]] == generate_aspect_ratio_buckets(side)


def test_options_without_effect_and_improvements_are_noted(tmp_path: Path) -> None:
    for lines, words, message in (
        (SD3, ["--logit_std=2", "--weighting_scheme=mode"], "--logit_std: without --weighting_scheme=logit_normal"),
        (SD3, ["--cache_latents"], "in the script, both are found by the number of the step"),
        (SD3, ["--weighting_scheme=cosmap", *PRIOR], "in the script, class images have that of the subject's"),
        (SD3, [], "in the script, once for the whole run"),
        (KLEIN, [*PRIOR], "in the script, as many as the subject has"),
        (KLEIN, ["--final_validation_prompt=a", "--skip_final_inference"], "--skip_final_inference is used"),
        (KLEIN, ["--bnb_quantization_config_path=bits.json"], "bnb_4bit_quant_type in bits.json: nf4 is used"),
        (KLEIN, ["--mixed_precision=bf16"], "kept in float32"),
    ):
        Path("bits.json").write_text('{"load_in_4bit": true}')
        assert message in lines.notes_text(*words), words
    assert "that of the subject's" not in KLEIN.notes_text("--weighting_scheme=cosmap", *PRIOR)
    assert "once for the whole run" not in SD3.notes_text("--center_crop")


def test_bitsandbytes_config_chooses_4_or_8_bits() -> None:
    flag = "--bnb_quantization_config_path=bits.json"
    for text, record_inputs in (
        ('{"load_in_8bit": true}', None),
        ('{"load_in_8bit": true, "load_in_4bit": true}', "--bnb_quantization_config_path"),
        ("{}", "--bnb_quantization_config_path"),
        ('{"load_in_5bit": true}', "load_in_5bit in bits.json"),
    ):
        Path("bits.json").write_text(text)
        if record_inputs is None:
            assert KLEIN.changed(flag) == {"run.frozen_dtype": "int8"}
        else:
            assert record_inputs in dict(KLEIN.refusal(flag))
