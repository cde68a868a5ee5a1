"""Models that inpaint: nine input channels, training, and diffusers' pipelines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.flux.pipeline_flux_fill import FluxFillPipeline
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion_inpaint import StableDiffusionInpaintPipeline
from diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl_inpaint import (
    StableDiffusionXLInpaintPipeline,
)
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from PIL import Image

from mezzotint.diffusion import inpainting
from mezzotint.errors import WeightsError
from mezzotint.families.base import encode_inpainting
from mezzotint.sampling.requests import Request, Sampling, initial_noise
from mezzotint.sampling.sample import sample_latents
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.stages import Condition, Noised
from support.messages import refused
from support.model_export import export_model, files_of, load_model
from support.widened_models import fill_model, first_layer, kind_of, widened_model

FLUX = Path(__file__).parents[1] / "parity" / "data" / "flow" / "flux" / "model"
PIPELINES: dict[str, Any] = {"sd": StableDiffusionInpaintPipeline, "sdxl": StableDiffusionXLInpaintPipeline}


@pytest.fixture(scope="module")
def inpainters(plain: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of models that inpaint: the same with new channels, as if they were trained."""
    root = tmp_path_factory.mktemp("inpainters")
    return {name: widened_model(name, folder, root / name, "inpaint") for name, folder in plain.items()}


def picture() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """An image and a mask, (64, 64, 3) and (64, 64) uint8. The mask's edges are not those of latents."""
    pixels = np.random.Generator(np.random.Philox(key=3)).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    mask = np.zeros((64, 64), np.uint8)
    mask[13:50, 20:37] = 255
    mask[60:, :9] = 200  # grey above the middle is filled
    mask[:3, 40:] = 100
    return pixels, mask


def encoded(family: Any) -> dict[str, torch.Tensor]:
    pixels, mask = picture()
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 127.5 - 1
    images: dict[str, torch.Tensor] = encode_inpainting(family, tensor, torch.from_numpy(mask)[None])
    return images


@pytest.mark.parametrize("name", PIPELINES)
def test_new_channels_are_zeros_and_change_nothing(plain: dict[str, Path], name: str) -> None:
    before = load_model(kind_of(name), ModelSettings(family=name, path=plain[name]))
    after = load_model(kind_of(name), ModelSettings(family=name, path=plain[name], task="inpaint"))
    assert after.inpaints
    assert not before.inpaints
    assert files_of(after).condition_names == ()
    assert first_layer(after).shape[1] == 9
    assert not first_layer(after)[:, 4:].any()
    x = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    t = torch.tensor([5])
    noised = Noised(x_0=x, noise=x, x_t=x, model_input=x, model_t=t, level=t.float())
    with torch.no_grad():
        predictions = []
        for family, images in ((before, {}), (after, encoded(after)), (after, {})):
            condition = family.condition(family.encode_text(["a cat"]), None)
            predictions.append(
                family.predict(noised, Condition(condition.text, vector=condition.vector, images=images))
            )
    for prediction in predictions[1:]:
        torch.testing.assert_close(prediction, predictions[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("guidance", [7.5, 1.0])
def test_exported_model_inpaints_as_diffusers_pipeline_does(
    inpainters: dict[str, Path], name: str, guidance: float
) -> None:
    folder = inpainters[name]
    assert json.loads((folder / "model_index.json").read_text())["_class_name"] == PIPELINES[name].__name__
    family = load_model(kind_of(name), ModelSettings(family=name, path=folder))
    images = encoded(family)
    request = Request("a hat", Size(64, 64), "blurry", seed=4, images=images)
    settings = SampleSettings(steps=3, guidance=(guidance,), solver="ddim", timestep_spacing="leading")
    ours = sample_latents(family, [request], Sampling(family.schedule, family.prediction, "cpu", settings))

    pixels, mask = picture()
    pipeline = PIPELINES[name].from_pretrained(str(folder), local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.scheduler = DDIMScheduler.from_config({**pipeline.scheduler.config, "timestep_spacing": "leading"})
    pipeline.vae.encode = _encode_mean(pipeline.vae.encode)  # the pipeline draws from the posterior
    theirs = pipeline(
        "a hat", image=Image.fromarray(pixels), mask_image=Image.fromarray(mask), negative_prompt="blurry",
        num_inference_steps=3, guidance_scale=guidance, latents=initial_noise(family, [request]), strength=1.0,
        height=64, width=64, output_type="latent",
    ).images  # fmt: skip
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))


def _encode_mean(encode: Any) -> Any:
    """An autoencoder's `encode` whose samples are the means."""

    def mean(pixels: torch.Tensor) -> Any:
        output = encode(pixels)
        output.latent_dist.sample = lambda generator=None: output.latent_dist.mean
        return output

    return mean


@pytest.fixture(scope="module")
def fill(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of FLUX.1 Fill."""
    return fill_model(FLUX, tmp_path_factory.mktemp("fill") / "model")


def test_fill_inpaints_as_diffusers_pipeline_does(fill: Path, tmp_path: Path) -> None:
    family = load_model(kind_of("flux"), ModelSettings(family="flux", path=fill))
    assert family.inpaints
    assert files_of(family).condition_names == ()
    request = Request("a hat", Size(64, 64), seed=4, images=encoded(family))
    settings = SampleSettings(steps=3, guidance=(30.0,), solver="euler")
    ours = sample_latents(family, [request], Sampling(family.schedule, family.prediction, "cpu", settings))

    pixels, mask = picture()
    exported = export_model(family, tmp_path / "model")
    pipeline: Any = FluxFillPipeline.from_pretrained(str(exported), local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.vae.encode = _encode_mean(pipeline.vae.encode)  # the pipeline draws from the posterior
    theirs = pipeline(
        "a hat", image=Image.fromarray(pixels), mask_image=Image.fromarray(mask), height=64, width=64,
        num_inference_steps=3, guidance_scale=30.0, output_type="latent",
        latents=pipeline._pack_latents(initial_noise(family, [request]), 1, *ours.shape[1:]),
    ).images  # fmt: skip
    theirs = pipeline._unpack_latents(theirs, 64, 64, pipeline.vae_scale_factor)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))
    for name in request.images:
        others = request.images | {name: request.images[name].flip(-1)}
        sampling = Sampling(family.schedule, family.prediction, "cpu", settings)
        assert not torch.equal(sample_latents(family, [replace(request, images=others)], sampling), ours)


def test_only_fill_inpaints(fill: Path) -> None:
    for task in ("text", "edit"):
        with refused("E1296", f"inpaints .its denoiser takes 288 channels., but model.task={task}"):
            load_model(kind_of("flux"), ModelSettings(family="flux", path=fill, task=task))  # type: ignore[arg-type]
    with refused("E1296", "does not inpaint .its denoiser takes 16 channels., but model.task=inpaint"):
        load_model(kind_of("flux"), ModelSettings(family="flux", path=FLUX, task="inpaint"))


def test_mask_and_image_are_those_of_diffusers_processors(inpainters: dict[str, Path]) -> None:
    family = load_model(kind_of("sd"), ModelSettings(path=inpainters["sd"]))
    images = encoded(family)
    _, mask = picture()
    filled = torch.from_numpy((mask >= 128).astype(np.float32))[None, None]
    latents = images[inpainting.MASKED_IMAGE]
    assert latents.shape == (1, 4, 8, 8)
    assert torch.equal(images[inpainting.MASK], filled)
    assert torch.equal(inpainting.take_top_left(filled, latents), filled[..., ::8, ::8])


def test_region_and_image_change_what_is_generated(inpainters: dict[str, Path]) -> None:
    family = load_model(kind_of("sd"), ModelSettings(path=inpainters["sd"]))
    sampling = Sampling(family.schedule, family.prediction, "cpu", SampleSettings(steps=2, solver="ddim"))
    images = encoded(family)
    others = [images, images | {inpainting.MASK: 1 - images[inpainting.MASK]},
              images | {inpainting.MASKED_IMAGE: images[inpainting.MASKED_IMAGE].flip(-1)}]  # fmt: skip
    latents = [sample_latents(family, [Request("a cat", Size(64, 64), images=one)], sampling) for one in others]
    assert not torch.equal(latents[0], latents[1])
    assert not torch.equal(latents[0], latents[2])


def test_task_must_fit_the_model(plain: dict[str, Path], inpainters: dict[str, Path], tmp_path: Path) -> None:
    for task in ("text", "edit"):
        with refused("E1296", f"inpaints .its denoiser takes 9 channels., but model.task={task}"):
            load_model(kind_of("sd"), ModelSettings(path=inpainters["sd"], task=task))  # type: ignore[arg-type]
    adapter = {"adapter": {"kind": "lora"}}
    with pytest.raises(WeightsError, match=r"an adapter cannot teach it to.*a model that inpaints"):
        load_model(kind_of("sd"), ModelSettings.model_validate({"path": plain["sd"], "task": "inpaint", **adapter}))
    load_model(kind_of("sd"), ModelSettings.model_validate({"path": inpainters["sd"], **adapter}))
    editor = widened_model("sd", plain["sd"], tmp_path / "editor", "edit")
    with refused("E1296", "edits images .its denoiser takes 8 channels., but model.task=inpaint"):
        load_model(kind_of("sd"), ModelSettings(path=editor, task="inpaint"))
