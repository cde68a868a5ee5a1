"""The start of a command: launcher, script, `--script`."""

from __future__ import annotations

import pytest
from kohya_commands import line

from mezzotint.compat.kohya._scripts import SCRIPTS
from mezzotint.compat.kohya.dialect import DIALECT
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Launched

_WORDS = line("sdxl_train_network")[1:]


@pytest.mark.parametrize(
    "start",
    [
        ["sdxl_train_network.py"],
        ["python", "sdxl_train_network.py"],
        ["accelerate", "launch", "--num_cpu_threads_per_process", "1", "./sd-scripts/sdxl_train_network.py"],
        ["accelerate", "launch", r"C:\kohya\sdxl_train_network.py"],
        ["--script=sdxl_train_network"],
        ["--script", "sdxl_train_network"],
        ["python", "renamed.py", "--script", "sdxl_train_network"],
        ["python", "sdxl_train_network.py", "--script=sdxl_train_network"],
    ],
)
def test_script_is_found(start: list[str]) -> None:
    translated = DIALECT.translate([*start, *_WORDS], Launched())
    assert translated.settings["model"]["family"] == "sdxl"
    assert not any("is read as" in str(note) for note in translated.notes)


@pytest.mark.parametrize("start", [[], ["python", "renamed.py"]])
def test_command_without_script_is_told_the_names(start: list[str]) -> None:
    with pytest.raises(RecipeError) as caught:
        DIALECT.translate([*start, *_WORDS], Launched())
    [problem] = [one for one in caught.value.problems if one.where == "--script"]
    assert problem.code == "E1017"
    assert all(name in problem.remedy for name in SCRIPTS)


def test_two_scripts_are_refused() -> None:
    with pytest.raises(RecipeError, match="is flux_train, and the command starts with sdxl_train_network"):
        DIALECT.translate(["sdxl_train_network.py", "--script=flux_train", *_WORDS], Launched())


def test_several_processes_get_a_command_with_the_script() -> None:
    start = ["accelerate", "launch", "--num_processes", "2", "sdxl_train_network.py"]
    with pytest.raises(RecipeError, match=r"torchrun .* mezzotint train --as kohya -- --script=sdxl_train_network"):
        DIALECT.translate([*start, *_WORDS], Launched())
    translated = DIALECT.translate([*start, *_WORDS, "--train_batch_size=3"], Launched(processes=2))
    assert translated.settings["data"]["batch_size"] == 6
