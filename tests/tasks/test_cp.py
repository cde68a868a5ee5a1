"""`mezzotint cp` copies a shipped recipe and never overwrites."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.cli import main


def test_cp_copies_and_never_overwrites(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ships" / "docs").mkdir(parents=True)
    schema = tmp_path / "ships" / "docs" / "recipe.schema.json"
    schema.write_text("{}")
    (tmp_path / "ships" / "recipes").mkdir()
    file = tmp_path / "ships" / "recipes" / "my_fox.yaml"
    file.write_text("# yaml-language-server: $schema=../docs/recipe.schema.json\nrun: {name: fox}\n")
    monkeypatch.setattr("mezzotint.tasks.cp.shipped_recipes", lambda: {"my_fox": file})
    (tmp_path / "here" / "folder").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    for words, target in (
        (["my-fox"], "my_fox.yaml"),
        (["my_fox", "b.yaml"], "b.yaml"),
        (["my_fox", "folder"], "folder/my_fox.yaml"),
        (["my_fox", "new/recipes/"], "new/recipes/my_fox.yaml"),
    ):
        assert main(["cp", *words]) == 0
        assert f"mezzotint check {target}" in capsys.readouterr().out
        assert Path(target).read_text() == f"# yaml-language-server: $schema={schema}\nrun: {{name: fox}}\n"
    Path("b.yaml").write_text("mine")
    assert main(["cp", "my_fox", "b.yaml"]) == 2
    assert "E1014" in capsys.readouterr().err
    assert Path("b.yaml").read_text() == "mine"
    capsys.readouterr()
    assert main(["cp", "my_fox", "b.yaml/x.yaml"]) == 4
    assert "b.yaml: the folder cannot be created" in capsys.readouterr().err
    assert main(["cp", "my_fix"]) == 2
    assert "did you mean my_fox?" in capsys.readouterr().err
