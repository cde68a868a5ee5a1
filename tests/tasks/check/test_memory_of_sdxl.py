"""Full-size SDXL on the meta device: sizes of its parts and memory of a step."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.shapes import Size
from mezzotint.tasks.check.memory import memory_of
from mezzotint.tasks.check.meta_model import MetaModel

UNETS = {"sdxl": 2_567_463_684, "sdxl-refiner": 2_259_526_660}
ENCODERS = {"text_encoder": 123_060_480, "text_encoder_2": 694_659_840}
VAE = 83_653_863


def outline(model: str, **settings: Any) -> MetaModel:
    words = [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]
    return MetaModel(resolve_paths(read_text(f"model: {{family: sdxl, path: {model}}}", "test", words)))


@pytest.mark.slow
@pytest.mark.parametrize("model", UNETS)
def test_full_size_parts_have_published_parameter_counts(model: str) -> None:
    parts = {part.name: part for part in memory_of(outline(model), {}).parts}
    encoders = {part: n for part, n in ENCODERS.items() if model == "sdxl" or part == "text_encoder_2"}
    assert {name: part.parameters for name, part in parts.items()} == {"denoiser": UNETS[model], "vae": VAE} | encoders
    assert parts["denoiser"].trained == UNETS[model]
    assert not any(part.trained for name, part in parts.items() if name != "denoiser")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_full_size_step_is_estimated_without_its_memory() -> None:
    cached = outline(
        "sdxl", data__cache__latents=True, data__cache__text=True, run__gradient_checkpointing__enabled=True
    )
    memory = memory_of(cached, {Size(1024, 1024): 1})
    assert [part.name for part in memory.parts if part.loaded] == ["denoiser"]
    assert memory.weights == pytest.approx(4 * UNETS["sdxl"], rel=1e-3)
    assert memory.text_numbers == 77 * 2048 + 1280
    assert 2e8 < memory.worst < 4e9
