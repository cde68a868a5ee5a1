"""Qwen-Image-Edit and Qwen-Image-Edit-Plus, compared with the components of diffusers' pipelines."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.qwenimage.pipeline_qwenimage_edit import QwenImageEditPipeline, calculate_dimensions
from diffusers.pipelines.qwenimage.pipeline_qwenimage_edit_plus import QwenImageEditPlusPipeline
from PIL import Image
from torch import Tensor

from mezzotint import registry
from mezzotint.families.base import ModelFamily
from mezzotint.sampling.requests import Request, Sampling, initial_noise
from mezzotint.sampling.sample import sample_latents
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size, TextImages
from mezzotint.stages import Noised
from mezzotint.tasks.prompts.condition_images import require_taken
from mezzotint.weights.layer_streaming import LayerStreamer
from mezzotint.weights.low_bit import WeightForm
from support.messages import refused
from support.model_export import export_model, files_of, load_model
from support.qwen_edit import embed_as_pipeline, make_edit_model, open_pipeline

PIPELINES: dict[str, Any] = {"edit": QwenImageEditPipeline, "plus": QwenImageEditPlusPipeline}
SIZE = Size(64, 96)


def model(path: Path, **settings: Any) -> ModelFamily:
    kind: type[ModelFamily] = registry.find("families", "qwen-image").Family
    return load_model(kind, ModelSettings.model_validate({"family": "qwen-image", "path": path, **settings}))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of both kinds; the second has the denoiser of 2511."""
    root = tmp_path_factory.mktemp("models")
    edit = make_edit_model(root / "edit", "QwenImageEditPipeline")
    plus = make_edit_model(root / "plus", "QwenImageEditPlusPipeline", zero_cond_t=True)
    return {"edit": edit, "plus": plus}


def picture(seed: int, size: Size) -> Image.Image:
    rng = np.random.Generator(np.random.Philox(key=seed))
    return Image.fromarray(rng.integers(0, 256, (size.height, size.width, 3), dtype=np.uint8))


def pixels_of(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)


def encoded(family: ModelFamily, image: Image.Image) -> Tensor:
    """As training encodes a condition image: the posterior's mean."""
    return family.encode_media(pixels_of(image)[None].float() / 127.5 - 1).chunk(2, dim=1)[0]


def seen(family: ModelFamily, image: Image.Image) -> Image.Image:
    """The image as the text encoder sees it."""
    assert family.text_images is not None
    size = family.text_images.fit(Size(*image.size))
    return image.resize((size.width, size.height), Image.Resampling.LANCZOS)


def pictures_of(name: str) -> list[Image.Image]:
    """Of the sizes that the pipelines give images of these shapes."""
    return (
        [picture(3, Size(832, 1248))] if name == "edit" else [picture(3, Size(832, 1248)), picture(5, Size(1184, 896))]
    )


def noised(x: Tensor, sigma: float = 0.7) -> Noised:
    return Noised(x, x, x, x, torch.full((len(x),), 1000 * sigma), torch.full((len(x),), sigma))


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("pixels", "ratios"), [(1024 * 1024, (1.0, 0.66, 3.0)), (384 * 384, (1.0, 1.5, 0.2))])
def test_images_are_seen_in_the_sizes_of_the_pipelines(pixels: int, ratios: Sequence[float]) -> None:
    for ratio in ratios:
        size = TextImages(pixels, 32, 1).fit(Size(round(1000 * ratio), 1000))
        assert (size.width, size.height) == calculate_dimensions(pixels, ratio)[:2]


@pytest.mark.parametrize("name", PIPELINES)
def test_text_states_are_those_of_the_pipelines_encoder(models: dict[str, Path], name: str) -> None:
    family, pipeline = model(models[name]), open_pipeline(PIPELINES[name], models[name])
    images = [seen(family, image) for image in pictures_of(name)]
    with torch.no_grad():
        text = family.encode_text_with_images(["make it {red}"], [[pixels_of(image) for image in images]])
    theirs = embed_as_pipeline(pipeline, models[name], "make it {red}", images)
    assert text.lengths == (theirs.shape[1],)
    assert torch.equal(text.states[:, : theirs.shape[1]], theirs)
    assert not text.states[:, theirs.shape[1] :].any()


@pytest.mark.parametrize("name", PIPELINES)
@torch.no_grad()
def test_prediction_is_that_of_the_pipelines_components(models: dict[str, Path], name: str) -> None:
    family, pipeline = model(models[name]), open_pipeline(PIPELINES[name], models[name])
    images = [picture(3, SIZE)] if name == "edit" else [picture(3, SIZE), picture(5, Size(96, 32))]
    views = [seen(family, image) for image in images]
    x, latents = randn(2, 16, 8, 6), [encoded(family, image).expand(2, -1, -1, -1) for image in images]
    states = [embed_as_pipeline(pipeline, models[name], caption, views) for caption in ("a red circle", "two")]
    longest = max(one.shape[1] for one in states)
    mask = torch.tensor([[n < one.shape[1] for n in range(longest)] for one in states]).long()
    theirs = pipeline.transformer(
        hidden_states=torch.cat([pipeline._pack_latents(p, 2, 16, *p.shape[-2:]) for p in (x, *latents)], dim=1),
        encoder_hidden_states=torch.cat([
            torch.nn.functional.pad(one, (0, 0, 0, longest - one.shape[1])) for one in states
        ]),
        encoder_hidden_states_mask=mask, timestep=torch.full((2,), 0.7),
        img_shapes=[[(1, p.shape[-2] // 2, p.shape[-1] // 2) for p in (x, *latents)]] * 2, return_dict=False,
    )[0][:, :12]  # fmt: skip
    theirs = pipeline._unpack_latents(theirs, 64, 48, pipeline.vae_scale_factor)[:, :, 0]
    text = family.encode_text_with_images(["a red circle", "two"], [list(map(pixels_of, views))] * 2)
    condition = replace(family.condition(text, None), images=dict(enumerate(latents)))  # type: ignore[arg-type]
    ours = family.predict(noised(x), condition)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    if name == "plus":
        assert family.parts()["denoiser"].zero_cond_t
        other = family.predict(noised(x), replace(condition, images=dict(enumerate(reversed(latents)))))  # type: ignore[arg-type]
        assert (ours - other).abs().max() > 1e-4, "their order counts"


@pytest.mark.parametrize("name", PIPELINES)
def test_exported_model_samples_as_the_pipeline_does(models: dict[str, Path], name: str, tmp_path: Path) -> None:
    folder = export_model(model(models[name]), tmp_path / "model")
    family, pipeline = model(folder), open_pipeline(PIPELINES[name], folder)
    images = pictures_of(name)
    views = [seen(family, image) for image in images]
    request = Request(
        "make it red", SIZE, "blurry", seed=4,
        images={f"image_{number}": encoded(family, image) for number, image in enumerate(images)},
        whole_images=list(map(pixels_of, views)),
    )  # fmt: skip
    settings = SampleSettings(steps=2, guidance=(4.0,), solver="euler")
    ours = sample_latents(family, [request], Sampling(family.schedule, family.prediction, "cpu", settings))
    texts = [embed_as_pipeline(pipeline, folder, caption, views) for caption in ("make it red", "blurry")]
    tokens = pipeline._pack_latents(initial_noise(family, [request]), 1, 16, *ours.shape[2:])
    theirs = pipeline(
        images[0] if name == "edit" else images, height=SIZE.height, width=SIZE.width, num_inference_steps=2,
        true_cfg_scale=4.0, latents=tokens,
        prompt_embeds=texts[0], negative_prompt_embeds=texts[1],
        prompt_embeds_mask=torch.ones(texts[0].shape[:2], dtype=torch.long),
        negative_prompt_embeds_mask=torch.ones(texts[1].shape[:2], dtype=torch.long), output_type="latent",
    ).images  # fmt: skip
    theirs = pipeline._unpack_latents(theirs, SIZE.height, SIZE.width, pipeline.vae_scale_factor)[:, :, 0]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_text_encoder_with_vision_is_streamed_and_quantized(models: dict[str, Path]) -> None:
    kind: type[ModelFamily] = registry.find("families", "qwen-image").Family
    files = kind.files.of(ModelSettings(family="qwen-image", path=models["plus"]))
    view = pixels_of(picture(3, Size(384, 384)))

    def states(form: WeightForm) -> Tensor:
        family = kind.load(files, ["text_encoder"], {"text_encoder": form})
        family.parts()["text_encoder"].to(form.dtype)
        with torch.no_grad():
            return family.encode_text_with_images(["a", "b"], [[view], [None]]).states

    plain = states(WeightForm(torch.bfloat16))
    assert torch.equal(states(WeightForm(torch.bfloat16, layer_streamer=LayerStreamer(1))), plain)
    assert not torch.equal(plain[0], plain[1])
    pytest.importorskip("torchao")
    assert torch.isfinite(states(WeightForm(torch.bfloat16, "nf4"))).all()


def test_model_without_an_image_processor_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models["edit"], tmp_path / "model"))
    shutil.rmtree(folder / "processor")
    with refused("E1409", "processor: lacks preprocessor_config.json; download the complete model"):
        model(folder).encode_text_with_images(["a"], [[pixels_of(picture(1, SIZE))]])


def test_images_to_sample_with_must_fit_the_model(models: dict[str, Path], tmp_path: Path) -> None:
    family = model(models["plus"])
    require_taken(family, {"person": [tmp_path], "style": [tmp_path]})
    with refused("E1296", "edits images, and sample.conditions has none; write sample.conditions={NAME: IMAGE}"):
        require_taken(family, {})
    with refused("E1296", "this model takes source, got style"):
        require_taken(model(models["edit"]), {"style": [tmp_path]})


def test_denoiser_file_is_read_with_the_folder_of_the_rest(models: dict[str, Path]) -> None:
    file = models["edit"] / "transformer" / "diffusion_pytorch_model.safetensors"
    files = files_of(model(file, config=models["edit"]))
    assert files.condition_names == ("source",)
    assert files.text_identity() == files_of(model(models["edit"])).text_identity()
