"""The exported scheduler configuration changes only what training changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_edm_euler import EDMEulerScheduler
from diffusers.schedulers.scheduling_euler_discrete import EulerDiscreteScheduler
from diffusers.schedulers.scheduling_pndm import PNDMScheduler

from mezzotint.diffusion import preconditioning
from mezzotint.weights.folder.scheduler_file import correct_config, prediction_of

PNDM: dict[str, Any] = {"_class_name": "PNDMScheduler", "beta_start": 0.00085, "skip_prk_steps": True}
EULER: dict[str, Any] = {"_class_name": "EulerDiscreteScheduler", "prediction_type": "v_prediction"}


def test_correct_scheduler_is_unchanged() -> None:
    assert correct_config(PNDM, prediction="epsilon", zero_terminal=False) == PNDM
    assert correct_config(EULER, prediction="v", zero_terminal=False) == EULER


def test_prediction_is_written_and_local_path_removed() -> None:
    file = correct_config(PNDM | {"_name_or_path": "/home/me"}, prediction="v", zero_terminal=False)
    assert file == PNDM | {"prediction_type": "v_prediction"}
    assert correct_config(EULER, prediction="epsilon", zero_terminal=False)["prediction_type"] == "epsilon"


def test_zero_terminal_snr_selects_a_scheduler_that_supports_it() -> None:
    file = correct_config(EULER, prediction="v", zero_terminal=True)
    assert file == EULER | {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}
    file = correct_config(PNDM, prediction="v", zero_terminal=True)
    assert file["_class_name"] == "DDIMScheduler"
    assert file["clip_sample"] is False
    assert file["timestep_spacing"] == "trailing"


@pytest.mark.parametrize("base", [PNDM, EULER])
def test_epsilon_with_zero_terminal_snr_uses_leading_spacing(base: dict[str, Any]) -> None:
    file = correct_config(base, prediction="epsilon", zero_terminal=True)
    assert file["rescale_betas_zero_snr"] is True
    assert file["timestep_spacing"] == "leading"


def test_zero_terminal_snr_is_switched_off() -> None:
    before = EULER | {"rescale_betas_zero_snr": True}
    assert correct_config(before, prediction="v", zero_terminal=False)["rescale_betas_zero_snr"] is False


@pytest.mark.parametrize("sigma_data", [0.5, 1.0])
def test_edm_is_exported_as_edm_euler_scheduler(sigma_data: float) -> None:
    file = correct_config(PNDM, prediction="edm", zero_terminal=False, sigma_data=sigma_data)
    assert prediction_of(file) == "edm"
    assert file["beta_start"] == 0.00085, "the noise schedule of training"
    scheduler = EDMEulerScheduler.from_config(file)
    sigma = torch.tensor([0.01, 0.5, 3.0, 50.0])
    ours = preconditioning.compute_scaling("edm", sigma, sigma_data=sigma_data)
    x, output = torch.randn(4, generator=torch.Generator().manual_seed(0)), torch.tensor([0.3, -1.0, 2.0, 0.5])
    for place in range(4):
        at = sigma[place : place + 1]
        torch.testing.assert_close(scheduler.precondition_inputs(x[place], at)[0], ours.c_in[place] * x[place])
        torch.testing.assert_close(scheduler.precondition_noise(at)[0], ours.c_noise[place])
        clean = ours.c_skip[place] * x[place] + ours.c_out[place] * output[place]
        torch.testing.assert_close(scheduler.precondition_outputs(x[place], output[place], at)[0], clean)


def test_velocity_with_log_sigma_input_uses_continuous_timesteps() -> None:
    for prediction, takes_log_sigma in (("v-edm", None), ("v", True)):
        file = correct_config(PNDM, prediction=prediction, zero_terminal=False, takes_log_sigma=takes_log_sigma)
        assert prediction_of(file) == "v-edm"
        scheduler = EulerDiscreteScheduler.from_config(file)
        scheduler.set_timesteps(5)
        torch.testing.assert_close(scheduler.timesteps, 0.25 * scheduler.sigmas[:-1].log())
    back = correct_config(file, prediction="epsilon", zero_terminal=False)
    assert "timestep_type" not in back
    assert prediction_of(back) == "epsilon"
    assert prediction_of(correct_config(file, prediction="v-edm", zero_terminal=False, takes_log_sigma=False)) == "v"


@pytest.mark.parametrize(("prediction", "takes_log_sigma"), [("epsilon-unscaled", None), ("edm", False)])
def test_diffusers_refuses_predictions_it_cannot_compute(prediction: str, takes_log_sigma: bool | None) -> None:
    file = correct_config(PNDM, prediction=prediction, zero_terminal=False, takes_log_sigma=takes_log_sigma)
    assert prediction_of(file) == prediction
    for kind in (PNDMScheduler, EulerDiscreteScheduler, DDIMScheduler):
        scheduler = kind.from_config(file)
        scheduler.set_timesteps(4)
        with pytest.raises(ValueError, match="prediction_type"):
            scheduler.step(torch.zeros(1, 4, 2, 2), scheduler.timesteps[0], torch.zeros(1, 4, 2, 2))
    assert prediction_of({"prediction_type": "flow"}) is None
