"""Files at a destination stay with every command unless `--replace` is given; then only the destination is replaced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mezzotint import durable
from mezzotint.assets import MODELS
from mezzotint.cli import main
from mezzotint.errors import RecipeError, escape_line
from mezzotint.run_folder import RunFolder
from mezzotint.tasks.reading.commands import COMMANDS
from mezzotint.tasks.train.exports import choose_free_path
from mezzotint.tasks.weights import convert

MINI = MODELS / "mezzotint-mini"


def test_each_command_with_a_destination_has_the_replace_option() -> None:
    has = {verb.name for verb in COMMANDS if verb.option("--replace") is not None}
    places = ("--out", "--report", "--layout", "--html")
    writes = {verb.name for verb in COMMANDS if any(verb.option(place) for place in places)}
    assert writes | {"cp", "train", "queue"} == has


@pytest.mark.parametrize("verb", ["convert", "merge"])
@pytest.mark.parametrize("form", ["x.safetensors", "x"], ids=["file", "folder"])
def test_destination_is_replaced_only_with_the_option(
    verb: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, sources = tmp_path / form, [str(MINI)] * (2 if verb == "merge" else 1)

    def ran(*switches: str) -> int:
        return main([verb, *sources, str(target), *switches])

    (tmp_path / "precious").write_text("mine")
    target.symlink_to(tmp_path / "precious")
    assert ran() == 2
    assert "add --replace" in capsys.readouterr().err
    assert ran("--replace") == 0
    assert not target.is_symlink()
    assert (tmp_path / "precious").read_text() == "mine", "the target of the link"
    whole = _content(target)
    with monkeypatch.context() as patch:
        patch.setattr(durable, "move_into_place", _failing)
        assert ran("--replace") != 0
    assert _content(target) == whole, "the old one is there until the new one is whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["precious", form])
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "mine").write_text("mine")
    assert main([verb, *sources, str(notes), "--replace"]) == 2
    assert "is a folder that is not a model" in capsys.readouterr().err
    assert (notes / "mine").read_text() == "mine"


def _content(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {file.name: file.read_bytes() for file in files}


def _failing(*given: object, **settings: object) -> None:
    raise OSError(28, "No space left on device")


def test_existing_report_is_kept_without_the_option(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("mine")
    line = ["merge", str(MINI), str(MINI), str(tmp_path / "x"), f"--report={tmp_path / 'notes.json'}"]
    assert main(line) == 2
    assert (tmp_path / "notes.json").read_text() == "mine"
    assert main([*line, "--replace"]) == 0
    assert (tmp_path / "notes.json").read_text() != "mine"


def test_existing_recipe_is_kept_without_the_option(tmp_path: Path) -> None:
    target = tmp_path / "mine.yaml"
    target.write_text("mine")
    assert main(["cp", "tiny_cpu", str(target)]) == 2
    assert target.read_text() == "mine"
    assert main(["cp", "tiny_cpu", str(target), "--replace"]) == 0
    assert target.read_text() != "mine"
    with pytest.raises(RecipeError, match="already exists"):
        durable.write_new(tmp_path, "x", replaces=True)


def test_export_replaces_only_its_own_files(tmp_path: Path) -> None:
    output: list[str] = []
    folder = RunFolder(tmp_path / "run").open()
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "a.safetensors").write_text("mine")

    def place(name: str, *, replaces: bool = False) -> str:
        found = choose_free_path(folder, shelf / name, replaces=replaces, say=output.append)
        found.write_text("ours")
        return found.name

    assert [place("b.safetensors"), place("b.safetensors")] == ["b.safetensors"] * 2
    assert not output
    assert [place("a.safetensors"), place("a.safetensors")] == ["a-2.safetensors"] * 2
    assert (shelf / "a.safetensors").read_text() == "mine"
    assert "not written by this run" in output[0]
    assert place("a.safetensors", replaces=True) == "a.safetensors"


def test_file_output_replaces_a_folder_output(tmp_path: Path) -> None:
    target = tmp_path / "x.safetensors"
    target.write_text("an earlier export")
    convert.single_file_of(MINI, target)
    assert target.stat().st_size > 1000
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


@pytest.mark.parametrize("words", [("convert", "a\x1b[31m\nb", "c.safetensors"), ("train", "a\x1b[31mb.yaml")])
def test_escape_sequences_in_names_do_not_reach_the_terminal(
    words: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(words)) == 2
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert escape_line("ä\t\x1b[31m\nb\u202e") == "ä\t\\x1b[31m\\nb\\u202e"
