"""Edits of a data folder: in its format, atomic, undoable, never beyond its captions."""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mezzotint import durable, fault_injection
from mezzotint.data.catalogue import indexing
from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.data.editing import operations
from mezzotint.data.editing.caption_files import digest_of
from mezzotint.data.editing.editor import DataEditor
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings
from support.image_catalogues import paint


@pytest.fixture
def root(tmp_path: Path) -> Path:
    paint(tmp_path / "data" / "cats", 3, size=(16, 16))
    return tmp_path / "data"


def settings_of(root: Path, **values: object) -> DataSettings:
    return DataSettings.model_validate({"path": root, **values})


def editor_of(root: Path, **values: object) -> DataEditor:
    return DataEditor(root, settings_of(root, **values))


def files_of(root: Path) -> dict[str, bytes]:
    """All files but those of the journal."""
    paths = (path for path in sorted(root.rglob("*")) if path.is_file() and ".mezzotint" not in path.parts)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


KEYS = ["cats/000.png", "cats/001.png", "cats/002.png"]


def test_edits_are_previewed_applied_undone_and_redone(root: Path) -> None:
    editor, before = editor_of(root), files_of(root)
    os.chmod(root / "cats" / "000.txt", 0o640)
    operation = operations.add_tag("fox")
    preview = editor.preview(KEYS, operation)
    assert (preview.count, preview.examples[0]) == (3, ("cats/000.png", "image 0", "image 0, fox"))
    assert files_of(root) == before
    assert editor.apply(KEYS, operation, shown=preview.digest) == 3
    after = files_of(root)
    assert after == before | {f"cats/00{i}.txt": f"image {i}, fox".encode() for i in range(3)}
    assert os.stat(root / "cats" / "000.txt").st_mode & 0o777 == 0o640
    assert editor.apply(KEYS, operation) == 0, "nothing is left to do, so it is no transaction"
    editor.apply(KEYS[:1], operations.set_caption("new"))
    assert editor.captions(KEYS[:1]) == {"cats/000.png": "new"}
    assert [editor.undo(), editor.undo(), editor.undo()] == ["set (1 image)", "add the tag 'fox' (3 images)", ""]
    assert files_of(root) == before
    editor.redo()
    assert files_of(root) == after
    editor.apply(KEYS[1:2], operations.set_caption("other"))
    assert editor.redo() == "", "a new edit takes the place of what was undone"


def test_new_caption_file_is_removed_by_undo(root: Path) -> None:
    (root / "cats" / "001.txt").unlink()
    editor, before = editor_of(root), files_of(root)
    assert editor.captions(KEYS)["cats/001.png"] is None
    editor.apply(KEYS, operations.append(", seen"))
    assert (root / "cats" / "001.txt").read_text() == "seen\n"
    editor.undo()
    assert files_of(root) == before


def test_caption_of_the_folder_is_the_start_of_a_new_caption_file(root: Path) -> None:
    paint(root / "3_sks dog", 1, size=(16, 16))
    (root / "3_sks dog" / "000.txt").unlink()
    editor_of(root, format="kohya").apply(["3_sks dog/000.png"], operations.add_tag("red"))
    assert (root / "3_sks dog" / "000.txt").read_text() == "sks dog, red\n"


def test_caption_changed_meanwhile_is_not_overwritten(root: Path) -> None:
    editor, other = editor_of(root), editor_of(root)
    shown = editor.preview(KEYS, operations.put_first("sks"))
    other.apply(KEYS[1:2], operations.set_caption("theirs"))
    before = files_of(root)
    with pytest.raises(DatasetError, match="reload the page") as caught:
        editor.apply(KEYS, operations.put_first("sks"), shown=shown.digest)
    assert caught.value.code == "E1261"
    assert files_of(root) == before
    (root / "cats" / "001.txt").write_text("from outside")
    with pytest.raises(DatasetError, match=r"001\.txt") as caught:
        editor.undo()
    assert caught.value.code == "E1262"
    assert (root / "cats" / "001.txt").read_text() == "from outside"


TABLE = (
    '\ufeff{"file_name": "cats/000.png", "text": "caf\\u00e9", "n": 1.10}\n'
    "not json\n"
    ' { "text":["a, b","c"] ,"file_name": "cats/001.png" }\n'
    '{"file_name": "cats/002.png"}\n'
    '{"file_name": "cats/000.png", "text": "second"}\n'
)


@pytest.mark.parametrize(
    ("name", "text", "after"),
    [
        (
            "metadata.jsonl", TABLE,
            TABLE.replace("caf\\u00e9", "caf\\u00e9, x").replace('["a, b","c"]', '["a, b, x", "c, x"]')
            .replace('"cats/002.png"}', '"cats/002.png", "text": "x"}'),
        ),
        (
            "metadata.csv",
            'file_name;text;n\r\n"cats/000.png";"a; b";1\r\ncats/001.png;"two\nlines";2\r\ncats/002.png;;3',
            'file_name;text;n\r\ncats/000.png;"a; b, x";1\r\ncats/001.png;"two\nlines, x";2\r\ncats/002.png;x;3',
        ),
    ],
)  # fmt: skip
def test_only_the_cells_of_a_table_change(root: Path, name: str, text: str, after: str) -> None:
    table = root / name
    table.write_bytes(text.encode())
    editor = editor_of(root, format="metadata", captions={"missing": "empty"})
    editor.apply(KEYS, operations.add_tag("x"))
    assert table.read_bytes().decode() == after
    editor.undo()
    assert table.read_bytes().decode() == text


def test_rows_of_one_image_have_their_own_keys(root: Path) -> None:
    (root / "metadata.jsonl").write_text(TABLE)
    editor = editor_of(root, format="metadata", captions={"missing": "empty"})
    catalogue = build(editor.settings, root.parent / "index")
    captions = {catalogue.key(row): "\n".join(catalogue.captions(row)) for row in range(len(catalogue))}
    assert editor.captions(list(captions)) == {key: text or None for key, text in captions.items()}
    editor.apply(["cats/000.png#2"], operations.set_caption("changed"))
    assert editor.captions(["cats/000.png", "cats/000.png#2"]) == {"cats/000.png": "café", "cats/000.png#2": "changed"}


def test_parquet_cells_change(root: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    parquet.write_table(
        pa.table({"file_name": KEYS, "text": ["a", "b", "c"], "n": [1, 2, 3]}), root / "metadata.parquet"
    )
    editor = editor_of(root, format="metadata")
    before = files_of(root)
    editor.apply(KEYS[:1], operations.append(", x"))
    table = parquet.read_table(root / "metadata.parquet").to_pydict()
    assert (table["text"], table["n"]) == (["a, x", "b", "c"], [1, 2, 3])
    editor.undo()
    assert files_of(root) == before


@pytest.mark.parametrize(
    ("fault", "is_applied"),
    [("edit.recorded:kill", False), ("edit.begin:kill", True), ("edit.file@2:kill", True), ("edit.end:kill", True)],
)
def test_killed_edit_is_finished_or_never_happened(root: Path, fault: str, is_applied: bool) -> None:
    editor, before = editor_of(root), files_of(root)
    operation = operations.append(", fox")
    run_killed(lambda: editor.apply(KEYS, operation), fault)
    assert editor.apply(KEYS[:1], operations.set_caption("next")) == 1
    assert editor.captions(KEYS[1:]) == {key: f"image {i}{', fox' * is_applied}" for i, key in enumerate(KEYS) if i}
    assert editor.undo() == "set (1 image)"
    if is_applied:
        run_killed(editor.undo, fault if fault != "edit.recorded:kill" else "edit.begin:kill")
        editor.redo()
        editor.undo()
    assert files_of(root) == before
    assert not list(root.rglob("*.partial"))


def run_killed(work: Callable[[], object], fault: str) -> None:
    """Does work in a forked process that is killed at a fault."""
    child = os.fork()
    if not child:
        fault_injection.arm(fault)
        work()
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_hundred_edits_with_kills_lose_nothing(root: Path) -> None:
    editor, before = editor_of(root), files_of(root)
    for number in range(100):
        operation = operations.append(f" {number}")
        if number % 20 == 7:
            run_killed(lambda chosen=operation: editor.apply(KEYS, chosen), "edit.file@2:kill")  # type: ignore[misc]
        else:
            editor.apply(KEYS, operation)
    words = " ".join(map(str, range(100)))
    assert editor.captions(KEYS) == {key: f"image {i} {words}" for i, key in enumerate(KEYS)}
    for _ in range(100):
        editor.undo()
    assert files_of(root) == before


def test_two_processes_edit_in_turn(root: Path) -> None:
    children = []
    for number in range(2):
        if not (child := os.fork()):
            for i in range(10):
                editor_of(root).apply(KEYS, operations.append(f" {number}.{i}"))
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    words = editor_of(root).captions(KEYS[:1])[KEYS[0]]
    assert sorted((words or "").split()[2:]) == sorted(f"{number}.{i}" for number in range(2) for i in range(10))


@pytest.mark.parametrize(
    "key", ["../out.png", "/etc/passwd", "a\0.png", ".hidden/a.png", "linked/a.png", "", "cats//a.png"]
)
def test_keys_outside_the_folder_are_refused(root: Path, key: str) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (root / "linked").symlink_to(outside)
    changes: list[Callable[[], int]] = [
        lambda: editor_of(root).apply([key], operations.set_caption("x")),
        lambda: editor_of(root).exclude([key]),
        lambda: editor_of(root).write_mask(key, b"png"),
    ]
    for change in changes:
        with pytest.raises(DatasetError) as caught:
            change()
        assert caught.value.code == "E1260"
    assert list(outside.iterdir()) == []


def test_linked_and_unreadable_captions_are_refused(root: Path) -> None:
    secret = root.parent / "secret.txt"
    secret.write_text("secret")
    (root / "cats" / "000.txt").unlink()
    (root / "cats" / "000.txt").symlink_to(secret)
    (root / "cats" / "001.txt").write_bytes(b"\xff\xfe")
    for key in KEYS[:2]:
        with pytest.raises(DatasetError) as caught:
            editor_of(root).apply([key], operations.set_caption("x"))
        assert caught.value.code == "E1260"
    assert secret.read_text() == "secret"
    for text in ("a\0b", "\ud800", "x" * 1_000_001):
        with pytest.raises(DatasetError):
            editor_of(root).apply(KEYS[2:], operations.set_caption(text))


def test_names_with_odd_characters_are_edited(root: Path) -> None:
    names = ["line\nbreak.png", "<script>.png", "not utf-8 \udcff.png", "a#2.png"]
    for name in names:
        (root / name).write_bytes((root / "cats" / "000.png").read_bytes())
    editor, before = editor_of(root), files_of(root)
    editor.apply(names, operations.set_caption("<script>"))
    assert set(editor.captions(names).values()) == {"<script>"}
    editor.exclude(names)
    catalogue = build(settings_of(root), root.parent / "index")
    assert sorted(catalogue.keys()) == KEYS
    editor.undo()
    editor.undo()
    assert files_of(root) == before


@pytest.mark.parametrize(
    ("name", "content"),
    [("state.json", "[]"), ("state.json", '{"version": 1, "applied": 4, "moving_to": 9}'),
     ("state.json", '{"version": 1, "applied": 0, "moving_to": 1}'), ("000001.json", "{")],
)  # fmt: skip
def test_foreign_journal_is_refused(root: Path, name: str, content: str) -> None:
    folder = root / ".mezzotint" / "edits"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text('{"version": 1, "applied": 0, "moving_to": 1}')
    (folder / name).write_text(content)
    with pytest.raises(DatasetError) as caught:
        editor_of(root).apply(KEYS, operations.set_caption("x"))
    assert caught.value.code == "E1263"


@pytest.mark.parametrize("target", ["../victim.txt", "cats/000.png", "script.py"])
def test_foreign_journal_writes_no_other_files(root: Path, target: str) -> None:
    folder = root / ".mezzotint" / "edits"
    folder.mkdir(parents=True)
    one = {"name": target, "offset": 0, "before": "", "after": "x", "hash_before": None, "hash_after": "0"}
    record = {"version": 1, "label": "", "group": "", "time": 0, "files": [one]}
    (folder / "000001.json").write_text(json.dumps(record))
    (folder / "state.json").write_text('{"version": 1, "applied": 0, "moving_to": 1}')
    before = files_of(root.parent)
    with pytest.raises(DatasetError) as caught:
        editor_of(root).undo()
    assert caught.value.code == "E1260"
    assert files_of(root.parent) == before


def open_catalogue(root: Path) -> Catalogue:
    return build(settings_of(root), root.parent / "index")


def test_excluded_images_are_left_out_of_the_data_set(root: Path) -> None:
    editor, whole = editor_of(root), open_catalogue(root)
    assert editor.exclude(KEYS[:2]) == 1
    assert (root / "cats" / "mezzotint.jsonl").read_text() == (
        '{"file": "000.png", "exclude": true}\n{"file": "001.png", "exclude": true}\n'
    )
    catalogue = open_catalogue(root)
    assert list(catalogue.keys()) == KEYS[2:]
    assert catalogue.report.left_out[0] == ("cats/000.png", "excluded in mezzotint.jsonl")
    assert catalogue.fingerprint != whole.fingerprint
    editor.exclude(KEYS[:1], exclude=False)
    assert list(open_catalogue(root).keys()) == [KEYS[0], KEYS[2]]
    editor.undo()
    editor.undo()
    assert not (root / "cats" / "mezzotint.jsonl").exists()
    assert open_catalogue(root).fingerprint == whole.fingerprint


@pytest.mark.parametrize(
    "line", ["[]", '{"file": "a/b.png"}', '{"file": "a", "crop": []}', '{"file": "a", "exclude": 1}', "{"]
)
def test_invalid_image_settings_are_an_error(root: Path, line: str) -> None:
    (root / "cats" / "mezzotint.jsonl").write_text(f'{{"file": "000.png"}}\n{line}\n')
    with pytest.raises(DatasetError, match=r"mezzotint.jsonl:2") as caught:
        open_catalogue(root)
    assert caught.value.code == "E1264"


def test_unknown_image_in_settings_is_noted(root: Path) -> None:
    (root / "cats" / "mezzotint.jsonl").write_text('{"file": "gone.png", "exclude": true}\n')
    assert "cats/gone.png" in dict(open_catalogue(root).report.notes)


def test_digest_tells_empty_from_missing() -> None:
    assert digest_of({"a": None}) != digest_of({"a": ""})


def test_data_of_a_half_written_edit_is_never_read(root: Path) -> None:
    editor = editor_of(root)
    run_killed(lambda: editor.apply(KEYS, operations.append(", fox")), "edit.file@2:kill")
    assert len({path.read_bytes()[-3:] for path in root.rglob("*.txt")}) > 1, "some are changed, others are not"
    catalogue = open_catalogue(root / "cats")
    assert [catalogue.captions(row) for row in range(3)] == [(f"image {i}, fox",) for i in range(3)]


def test_half_written_edit_that_cannot_be_finished_is_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = editor_of(root)
    run_killed(lambda: editor.apply(KEYS, operations.append(", fox")), "edit.file@2:kill")

    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(path))

    monkeypatch.setattr(durable, "make_folders", refuse)
    with pytest.raises(DatasetError, match="was interrupted") as caught:
        open_catalogue(root)
    assert caught.value.code == "E1265"


def test_settings_and_edits_changed_meanwhile_are_not_overwritten(root: Path) -> None:
    editor, other = editor_of(root), editor_of(root)
    shown = editor.settings_digest(KEYS)
    other.exclude(KEYS[:1])
    theirs = editor.journal.undoable()
    before = files_of(root)
    with pytest.raises(DatasetError) as caught:
        editor.change_settings(KEYS, lambda one: replace(one, review=True), label="review", shown=shown)
    assert caught.value.code == "E1261"
    other.exclude(KEYS[1:2])
    assert theirs is not None
    with pytest.raises(DatasetError) as caught:
        editor.undo(shown=theirs.at)
    assert caught.value.code == "E1261"
    other.undo()
    assert files_of(root) == before


def test_index_that_is_in_use_is_kept(root: Path) -> None:
    in_use = open_catalogue(root)
    folders = [in_use.folder]
    for number in range(6):
        (root / "cats" / "000.txt").write_text(f"edit {number}")
        folders.append(open_catalogue(root).folder)
    assert [folder.exists() for folder in folders] == [True, False, False, True, True, True, True]
    assert pickle.loads(pickle.dumps(in_use)).captions(0) == ("image 0",)


def test_half_written_edit_of_a_folder_below_is_finished(root: Path) -> None:
    editor = editor_of(root / "cats")
    names = [key.removeprefix("cats/") for key in KEYS]
    run_killed(lambda: editor.apply(names, operations.append(", fox")), "edit.file@2:kill")
    catalogue = open_catalogue(root)
    assert [catalogue.captions(row) for row in range(3)] == [(f"image {i}, fox",) for i in range(3)]


def test_data_that_are_edited_all_the_time_are_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor, numbers, read = editor_of(root), iter(range(100)), indexing.sources_of

    def edit_meanwhile(*arguments: Any) -> Any:
        editor.apply(KEYS, operations.set_caption(f"edit {next(numbers)}"))
        return read(*arguments)

    monkeypatch.setattr(indexing, "sources_of", edit_meanwhile)
    with pytest.raises(DatasetError, match="are being edited") as caught:
        open_catalogue(root)
    assert caught.value.code == "E1265"
