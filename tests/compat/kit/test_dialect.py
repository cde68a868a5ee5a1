"""A dialect with one option for a feature that Mezzotint does not have yet, and a settings file of sections."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.compat.kit.dialect import Dialect, Draft, mapped, row, waits
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Launched

DIALECT = Dialect(
    name="example",
    about="an example",
    rows=(
        mapped("seed", 1, "run.seed", "seed"),
        waits("suffix", "", "caption suffix", "text after each caption", form="text"),
        row("file", str, "run.name", "settings"),
    ),
    compute=lambda draft: Draft.set(draft, "run.name", "a", "file"),
    config="file",
    flat_config=True,
)


def test_waiting_option_is_refused_unless_it_has_its_default() -> None:
    with pytest.raises(RecipeError) as caught:
        DIALECT.translate(["--suffix=x"], Launched())
    [problem] = caught.value.problems
    assert (problem.where, problem.code) == ("--suffix", "E1018")
    assert f"{problem.message}; {problem.remedy}" == (
        "needs caption suffix, which Mezzotint does not have yet; leave it out"
    )
    assert DIALECT.translate([], Launched()).settings["run"] == {"seed": 1, "name": "a", "tf32": False}
    assert [one.effect for one in DIALECT.rows] == ["`run.seed`", "not yet: caption suffix", "`run.name`"]


def test_sections_of_a_flat_file_only_group_options(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[any]\nseed = 3\n", "utf-8")
    assert DIALECT.translate([f"--file={file}"], Launched()).settings["run"]["seed"] == 3
    assert DIALECT.translate([f"--file={file}", "--seed=4"], Launched()).settings["run"]["seed"] == 4
