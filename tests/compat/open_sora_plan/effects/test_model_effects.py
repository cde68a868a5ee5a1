"""Rows of `model` for LatteT2V."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mezzotint.assets import ASSETS
from mezzotint.compat.open_sora_plan import latte
from mezzotint.settings.sections.model import ModelSettings


# breaks if the denoiser with random weights is that of the model's own folder
@pytest.mark.effect("model.config")
def test_config_defines_a_randomly_initialized_latte(tmp_path: Path) -> None:
    own = ASSETS / "models" / "tiny-latte"
    config = json.loads((own / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_layers": config["num_layers"] + 2}))
    settings = ModelSettings(family="latte", path=own, weights="random")
    depths = [
        latte.Files.of(one).config.num_layers for one in (settings, settings.model_copy(update={"config": tmp_path}))
    ]
    assert depths == [config["num_layers"], config["num_layers"] + 2]
