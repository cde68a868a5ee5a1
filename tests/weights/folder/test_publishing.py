"""Publishing a model next to other files: complete or without index, replacing only its own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint import fault_injection
from mezzotint.errors import WeightsError
from mezzotint.weights.folder import publishing


def write_export(folder: Path, *names: str, text: str = "one") -> Path:
    """A simple export: a folder for each component, and the index."""
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(text)
    (folder / publishing.INDEX).write_text(text)
    return folder


def read_files(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_model_is_published_next_to_existing_files(tmp_path: Path) -> None:
    (tmp_path / "out" / "checkpoints").mkdir(parents=True)
    (tmp_path / "out" / "recipe.yaml").write_text("mine")
    export = write_export(tmp_path / "step-5", "unet", "vae")
    assert publishing.publish(export, tmp_path / "out") == tmp_path / "out"
    published = read_files(tmp_path / "out")
    assert {name: text for name, text in published.items() if name != publishing.LIST} == {
        "model_index.json": "one", "recipe.yaml": "mine", "unet/config.json": "one", "vae/config.json": "one",
    }  # fmt: skip
    assert publishing.published_names(tmp_path / "out") == {"model_index.json", "unet", "vae"}
    assert (tmp_path / "out" / "checkpoints").is_dir()
    assert read_files(export).keys() == {"model_index.json", "unet/config.json", "vae/config.json"}, "the export stays"


def test_publishing_again_replaces_and_removes_its_own_files(tmp_path: Path) -> None:
    publishing.publish(write_export(tmp_path / "a", "unet", "feature_extractor"), tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    publishing.publish(write_export(tmp_path / "b", "unet", "vae", text="two"), tmp_path / "out")
    published = read_files(tmp_path / "out")
    published.pop(publishing.LIST)
    assert published == {
        "model_index.json": "two", "notes.txt": "mine", "unet/config.json": "two", "vae/config.json": "two",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["model_index.json", "unet", "tokenizer"])
def test_foreign_model_is_never_overwritten(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("theirs")
    export = write_export(tmp_path / "a", "unet", "tokenizer")
    for refused in (lambda: publishing.refuse_others(out), lambda: publishing.publish(export, out)):
        with pytest.raises(WeightsError, match=f"already contains {name}") as caught:
            refused()
        assert caught.value.code == "E1412"
    assert read_files(out) == {name: "theirs"}


def test_interrupted_publishing_leaves_no_index_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    publishing.publish(write_export(tmp_path / "a", "unet", "vae"), out)
    export = write_export(tmp_path / "b", "scheduler", "unet", "vae", text="two")

    class Killed(BaseException):
        pass

    def reach(name: str) -> None:
        raise Killed

    monkeypatch.setattr(fault_injection, "reach", reach)
    with pytest.raises(Killed):
        publishing.publish(export, out)
    assert not (out / publishing.INDEX).exists(), "a partly replaced model has no index"
    monkeypatch.undo()
    publishing.refuse_others(out)
    publishing.publish(export, out)
    assert set(read_files(out).values()) - {(out / publishing.LIST).read_text()} == {"two"}
    assert not list(out.glob(".*"))


@pytest.mark.parametrize("text", ["", "[]", '{"names": 3}', '{"names": ["../outside", 4, "unet"]}'])
def test_damaged_list_names_nothing_outside_the_folder(text: str, tmp_path: Path) -> None:
    (tmp_path / publishing.LIST).write_text(text)
    assert publishing.published_names(tmp_path) <= {"unet"}
