"""A command of diffusers' script in place of a recipe."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mezzotint.errors import RecipeError
from mezzotint.tasks.reading import arguments

LINE = ("--pretrained_model_name_or_path=sd15", "--train_data_dir=photos")


def test_other_commands_accept_a_foreign_command_with_own_options(tmp_path: Path) -> None:
    words = ["--as", "diffusers-sd", "optim.lr=1e-6", "--processes=2", "--", *LINE, f"--output_dir={tmp_path}"]
    reading, switches = arguments.parse_with(words, "check")
    assert switches.get("--processes") == "2"
    assert (reading.recipe.optim.lr, reading.recipe.data.batch_size, reading.recipe.run.folder) == (1e-6, 32, tmp_path)
    assert any(note.startswith("--seed: not given") for note in reading.notes)
    with pytest.raises(RecipeError, match="no option --jsno"):
        arguments.parse_with(["--as", "diffusers-sd", "--jsno", "--", *LINE], "check")


def test_foreign_command_is_translated_without_importing_torch() -> None:
    code = (
        "import sys\nfrom mezzotint.cli import main\n"
        f"assert main(['translate', '--as', 'diffusers-sd', '--', *{LINE!r}]) == 0\n"
        f"assert main(['train', '--as', 'diffusers-sd', '--', '--bogus', *{LINE!r}]) == 2\n"
        "assert not {'torch', 'diffusers', 'transformers', 'accelerate'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
