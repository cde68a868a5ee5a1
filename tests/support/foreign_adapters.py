"""Adapters that lines of other trainers train: opened in diffusers, and listed by `check-adapter`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mezzotint.cli import main

DATA = Path(__file__).parents[1] / "parity" / "data"
MODELS = {
    "sd": DATA / "diffusers" / "tiny_sd",
    **{
        name: DATA / "flow" / name / "model"
        for name in ("flux", "chroma", "sd3", "wan", "qwen_image", "krea2", "z_image")
    },
    "flux2": DATA / "flow" / "flux2_klein" / "model",
}
"""Small complete models in diffusers' layout; that of SDXL is a fixture."""


DISTILLED = {"z_image": ("model.z_image.distilled=true",), "flux2": ("model.flux2.distilled=true",)}
"""Settings with which the small models that have a distilled model's configuration are trained."""


def find_model(name: str, request: pytest.FixtureRequest) -> Path:
    """The folder of a small model."""
    return request.getfixturevalue("sdxl_folder") if name == "sdxl" else MODELS[name]


def assert_opens(file: Path, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ComfyUI reads every layer of the file at its strength; so does diffusers, and its pipeline of the model loads the
    adapter, converted to diffusers' layout, with trained values."""
    capsys.readouterr()
    assert main(["check-adapter", str(file), f"--base={base}"]) == 0
    assert re.search(r"ComfyUI +(\d+) of \1 layers, strength as trained\n", capsys.readouterr().out)
    converted = file.with_name("for_diffusers.safetensors")
    assert main(["convert", str(file), str(converted), f"--base={base}", "--layout=diffusers"]) == 0
    assert main(["check-adapter", str(converted), f"--base={base}"]) == 0
    listed = re.search(r"diffusers +(\d+) of \1 layers, strength as trained\n", capsys.readouterr().out)
    assert listed
    from diffusers import DiffusionPipeline

    pipeline: Any = DiffusionPipeline.from_pretrained(str(base), local_files_only=True)
    pipeline.load_lora_weights(str(file.parent), weight_name=converted.name)
    networks = [part for part in pipeline.components.values() if hasattr(part, "named_modules")]
    loaded = [module for network in networks for module in network.modules() if hasattr(module, "lora_A")]
    assert len(loaded) == int(listed[1])
    assert max(float(module.lora_B["default_0"].weight.detach().abs().max()) for module in loaded) > 0
