"""`mezzotint check --fit`: what it prints, the recipe that it writes, and what it says of a card that is too small."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mezzotint.cli import main
from mezzotint.settings.reading.read import read, resolve_paths
from mezzotint.tasks.check import check, fitting

Captured = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("quick", "counted")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLOPs are not counted; test_fitting.py does."""
    monkeypatch.setattr(fitting, "flops_and_recomputed", lambda recipe, size: (3, 1))


def test_written_recipe_fits_and_gives_the_reasons(capsys: Captured) -> None:
    assert main(["check", "recipe.yaml", "--fit=2.5MB", "--json"]) == 0
    roomy = json.loads(capsys.readouterr().out)["fit"]
    assert roomy["settings"] == {"run.offload.blocks": 8}, "only gradients and moments leave the card"
    assert roomy["plan"]["held_on_host"] == 4 * 4 * 203_204, "weights, gradients, moments"
    line = ["check", "recipe.yaml", "--fit=1.6MB", "--host=4MB", "--out=small.yaml"]
    assert main(line) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "fit a card of 1.6 MB with 4 MB of host memory fits with run.offload.blocks=3 " in said
    assert (
        "5 of 8 blocks, master weights, gradients, moments in 3.25 MB of host memory, where the update runs; " in said
    )
    assert "fits: " not in said, "the memory of this machine does not matter"
    text = Path("small.yaml").read_text("utf-8")
    assert text.startswith("# recipe.yaml on a card of 1.6 MB with 4 MB of host memory, by mezzotint check --fit\n")
    assert re.search(r"    blocks: 3  # weights and states 3.87 MB → 1.22 MB; .* between host and card\n", text)
    before, after = read("recipe.yaml").recipe, read("small.yaml").recipe
    assert after == fitting.with_settings(before, {"run.offload.blocks": 3})
    assert main(["check", "small.yaml", *line[2:4], "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["fit"]
    assert (again["settings"], again["reasons"]) == ({}, [])
    assert again["plan"] == again["before"]
    assert 1.05 * again["plan"]["needed"] <= 1.6e6
    assert again["plan"]["held_on_host"] <= 4e6
    assert main(line) == 2, "nothing is overwritten"
    assert "small.yaml: already exists" in capsys.readouterr().err
    Path("small.yaml").write_text("another")
    assert main([*line, "--replace"]) == 0
    assert Path("small.yaml").read_text("utf-8") == text


def test_recipe_in_another_folder_finds_its_files(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    assert main(["check", "recipe.yaml", "--fit=1GB", "--out=elsewhere/roomy.yaml"]) == 0
    recipe = read("elsewhere/roomy.yaml").recipe
    assert recipe.model.path == tmp_path / "model"
    assert recipe.data.paths == (tmp_path / "images",)


def test_recipe_in_the_current_folder_finds_files_beside_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["check", "../recipe.yaml", "--fit=1GB", "--out=roomy.yaml"]) == 0
    recipe = resolve_paths(read("roomy.yaml"))
    assert recipe.model.path == tmp_path / "model"
    assert recipe.data.paths == (tmp_path / "images",)


def test_recipe_with_problems_is_neither_written_nor_named(capsys: Captured) -> None:
    words = ["--fit=1GB", "--out=roomy.yaml", "run.preview.every=1 steps", "sample.prompt_file=missing.txt"]
    assert main(["check", "recipe.yaml", *words]) == 2
    messages = capsys.readouterr()
    assert "missing.txt" in messages.err
    assert "a card of 1 GB fits with" in " ".join(messages.out.split())
    assert "recipe: roomy.yaml" not in messages.out
    assert not Path("roomy.yaml").exists()


def test_small_card_gets_the_smallest_that_would_do(capsys: Captured) -> None:
    assert main(["check", "recipe.yaml", "--fit=1.6MB", "--host=1MB"]) == 5
    error = capsys.readouterr().err
    start = "error[E1754]: a card of 1.6 MB with 1 MB of host memory is too small to train the whole model; use one of "
    assert error.startswith(start)
    size = re.match(r"(\S+ MB), with .*optim\.in_backward=true", error.removeprefix(start))
    assert size is not None
    assert ", or use this one, with 3.25 MB of host memory and run.offload.blocks=3, or train a LoRA " in error
    assert " (model.adapter.kind=lora), which fits, with 741 kB of host memory and run.offload.blocks=1 " in error
    assert main(["check", "recipe.yaml", f"--fit={size[1].replace(' ', '')}", "--host=1MB"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fit=12"], "--fit is a size such as 12GB or 11.5GiB, got '12'"),
        (["--fit=12GB", "--host=much"], "--host is a size such as 12GB or 11.5GiB, got 'much'"),
        (["--host=32GB"], "--host belongs to --fit; add the size of the card, such as --fit=12GB"),
        (["--out=small.yaml"], "--out belongs to --fit; add the size of the card, such as --fit=12GB"),
    ],
)
def test_wrong_sizes_are_refused(words: list[str], message: str, capsys: Captured) -> None:
    assert main(["check", "recipe.yaml", *words]) == 2
    assert message in capsys.readouterr().err


def test_check_without_data_searches_no_settings(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """The missing data is the problem, however little memory is free."""
    monkeypatch.setattr(check.Checked, "fits", property(lambda _: False))
    for words in ([], ["--fit=2.5MB"]):
        assert main(["check", "recipe.yaml", "data.path=missing", *words]) == 2
        messages = capsys.readouterr()
        assert "missing" in messages.err
        assert "bug" not in messages.err
