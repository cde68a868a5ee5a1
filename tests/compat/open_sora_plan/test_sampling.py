"""The command `sample` for LatteT2V."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from latte_folder import QUICK

from mezzotint.compat.open_sora_plan.latte import Family
from mezzotint.errors import RecipeError
from mezzotint.sampling.requests import Request, Sampling, initial_noise, step_noise
from mezzotint.sampling.sample import sample
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.tasks.sample import sample as command
from support.clip_folders import probe


def generate(folder: Path, *words: str) -> list[Path]:
    assert command.run(["tiny-latte", "--prompt=a red ball", f"--out={folder}", *QUICK, *words]) == 0
    return sorted(folder.glob("*-seed*"))


def test_clip_length_defaults_to_the_model_and_one_frame_is_an_image(tmp_path: Path) -> None:
    (whole,) = generate(tmp_path / "own")
    assert probe(whole)[0] == 5
    (still,) = generate(tmp_path / "still", "--frames=1")
    assert still.suffix == ".png"
    with pytest.raises(RecipeError, match="generates images") as met:
        command.run(["tiny-sd", "--prompt=x", f"--out={tmp_path / 'sd'}", "model.weights=random", "--frames=5"])
    assert met.value.code == "E1464"
    with pytest.raises(RecipeError, match="multiples of 16"):
        command.run(["tiny-latte", "--prompt=x", f"--out={tmp_path / 'odd'}", *QUICK[:3], "--size=40x32"])


@pytest.mark.parametrize("solver", ["ddim", "ddpm", "pndm", "dpm2-a"])
def test_clips_sampled_in_a_batch_equal_those_sampled_alone(solver: Any) -> None:
    family = Family.tiny(seed=2)
    requests = [Request(f"{n} cats", Size(32, 32, 9), seed=5, index=n) for n in range(2)]
    settings = SampleSettings(steps=4, guidance=(3.0,), solver=solver, timestep_spacing="library", batch_size=2)
    how = Sampling(family.schedule, family.prediction, "cpu", settings)
    together = list(sample(family, requests, how))
    alone = list(sample(family, requests[1:], how))
    assert together[1].pixels.shape == (9, 32, 32, 3)
    difference = together[1].pixels.astype(int) - alone[0].pixels.astype(int)
    assert np.abs(difference).max() <= 1
    assert initial_noise(family, requests).shape == (2, 4, 3, 4, 4)
    assert torch.equal(step_noise(family, requests, 1)[1:], step_noise(family, requests[1:], 1))
