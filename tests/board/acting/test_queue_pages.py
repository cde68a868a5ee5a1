"""The page Queue: each button does what the command line does, to the same files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mezzotint.board.acting import actions, recipe_pages
from mezzotint.board.guard import AccessPolicy
from mezzotint.cli import main
from mezzotint.tasks.queue.entries import Queue
from support.board_runs import SCRIPT, Board, opened
from support.forked import run_python


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        assert main(["queue", "add", "mini", "data.path=shapes", f"run.name={name}"]) == 0
    return Queue(tmp_path / "queue")


@pytest.fixture
def board(queue: Queue, tmp_path: Path) -> Iterator[Board]:
    with opened(tmp_path) as board:
        yield board


def states(queue: Queue) -> list[tuple[str, str]]:
    return [(entry.name, entry.state) for entry in queue.entries()]


def test_entries_are_changed_as_by_the_command_line(board: Board, queue: Queue) -> None:
    for value in (
        {"action": "move", "name": "c", "place": "first"},
        {"action": "pause", "name": "a"},
        {"action": "remove", "name": "b"},
    ):
        status, answer = board.post("/api/queue", value)
        assert status == 200
        assert answer["command"].startswith(f"mezzotint queue {value['action']} {value['name']}")
        assert answer["command"].endswith(f"--queue={queue.folder}")
    assert states(queue) == [("c", "waiting"), ("a", "paused")]
    assert board.post("/api/queue", {"action": "resume", "name": "a"})[0] == 200
    assert states(queue) == [("c", "waiting"), ("a", "waiting")]


@pytest.mark.parametrize(
    "value",
    [
        {}, {"action": "entries", "name": "a"}, {"action": "resume", "name": "a"}, {"action": "remove", "name": "../a"},
        {"action": "move", "name": "a", "place": "x"}, {"action": "pause", "name": ["a"]}, {"action": "write"},
    ],
)  # fmt: skip
def test_other_requests_are_refused(board: Board, queue: Queue, value: dict[str, object]) -> None:
    status, answer = board.post("/api/queue", value)
    assert (status, answer["code"]) == (409, "E1960")
    assert states(queue) == [("a", "waiting"), ("b", "waiting"), ("c", "waiting")]


def test_page_shows_states_and_interprets_nothing_as_markup(board: Board, queue: Queue) -> None:
    queue.record(queue.entry("b"), "failed", f"error[E1]: {SCRIPT}")
    (queue.folder / f"{SCRIPT.replace('/', '')}.yaml").write_text("schema: 1\n")
    (queue.folder / "damaged.yaml").write_text("run: [")
    page = board.ask("/queue")[1]
    assert "<script>window" not in page
    assert "<img" not in page
    assert page.count('class="state waiting"') == 2
    assert page.count('class="state failed"') == 1
    assert page.count('class="state invalid"') == 2
    assert "<h1>" not in board.ask("/queue?part=rows")[1]


def test_form_is_added_to_the_queue(board: Board, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        recipe_pages, "run_command", lambda line, folder: run_python(["python", "-m", "mezzotint", *line], cwd=folder)
    )
    value = {"base": "mini", "changes": {"data.path": "shapes", "run.name": "d"}}
    status, answer = board.post("/api/queue/add", value)
    assert status == 200
    assert answer["message"].startswith("d is added as")
    assert f"--queue={queue.folder}" in answer["command"]
    assert queue.entry("d").run == queue.base / "runs" / "d"
    status, answer = board.post("/api/queue/add", value)
    assert status == 409
    assert "E1961" in answer["error"]
    for name in ("run.folder", "run.export.folder"):
        status, answer = board.post("/api/queue/add", {"base": "mini", "changes": {name: "../x"}})
        assert (status, answer["code"]) == (409, "E1949")
    assert len(queue.entries()) == 4


def test_recipe_is_not_saved_into_the_queue(board: Board, queue: Queue) -> None:
    """It would be trained wherever it writes, which the page refuses."""
    (queue.base / "other").symlink_to(queue.folder)
    for file in ("queue/x.yaml", "other/x.yaml", "./queue/x.yaml"):
        status, answer = board.post("/api/save", {"base": "mini", "changes": {}, "file": file})
        assert (status, answer["code"]) == (409, "E1949")


def test_queue_is_run_in_a_separate_process(board: Board, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        actions.StartedProcesses, "start",
        lambda self, line, run, folder, out: calls.append((line, run, folder, out)) or "Started",
    )  # fmt: skip
    assert board.post("/api/queue/run", {"devices": "0, 1"}) == (200, {"message": "Started"})
    assert board.post("/api/queue/run", {})[0] == 200
    line = ["queue", "run", f"--queue={queue.folder}"]
    out = queue.folder / "queue-run.txt"
    assert calls[0] == ([*line, "--devices=0,1"], queue.folder, queue.base, out)
    assert calls[1] == (line, queue.folder, queue.base, out)
    status, answer = board.post("/api/queue/run", {"devices": "0 --wait"})
    assert (status, answer["code"]) == (409, "E1012")


@pytest.mark.slow
def test_started_queue_is_not_taken_for_a_run(board: Board, queue: Queue) -> None:
    for entry in queue.entries():
        queue.pause(entry.name)
    status, answer = board.post("/api/queue/run", {"devices": "cpu"})
    assert status == 200, answer
    until = time.monotonic() + 60
    while "nothing is waiting" not in (queue.folder / "queue-run.txt").read_text():
        assert time.monotonic() < until
        time.sleep(0.1)
    assert board.pages.roots.runs() == []


def test_read_only_page_has_no_buttons(queue: Queue, tmp_path: Path) -> None:
    with opened(tmp_path, policy=AccessPolicy(read_only=True)) as board:
        page = board.ask("/queue")[1]
        assert "data-act" not in page
        assert "run-queue" not in page
        for path in ("/api/queue", "/api/queue/add", "/api/queue/run"):
            assert board.post(path, {"action": "pause", "name": "a"})[0] == 403
    assert states(queue)[0] == ("a", "waiting")
