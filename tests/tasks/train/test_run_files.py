"""What a start writes into the run folder, and over what it never writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.cli import main
from mezzotint.errors import RecipeError
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch
from mezzotint.tasks.train import announce, run_files


def test_new_run_never_overwrites_a_foreign_recipe(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).open()
    run_files.refuse_foreign_recipe(folder)
    folder.recipe.write_text("# mine\nschema: 1\n")
    with pytest.raises(RecipeError, match=r"recipe\.yaml: exists, and no run has written it") as caught:
        run_files.refuse_foreign_recipe(folder)
    assert caught.value.code == "E1162"
    folder.record("started", step=0)  # a run's own, which its owner may have edited
    run_files.refuse_foreign_recipe(folder)
    folder.history.unlink()
    folder.recipe.write_text(run_files.FIRST_LINE)
    run_files.refuse_foreign_recipe(folder)


@pytest.fixture
def linked(tmp_path: Path) -> RunFolder:
    """A run folder whose exports are a link to a folder that holds an export of somebody else's; its own recipe.yaml
    says that this is meant."""
    folder = RunFolder(tmp_path / "run").open()
    (tmp_path / "out" / "step-00000001").mkdir(parents=True)
    (tmp_path / "out" / "step-00000001" / "mine").write_text("mine")
    folder.exports.rmdir()
    folder.exports.symlink_to(tmp_path / "out")
    folder.recipe.write_text(f"{run_files.FIRST_LINE}schema: 1\nrun: {{linked_folders: ['{tmp_path}/out']}}\n")
    return folder


@pytest.mark.parametrize("verb", ["train", "sample", "check"])
def test_recipe_in_run_folder_cannot_allow_links(
    verb: str, linked: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--prompt=a"] if verb == "sample" else []
    before = sorted(linked.path.rglob("*"))
    for place in (linked.path, linked.recipe):
        assert main([verb, str(place), *words]) == 2
        said = capsys.readouterr().err
        assert f"{linked.exports}: is a link to {linked.path.parent}/out, outside of the run folder" in said
        assert f"'run.linked_folders=[\"{linked.path.parent}/out\"]'" in said
    assert sorted(linked.path.rglob("*")) == before
    assert (linked.path.parent / "out" / "step-00000001" / "mine").read_text() == "mine"


def test_links_allowed_on_command_line_are_in_the_resume_command(
    linked: RunFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = f'run.linked_folders=["{linked.path.parent}/out"]'
    with linked.lock():
        assert main(["train", str(linked.recipe), allowed]) == 2
    assert "error[E1504]" in capsys.readouterr().err, "which is what comes after the links"
    assert main(["sample", str(linked.path), "--prompt=a", allowed]) == 2
    assert "error[E1507]" in capsys.readouterr().err, "there is no checkpoint"
    monkeypatch.chdir(linked.path.parent)
    folder = RunFolder(linked.path, (linked.path.parent / "out",))
    assert announce.command(folder, Launch()) == f"mezzotint train run/recipe.yaml '{allowed}'"
    assert announce.command(linked, Launch()) == "mezzotint train run/recipe.yaml"


def test_checkpoint_in_linked_folder_is_not_sampled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out" / "step-00000001").mkdir(parents=True)
    (tmp_path / "out" / "step-00000001" / "manifest.json").write_text("{}")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "out")
    (tmp_path / "run" / "recipe.yaml").write_text("schema: 1\n")
    for place in ("run", "run/checkpoints/step-00000001"):
        assert main(["sample", str(tmp_path / place), "--prompt=a"]) == 2
        assert "error[E1160]" in capsys.readouterr().err
