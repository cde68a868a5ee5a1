"""A command of diffusers for a distilled model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from PIL import Image

from mezzotint.cli import main
from mezzotint.weights.folder.model_folder import shipped_folder
from support.sd_folder import edit


def test_command_for_a_distilled_model_prints_the_settings_it_needs(tmp_path: Path, capsys: Any) -> None:
    folder = Path(shutil.copytree(shipped_folder("tiny-flux"), tmp_path / "model"))
    edit(folder / "transformer" / "config.json", guidance_embeds=False)
    script = "diffusers-dreambooth-lora-flux"
    theirs = [
        "--", f"--pretrained_model_name_or_path={folder}", f"--instance_data_dir={tmp_path}", "--instance_prompt=a sks",
        "--resolution=48", "--max_train_steps=1", f"--output_dir={tmp_path / 'run'}",
    ]  # fmt: skip
    Image.new("RGB", (48, 48)).save(tmp_path / "0.png")
    assert main(["train", "--as", script, "model.weights=random", *theirs]) == 2
    words = ["model.flux.distilled=true", "model.flux.guidance=null"]
    assert capsys.readouterr().err.endswith(f"write {' '.join(words)} before the `--`\n")
    assert main(["train", "--as", script, "model.weights=random", *words, *theirs]) == 0
