"""Models that edit (InstructPix2Pix): further input channels, training, and diffusers' pipelines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion_instruct_pix2pix import (
    StableDiffusionInstructPix2PixPipeline,
)
from diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl_instruct_pix2pix import (
    StableDiffusionXLInstructPix2PixPipeline,
)
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from PIL import Image

from mezzotint.errors import WeightsError
from mezzotint.sampling.requests import Request, Sampling, initial_noise
from mezzotint.sampling.sample import sample_latents
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.stages import Condition, Noised
from support.messages import refused
from support.model_export import files_of, load_model
from support.widened_models import first_layer, kind_of, widened_model

PIPELINES: dict[str, Any] = {
    "sd": StableDiffusionInstructPix2PixPipeline, "sdxl": StableDiffusionXLInstructPix2PixPipeline,
}  # fmt: skip


@pytest.fixture(scope="module")
def editors(plain: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of models that edit: the same with new channels, as if they were trained."""
    root = tmp_path_factory.mktemp("editors")
    return {name: widened_model(name, folder, root / name, "edit") for name, folder in plain.items()}


@pytest.mark.parametrize("name", PIPELINES)
def test_new_channels_are_zeros_and_change_nothing(plain: dict[str, Path], name: str) -> None:
    before = load_model(kind_of(name), ModelSettings(family=name, path=plain[name]))
    after = load_model(kind_of(name), ModelSettings(family=name, path=plain[name], task="edit"))
    assert files_of(after).condition_names == after.condition_names == ("source",)
    assert files_of(before).condition_names == ()
    assert first_layer(after).shape[1] == 8
    assert not first_layer(after)[:, 4:].any()
    x = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    t = torch.tensor([5])
    noised = Noised(x_0=x, noise=x, x_t=x, model_input=x, model_t=t, level=t.float())
    with torch.no_grad():
        predictions = []
        for family in (before, after):
            condition = family.condition(family.encode_text(["a cat"]), None)
            images = {"source": x.flip(0)} if family is after else {}
            predictions.append(
                family.predict(noised, Condition(condition.text, vector=condition.vector, images=images))
            )
    torch.testing.assert_close(predictions[1], predictions[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize(("guidance", "image_guidance"), [(7.5, 1.5), (4.0, 1.0)])
def test_exported_model_edits_as_diffusers_pipeline_does(
    editors: dict[str, Path], name: str, guidance: float, image_guidance: float
) -> None:
    folder = editors[name]
    assert json.loads((folder / "model_index.json").read_text())["_class_name"] == PIPELINES[name].__name__
    family = load_model(kind_of(name), ModelSettings(family=name, path=folder))
    pixels = np.random.Generator(np.random.Philox(key=3)).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 127.5 - 1
    source = family.encode_media(tensor).chunk(2, dim=1)[0]
    request = Request("make it red", Size(64, 64), "blurry", seed=4, images={"source": source})
    settings = SampleSettings(
        steps=3, guidance=(guidance,), image_guidance=image_guidance, solver="ddim", timestep_spacing="leading"
    )
    ours = sample_latents(family, [request], Sampling(family.schedule, family.prediction, "cpu", settings))

    pipeline = PIPELINES[name].from_pretrained(str(folder), local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    config = {**pipeline.scheduler.config, "timestep_spacing": "leading"}
    pipeline.scheduler = DDIMScheduler.from_config(config)
    size = {"height": 64, "width": 64} if name == "sdxl" else {}
    theirs = pipeline(
        "make it red", image=Image.fromarray(pixels), negative_prompt="blurry", num_inference_steps=3,
        guidance_scale=guidance, image_guidance_scale=image_guidance, latents=initial_noise(family, [request]),
        output_type="latent", **size,
    ).images  # fmt: skip
    if not isinstance(theirs, torch.Tensor):
        theirs = torch.from_numpy(theirs)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))


def test_image_changes_what_is_generated(editors: dict[str, Path]) -> None:
    family = load_model(kind_of("sd"), ModelSettings(path=editors["sd"]))
    settings = SampleSettings(steps=2, solver="ddim")
    sampling = Sampling(family.schedule, family.prediction, "cpu", settings)
    request = Request("a cat", Size(64, 64))
    zeros, ones = torch.zeros(1, 4, 8, 8), torch.ones(1, 4, 8, 8)
    first, second = (
        sample_latents(family, [Request("a cat", request.size, images={"source": image})], sampling)
        for image in (zeros, ones)
    )
    assert not torch.equal(first, second)


def test_task_must_fit_the_model(plain: dict[str, Path], editors: dict[str, Path]) -> None:
    with refused("E1296", "edits images .its denoiser takes 8 channels., but model.task=text"):
        load_model(kind_of("sd"), ModelSettings(path=editors["sd"], task="text"))
    adapter = {"adapter": {"kind": "lora"}}
    with pytest.raises(WeightsError, match="an adapter cannot teach it to"):
        load_model(kind_of("sd"), ModelSettings.model_validate({"path": plain["sd"], "task": "edit", **adapter}))
    load_model(kind_of("sd"), ModelSettings.model_validate({"path": editors["sd"], **adapter}))
