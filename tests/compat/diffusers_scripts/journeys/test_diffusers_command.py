"""The command of diffusers' text-to-image script: in one process, behind `accelerate launch`, resumed; on the tiny
model and six images with a metadata.jsonl."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from mezzotint.cli import main
from support.forked import run_two
from support.run_folders import logged, tensors_of
from support.supported_table import require_a_line_trains_in_two_processes
from support.tables import copy_with_table

IMAGES = Path(__file__).parents[3] / "parity" / "data" / "diffusers" / "shapes6"
OURS = ("data.cache.path=cache", "run.device=cpu", "run.threads=1")
CONFIG = """\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_CPU
downcast_bf16: 'no'
machine_rank: 0
main_training_function: main
mixed_precision: 'no'
num_machines: 1
num_processes: {processes}
rdzv_backend: static
same_network: true
use_cpu: true
"""


@pytest.fixture
def here(tmp_path: Path, shallow_sd: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a model, and images as an imagefolder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(shallow_sd, tmp_path / "model")
    copy_with_table(IMAGES, tmp_path / "images")
    return tmp_path


def flags(**more: Any) -> list[str]:
    """The benchmark's flags at tiny size."""
    values = {
        "pretrained_model_name_or_path": "model", "dataset_name": "images", "resolution": 64,
        "train_batch_size": 1, "gradient_accumulation_steps": 2, "max_train_steps": 2, "learning_rate": "1e-05",
        "max_grad_norm": 1, "lr_scheduler": "constant", "lr_warmup_steps": 0, "output_dir": "sd-pokemon-model",
    }  # fmt: skip
    valued = [f"--{key}={value}" for key, value in (values | more).items()]
    return ["--use_ema", "--center_crop", "--random_flip", *valued]


def train(*words: str) -> int:
    return main(["train", "--as", "diffusers-sd", *OURS, "--", *words])


def test_output_dir_has_a_pipeline_with_the_ema_unet(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from diffusers import StableDiffusionPipeline

    assert train("python", "train_text_to_image.py", *flags(), "--report_to=all") == 0
    output = capsys.readouterr().out
    out = here / "sd-pokemon-model"
    for words in ("--report_to: of all trackers", "is dropped: it starts one process", f"copied to    {out}\n"):
        assert words in output
    pipeline = StableDiffusionPipeline.from_pretrained(out, local_files_only=True, safety_checker=None)
    average = {name: tensor for name, tensor in tensors_of(out).items() if name.startswith("ema/denoiser/")}
    unet = pipeline.unet.state_dict()
    assert len(average) == len(unet)
    assert all(torch.equal(unet[name.removeprefix("ema/denoiser/")], tensor) for name, tensor in average.items())
    assert not torch.equal(unet["conv_in.weight"], tensors_of(out)["w/denoiser/conv_in.weight"])
    assert (out / "checkpoints" / "step-00000002" / "manifest.json").is_file()


@pytest.mark.slow
def test_second_start_is_refused_and_resuming_is_exact(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = here / "sd-pokemon-model"
    assert train(*flags(max_train_steps=4, output_dir="whole")) == 0
    assert train(*flags()) == 0
    capsys.readouterr()
    assert train(*flags()) == 2
    refused = capsys.readouterr().err
    assert "E1505" in refused
    assert "mezzotint train sd-pokemon-model/recipe.yaml" in refused
    assert train(*flags(max_train_steps=4, resume_from_checkpoint="latest")) == 0
    assert "not bit-exact" not in capsys.readouterr().out
    whole, parts = tensors_of(here / "whole"), tensors_of(out)
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert main(["train", "sd-pokemon-model/recipe.yaml"]) == 0


def test_output_dir_with_another_model_is_refused_before_training(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(here / "model", here / "sd-pokemon-model")
    before = sorted(here.rglob("*"))
    assert train(*flags()) == 2
    assert "E1412" in capsys.readouterr().err
    assert sorted(here.rglob("*")) == before


@pytest.mark.usefixtures("unmeasured")
def test_check_accepts_the_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "--as", "diffusers-sd", *OURS, "--processes=2", "--", *flags()]
    assert main(words) == 0
    page = capsys.readouterr().out
    assert "1 on each of 2 processes: a batch of 2" in " ".join(page.split())
    assert not (here / "sd-pokemon-model").exists()


def launch(here: Path, processes: int, **more: Any) -> str:
    """The output of the benchmark's command behind `accelerate launch`."""
    (here / "default_config.yaml").write_text(CONFIG.format(processes=processes))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    done = subprocess.run(
        [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--multi_gpu", "--mixed_precision=fp16",
         "--num_processes", str(processes), "--main_process_port", str(port), "--config_file", "default_config.yaml",
         "-m", "mezzotint", "train", "--as", "diffusers-sd", *OURS, "--", *flags(**more)],
        cwd=here, env=env | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def train_translated(here: Path, processes: int, capsys: pytest.CaptureFixture[str], **more: Any) -> Path:
    """The command translated for several processes and trained as a recipe by one."""
    line = ["--", *flags(**more, mixed_precision="fp16", output_dir="alone")]
    assert main(["translate", "--as", "diffusers-sd", f"--processes={processes}", *line]) == 0
    (here / "recipe.yaml").write_text(capsys.readouterr().out)
    assert main(["train", str(here / "recipe.yaml"), *OURS]) == 0
    return here / "alone"


def check_same_as_one_process(here: Path, processes: int, capsys: pytest.CaptureFixture[str], **more: Any) -> None:
    alone, many = train_translated(here, processes, capsys, **more), here / "sd-pokemon-model"
    recipe = yaml.safe_load((many / "recipe.yaml").read_text())
    assert json.loads((many / "environment.json").read_text())["processes"] == processes
    assert (recipe["data"]["batch_size"], recipe["data"]["remainder"]) == (processes, "fill")
    assert (recipe["run"]["precision"], recipe["run"]["frozen_dtype"]) == ("fp16", "same")
    assert "scaler/scale" in tensors_of(many), "fp16 without a scale would let small gradients vanish"
    assert logged(many) == pytest.approx(logged(alone), rel=5e-3)
    weights = [load_file(folder / "unet" / "diffusion_pytorch_model.safetensors") for folder in (many, alone)]
    base = load_file(here / "model" / "unet" / "diffusion_pytorch_model.safetensors")
    largest_changes = max(float((weights[0][name] - base[name]).abs().max()) for name in base)
    assert largest_changes > 1e-6
    assert all((weights[0][name] - weights[1][name]).abs().max() <= 2.1 * largest_changes for name in base)


@pytest.mark.slow
@pytest.mark.distributed
def test_command_trains_in_two_processes_as_in_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the variables that `accelerate launch` sets, in forked processes."""
    words = ["train", "--as", "diffusers-sd", *OURS, "--", *flags()]
    assert "fp16, as the launcher sets" in run_two(words, here / "out.txt", ACCELERATE_MIXED_PRECISION="fp16")
    check_same_as_one_process(here, 2, capsys)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.distributed
def test_accelerate_launch_of_eight_processes_trains_as_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = {"gradient_accumulation_steps": 4, "max_train_steps": 3}
    assert "fp16, as the launcher sets" in launch(here, 8, **more)
    check_same_as_one_process(here, 8, capsys, **more)


@pytest.mark.slow
@pytest.mark.distributed
def test_command_trains_in_two_processes_of_torchrun(tmp_path: Path, shallow_sd: Path) -> None:
    line = (
        "--pretrained_model_name_or_path=model", "--train_data_dir=data", "--resolution=64", "--train_batch_size=1",
        "--max_train_steps=1", "--output_dir=out", "--seed=1",
    )  # fmt: skip
    require_a_line_trains_in_two_processes("diffusers-sd", line, (), shallow_sd)
    assert (tmp_path / "out" / "model_index.json").is_file()
