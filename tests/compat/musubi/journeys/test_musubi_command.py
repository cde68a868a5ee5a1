"""A command of musubi-tuner, on a tiny model and three images."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from mezzotint.cli import main
from support.foreign_adapters import DISTILLED, assert_opens, find_model

IMAGES = Path(__file__).parents[3] / "parity" / "data" / "diffusers" / "shapes6"
OURS = ("model.weights=random", "data.cache.path=cache", "run.device=cpu", "run.threads=1")
DATA = """
[general]
resolution = [64, 64]
caption_extension = ".txt"
enable_bucket = true
[[datasets]]
image_directory = "images"
num_repeats = 2
"""


def test_lora_of_two_steps_is_in_the_output_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    for number in range(3):
        shutil.copy(IMAGES / f"000{number}.png", "images")
        Path(f"images/000{number}.txt").write_text(f"shape {number}", "utf-8")
    Path("data.toml").write_text(DATA, "utf-8")
    Path("fox.toml").write_text('[a]\nnetwork_dim = 2\nlearning_rate = 1e-3\n[b]\noutput_name = "fox"\n', "utf-8")
    cached = ["python", "src/musubi_tuner/wan_cache_latents.py", "--dataset_config=data.toml", "--vae=wan_vae.pth"]
    for command in ("train", "check", "translate"):
        assert main([command, "--as", "musubi", "--", *cached]) == 0
    assert "wan_cache_latents.py: nothing to do" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.toml", "fox.toml", "images"]
    line = [
        "accelerate", "launch", "--mixed_precision", "bf16", "src/musubi_tuner/wan_train_network.py", "--dit=tiny-wan",
        "--task=t2v-1.3B", "--dataset_config=data.toml", "--network_module=networks.lora_wan", "--config_file=fox",
        "--timestep_sampling=shift", "--discrete_flow_shift=3", "--optimizer_type=adamw8bit", "--output_dir=out",
        "--max_train_steps=2", "--seed=7", "--max_data_loader_n_workers=0",
    ]  # fmt: skip
    assert main(["train", "--as", "musubi", *OURS, "--", *line]) == 0
    with safe_open(tmp_path / "out" / "fox.safetensors", "pt") as file:
        names = list(file.keys())
    assert all(name.startswith("lora_unet_blocks_") for name in names)
    assert any(name.endswith("self_attn_q.lora_down.weight") for name in names)


def test_published_command_of_kontext_passes_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command of musubi-tuner's docs/flux_kontext.md, without its files of model parts."""
    monkeypatch.chdir(tmp_path)
    for folder in ("images", "before"):
        Path(folder).mkdir()
        for number in range(3):
            shutil.copy(IMAGES / f"000{number}.png", folder)
            Path(f"images/000{number}.txt").write_text(f"shape {number}", "utf-8")
    Path("data.toml").write_text(f'{DATA}control_directory = "before"\n', "utf-8")
    line = [
        "accelerate", "launch", "--num_cpu_threads_per_process", "1", "--mixed_precision", "bf16",
        "src/musubi_tuner/flux_kontext_train_network.py", "--dit", "tiny-flux", "--dataset_config", "data.toml",
        "--sdpa", "--mixed_precision", "bf16", "--timestep_sampling", "flux_shift", "--weighting_scheme", "none",
        "--optimizer_type", "adamw8bit", "--learning_rate", "1e-4", "--gradient_checkpointing",
        "--max_data_loader_n_workers", "2", "--persistent_data_loader_workers", "--network_module",
        "networks.lora_flux", "--network_dim", "32", "--max_train_epochs", "16", "--save_every_n_epochs", "1",
        "--seed", "42", "--output_dir", "out", "--output_name", "name-of-lora",
    ]  # fmt: skip
    assert main(["check", "--as", "musubi", *OURS, "--", *line]) == 0
    shutil.rmtree("before")
    shutil.copytree("images", "before", ignore=shutil.ignore_patterns("0001.*"))
    capsys.readouterr()
    assert main(["check", "--as", "musubi", *OURS, "--", *line]) == 2
    report = capsys.readouterr()
    assert "E1294" in report.out + report.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "model", "more"),
    [
        ("wan_train_network", "wan", ["--task=t2v-1.3B", "--network_module=networks.lora_wan"]),
        ("qwen_image_train_network", "qwen_image", ["--network_module=networks.lora_qwen_image"]),
        ("zimage_train_network", "z_image", ["--network_module=networks.lora_zimage"]),
        ("flux_2_train_network", "flux2", ["--network_module=networks.lora_flux_2", "--model_version=klein-base-4b"]),
    ],
)
def test_adapter_of_each_script_opens_in_diffusers(
    script: str, model: str, more: list[str], tmp_path: Path, monkeypatch: Any, request: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    shutil.copy(IMAGES / "0000.png", "images")
    Path("images/0000.txt").write_text("a shape", "utf-8")
    Path("data.toml").write_text(DATA, "utf-8")
    base = find_model(model, request)
    line = [
        f"{script}.py", f"--dit={base}", "--dataset_config=data.toml", *more, "--network_dim=2", "--learning_rate=1e-3",
        "--optimizer_type=AdamW", "--mixed_precision=bf16", "--timestep_sampling=shift", "--output_dir=out",
        "--output_name=fox", "--max_train_steps=2", "--seed=7", "--max_data_loader_n_workers=0",
    ]  # fmt: skip
    assert main(["train", "--as", "musubi", *OURS[1:], *DISTILLED.get(model, ()), "--", *line]) == 0
    assert_opens(Path("out/fox.safetensors"), base, capsys)
