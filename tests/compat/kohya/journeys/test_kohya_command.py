"""Commands of sd-scripts, on tiny models and three images."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from mezzotint.cli import main
from support.foreign_adapters import assert_opens, find_model

IMAGES = Path(__file__).parents[3] / "parity" / "data" / "diffusers" / "shapes6"
OURS = ("model.weights=random", "data.cache.path=cache", "run.device=cpu", "run.threads=1")
CONFIG = """
[model]
network_module = "networks.lora"
network_dim = 2
[data]
train_data_dir = "images"
resolution = "64"
caption_extension = ".txt"
max_data_loader_n_workers = 0
[run]
output_dir = "out"
output_name = "fox"
seed = 7
max_train_steps = 2
save_every_n_steps = 1
learning_rate = 1e-3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "images" / "2_sks shape"
    folder.mkdir(parents=True)
    for number in range(3):
        shutil.copy(IMAGES / f"000{number}.png", folder)
    Path("fox.toml").write_text(CONFIG, "utf-8")
    return tmp_path


def names_of(path: Path) -> list[str]:
    with safe_open(path, "pt") as file:
        return list(file.keys())


def test_lora_of_two_steps_is_in_the_output_folder(here: Path) -> None:
    line = ["accelerate", "launch", "train_network.py", "--config_file=fox", "--pretrained_model_name_or_path=tiny-sd"]
    words = ["--network_args", "conv_dim=3", "conv_alpha=1"]
    assert main(["train", "--as", "kohya", *OURS, "--", *line, *words]) == 0
    names = names_of(here / "out" / "fox.safetensors")
    assert {name.split("_")[1] for name in names} == {"unet", "te"}
    assert any(name.endswith("conv1.lora_down.weight") for name in names)
    assert any("down_blocks_0_attentions_0" in name for name in names)
    assert all(name.endswith((".lora_down.weight", ".lora_up.weight", ".alpha")) for name in names)
    first = here / "out" / "fox" / "exports" / "fox-step00000001" / "fox.safetensors"
    assert names_of(first) == names
    assert main(["train", "--as", "kohya", *OURS, "--", *line, *words]) != 0, "the run exists"


def test_blocks_of_an_adapter_have_their_rates_and_some_none(here: Path) -> None:
    line = ["train_network.py", "--config_file=fox", "--pretrained_model_name_or_path=tiny-sd"]
    words = ["--network_train_unet_only", "--network_args", "down_lr_weight=1,0,1", "mid_lr_weight=0.5"]
    assert main(["train", "--as", "kohya", *OURS, "--", *line, *words]) == 0
    names = names_of(here / "out" / "fox.safetensors")
    assert not [name for name in names if "down_blocks_0_attentions_0" in name]
    assert [name for name in names if "mid_block" in name]
    [*_, last] = [json.loads(text) for text in (here / "out/fox/metrics.jsonl").read_text().splitlines()]
    rates = {name: value for name, value in last.items() if name.startswith("lr/")}
    assert rates == {"lr/denoiser": 1e-3, "lr/denoiser/mid_block.*": 5e-4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "model", "more"),
    [
        ("train_network", "sd", ["--network_alpha=1", "--min_snr_gamma=5"]),
        ("sdxl_train_network", "sdxl", ["--network_train_unet_only", "--noise_offset=0.05"]),
        ("flux_train_network", "flux", ["--network_module=networks.lora_flux", "--network_train_unet_only",
                                        "--model_prediction_type=raw", "--guidance_scale=1"]),
        ("sd3_train_network", "sd3", ["--network_module=networks.lora_sd3", "--network_train_unet_only"]),
    ],
)  # fmt: skip
def test_adapter_of_each_script_opens_in_diffusers(
    script: str, model: str, more: list[str], here: Path, request: pytest.FixtureRequest, capsys: Any
) -> None:
    base = find_model(model, request)
    line = [f"{script}.py", "--config_file=fox", f"--pretrained_model_name_or_path={base}", *more]
    assert main(["train", "--as", "kohya", *OURS[1:], "--", *line]) == 0
    assert_opens(here / "out" / "fox.safetensors", base, capsys)
