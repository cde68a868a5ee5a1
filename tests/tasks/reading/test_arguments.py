"""Packages of classes in a recipe: three are allowed, others only by an option on the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from mezzotint.cli import main
from mezzotint.errors import RecipeError
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch
from mezzotint.settings.optimizers.library import Library
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.tasks.reading.arguments import parse, parse_with
from mezzotint.tasks.train import announce
from mezzotint.training.update import Update

CANARY = "from pathlib import Path\nPath(__file__).with_name('canary').write_text('ran')\n"
CLASS = CANARY + "import torch\nclass Opt(torch.optim.SGD):\n    pass\n"
NAMED = "optim.optimizer={kind: library, class_name: %s}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with Python files in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(CLASS)
    (tmp_path / "difflib.py").write_text(CANARY)
    return tmp_path


@pytest.mark.parametrize("verb", ["check", "train", "bench", "cache"])
@pytest.mark.parametrize(
    "word",
    [NAMED % "evil.Opt", "optim.part_optimizer.denoiser={kind: library, class_name: evil.Opt}", NAMED % "torchy.Opt"],
    ids=["run", "part", "similar name"],
)
def test_recipe_may_name_classes_of_three_packages_only(
    verb: str, word: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "tiny_cpu", word]) == 2
    err = capsys.readouterr().err
    assert "E1161" in err
    assert "--allow-package" in err
    assert not (here / "canary").exists()


def test_package_named_on_command_line_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strangers.py").write_text(CLASS)
    monkeypatch.syspath_prepend(tmp_path)
    words = ["tiny_cpu", NAMED % "strangers.Opt"]
    with pytest.raises(RecipeError) as caught:
        parse(words, "train")
    assert caught.value.code == "E1161"
    reading, line = parse_with([*words, "--allow-package=other,strangers", "--json"], "check")
    assert "--json" in line
    assert reading.packages == ("other", "strangers")
    optimizer = reading.recipe.optim.optimizer
    assert isinstance(optimizer, Library)
    assert not (tmp_path / "canary").exists(), "reading imports nothing"
    weights = {"denoiser/a": nn.Parameter(torch.ones(2))}
    Update(weights, OptimSettings(optimizer=optimizer), separate_masters=False)
    assert (tmp_path / "canary").exists()
    command = announce.command(RunFolder(tmp_path / "run"), Launch(), reading.packages)
    assert command.endswith(" --allow-package=other --allow-package=strangers")


def test_plugin_option_needs_a_name_and_is_no_recipe_setting() -> None:
    for words, code in (
        (["tiny_cpu", "--allow-package"], "E1012"),
        (["tiny_cpu", "--allow-package="], "E1012"),
        (["tiny_cpu", "run.allow_package=evil"], "E1001"),
    ):
        with pytest.raises(RecipeError) as caught:
            parse(words, "train")
        assert caught.value.code == code


def test_no_code_of_current_folder_is_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither with `python -m`, which searches it first (difflib is imported by the command line), nor for an allowed
    package."""
    words = ["check", "tiny_cpu", NAMED % "evil.Opt"]
    done = subprocess.run([sys.executable, "-m", "mezzotint", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "E1161" in done.stderr
    assert main([*words, "--allow-package", "evil"]) == 2
    assert "E1061" in capsys.readouterr().err
    assert not (here / "canary").exists()
