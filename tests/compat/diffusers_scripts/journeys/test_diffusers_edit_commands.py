"""The commands of diffusers' scripts for InstructPix2Pix: the loss of a batch as the scripts compute it, and whole
runs, on tiny models and images before and after an edit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from PIL import Image
from prepared_commands import batches, prepared_line
from torch import Tensor
from transformers import CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

from mezzotint.cli import main
from mezzotint.diffusion import noise
from mezzotint.diffusion.objective import StepDraws
from support.arrow_tables import IMAGE, write
from support.rounding import within
from support.run_folders import logged, tensors_of
from support.widened_models import text_model, widened_model

pytestmark = pytest.mark.numbers
SIDE = 64
ROUNDINGS = 64
"""Of the loss. The networks are diffusers' own on either side; latents are scaled and noise is added in another order,
and a machine's convolutions may round otherwise for another shape of batch. At most 4 are seen."""
SCRIPTS = {"sd": "diffusers-instruct-pix2pix", "sdxl": "diffusers-instruct-pix2pix-sdxl"}
OURS = ("data.cache.path=cache", "run.device=cpu", "run.threads=1", "run.tensorboard=false", "sample.steps=1")
CPU = torch.device("cpu")


def pixels_of(number: int, side: int) -> np.ndarray[Any, Any]:
    return np.random.Generator(np.random.Philox(key=number)).integers(0, 256, (side, side, 3), dtype=np.uint8)


def write_pairs(folder: Path, *, side: int = SIDE, count: int = 8) -> None:
    """A table of images before and after an edit, in files."""
    lines = []
    for number in range(count):
        names = {"edited_image": f"after/{number}.png", "input_image": f"before/{number:03}.png"}
        for name, path in names.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels_of(2 * number + (name == "input_image"), side)).save(folder / path)
        lines.append({f"{name}_file_name": path for name, path in names.items()} | {"edit_prompt": f"edit {number}"})
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))


def line(*words: str) -> list[str]:
    usual = [
        "--pretrained_model_name_or_path=model", "--train_data_dir=pairs", f"--resolution={SIDE}",
        "--train_batch_size=8", "--max_train_steps=2", "--seed=7", "--output_dir=out", "--learning_rate=1e-3",
    ]  # fmt: skip
    return [*usual, *words]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of models that edit and of others, by family and prediction."""
    root, folders = tmp_path_factory.mktemp("models"), {}
    for case in ("sd", "sd-v", "sdxl"):
        family, _, prediction = case.partition("-")
        changed = {"prediction": prediction or "epsilon"}
        folders[f"{case}-text"] = text_model(family, root / f"{case}-text", **changed)
        folders[case] = widened_model(family, folders[f"{case}-text"], root / case, "edit", **changed)
    return folders


def as_in_the_script(path: Path) -> Tensor:
    """An image file as the scripts give it to the autoencoder, (3, H, W)."""
    image = Image.open(path).convert("RGB").resize((SIDE, SIDE))
    return 2 * (torch.tensor(np.array(image).transpose(2, 0, 1)) / 255) - 1


def embed(folder: Path, captions: list[str], *, xl: bool) -> tuple[Tensor, Tensor | None]:
    """The text states (B, 77, D), for SDXL both encoders', and the second's pooled text."""
    states, pooled = [], None
    for suffix in ("", "_2") if xl else ("",):
        tokenizer = CLIPTokenizer.from_pretrained(str(folder / f"tokenizer{suffix}"))
        kind: Any = CLIPTextModelWithProjection if suffix else CLIPTextModel
        encoder = kind.from_pretrained(str(folder / f"text_encoder{suffix}"))
        ids = tokenizer(
            captions, max_length=tokenizer.model_max_length, padding="max_length", truncation=True, return_tensors="pt"
        ).input_ids
        output = encoder(ids, output_hidden_states=True)
        states.append(output.hidden_states[-2] if xl else output[0])
        pooled = output[0] if suffix else None
    return torch.cat(states, dim=-1), pooled


def loss_of_script(folder: Path, batch: Any, noised: Any, *, xl: bool) -> Tensor:
    """The loss of the scripts for a batch's files, noise and timesteps, with diffusers' networks and scheduler."""
    vae = AutoencoderKL.from_pretrained(str(folder), subfolder="vae")
    unet: Any = UNet2DConditionModel.from_pretrained(str(folder), subfolder="unet")
    scheduler = DDPMScheduler.from_pretrained(str(folder), subfolder="scheduler")
    after = torch.stack([as_in_the_script(Path("pairs") / key) for key in batch.keys])
    before = torch.stack([as_in_the_script(Path("pairs/before") / f"{int(Path(k).stem):03}.png") for k in batch.keys])

    distribution = vae.encode(after).latent_dist
    drawn = noise.normal(batch.posterior_keys, distribution.mean.shape[1:])
    latents = (distribution.mean + distribution.std * drawn) * vae.config.scaling_factor
    t = noised.model_t.long()
    noisy = scheduler.add_noise(latents, noised.noise, t)
    image_embeds = vae.encode(before).latent_dist.mode()

    prompts = [f"edit {Path(key).stem}" for key in batch.keys]
    (states, pooled), (empty, empty_pooled) = embed(folder, prompts, xl=xl), embed(folder, [""], xl=xl)
    is_dropped = torch.tensor([caption == "" for caption in batch.captions])
    states = torch.where(is_dropped[:, None, None], empty, states)
    image_mask = batch.conditions["source"].is_kept.float()[:, None, None, None]
    model_input = torch.cat([noisy, image_mask * image_embeds], dim=1)
    more = {}
    if xl:
        assert pooled is not None
        assert empty_pooled is not None
        pooled = torch.where(is_dropped[:, None], empty_pooled, pooled)  # the script keeps that of the prompt
        more = {"text_embeds": pooled, "time_ids": torch.tensor([[SIDE, SIDE, 0, 0, SIDE, SIDE]] * len(states))}
    is_v = scheduler.config.prediction_type == "v_prediction"
    target = scheduler.get_velocity(latents, noised.noise, t) if is_v else noised.noise
    predicted = unet(model_input, t, states, added_cond_kwargs=more or None).sample
    return torch.nn.functional.mse_loss(predicted.float(), target.float(), reduction="mean")


@pytest.mark.parametrize("dropout", [None, 0.3])
@pytest.mark.parametrize("case", ["sd", "sd-v", "sdxl"])
def test_loss_of_a_batch_is_that_of_the_script(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, dropout: float | None
) -> None:
    monkeypatch.chdir(tmp_path)
    xl = case == "sdxl"
    write_pairs(tmp_path / "pairs", side=SIDE if xl else 80)  # SDXL is given the images' own size, 64
    (tmp_path / "model").symlink_to(models[case])
    words = [] if dropout is None else [f"--conditioning_dropout_prob={dropout}"]
    with prepared_line(SCRIPTS[case.partition("-")[0]], line(*words), ours=("data.workers=0",)) as job, torch.no_grad():
        [batch] = batches(job).batches
        model: Any = job.model
        ours, _ = model.loss(batch, 7, 1, CPU)
        draws = StepDraws.at(7, 1, batch.positions.numpy(), CPU)
        x_0 = torch.zeros(batch.size, 4, SIDE // 8, SIDE // 8)
        noised = model.objective.noise(x_0, draws)
        kinds = {*zip([c != "" for c in batch.captions], batch.conditions["source"].is_kept.tolist(), strict=True)}
        assert (len(kinds) >= 3) == (dropout is not None), "with dropout: captions, images and both are missing"
        expected = loss_of_script(models[case], batch, noised, xl=xl)
    within(ours.total / batch.size, expected, roundings=ROUNDINGS, name=f"loss of {case}")


@pytest.mark.parametrize("family", SCRIPTS)
def test_command_trains_and_exports_a_pipeline_that_edits(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    """From a table with the images inside; the model is one of text alone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(models[f"{family}-text"])
    columns: dict[str, Any] = {"edit_prompt": [f"edit {number}" for number in range(3)]}
    for offset, name in enumerate(("input_image", "edited_image")):
        write_pairs(tmp_path / "files", count=3)
        folder = "before" if offset == 0 else "after"
        files = sorted((tmp_path / "files" / folder).glob("*.png"))
        columns[name] = [{"bytes": file.read_bytes(), "path": None} for file in files]
    write(tmp_path / "pairs" / "train.parquet", columns, {"input_image": IMAGE, "edited_image": IMAGE})
    pixels = pixels_of(5, SIDE)
    Image.fromarray(pixels).save("cat.png")
    image_flag = "--val_image_url=cat.png" if family == "sd" else "--val_image_url_or_path=cat.png"
    words = line("--conditioning_dropout_prob=0.1", "--validation_prompt=make it red", image_flag, "--use_ema",
                 "--num_validation_images=1", "--train_batch_size=3", "--lr_warmup_steps=0")  # fmt: skip
    assert main(["train", "--as", SCRIPTS[family], *OURS, "--", *words]) == 0
    assert len(logged(tmp_path / "out")) == 2
    assert list((tmp_path / "out" / "samples").rglob("*.png"))
    trained = tensors_of(tmp_path / "out")["w/denoiser/conv_in.weight"]
    assert trained[:, 4:].abs().max() > 0, "the new channels are trained"
    pipeline: Any = DiffusionPipeline.from_pretrained(str(tmp_path / "out"), local_files_only=True)
    assert type(pipeline).__name__.endswith("InstructPix2PixPipeline")
    size = {"height": SIDE, "width": SIDE} if family == "sdxl" else {}
    edited = pipeline("make it red", image=Image.fromarray(pixels), num_inference_steps=1, output_type="np", **size)
    assert edited.images.shape == (1, SIDE, SIDE, 3)
