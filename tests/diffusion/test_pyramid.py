from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mezzotint.diffusion import pyramid
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.diffusion.schedule import Schedule
from mezzotint.settings.sections.objective import ObjectiveSettings

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "everydream2"
CASES: list[dict[str, Any]] = json.loads((RECORDS / "pyramid_noise.json").read_text())


def objective(discount: float) -> Objective:
    return Objective(ObjectiveSettings(pyramid_discount=discount), Schedule.scaled_linear(), "epsilon")


def noise_of(count: int, discount: float, *, step: int = 3, first: int = 0, side: tuple[int, int] = (16, 24)) -> Any:
    drawn = StepDraws.at(7, step, np.arange(first, first + count), "cpu")
    x_0 = torch.zeros(count, 4, *side)
    return objective(discount).noise_at(x_0, drawn, torch.full((count,), 500)).noise


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["key"])
def test_pyramid_levels_shrink_like_everydream(case: dict[str, Any]) -> None:
    assert all(2.0 <= ratio < 4.0 for ratio in case["r_values"])
    expected = [tuple(shape[-2:]) for shape in case["level_shapes"][1:]]
    assert pyramid.sizes(*case["shape"][-2:], case["r_values"]) == expected


@pytest.mark.parametrize("case", [case for case in CASES if case["key"] in ("p3", "p4")], ids=lambda case: case["key"])
def test_pyramid_noise_equals_everydream(case: dict[str, Any]) -> None:
    tensors = load_file(RECORDS / "pyramid_noise.safetensors")
    base, *levels = (tensors[f"{case['key']}.draw{level:02d}"] for level in range(case["levels"] + 1))
    result = pyramid.add_levels(base, levels, case["discount"])
    # EveryDream2's deviation is that of the whole batch
    torch.testing.assert_close(result / result.std(), tensors[f"{case['key']}.result"], rtol=1e-6, atol=4e-6)


def test_enlarging_equals_torch_bilinear() -> None:
    small = torch.from_numpy(np.random.Generator(np.random.Philox(key=1)).normal(size=(2, 3, 5, 1)).astype(np.float32))
    for height, width in ((5, 1), (13, 7), (64, 2)):
        expected = torch.nn.functional.interpolate(small, (height, width), mode="bilinear", align_corners=False)
        result = pyramid.add_levels(torch.zeros(2, 3, height, width), [small], 0.9)
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)


def test_each_sample_has_unit_deviation() -> None:
    built = noise_of(3, 0.8)
    torch.testing.assert_close(built.flatten(1).std(1), torch.ones(3), rtol=1e-5, atol=0)
    loud = torch.cat((built[:1] * 9, built[1:]))
    torch.testing.assert_close(pyramid.normalize_deviation(loud)[0], built[0], rtol=1e-5, atol=1e-6)


def test_pyramid_noise_is_independent_of_splits() -> None:
    whole = noise_of(5, 0.6)
    parts = torch.cat([noise_of(1, 0.6), noise_of(3, 0.6, first=1), noise_of(1, 0.6, first=4)])
    assert torch.equal(whole, parts)
    assert len({tuple(sample.flatten()[:4].tolist()) for sample in whole}) == 5


def test_clips_use_pyramid_levels_per_frame() -> None:
    drawn = StepDraws.at(7, 3, np.arange(2), "cpu")
    clip = objective(0.6).noise_at(torch.zeros(2, 4, 3, 8, 8), drawn, torch.full((2,), 500)).noise
    assert clip.shape == (2, 4, 3, 8, 8)
    first, second = clip[:, :, 0], clip[:, :, 1]
    correlation = float((first * second).mean() / (first.std() * second.std()))
    assert abs(correlation) < 0.2, "each frame has noise of its own"


def test_pyramid_sizes_are_drawn_per_step() -> None:
    at_steps = [StepDraws.at(7, step, np.arange(2), "cpu").shrinking for step in range(200)]
    assert at_steps[3] == StepDraws.at(7, 3, np.arange(5, 9), "cpu").shrinking
    assert len(set(at_steps)) == 200
    drawn = np.array(at_steps)
    assert drawn.shape == (200, pyramid.LEVELS)
    assert 2.0 <= drawn.min() < 2.02
    assert 3.98 < drawn.max() < 4.0
    assert abs(drawn.mean() - 3.0) < 4 * (4 / 12 / drawn.size) ** 0.5
