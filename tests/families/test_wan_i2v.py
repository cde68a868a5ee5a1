"""Wan 2.1 I2V and 2.2 I2V A14B: a clip's first frame as further channels, and CLIP's states of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import WanImageToVideoPipeline
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

from mezzotint.cli import main
from mezzotint.diffusion.first_frame import FIRST_FRAME, VISION
from mezzotint.diffusion.flow_objective import objective_of
from mezzotint.diffusion.objective import StepDraws
from mezzotint.errors import MezzotintError
from mezzotint.families.base import condition_latents
from mezzotint.families.wan import Family, Files
from mezzotint.sampling import sample as sampling
from mezzotint.sampling.requests import Request, Sampling
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.objective import ObjectiveSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.stages import Batch
from support.flow_folders import tiny_i2v
from support.sd_folder import edit

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "flow" / "wan" / "model"
KINDS = ("2.1", "A14B")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("i2v")
    return {kind: tiny_i2v(RECORDS, root / kind, second=kind == "A14B") for kind in KINDS}


def files_of(folder: Path, **values: Any) -> Files:
    return Files.of(ModelSettings.model_validate({"family": "wan", "path": folder, **values}))


def random_pixels(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.Generator(np.random.Philox(key=1)).integers(0, 256, shape, dtype=np.uint8)


def as_pixels(image: np.ndarray[Any, Any]) -> Tensor:
    """(1, 3, H, W) in [−1, 1] of (H, W, 3)."""
    return torch.from_numpy(image).permute(2, 0, 1)[None].float() / 127.5 - 1


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_clips_continue_an_image_as_in_the_pipeline(folders: dict[str, Path], kind: str) -> None:
    family = Family.load(files_of(folders[kind]))
    image, noise = random_pixels(32, 48, 3), torch.randn(1, 16, 2, 4, 6, generator=torch.Generator().manual_seed(0))
    pipeline: Any = WanImageToVideoPipeline.from_pretrained(str(folders[kind]), local_files_only=True)
    options = {"height": 32, "width": 48, "num_frames": 5, "num_inference_steps": 4, "guidance_scale": 3.0}
    theirs = pipeline(
        Image.fromarray(image), ["a red circle"], negative_prompt=[""], latents=noise, output_type="latent", **options
    ).frames
    how = Sampling(family.schedule, family.prediction, "cpu", SampleSettings(steps=4, guidance=(3.0,), solver="unipc"))
    of_image = family.encode_first_frames(as_pixels(image), 5)
    request = Request("a red circle", Size(48, 32, 5), images=of_image)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "initial_noise", lambda *_: noise)
        ours = sampling.sample_latents(family, [request], how)
        changed = {
            name: sampling.sample_latents(
                family, [replace(request, images=of_image | {name: torch.zeros_like(one)})], how
            )
            for name, one in of_image.items()
        }
    assert changed.keys() == ({FIRST_FRAME, VISION} if kind == "2.1" else {FIRST_FRAME})
    assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()
    assert all((other - theirs).abs().max() > 1e-2 * theirs.abs().max() for other in changed.values())


def clip_batch(frames: int = 5) -> Batch:
    pixels = torch.from_numpy(random_pixels(2, 3, frames, 32, 48)).float() / 127.5 - 1
    numbers = torch.zeros(2, dtype=torch.int64)
    sizes = torch.zeros(2, 2, dtype=torch.int64)
    return Batch(("a", "b"), ("a", "b"), numbers, numbers, sizes, sizes, sizes, torch.ones(2), pixels=pixels)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_training_input_is_that_of_the_pipeline_with_the_own_first_frame(folders: dict[str, Path], kind: str) -> None:
    family, batch = Family.load(files_of(folders[kind], train=("denoiser",))), clip_batch()
    assert batch.pixels is not None
    pipeline: Any = WanImageToVideoPipeline.from_pretrained(str(folders[kind]), local_files_only=True)
    objective = objective_of(ObjectiveSettings(), family.schedule, "flow")
    x_0 = family.encode_media(batch.pixels).chunk(2, dim=1)[0]
    noised = objective.noise(x_0, StepDraws.at(0, 1, np.arange(2), "cpu"))
    condition = family.condition(family.encode_text(batch.captions), batch)
    condition = replace(condition, images=condition_latents(family, batch, torch.device("cpu")))
    ours = Family(files_of(folders[kind]), {"denoiser": family.parts()["denoiser"]}).predict(noised, condition)
    of_each = [
        pipeline.prepare_latents(one[None], 1, 16, 32, 48, 5, torch.float32, "cpu")[1] for one in batch.pixels[:, :, 0]
    ]
    states: dict[str, Any] = {}
    if kind == "2.1":
        images = [Image.fromarray(one) for one in random_pixels(2, 3, 5, 32, 48)[:, :, 0].transpose(0, 2, 3, 1)]
        states["encoder_hidden_states_image"] = pipeline.encode_image(images, "cpu")
    texts = pipeline.encode_prompt(["a", "b"], do_classifier_free_guidance=False, max_sequence_length=512)[0]
    model_input = torch.cat([noised.x_t, torch.cat(of_each)], dim=1)
    theirs = pipeline.transformer(model_input, noised.model_t, texts, return_dict=False, **states)[0]
    assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()
    loss = objective.loss(ours, noised, torch.ones(2)).per_sample
    expected = (theirs - (noised.noise - x_0)).square().mean(dim=(1, 2, 3, 4))
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=0)


def test_each_denoiser_gets_the_first_frames_of_its_samples(folders: dict[str, Path]) -> None:
    both = Family.load(files_of(folders["A14B"], train=("denoiser", "denoiser_2")))
    batch = clip_batch()
    with torch.no_grad():
        images = condition_latents(both, batch, torch.device("cpu"))
        condition = replace(both.condition(both.encode_text(batch.captions), batch), images=images)
        objective = objective_of(ObjectiveSettings(), both.schedule, "flow")
        x_0 = torch.randn(2, 16, 2, 4, 6, generator=torch.Generator().manual_seed(0))
        noised = objective.noise_at(x_0, StepDraws.at(0, 1, np.arange(2), "cpu"), torch.tensor([950, 300]))
        mixed = both.predict(noised, condition)
        for row, part in enumerate(("denoiser", "denoiser_2")):
            alone = Family(files_of(folders["A14B"], train=(part,)), {part: both.parts()[part]})
            torch.testing.assert_close(mixed[row], alone.predict(noised, condition)[row], rtol=1e-4, atol=1e-5)
            other = replace(condition, images={FIRST_FRAME: images[FIRST_FRAME].flip(0)})
            assert not torch.allclose(mixed[row], alone.predict(noised, other)[row], rtol=1e-2)


def test_cached_latents_depend_on_the_image_encoder_and_its_processor(folders: dict[str, Path], tmp_path: Path) -> None:
    plain = files_of(folders["2.1"]).media_identity()
    assert plain != files_of(RECORDS).media_identity() != files_of(folders["A14B"]).media_identity() != plain
    folder = Path(shutil.copytree(folders["2.1"], tmp_path / "model"))
    edit(folder / "image_processor" / "preprocessor_config.json", image_mean=[0.5, 0.5, 0.5])
    assert files_of(folder).media_identity() != plain


def cut(folder: Path, part: str) -> None:
    shutil.rmtree(folder / part)


REFUSALS: dict[str, tuple[str, Callable[[Path], object], str, str]] = {
    "text model as image model": (
        "T2V", lambda folder: edit(folder / "model_index.json", _class_name="WanImageToVideoPipeline"), "E1222",
        "of WanImageToVideoPipeline, but its denoiser takes 16 channels, as that of a text-to-video model",
    ),
    "image model as text model": (
        "2.1", lambda folder: edit(folder / "model_index.json", _class_name="WanPipeline"), "E1222",
        "of WanPipeline, but its denoiser takes 36 channels, as that of an image-to-video model",
    ),
    "last frames": (
        "2.1", lambda folder: edit(folder / "transformer" / "config.json", pos_embed_seq_len=10), "E1222",
        "continues a first and a last frame",
    ),
    "no image encoder": (
        "2.1", lambda folder: edit(folder / "model_index.json", image_encoder=[None, None]), "E1409",
        "lacks image_encoder/",
    ),
    "no files of it": ("2.1", lambda folder: cut(folder, "image_encoder"), "E1409", "lacks image_encoder/"),
    "no processor": ("2.1", lambda folder: cut(folder, "image_processor"), "E1409", "lacks image_processor/pre"),
    "another width": (
        "2.1", lambda folder: edit(folder / "transformer" / "config.json", image_dim=12), "E1409",
        "the denoiser takes hidden states of images of width 12, the other part has 8",
    ),
    "other latents": (
        "A14B", lambda folder: edit(folder / "transformer" / "config.json", in_channels=32), "E1409",
        "the denoiser takes latents of channels 32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_parts_of_other_models_are_refused(folders: dict[str, Path], tmp_path: Path, case: str) -> None:
    kind, change, code, words = REFUSALS[case]
    folder = Path(shutil.copytree(RECORDS if kind == "T2V" else folders[kind], tmp_path / "model"))
    change(folder)
    with pytest.raises(MezzotintError) as caught:
        files_of(folder)
    assert (caught.value.code, words in caught.value.message) == (code, True), caught.value.message


def test_damaged_image_processor_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["2.1"], tmp_path / "model"))
    (folder / "image_processor" / "preprocessor_config.json").write_text("[1")
    with pytest.raises(MezzotintError, match="the image processor cannot be used") as caught:
        files_of(folder).image_processor()
    assert caught.value.code == "E1409"


def test_settings_that_do_not_apply_are_refused(folders: dict[str, Path]) -> None:
    with pytest.raises(MezzotintError, match="takes texts of 512 tokens") as caught:
        files_of(folders["2.1"], wan={"text_tokens": 16})
    assert caught.value.code == "E1464"
    assert files_of(folders["A14B"], wan={"text_tokens": 16}).animates
    with pytest.raises(MezzotintError, match=r"remove model\.wan\.first_frame_prob") as caught:
        files_of(folders["A14B"], wan={"first_frame_prob": 0.5}).require_trainable()
    assert caught.value.code == "E1480"


def test_files_of_the_other_task_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    image, text = tmp_path / "i2v.safetensors", tmp_path / "t2v.safetensors"
    assert main(["convert", str(folders["2.1"]), str(image)]) == 0
    assert main(["convert", str(RECORDS), str(text)]) == 0
    lean = Path(shutil.copytree(folders["2.1"], tmp_path / "lean"))
    next((lean / "transformer").glob("*.safetensors")).unlink()
    plain = load_file(folders["2.1"] / "transformer" / "diffusion_pytorch_model.safetensors")
    assert all(torch.equal(tensor, plain[name]) for name, tensor in files_of(image, config=lean).network(
        "denoiser").state_dict().items())  # fmt: skip
    assert main(["convert", str(image), str(tmp_path / "back"), f"--config={lean}"]) == 0
    back = load_file(tmp_path / "back" / "transformer" / "diffusion_pytorch_model.safetensors")
    assert all(torch.equal(tensor, back[name]) for name, tensor in plain.items())
    assert Family.load(files_of(tmp_path / "back")).animates
    high = tmp_path / "high.safetensors"
    assert main(["convert", str(folders["A14B"]), str(high), "--part=denoiser"]) == 0
    assert files_of(high, config=folders["A14B"]).animates
    with pytest.raises(MezzotintError, match=r"of an image-to-video model \(36 channels\), but .* a text") as caught:
        files_of(image, config=RECORDS)
    assert caught.value.code == "E1478"
    with pytest.raises(MezzotintError, match=r"of a text-to-video model \(16 channels\), but .* an image") as caught:
        files_of(text, config=lean)
    assert caught.value.code == "E1478"


def test_file_without_the_first_layer_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "t2v.safetensors"
    assert main(["convert", str(RECORDS), str(file)]) == 0
    tensors = load_file(file)
    del tensors["patch_embedding.weight"]
    save_file(tensors, file)
    with pytest.raises(MezzotintError, match=r"patch_embedding\.weight") as caught:
        Family.load(files_of(file, config=RECORDS), ["denoiser"])
    assert caught.value.code == "E1405"


@torch.no_grad()
def test_image_encoder_in_a_file_replaces_the_own(folders: dict[str, Path], tmp_path: Path) -> None:
    """As ComfyUI's clip_vision_h.safetensors, which has a projection that the pipeline does not use."""
    tensors = load_file(folders["2.1"] / "image_encoder" / "model.safetensors")
    tensors = {f"vision_model.{name}": tensor * 1.5 for name, tensor in tensors.items()}
    file = tmp_path / "clip_vision.safetensors"
    save_file(tensors | {"visual_projection.weight": torch.ones(2)}, file)
    plain, other = files_of(folders["2.1"]), files_of(folders["2.1"], over=[file])
    assert plain.media_identity() != other.media_identity()
    image = as_pixels(random_pixels(32, 48, 3))
    states = [Family.load(files, ["vae", "image_encoder"]).encode_first_frames(image, 5)[VISION]
              for files in (plain, other)]  # fmt: skip
    assert not torch.allclose(*states, rtol=1e-2)
    objective = objective_of(ObjectiveSettings(), Family.load(other, ["vae"]).schedule, "flow")
    family = Family.load(other)
    family.export(
        tmp_path / "out", other, weights={}, dtype="fp32", schedule=family.schedule,
        trained_form=objective.parameterization,
    )  # fmt: skip
    assert load_file(tmp_path / "out" / "image_encoder" / "model.safetensors").keys() == tensors.keys()
    pipeline: Any = WanImageToVideoPipeline.from_pretrained(str(tmp_path / "out"), local_files_only=True)
    seen = pipeline.encode_image(Image.fromarray(random_pixels(32, 48, 3)), "cpu")
    torch.testing.assert_close(seen.flatten(1), states[1], rtol=1e-5, atol=1e-5)
