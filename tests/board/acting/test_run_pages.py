"""Tags, notes, archive and trash: what the page writes, what it refuses, and that nothing is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from mezzotint.board import report
from mezzotint.board.acting import trash
from mezzotint.board.acting.actions import StartedProcesses
from mezzotint.board.guard import AccessPolicy
from mezzotint.board.reading import notes
from mezzotint.cli import main
from mezzotint.run_folder import RunFolder
from mezzotint.tasks.queue.entries import Queue
from support.board_runs import SCRIPT, Board, opened, waiting, write_run

HOSTILE = SCRIPT.replace("/", "|")


@pytest.fixture
def fox(tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs" / "fox", steps=3)


@pytest.fixture
def board(fox: Path, tmp_path: Path) -> Iterator[Board]:
    with opened(tmp_path) as board:
        yield board


def save(board: Board, runs: list[str] | None = None, **facts: Any) -> tuple[int, Any]:
    return board.post("/api/notes", {"runs": ["0/runs/fox"] if runs is None else runs, **facts})


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*") if path.is_file() and path.name != "lock"
    }  # fmt: skip


def names(board: Board) -> list[str]:
    board.pages.roots.forget()
    return sorted(board.pages.roots.runs())


# --- notes ---


def test_notes_are_a_small_file_of_the_run(board: Board, fox: Path) -> None:
    before = snapshot(fox)
    assert save(board, add=["  good   one ", "sdxl"], text="better hands\r\n\n", archived=True)[0] == 200
    assert json.loads((fox / "notes.json").read_text()) == {
        "tags": ["good one", "sdxl"], "notes": "better hands", "archived": True,
    }  # fmt: skip
    assert save(board, add=["GOOD one"], remove=["SDXL"], archived=False)[0] == 200
    assert notes.read_notes(fox) == notes.RunNotes(("good one",), "better hands")
    assert {name: value for name, value in snapshot(fox).items() if name != "notes.json"} == before
    row = board.ask("/?part=rows")[1]
    assert "better hands" in row
    assert 'data-tags="good one"' in row
    assert "better hands" in report.render_run(fox)[0]


def test_several_runs_are_tagged_and_archived_at_once_or_not_at_all(board: Board, tmp_path: Path) -> None:
    owl = write_run(tmp_path / "runs" / "owl", steps=3)
    both = ["0/runs/fox", "0/runs/owl"]
    assert save(board, both, add=["a"], archived=True)[1] == {"message": "Saved for 2 runs"}
    assert notes.read_notes(owl) == notes.RunNotes(("a",), "", True)
    (owl / "notes.json").write_text("{")
    status, answer = save(board, both, add=["b"])
    assert (status, answer["code"]) == (409, "E1956")
    assert notes.read_notes(tmp_path / "runs" / "fox").tags == ("a",), "neither has changed"
    assert (owl / "notes.json").read_text() == "{", "a damaged file is not replaced"
    assert save(board, both, text="x")[0] == 409
    assert save(board, [])[0] == 404
    assert save(board, ["0/runs/none"], add=["b"])[0] == 404
    assert save(board, ["0/../runs/fox"], add=["b"])[0] == 404


def test_notes_that_another_window_has_changed_are_not_replaced(board: Board, fox: Path) -> None:
    assert save(board, text="first", text_before="")[0] == 200
    status, answer = save(board, text="second", text_before="", add=["late"])
    assert (status, answer["code"]) == (409, "E1957")
    assert notes.read_notes(fox) == notes.RunNotes((), "first"), "neither the text nor the tag was saved"
    assert save(board, add=["other"])[0] == 200, "tags of two windows are joined"
    assert save(board, text="first", text_before="")[0] == 200, "the same text is no conflict"
    assert save(board, text="second", text_before="first", add=["late"])[0] == 200
    assert notes.read_notes(fox) == notes.RunNotes(("other", "late"), "second")


def test_tags_of_requests_at_the_same_time_are_all_kept(board: Board, fox: Path) -> None:
    tags = [f"tag {number}" for number in range(12)]
    with ThreadPoolExecutor(12) as pool:
        assert {status for status, _ in pool.map(lambda tag: save(board, add=[tag]), tags)} == {200}
    assert sorted(notes.read_notes(fox).tags) == sorted(tags)
    assert [path.name for path in fox.iterdir() if "partial" in path.name] == []


@pytest.mark.parametrize(
    "facts",
    [
        {"add": ["a,b"]}, {"add": ["a\u202eb"]}, {"add": ["\x1b[31m"]}, {"add": [""]}, {"add": ["x" * 41]},
        {"add": [str(number) for number in range(21)]}, {"text": "x" * 20_001},
    ],
)  # fmt: skip
def test_unacceptable_tags_and_notes_are_refused(board: Board, fox: Path, facts: dict[str, Any]) -> None:
    status, answer = save(board, **facts)
    assert (status, answer["code"]) == (409, "E1956")
    assert not (fox / "notes.json").exists()


@pytest.mark.parametrize(
    "content",
    [
        "[]", "{", '{"tags": "a"}', '{"tags": [1]}', '{"notes": 3}', '{"archived": "no"}', '{"tags": ["a,b"]}',
        json.dumps({"notes": "x" * 20_001}), " " * 200_001, "[" * 5000,
    ],
)  # fmt: skip
def test_damaged_notes_are_shown_as_such(board: Board, fox: Path, content: str) -> None:
    (fox / "notes.json").write_text(content)
    assert notes.read_notes(fox).problem
    assert "notes.json" in board.ask("/?part=rows")[1]
    assert "edit-notes" not in board.ask("/run?run=0/runs/fox")[1]
    assert report.render_run(fox)[0]


def test_linked_notes_are_neither_read_nor_written(board: Board, fox: Path, tmp_path_factory: Any) -> None:
    secret = tmp_path_factory.mktemp("outside") / "secret.json"
    secret.write_text(json.dumps({"notes": "a secret", "tags": []}))
    (fox / "notes.json").symlink_to(secret)
    assert save(board, text="mine", text_before="a secret")[1]["code"] == "E1956"
    for page in ("/?part=rows", "/run?run=0/runs/fox", "/part/notes?run=0/runs/fox"):
        assert "a secret" not in board.ask(page)[1]
    assert "a secret" not in report.render_run(fox)[0]
    assert json.loads(secret.read_text())["notes"] == "a secret"


def test_markup_in_names_tags_and_notes_is_text(board: Board, tmp_path: Path) -> None:
    run = write_run(tmp_path / HOSTILE, steps=3)
    name, tag = f"0/{HOSTILE}", "<img src=x onerror=hit=1>"
    text = f"{SCRIPT}</textarea>{SCRIPT}\u202e"
    assert save(board, [name], add=[tag], text=text)[0] == 200
    pages = ["/", "/?part=rows", f"/run?run={quote(name)}", f"/part/notes?run={quote(name)}"]
    shown = [*(board.ask(page)[1] for page in pages), report.render_run(run)[0]]
    assert board.post("/api/trash", {"runs": [name]})[0] == 200
    for page in [*shown, board.ask("/trash")[1], board.ask(f"/run?run={quote(f'0/trash/{HOSTILE}')}")[1]]:
        assert "<script>window" not in page
        assert "<img src=x" not in page
        assert page.count("</textarea>") <= 1
    assert (tmp_path / "trash" / HOSTILE / "notes.json").is_file()


def test_notes_do_not_change_when_a_run_was_last_written(board: Board, fox: Path) -> None:
    before = board.pages.status(fox).changed
    os.utime(fox, (before + 1000, before + 1000))
    assert board.pages.status(fox).changed == before


def test_read_only_page_changes_nothing(fox: Path, tmp_path: Path) -> None:
    with opened(tmp_path, policy=AccessPolicy(read_only=True)) as board:
        for path in ("/api/notes", "/api/trash", "/api/restore"):
            assert board.post(path, {"runs": ["0/runs/fox"], "archived": True})[0] == 403
        pages = board.ask("/")[1] + board.ask("/run?run=0/runs/fox")[1]
        for word in ("data-run-action", 'id="changes"', "edit-notes"):
            assert word not in pages
    assert not (fox / "notes.json").exists()


# --- trash ---


def test_run_is_moved_to_the_trash_and_back_unchanged(board: Board, fox: Path, tmp_path: Path) -> None:
    before = snapshot(fox)
    status, answer = board.post("/api/trash", {"runs": ["0/runs/fox"]})
    assert status == 200
    assert str(tmp_path / "trash" / "runs" / "fox") in answer["message"]
    assert names(board) == []
    assert snapshot(tmp_path / "trash" / "runs" / "fox") == before
    page = board.ask("/trash")[1]
    assert f"mv {tmp_path}/trash/runs/fox {tmp_path}/runs/fox" in page
    trashed = board.ask("/run?run=0/trash/runs/fox")[1]
    assert 'data-run-action="restore"' in trashed
    assert "data-act" not in trashed
    for path, code in (("/api/trash", "E1958"), ("/api/notes", "E1956")):
        assert board.post(path, {"runs": ["0/trash/runs/fox"], "add": ["a"]})[1]["code"] == code
    assert board.post("/api/act", {"run": "0/trash/runs/fox", "name": "go"})[1]["code"] == "E1946"
    assert board.post("/api/restore", {"runs": ["0/trash/runs/fox"]})[0] == 200
    assert snapshot(fox) == before
    assert names(board) == ["0/runs/fox"]
    assert not (tmp_path / "trash").exists(), "empty folders of the trash are removed"
    assert board.post("/api/restore", {"runs": ["0/runs/fox"]})[1]["code"] == "E1958"


def test_a_second_run_of_the_same_name_gets_a_number(board: Board, fox: Path, tmp_path: Path) -> None:
    board.post("/api/trash", {"runs": ["0/runs/fox"]})
    fox.mkdir()
    answer = board.post("/api/restore", {"runs": ["0/trash/runs/fox"]})[1]
    assert f"mv {tmp_path}/trash/runs/fox {fox}-restored" in answer["error"], "a rename would replace an empty folder"
    fox.rmdir()
    write_run(fox, steps=5)
    assert board.post("/api/restore", {"runs": ["0/trash/runs/fox"]})[1]["code"] == "E1958", "it would replace a run"
    assert board.post("/api/trash", {"runs": ["0/runs/fox"]})[0] == 200
    assert sorted(os.listdir(tmp_path / "trash" / "runs")) == ["fox", "fox-2"]
    assert board.pages.roots.trashed() == ["0/trash/runs/fox", "0/trash/runs/fox-2"]


def test_runs_that_are_not_at_rest_stay(
    board: Board, fox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "runs" / "owl", steps=3)
    both = {"runs": ["0/runs/owl", "0/runs/fox"]}
    with RunFolder(fox).lock():
        status, answer = board.post("/api/trash", both)
        assert (status, answer["code"]) == (409, "E1958")
        assert "about to end" in answer["error"]
        (fox / "history.jsonl").write_text('{"event": "started", "steps": 9}\n')
        assert "running; stop it first" in board.post("/api/trash", both)[1]["error"]
        with pytest.raises(Exception, match="E1504"):
            trash.move_to_trash(fox, board.pages.roots)  # one that took its lock after the look at its state
    with monkeypatch.context() as patch:  # it does not hold its lock yet
        patch.setattr(StartedProcesses, "is_running", lambda self, run: run == fox)
        assert "was started" in board.post("/api/trash", both)[1]["error"]
    (fox / "lock").write_text(json.dumps({"pid": 1, "host": "another", "since": "2026-01-01T00:00:00Z"}))
    assert "another machine" in board.post("/api/trash", both)[1]["error"]
    (fox / "lock").unlink()
    with waiting(tmp_path / "runs" / "busy"):
        assert "waits" in board.post("/api/trash", {"runs": ["0/runs/busy"]})[1]["error"]
    write_run(fox / "inner", steps=3)
    assert "another run" in board.post("/api/trash", both)[1]["error"]
    assert names(board) == ["0/runs/busy", "0/runs/fox", "0/runs/owl"], "nothing was moved"
    assert not (tmp_path / "trash").exists()


def test_run_of_an_entry_of_the_queue_stays(
    board: Board, fox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["queue", "add", "mini", "data.path=shapes", "run.name=fox"]) == 0
    for state in ("waiting", "paused"):
        answer = board.post("/api/trash", {"runs": ["0/runs/fox"]})[1]
        assert state in answer["error"]
        assert answer["code"] == "E1958"
        if state == "waiting":
            Queue(tmp_path / "queue").pause("fox")
    Queue(tmp_path / "queue").remove("fox")
    assert board.post("/api/trash", {"runs": ["0/runs/fox"]})[0] == 200


def test_nothing_is_moved_through_links_or_out_of_the_folders(
    board: Board, fox: Path, tmp_path: Path, tmp_path_factory: Any
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    foreign = write_run(outside / "foreign", steps=3)
    (tmp_path / "link").symlink_to(foreign)
    assert board.post("/api/trash", {"runs": ["0/link"]})[0] == 404
    for link in (tmp_path / "trash", tmp_path / "trash" / "runs"):
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(outside)
        answer = board.post("/api/trash", {"runs": ["0/runs/fox"]})[1]
        assert answer["code"] == "E1958"
        assert "link" in answer["error"]
        link.unlink()
    (fox / "samples" / "away").symlink_to(foreign)
    assert board.post("/api/trash", {"runs": ["0/runs/fox"]})[0] == 200
    assert sorted(os.listdir(outside)) == ["foreign"]
    assert (tmp_path / "trash" / "runs" / "fox" / "samples" / "away").is_symlink()
    assert (foreign / "metrics.jsonl").is_file()


def test_folder_of_the_page_and_a_run_called_trash_stay(tmp_path: Path) -> None:
    write_run(tmp_path / "one", steps=3)
    with opened(tmp_path / "one") as board:
        assert board.post("/api/trash", {"runs": ["0"]})[1]["code"] == "E1958"
    write_run(tmp_path / "trash", steps=3)
    with opened(tmp_path) as board:
        assert names(board) == ["0/one", "0/trash"]
        assert "is a run" in board.post("/api/trash", {"runs": ["0/one"]})[1]["error"]
        assert board.pages.roots.trashed() == []


def test_names_that_are_not_utf8_are_tagged_deleted_and_restored(board: Board, tmp_path: Path) -> None:
    run = write_run(tmp_path / os.fsdecode(b"bad\xff\n<b>"), steps=3)
    name = "0/bad\\udcff\n<b>"
    assert name in names(board)
    assert save(board, [name], add=["odd"])[0] == 200
    assert board.post("/api/trash", {"runs": [name]})[0] == 200
    assert not run.exists()
    assert "<b>" not in board.ask("/trash")[1]
    (trashed,) = board.pages.roots.trashed()
    assert board.post("/api/restore", {"runs": [trashed]})[0] == 200
    assert notes.read_notes(run).tags == ("odd",)


def test_failed_move_leaves_no_folders(
    board: Board, fox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rename(source: object, target: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(trash.os, "rename", rename)
    status, answer = board.post("/api/trash", {"runs": ["0/runs/fox"]})
    assert (status, answer["code"]) == (409, "E1958")
    assert "nothing was changed" in answer["error"]
    assert names(board) == ["0/runs/fox"]
    assert not (tmp_path / "trash").exists()
