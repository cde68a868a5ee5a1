"""The model files that `check` lists for a LatteT2V."""

from __future__ import annotations

from pathlib import Path

import torch
from latte_folder import settings

from mezzotint.compat.open_sora_plan.latte import Family
from mezzotint.tasks.check._model_files import components
from mezzotint.tasks.check.meta_model import build_described_model


def test_check_lists_the_file_of_each_part(released: Path) -> None:
    section = settings(released)
    parts = build_described_model(Family, section)[1].parts()
    listed, problems = components(section, parts)
    assert [(c.name, c.parameters > 1000, c.file.endswith(".safetensors")) for c in listed] == [
        ("denoiser", True, True), ("text_encoder", True, True), ("vae", True, True),
    ]  # fmt: skip
    assert not problems
    narrow = Family.tiny().parts() | {"denoiser": torch.nn.Linear(2, 2)}
    (problem,) = components(section, narrow)[1]
    assert problem.code == "E1405"
