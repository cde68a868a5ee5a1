"""Optimizers, schedules, noise levels and losses of a job."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from foreign_lines import ALONE
from jobs import FLUX, job, notes, problems, settings, write

from mezzotint.tasks.reading import foreign


@pytest.mark.parametrize(
    ("name", "kind", "decay"),
    [
        ("adamw", "adamw", 0.01), ("AdamW8bit", "adamw-8bit-or-adamw", 0.01), ("adam8bit", "adamw-8bit-or-adamw", 0.0),
        ("lion", "lion", 0.0), ("prodigy", "prodigy", 0.0), ("adafactor", "library", 0.0),
        ("dadaptation", "library", 0.0), ("ademamix8bit", "library", 0.0), ("adagrad", "library", 0.0),
    ],
)  # fmt: skip
def test_optimizers_by_name(name: str, kind: str, decay: float) -> None:
    read = settings({"train.optimizer": name, "train.lr": 1e-4})
    assert (read["optim.optimizer.kind"], read["optim.optimizer.weight_decay"]) == (kind, decay)
    assert read["optim.lr"] == (1.0 if name in ("prodigy", "dadaptation") else 1e-4)
    assert (read.get("optim.optimizer.eps") == 1e-6) == (kind not in ("lion", "library"))


def test_adafactor_has_a_rate_of_its_own_and_clips_nothing() -> None:
    changes = {"train.optimizer": "adafactor", "train.lr": 1e-4, "train.max_grad_norm": 1.0}
    read = foreign.read_command_line("ai-toolkit", [write(job(changes))], (), ALONE).recipe
    assert read.optim.clip.norm is None
    assert any("gradients are not clipped" in note for note in notes(changes))
    from pytorch_optimizer import AdaFactor

    weight = torch.nn.Parameter(torch.ones(4, 4))
    optimizer = AdaFactor([weight], lr=1e-4, **read.optim.optimizer.model_dump()["options"])
    weight.grad = torch.ones(4, 4)
    optimizer.step()
    assert torch.allclose(weight, torch.full((4, 4), 1 - 1e-4), atol=1e-7), "the rate, not scaled by the weights"


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"train.optimizer": "automagic"}, "train.optimizer", "needs Automagic"),
        ({"train.optimizer": "adamw8bits"}, "train.optimizer", "did you mean adamw8bit?"),
        ({"train.optimizer_params.d_coef": 2}, "train.optimizer_params.d_coef", "is of prodigy"),
        ({"train.optimizer": "adam", "train.optimizer_params.weight_decay": 0.1},
         "train.optimizer_params.weight_decay", "use adamw"),
        ({"train.lr_scheduler": "step"}, "train.lr_scheduler", "piecewise"),
        ({"train.lr_scheduler_params.eta_min": 1e-6}, "train.lr_scheduler_params.eta_min", "is not of constant"),
        ({"train.lr_scheduler_params.factor": 0.5}, "train.lr_scheduler_params.factor", "multiply lr by it"),
        ({"train.gradient_accumulation": 2, "train.gradient_accumulation_steps": 2},
         "train.gradient_accumulation_steps", "are both above 1"),
        ({**FLUX, "train.timestep_type": "one_step"}, "train.timestep_type", "needs other noise levels"),
        ({**FLUX, "train.timestep_type": "sigmoidd"}, "train.timestep_type", "did you mean sigmoid?"),
        ({"train.content_or_style": "style"}, "train.content_or_style", "needs content and style timesteps"),
        ({"train.loss_type": "wavelet"}, "train.loss_type", "needs wavelet"),
        ({**FLUX, "train.max_denoising_steps": 500}, "train.max_denoising_steps", "a range of noise levels"),
        ({"train.min_denoising_steps": 500, "train.max_denoising_steps": 501}, "train.max_denoising_steps", "by 3"),
    ],
)  # fmt: skip
def test_impossible_updates_are_refused(changes: dict[str, Any], where: str, words: str) -> None:
    [(named, _, message, _)] = problems(job(changes))
    assert named == f"{where} in job.yaml"
    assert words in message


@pytest.mark.parametrize("key", ["linear", "weighted"])
def test_range_of_linear_levels(key: str) -> None:
    changes = {**FLUX, "train.timestep_type": key, "train.max_denoising_steps": 500}
    assert settings(changes)["objective.flow.sigmas"] == [0.5, 1.0]


def test_weights_by_timestep_use_linear_levels() -> None:
    weighted = {**FLUX, "train.timestep_type": "weighted"}
    read, linear = settings(weighted), settings({**FLUX, "train.timestep_type": "linear"})
    assert read["objective.weighting"] == "table"
    assert {path: value for path, value in read.items() if "objective.weight" not in path} == linear
    assert any("objective.weighting=bell" in note for note in notes(weighted))
    assert settings({**weighted, "train.linear_timesteps": True}) == read
    assert any(
        "no effect with timestep_type: weighted" in note for note in notes({"train.linear_timesteps": True}, weighted)
    )
    both = {**FLUX, "train.linear_timesteps": True, "train.linear_timesteps2": True, "train.timestep_type": "shift"}
    assert settings(both)["objective.weighting"] == "half-bell"
    assert any("is linear with linear_timesteps2" in note for note in notes(both))
    assert any("no effect with ddpm" in note for note in notes({"train.linear_timesteps": True}))


def test_text_encoder_has_the_same_rate_unless_it_has_its_own() -> None:
    trained = {"train.train_text_encoder": True, "train.lr": 1e-4}
    assert "optim.part_lr.text_encoder" not in settings(trained)
    assert settings({**trained, "train.unet_lr": 1e-5})["optim.part_lr.text_encoder"] == 1e-4
    assert settings({**trained, "train.text_encoder_lr": 0})["optim.part_lr.text_encoder"] == 0.0


def test_restarts_do_not_restart() -> None:
    changes = {"train.lr_scheduler": "cosine_with_restarts"}
    assert settings(changes)["optim.schedule.kind"] == "cosine"
    assert any("does not restart" in note for note in notes(changes))
