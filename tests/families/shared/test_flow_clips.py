"""Clips with a given first frame compared with diffusers' pipelines, from image to video; Wan 2.2 TI2V 5B compared with
its pipeline from text."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    LTXConditionPipeline,
    LTXImageToVideoPipeline,
    LTXPipeline,
    WanImageToVideoPipeline,
    WanPipeline,
)
from diffusers.pipelines.ltx import pipeline_ltx_condition
from PIL import Image
from torch import Tensor

from mezzotint import draws
from mezzotint.diffusion.flow import slow_sigmas
from mezzotint.diffusion.flow_objective import objective_of, with_first_frame
from mezzotint.diffusion.objective import StepDraws
from mezzotint.families.base import ModelFamily
from mezzotint.families.shared.flow_clips import ClipFamily
from mezzotint.sampling import sample as sampling
from mezzotint.sampling.requests import Request, Sampling
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.objective import ObjectiveSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.stages import Noised
from support.flow_folders import tiny_5b
from support.sd_folder import edit

RECORDS = Path(__file__).parents[2] / "parity" / "data" / "flow"
PROMPTS = ["a red circle", "two birds above the old wall"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        "wan": tiny_5b(RECORDS / "wan" / "model", tmp_path_factory.mktemp("5b") / "model"),
        "ltx": RECORDS / "ltx" / "model",
    }


def family_of(name: str, folder: Path, **own: Any) -> ClipFamily:
    kind: type[ModelFamily] = importlib.import_module(f"mezzotint.families.{name}").Family
    family = kind.of(ModelSettings.model_validate({"family": name, "path": folder, name: own}))
    assert isinstance(family, ClipFamily)
    return family


def near(ours: Tensor, theirs: Tensor, share: float = 1e-4) -> bool:
    """Within the README's tolerance of the records, of the largest."""
    return bool((ours - theirs).abs().max() <= share * theirs.abs().max())


def drawn(family: ModelFamily, name: str, noise: Tensor, size: Size, first: Tensor | None = None) -> Tensor:
    requests = [Request(p, size, index=i, first_frame=first) for i, p in enumerate(PROMPTS)]
    solver = "unipc" if name == "wan" else "euler"
    settings = SampleSettings(steps=4, guidance=(3.0,), solver=solver)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "initial_noise", lambda *_: noise)
        return sampling.sample_latents(family, requests, Sampling(family.schedule, family.prediction, "cpu", settings))


@torch.no_grad()
def test_wan_5b_samples_as_its_pipeline(folders: dict[str, Path]) -> None:
    family = family_of("wan", folders["wan"])
    assert (family.grid.pixels, family.grid.side, family.grid.channels) == (16, 32, 8)
    noise = torch.randn(2, 8, 2, 4, 6, generator=torch.Generator().manual_seed(0))
    pipeline: Any = WanPipeline.from_pretrained(str(folders["wan"]), local_files_only=True)
    options = {"height": 64, "width": 96, "num_frames": 5, "num_inference_steps": 4, "guidance_scale": 3.0}
    theirs = pipeline(PROMPTS, negative_prompt=["", ""], latents=noise, output_type="latent", **options).frames
    assert near(drawn(family, "wan", noise, Size(96, 64, 5)), theirs)
    pixels = torch.rand(1, 3, 5, 64, 96, generator=torch.Generator().manual_seed(1)) * 2 - 1
    vae = pipeline.vae
    mean = (vae.encode(pixels).latent_dist.mean - torch.tensor(vae.config.latents_mean).view(1, 8, 1, 1, 1)) / (
        torch.tensor(vae.config.latents_std).view(1, 8, 1, 1, 1)
    )
    moments = family.encode_media(pixels)
    assert near(moments.chunk(2, dim=1)[0], mean)
    assert near(family.decode_media(theirs[:1]), pipeline.vae.decode(
        theirs[:1] * torch.tensor(vae.config.latents_std).view(1, 8, 1, 1, 1)
        + torch.tensor(vae.config.latents_mean).view(1, 8, 1, 1, 1)).sample)  # fmt: skip


@pytest.mark.parametrize("name", ["wan", "ltx"])
@torch.no_grad()
def test_clip_from_a_first_frame_equals_that_of_the_pipeline(name: str, folders: dict[str, Path]) -> None:
    family, generator = family_of(name, folders[name]), torch.Generator().manual_seed(0)
    frames = 1 + family.grid.frames
    size, grid = Size(96, 64, frames), family.grid
    image = Image.fromarray((torch.rand(64, 96, 3, generator=generator) * 255).to(torch.uint8).numpy())
    pixels = torch.from_numpy(np.array(image)).movedim(-1, 0)[None].float() / 127.5 - 1
    first = family.encode_media(pixels).chunk(2, dim=1)[0][:, :, None]
    noise = torch.randn(2, grid.channels, 2, 64 // grid.pixels, 96 // grid.pixels, generator=generator)
    options = {"height": 64, "width": 96, "num_frames": frames, "num_inference_steps": 4, "guidance_scale": 3.0}
    options |= {"negative_prompt": ["", ""], "output_type": "latent"}
    if name == "wan":
        parts = WanPipeline.from_pretrained(str(folders[name]), local_files_only=True).components
        wan: Any = WanImageToVideoPipeline(**parts, image_encoder=None, image_processor=None, expand_timesteps=True)
        theirs = wan(image, PROMPTS, latents=noise, **options).frames
    else:
        ltx: Any = LTXImageToVideoPipeline(
            **LTXPipeline.from_pretrained(str(folders[name]), local_files_only=True).components
        )
        begun = torch.cat([first.expand(2, -1, -1, -1, -1), noise[:, :, 1:]], dim=2)
        packed = ltx(image, PROMPTS, latents=begun.flatten(2).transpose(1, 2), frame_rate=25, **options).frames
        theirs = packed.transpose(1, 2).unflatten(2, noise.shape[2:])
    ours = drawn(family, name, noise, size, first)
    assert near(ours, theirs)
    assert torch.equal(ours[:, :, :1], first.expand(2, -1, -1, -1, -1))
    assert not near(drawn(family, name, noise, size), theirs, 1e-2)


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LTX-Video as it is from 0.9.5 on."""
    folder = Path(shutil.copytree(RECORDS / "ltx" / "model", tmp_path_factory.mktemp("later") / "model"))
    edit(folder / "model_index.json", _class_name="LTXConditionPipeline")
    scheduler = folder / "scheduler" / "scheduler_config.json"
    edit(scheduler, use_dynamic_shifting=False, shift=1.0, shift_terminal=None)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("begun", [True, False], ids=["from an image", "from text"])
@torch.no_grad()
def test_newer_ltx_samples_as_its_condition_pipeline(
    begun: bool, later: Path, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline adds noise to the image and samples the autoencoder's posterior by default; here it does neither."""
    family, generator = family_of("ltx", later), torch.Generator().manual_seed(0)
    image = Image.fromarray((torch.rand(64, 96, 3, generator=generator) * 255).to(torch.uint8).numpy())
    pixels = torch.from_numpy(np.array(image)).movedim(-1, 0)[None].float() / 127.5 - 1
    first = family.encode_media(pixels).chunk(2, dim=1)[0][:, :, None] if begun else None
    noise = torch.randn(2, family.grid.channels, 3, 2, 3, generator=generator)
    monkeypatch.setattr(pipeline_ltx_condition, "randn_tensor", lambda *_, **__: noise.clone())
    monkeypatch.setattr(pipeline_ltx_condition, "retrieve_latents", lambda encoded, **_: encoded.latent_dist.mode())
    pipeline: Any = LTXConditionPipeline.from_pretrained(str(later), local_files_only=True)
    told = {"image": image} if begun else {}
    theirs = pipeline(
        prompt=PROMPTS, negative_prompt=["", ""], height=64, width=96, num_frames=17, frame_rate=25,
        num_inference_steps=4, guidance_scale=3.0, max_sequence_length=128, output_type="latent",
        image_cond_noise_scale=0.0, **told,
    ).frames  # fmt: skip
    size = Size(96, 64, 17)
    assert near(drawn(family, "ltx", noise, size, first), theirs)
    earlier = family_of("ltx", folders["ltx"])
    monkeypatch.setattr(earlier, "schedule", family.schedule)
    assert not near(drawn(earlier, "ltx", noise, size, first), theirs, 1e-3), "positions in time are others"


def test_identity_of_newer_ltx_differs(later: Path, folders: dict[str, Path], tmp_path: Path) -> None:
    one = tmp_path / "one"
    shutil.copytree(later, one)
    edit(one / "model_index.json", _class_name="LTXPipeline")
    kind = importlib.import_module("mezzotint.families.ltx").Files
    new, old = (kind.of(ModelSettings(family="ltx", path=path)) for path in (later, one))
    assert new.fingerprint("schedule") != old.fingerprint("schedule")
    assert new.text_identity() == f"{old.text_identity()} masked"
    assert new.fingerprint("denoiser") == old.fingerprint("denoiser")


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 50])
def test_sigmas_equal_those_of_the_pipeline(steps: int) -> None:
    theirs = pipeline_ltx_condition.linear_quadratic_schedule(steps)
    np.testing.assert_allclose(slow_sigmas(steps), theirs.numpy(), atol=1e-6)


@pytest.mark.parametrize("name", ["wan", "ltx"])
def test_first_latent_frame_of_a_clip_is_that_of_its_first_image(name: str, folders: dict[str, Path]) -> None:
    family = family_of(name, folders[name])
    clip = torch.rand(1, 3, 1 + family.grid.frames, 64, 64, generator=torch.Generator().manual_seed(2)) * 2 - 1
    torch.testing.assert_close(family.encode_media(clip)[:, :, 0], family.encode_media(clip[:, :, 0]))


def noised_of(family: ClipFamily, shape: tuple[int, ...], seed: int = 3) -> tuple[Noised, StepDraws]:
    x_0 = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    drawn = StepDraws.at(7, 2, np.arange(len(x_0)), "cpu")
    objective = objective_of(ObjectiveSettings(), family.schedule, "flow")
    return objective.noise(x_0, drawn), drawn


@pytest.mark.parametrize("name", ["wan", "ltx"])
def test_first_frame_is_clean_and_not_in_the_loss(name: str, folders: dict[str, Path]) -> None:
    family = family_of(name, folders[name], first_frame_prob=0.5)
    plain, drawn = noised_of(family, (8, family.grid.channels, 3, 2, 2))
    noised = family.training_input(plain, drawn)
    begun = noised.has_first_frame
    assert begun is not None
    assert 0 < int(begun.sum()) < 8
    assert torch.equal(noised.x_t[begun][:, :, 0], plain.x_0[begun][:, :, 0])
    assert torch.equal(noised.x_t[begun][:, :, 1:], plain.x_t[begun][:, :, 1:])
    assert torch.equal(noised.x_t[~begun], plain.x_t[~begun])
    times = family.token_times(noised)
    per_frame = times.shape[1] // 3
    assert not times[begun][:, :per_frame].any()
    assert torch.equal(times[begun][:, per_frame:], plain.model_t[begun][:, None].expand(-1, 2 * per_frame))
    assert torch.equal(times[~begun], plain.model_t[~begun][:, None].expand(-1, 3 * per_frame))
    objective = objective_of(ObjectiveSettings(), family.schedule, "flow")
    predicted = torch.randn(plain.x_0.shape, generator=torch.Generator().manual_seed(5))
    losses = objective.loss(predicted, noised, torch.ones(8)).per_sample
    errors = (predicted - objective.target(noised)).square()
    expected = torch.where(begun, errors[:, :, 1:].flatten(1).mean(1), errors.flatten(1).mean(1))
    torch.testing.assert_close(losses, expected)
    mask = torch.rand(8, 1, 1, 2, 2, generator=torch.Generator().manual_seed(6))
    masked = objective.loss(predicted, noised, torch.ones(8), mask).per_sample
    rest = torch.where(begun, (errors * mask)[:, :, 1:].flatten(1).mean(1), (errors * mask).flatten(1).mean(1))
    torch.testing.assert_close(masked, rest)


def test_choice_of_conditioned_clips_is_a_function_of_the_sample(folders: dict[str, Path]) -> None:
    """The same for any micro-batch size; never an image, nor a clip of one latent frame."""
    family = family_of("ltx", folders["ltx"], first_frame_prob=0.4)
    plain, drawn = noised_of(family, (40, family.grid.channels, 2, 2, 2))
    whole = family.training_input(plain, drawn).has_first_frame
    assert whole is not None
    assert whole.tolist() == [draws.uniform(draws.key(7, "first-frame", 2, n)) < 0.4 for n in range(40)]
    part = StepDraws.at(7, 2, np.arange(10, 20), "cpu")
    rows = Noised(
        *[t[10:20] for t in (plain.x_0, plain.noise, plain.x_t, plain.model_input, plain.model_t, plain.level)]
    )
    assert torch.equal(family.training_input(rows, part).has_first_frame, whole[10:20])  # type: ignore[arg-type]
    for shape in ((4, family.grid.channels, 2, 2), (4, family.grid.channels, 1, 2, 2)):
        noised, drawn = noised_of(family, shape)
        assert family.training_input(noised, drawn) is noised
    never = family_of("ltx", folders["ltx"])
    assert never.training_input(plain, drawn) is plain


@pytest.mark.parametrize("name", ["wan", "ltx"])
@torch.no_grad()
def test_first_frame_conditioning_reaches_the_denoiser(name: str, folders: dict[str, Path]) -> None:
    family = family_of(name, folders[name], first_frame_prob=1.0)
    plain, drawn = noised_of(family, (2, family.grid.channels, 2, 2, 2))
    condition, times = family.condition(family.encode_text(PROMPTS), None), []
    keep = lambda module, inputs, named: times.append(named["timestep"])  # noqa: E731
    family.parts()["denoiser"].register_forward_pre_hook(keep, with_kwargs=True)
    noised = family.training_input(plain, drawn)
    family.predict(noised, condition)
    assert torch.equal(times[0], family.token_times(noised))
    prediction = family.predict(with_first_frame(plain, torch.tensor([True, False])), condition)
    torch.testing.assert_close(prediction[1:], family.predict(plain, condition)[1:], rtol=1e-4, atol=1e-5)
