"""Actions of the page: each writes the request file or starts the command that it shows."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from mezzotint.board.acting import actions
from mezzotint.board.guard import AccessPolicy
from mezzotint.run_folder import RunFolder
from support.board_runs import opened, write_run


def test_buttons_create_the_same_request_files_as_the_commands(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "runs" / "a run", ended=None)
    with opened(tmp_path / "runs") as board, RunFolder(folder).lock():
        assert [one.name for one in actions.list_actions(folder)] == ["draw", "save", "stop"]
        for name in actions.REQUESTS:
            status, answer = board.post("/api/act", {"run": "0/a run", "name": name})
            assert status == 200
            assert str(folder / "requests" / name) in answer["message"]
        by_page = sorted(path.name for path in (folder / "requests").iterdir())
        for path in (folder / "requests").iterdir():
            path.unlink()
        for one in actions.list_actions(folder):
            subprocess.run(["sh", "-c", one.command], check=True)
        assert sorted(path.name for path in (folder / "requests").iterdir()) == by_page == ["draw", "save", "stop"]
        assert board.post("/api/act", {"run": "0/a run", "name": "go"})[1]["code"] == "E1946"


def test_unavailable_action_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "first")
    with opened(tmp_path) as board:
        for name in ("", "../draw", "go", "rm", None, ["draw"]):
            assert board.post("/api/act", {"run": "0/first", "name": name})[0] == 409, name
        assert board.post("/api/act", ["x"])[0] == 404
    assert not (folder / "requests").exists()


def test_read_only_page_has_no_actions(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "first", ended=None)
    with opened(tmp_path, policy=AccessPolicy(read_only=True)) as board, RunFolder(folder).lock():
        assert "data-act" not in board.ask("/run?run=0/first")[1]
        assert board.post("/api/act", {"run": "0/first", "name": "stop"})[0] == 403
    assert not (folder / "requests").exists()


def test_resume_button_starts_the_command_in_its_own_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "first", ended="stopped")
    code = "import os, sys, pathlib; pathlib.Path(sys.argv[1], 'session').write_text(f'{os.getsid(0)} {os.getpid()}')"
    words: list[list[str]] = []
    begin = subprocess.Popen

    def popen(line: list[str], **how: object) -> subprocess.Popen[bytes]:
        words.append(line)
        return begin([sys.executable, "-c", code, str(folder)], **how)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(actions.subprocess, "Popen", popen)
    with opened(tmp_path) as board:
        status, answer = board.post("/api/act", {"run": "0/first", "name": "go"})
        assert "Output" not in board.ask("/run?run=0/first")[1]
    assert status == 200
    assert words == [[sys.executable, "-P", "-m", "mezzotint", "train", str(folder / "recipe.yaml")]]
    session, process = (folder / "session").read_text().split()
    assert session == process
    assert f"mezzotint train {folder}/recipe.yaml" in answer["message"]


def test_refused_command_shows_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "EARLY_EXIT_SECONDS", 30.0)
    folder = write_run(tmp_path / "first", ended="killed")
    (folder / "recipe.yaml").write_text("schema: 1\noptim: {lrr: 3}\n")
    with opened(tmp_path) as board:
        status, answer = board.post("/api/act", {"run": "0/first", "name": "go"})
    assert status == 409
    assert answer["code"] == "E1947"
    assert "did you mean optim.lr?" in answer["error"]
    assert not (folder / "logs").exists()


def test_output_of_a_failed_start_is_on_the_run_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "first", ended="stopped")
    (folder / "logs").mkdir()
    (folder / "logs" / "started.out").write_text("$ mezzotint train x\nan earlier start\n")
    begin = subprocess.Popen
    code = "import time; time.sleep(0.3); print('the data has changed'); raise SystemExit(2)"
    monkeypatch.setattr(
        actions.subprocess, "Popen", lambda line, **how: begin([sys.executable, "-S", "-c", code], **how)
    )
    monkeypatch.setattr(actions, "EARLY_EXIT_SECONDS", 0.0)
    with opened(tmp_path) as board:
        assert "earlier" not in board.ask("/run?run=0/first")[1]
        assert board.post("/api/act", {"run": "0/first", "name": "go"})[0] == 200
        until = time.monotonic() + 20
        while board.pages.started.is_running(folder):
            assert time.monotonic() < until
            time.sleep(0.02)
        page = board.ask("/run?run=0/first")[1]
    assert "the data has changed" in page
    assert "an earlier start" not in page
