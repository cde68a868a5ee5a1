"""The command of diffusers' SDXL script: in one process, in two, measured; on a tiny SDXL and six images with a
metadata.jsonl. Resuming is tested with the command of the other script."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl import StableDiffusionXLPipeline

from mezzotint import outside
from mezzotint.cli import main
from mezzotint.families.sdxl import Family
from mezzotint.tasks.bench import bench
from support.forked import run_two
from support.run_folders import tensors_of
from support.tables import copy_with_table

IMAGES = Path(__file__).parents[3] / "parity" / "data" / "diffusers" / "shapes6"
OURS = ("data.cache.path=cache", "run.device=cpu", "run.threads=1", "run.tensorboard=false")


@pytest.fixture
def here(tmp_path: Path, sdxl_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a model, another autoencoder, and images as an imagefolder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(sdxl_folder, tmp_path / "model")
    shutil.copytree(sdxl_folder / "vae", tmp_path / "vae-fix")
    copy_with_table(IMAGES, tmp_path / "images")
    return tmp_path


def flags(**more: Any) -> list[str]:
    values = {
        "pretrained_model_name_or_path": "model", "pretrained_vae_model_name_or_path": "vae-fix",
        "train_data_dir": "images", "resolution": 64, "train_batch_size": 2, "max_train_steps": 2,
        "learning_rate": "1e-04", "proportion_empty_prompts": 0.2, "snr_gamma": 5.0, "noise_offset": 0.05,
        "timestep_bias_strategy": "earlier", "timestep_bias_multiplier": 2, "output_dir": "out", "seed": 1,
    }  # fmt: skip
    valued = [f"--{key}={value}" for key, value in (values | more).items()]
    return ["--random_flip", "--use_ema", *valued]


def train(*words: str, over: tuple[str, ...] = ()) -> int:
    return main(["train", "--as", "diffusers-sdxl", *OURS, *over, "--", *words])


@pytest.mark.slow
def test_only_the_unet_is_trained_and_exported_with_ema_weights(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generated = ("sample.steps=1", "sample.size=[64,64]")
    words = ["--validation_prompt=a red shape", "--num_validation_images=2", "--max_train_steps=3"]
    assert train("python", "train_text_to_image_sdxl.py", *flags(), *words, over=generated) == 0
    output = capsys.readouterr().out
    assert "text_encoder not loaded (cached); text_encoder_2 not loaded (cached); vae not loaded (cached)" in output
    out = here / "out"
    assert len(list((out / "samples").rglob("*.png"))) >= 1
    pipeline: Any = StableDiffusionXLPipeline.from_pretrained(str(out), local_files_only=True)
    average = {name: tensor for name, tensor in tensors_of(out).items() if name.startswith("ema/denoiser/")}
    unet = pipeline.unet.state_dict()
    assert len(average) == len(unet)
    assert all(torch.equal(unet[name.removeprefix("ema/denoiser/")], tensor) for name, tensor in average.items())
    assert not torch.equal(unet["conv_in.weight"], tensors_of(out)["w/denoiser/conv_in.weight"])
    drawn_with = pipeline("a red shape", height=64, width=64, num_inference_steps=1, output_type="np").images
    assert drawn_with.shape == (1, 64, 64, 3)


@pytest.mark.slow
def test_other_autoencoder_encodes_latents_and_is_exported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import load_file, save_file

    path = here / "vae-fix" / "diffusion_pytorch_model.safetensors"
    save_file({name: tensor * 1.01 for name, tensor in load_file(path).items()}, path)
    assert train(*flags(max_train_steps=1)) == 0
    assert train(*flags(max_train_steps=1, pretrained_vae_model_name_or_path="model", output_dir="own")) == 0
    exported = [load_file(here / folder / "vae" / path.name) for folder in ("out", "own")]
    assert torch.equal(exported[0]["encoder.conv_in.weight"], load_file(path)["encoder.conv_in.weight"])
    assert not torch.equal(exported[0]["encoder.conv_in.weight"], exported[1]["encoder.conv_in.weight"])
    first = [outside.read_lines(here / folder / "metrics.jsonl") for folder in ("out", "own")]
    losses = [next(line["loss"] for line in lines if "loss" in line) for lines in first]
    assert losses[0] != losses[1], "latents of one autoencoder do not serve another"


def test_size_conditioning_is_the_crop_that_was_encoded(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors: list[tuple[float, ...]] = []
    plain = Family.predict

    def watched(self: Family, noised: Any, condition: Any) -> torch.Tensor:
        vectors.extend(map(tuple, condition.vector.tolist()))
        return plain(self, noised, condition)

    monkeypatch.setattr(Family, "predict", watched)
    assert train(*flags(max_train_steps=6, resolution=48)) == 0
    assert {line[4:] for line in vectors} == {(48.0, 48.0)}
    assert len(vectors) == 12
    assert len({line[:4] for line in vectors}) <= 6, "one crop per image"


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_check_and_bench_accept_the_command(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["check", "--as", "diffusers-sdxl", *OURS, "--processes=2", "--", *flags()]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "2 on each of 2 processes: a batch of 4" in page
    assert "each with one crop and mirror" in page
    monkeypatch.setattr(bench, "flops_of_samples", lambda recipe, sizes: {})
    monkeypatch.setattr(bench, "plot_bench", lambda runs, **words: b"")
    words = ["bench", "--as", "diffusers-sdxl", *OURS, "--as-written", "--steps=2", "--out=bench", "--", *flags()]
    assert main(words) == 0
    [document] = (here / "bench").rglob("*.json")
    rows = json.loads(document.read_text())["rows"]
    assert [(row["name"], row["steps"]) for row in rows] == [("as written", 2)]
    assert "target" not in rows[0] or rows[0]["target"] is None, "nothing is published of this script"
    assert not (here / "out").exists()


@pytest.mark.slow
@pytest.mark.distributed
def test_command_trains_in_two_processes(here: Path) -> None:
    """With the variables that `accelerate launch` sets, in forked processes."""
    line = ["train", "--as", "diffusers-sdxl", *OURS, "--", *flags(max_train_steps=1)]
    output = run_two(line, here / "out.txt", ACCELERATE_MIXED_PRECISION="bf16")
    assert json.loads((here / "out" / "environment.json").read_text())["processes"] == 2
    assert (here / "out" / "model_index.json").is_file()
    assert "bf16, as the launcher sets" in output
