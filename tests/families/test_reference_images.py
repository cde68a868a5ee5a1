"""Models that are given images as further tokens (FLUX.1 Kontext, FLUX.2), compared with diffusers' pipelines."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.flux.pipeline_flux import FluxPipeline
from diffusers.pipelines.flux.pipeline_flux_kontext import FluxKontextPipeline
from diffusers.pipelines.flux2.pipeline_flux2 import Flux2Pipeline
from diffusers.pipelines.flux2.pipeline_flux2_klein import Flux2KleinPipeline
from PIL import Image
from torch import Tensor

from mezzotint import registry
from mezzotint.diffusion.flow_objective import objective_of
from mezzotint.families.base import ModelFamily
from mezzotint.sampling.requests import Request, Sampling, initial_noise
from mezzotint.sampling.sample import sample_latents
from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.objective import ObjectiveSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.stages import Noised
from mezzotint.tasks.check.meta_model import MetaModel
from mezzotint.tasks.prompts.condition_images import require_taken, with_images
from mezzotint.tasks.selection import require_trainable
from support.flow_folders import tiny_flux2_dev
from support.messages import refused
from support.model_export import export_model, files_of, load_model
from support.sd_folder import edit

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "flow"
FLUX, KLEIN = RECORDS / "flux" / "model", RECORDS / "flux2_klein" / "model"
SIZE = Size(64, 96)


def model(name: str, path: Path, **settings: Any) -> ModelFamily:
    kind: type[ModelFamily] = registry.find("families", name).Family
    return load_model(kind, ModelSettings.model_validate({"family": name, "path": path, **settings}))


def pipeline_of(kind: Any, folder: Path) -> Any:
    pipeline = kind.from_pretrained(str(folder), local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def picture(seed: int, size: Size = SIZE) -> Image.Image:
    rng = np.random.Generator(np.random.Philox(key=seed))
    return Image.fromarray(rng.integers(0, 256, (size.height, size.width, 3), dtype=np.uint8))


def encoded(family: ModelFamily, image: Image.Image) -> Tensor:
    """As training encodes a condition image: the posterior's mean."""
    pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None].float() / 127.5 - 1
    return family.encode_media(pixels).chunk(2, dim=1)[0]


def noised(x: Tensor, sigma: float = 0.7) -> Noised:
    return Noised(x, x, x, x, torch.full((len(x),), 1000 * sigma), torch.full((len(x),), sigma))


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def predicted(family: ModelFamily, x: Tensor, images: Mapping[str, Tensor]) -> Tensor:
    condition = family.condition(family.encode_text(["a red circle", "two birds"][: len(x)]), None)
    return family.predict(noised(x), replace(condition, images=images))


def sampled(family: ModelFamily, requests: list[Request], guidance: float) -> Tensor:
    settings = SampleSettings(steps=3, guidance=(guidance,), solver="euler")
    return sample_latents(family, requests, Sampling(family.schedule, family.prediction, "cpu", settings))


@pytest.fixture(scope="module")
def kontext(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a model that edits, exported from a text-to-image model."""
    return export_model(model("flux", FLUX, task="edit"), tmp_path_factory.mktemp("kontext") / "model")


@pytest.fixture(scope="module")
def flux2(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of both kinds of FLUX.2."""
    return {"klein": KLEIN, "dev": tiny_flux2_dev(KLEIN, tmp_path_factory.mktemp("dev") / "model")}


FLUX2_PIPELINES = {"klein": Flux2KleinPipeline, "dev": Flux2Pipeline}


def test_kontext_samples_as_diffusers_pipeline_does(kontext: Path) -> None:
    family, pipeline = model("flux", kontext), pipeline_of(FluxKontextPipeline, kontext)
    image = picture(3)
    request = Request("make it red", SIZE, seed=4, images={"source": encoded(family, image)})
    ours = sampled(family, [request], 2.5)
    tokens = pipeline._pack_latents(initial_noise(family, [request]), 1, ours.shape[1], *ours.shape[2:])
    theirs = pipeline(
        image, "make it red", height=SIZE.height, width=SIZE.width, max_area=SIZE.height * SIZE.width,
        _auto_resize=False, num_inference_steps=3, guidance_scale=2.5, latents=tokens, output_type="latent",
    ).images  # fmt: skip
    theirs = pipeline._unpack_latents(theirs, SIZE.height, SIZE.width, pipeline.vae_scale_factor)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    other = sampled(family, [replace(request, images={"source": encoded(family, picture(5))})], 2.5)
    assert (other - ours).abs().max() > 1e-2


@torch.no_grad()
def test_kontext_predicts_from_the_tokens_of_diffusers_pipeline(kontext: Path) -> None:
    family, pipeline = model("flux", kontext), pipeline_of(FluxKontextPipeline, kontext)
    channels = family.grid.channels
    x, source = randn(2, channels, 8, 6), randn(2, channels, 8, 6, seed=1)
    tokens = pipeline._pack_latents(x, 2, channels, 8, 6)
    side = pipeline.vae_scale_factor
    _, image, ids, image_ids = pipeline.prepare_latents(
        source, 2, channels, 8 * side, 6 * side, x.dtype, "cpu", latents=tokens
    )
    text, pooled, text_ids = pipeline.encode_prompt(["a red circle", "two birds"], None, device="cpu")
    theirs = pipeline.transformer(
        hidden_states=torch.cat([tokens, image], dim=1), timestep=torch.full((2,), 0.7), guidance=torch.ones(2),
        pooled_projections=pooled, encoder_hidden_states=text, txt_ids=text_ids, img_ids=torch.cat([ids, image_ids]),
        return_dict=False,
    )[0][:, : tokens.shape[1]]  # fmt: skip
    theirs = pipeline._unpack_latents(theirs, 8 * side, 6 * side, side)
    ours = predicted(family, x, {"source": source})
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert (ours - predicted(family, x, {"source": torch.zeros_like(source)})).abs().max() > 1e-3


def test_task_decides_between_dev_and_kontext(kontext: Path, tmp_path: Path) -> None:
    assert json.loads((kontext / "model_index.json").read_text())["_class_name"] == "FluxKontextPipeline"
    for path, task, names in (
        (kontext, "auto", ("source",)), (kontext, "text", ()), (FLUX, "auto", ()), (FLUX, "edit", ("source",)),
    ):  # fmt: skip
        family = model("flux", path, task=task)
        assert family.condition_names == files_of(family).condition_names == names
    x = randn(1, 4, 4, 4)
    images = {"source": randn(1, 4, 4, 4, seed=1)}
    assert torch.equal(predicted(model("flux", FLUX, task="edit"), x, images), predicted(family, x, images))
    plain = export_model(model("flux", kontext, task="text"), tmp_path / "text")
    pipeline_of(FluxPipeline, plain)


@pytest.mark.parametrize("kind", FLUX2_PIPELINES)
def test_flux2_samples_with_references_as_diffusers_pipeline_does(
    kind: str, flux2: dict[str, Path], tmp_path: Path
) -> None:
    folder = export_model(model("flux2", flux2[kind]), tmp_path / "model")
    family, pipeline = model("flux2", folder), pipeline_of(FLUX2_PIPELINES[kind], folder)
    for pictures in ([], [picture(3)], [picture(3), picture(5, Size(96, 64))]):
        images = {f"reference_{number}": encoded(family, image) for number, image in enumerate(pictures)}
        request = Request("make it [IMG]red", SIZE, seed=4, images=images)
        ours = sampled(family, [request], 4.0)
        theirs = pipeline(
            pictures or None, "make it [IMG]red", height=SIZE.height, width=SIZE.width, num_inference_steps=3,
            guidance_scale=4.0, latents=initial_noise(family, [request]), output_type="latent",
        ).images  # fmt: skip
        if kind == "dev":  # tokens, and Klein's pipeline gives the autoencoder's latents
            theirs = theirs.transpose(1, 2).unflatten(2, ours.shape[-2:])
        else:
            ours = family.unscale_latents(ours)  # type: ignore[attr-defined]
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("kind", FLUX2_PIPELINES)
def test_flux2_predicts_from_the_tokens_of_diffusers_pipeline(kind: str, flux2: dict[str, Path]) -> None:
    family, pipeline = model("flux2", flux2[kind]), pipeline_of(FLUX2_PIPELINES[kind], flux2[kind])
    channels = family.grid.channels
    x, one, two = (randn(2, channels, *sides, seed=seed) for seed, sides in enumerate([(4, 6), (4, 6), (2, 8)]))
    ids, image_ids = pipeline._prepare_latent_ids(x), pipeline._prepare_image_ids([one[:1], two[:1]])
    text, text_ids = pipeline.encode_prompt(["a red circle", "two birds"], device="cpu")
    theirs = pipeline.transformer(
        hidden_states=torch.cat([pipeline._pack_latents(part) for part in (x, one, two)], dim=1),
        timestep=torch.full((2,), 0.7), guidance=torch.ones(2) if kind == "dev" else None,
        encoder_hidden_states=text, txt_ids=text_ids,
        img_ids=torch.cat([ids, image_ids.expand(2, -1, -1)], dim=1), return_dict=False,
    )[0][:, :24]  # fmt: skip
    theirs = theirs.transpose(1, 2).unflatten(2, (4, 6))
    ours = predicted(family, x, {"style": one, "person": two})
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert (ours - predicted(family, x, {"person": two, "style": one})).abs().max() > 1e-4, "their order counts"
    assert (ours - predicted(family, x, {"style": one})).abs().max() > 1e-4
    objective = objective_of(ObjectiveSettings(), family.schedule, family.prediction)
    noisy = replace(noised(x), x_0=one, noise=randn(*one.shape, seed=7))
    loss = objective.loss(ours, noisy, torch.ones(2)).total / 2
    target = noisy.noise - noisy.x_0
    assert float(loss) == pytest.approx(float((theirs - target).square().mean()), rel=1e-5)


def recipe(name: str, path: Path, folder: Path, *conditions: str, **sample: Any) -> Recipe:
    """A recipe with these conditions. folder: of images. sample: its section."""
    data = {"path": str(folder), "conditions": {condition: str(folder) for condition in conditions}}
    model_values = {"family": name, "path": str(path)}
    return resolve_paths(read_text(json.dumps({"schema": 1, "model": model_values, "data": data, "sample": sample})))


@pytest.mark.parametrize(
    ("path", "conditions", "words"),
    [
        ("dev", ("source",), r"generates from text alone; leave them out, or set model\.task=edit$"),
        ("kontext", (), "edits images, and the recipe has no data.conditions; write data.conditions.source.folder"),
        ("kontext", ("source", "style"), "edits images, and data.conditions has source, style; write .* alone"),
        ("kontext", ("before",), "edits images, and data.conditions has before"),
    ],
)
def test_conditions_must_fit_the_model(
    kontext: Path, tmp_path: Path, path: str, conditions: tuple[str, ...], words: str
) -> None:
    chosen = recipe("flux", {"dev": FLUX, "kontext": kontext}[path], tmp_path, *conditions)
    with refused("E1296", words):
        require_trainable(chosen, files_of(model("flux", chosen.model.path)))


def test_single_file_of_kontext_needs_the_task(tmp_path: Path) -> None:
    file = tmp_path / "kontext.safetensors"
    file.touch()
    files: Any = files_of(model("flux", FLUX))
    single = replace(files, settings=files.settings.model_copy(update={"path": file}))
    with refused("E1296", r"set model\.task=edit \(a single file may not say that its model edits\)$"):
        require_trainable(recipe("flux", file, tmp_path, "source"), single)


def test_klein_takes_any_conditions(tmp_path: Path) -> None:
    family = model("flux2", KLEIN)
    for conditions in ((), ("style",), ("style", "person")):
        require_trainable(recipe("flux2", KLEIN, tmp_path, *conditions), files_of(family))
        require_taken(family, {name: [tmp_path] for name in conditions})
    with refused("E1296", "this model takes no images, got source"):
        require_taken(model("flux", FLUX), {"source": [tmp_path]})


def test_references_are_sampled_in_the_order_of_training(tmp_path: Path) -> None:
    given = {name: str(tmp_path / f"{name}.png") for name in ("more", "person", "style")}
    chosen = recipe("flux2", KLEIN, tmp_path, "style", "person", conditions=given)
    known = {(name, Path(path), SIZE): torch.zeros(1) for name, path in given.items()}
    [request] = with_images([Request("", SIZE)], chosen, pytest.fail, known)
    assert list(request.images) == ["style", "person", "more"]


@pytest.mark.parametrize("name", ["flux", "flux2", "flux2-dev"])
def test_estimated_activations_count_the_tokens_of_references(
    kontext: Path, flux2: dict[str, Path], tmp_path: Path, name: str
) -> None:
    """Each reference of the sample's size adds as many tokens as the sample has."""
    size, family = Size(256, 256), name.removesuffix("-dev")
    folders = {"flux2": KLEIN, "flux2-dev": flux2["dev"]}

    def kept(*conditions: str) -> int:
        path = folders.get(name, kontext if conditions else FLUX)
        return MetaModel(recipe(family, path, tmp_path, *conditions)).activations(size, 1).kept

    plain, one = kept(), kept("source")
    larger = MetaModel(recipe(family, folders.get(name, FLUX), tmp_path)).activations(Size(256, 512), 1).kept
    assert one == pytest.approx(larger, rel=0.05)
    assert one > 1.2 * plain
    if family == "flux2":
        assert kept("style", "person") - one == pytest.approx(one - plain, rel=0.05)


def test_distilled_folder_of_kontext_is_recognised(kontext: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(kontext, tmp_path / "model"))
    edit(folder / "transformer" / "config.json", guidance_embeds=False)
    with refused("E1221"):
        files_of(model("flux", folder, weights="random")).require_trainable()
