"""Links that lead out of a run folder: the page and the report neither read nor write through them."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

from mezzotint.board import report
from mezzotint.board.acting import actions
from mezzotint.board.reading import images, runs
from support.board_runs import opened, write_image, write_run

SECRET = "the-text-of-somebody-else"
FILES = {
    "run.log": SECRET,
    "recipe.yaml": json.dumps({"schema": 1, "run": {"name": SECRET}}),
    "history.jsonl": json.dumps({"event": SECRET, "step": 1}),
    "environment.json": json.dumps({SECRET: SECRET}),
    "manifest.json": json.dumps({"data": {"samples": SECRET, "fingerprint": SECRET}, "weights": {SECRET: SECRET}}),
    "origin.json": json.dumps({"optim.lr": SECRET}),
    "metrics.jsonl": json.dumps({"step": 7, "loss": 1, f"lr/{SECRET}": 1}),
    "bad_steps.jsonl": json.dumps({"step": 123_456_789}),
    "lock": json.dumps({"pid": 1, "host": socket.gethostname(), "since": "2099-01-01T00:00:00Z"}),
}


def link_out(run: Path, outside: Path) -> None:
    """Replaces files and folders of a run by links to files outside."""
    outside.mkdir()
    for name, text in FILES.items():
        (outside / name).write_text(text + "\n")
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(outside / name)
    (outside / "samples" / "step-00000060").mkdir(parents=True)
    write_image(outside / "samples" / "step-00000060" / "00-raw.png", SECRET)
    for name in ("checkpoints", "exports"):
        (outside / name / f"step-00000099-{SECRET}").mkdir(parents=True)
        (outside / name / "step-00000098").mkdir()
    for name in ("samples", "checkpoints", "exports"):
        shutil.rmtree(run / name, ignore_errors=True)
        (run / name).symlink_to(outside / name)


PARTS = ("facts", "stored", "settings", "events", "log", "card")
PAGES = (
    "/", "/run?run=0/run", "/compare?run=0/run", "/api/curves?run=0/run", "/api/previews?run=0/run",
    "/recipe?base=run:0/run", "/data?run=0/run", "/api/image?run=0/run&file=samples/step-00000060/00-raw.png",
    "/file?run=0/run&file=samples/step-00000060/00-raw.png", *(f"/part/{part}?run=0/run" for part in PARTS),
)  # fmt: skip


def test_pages_and_report_do_not_follow_links(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "run")
    link_out(run, tmp_path / "outside")
    text, left_out = report.render_run(run)
    for word in (SECRET, "step-00000098", "123,456,789", "data:image"):
        assert word not in text.replace("data:image/svg", "")
    assert {f"{name}: a link that leads out of the run folder" for name in (*FILES, "samples", "exports")} < {*left_out}
    with opened(tmp_path / "runs") as board:
        for page in PAGES:
            status, text, _ = board.ask(page)
            assert status in (200, 404), page
            assert SECRET not in text, page
            assert "step-00000098" not in text, page
        assert ">stopped<" in board.ask("/part/facts?run=0/run")[1], "the linked lock is not read"


def test_output_of_a_start_is_neither_read_nor_written_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "started.out").write_text(f"$ mezzotint\n{SECRET}\n")
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "logs").symlink_to(tmp_path / "outside")
    monkeypatch.setattr(actions.subprocess, "Popen", lambda *words, **how: pytest.fail("a process was started"))
    with opened(tmp_path / "runs") as board:
        page = board.ask("/run?run=0/mine")[1]
        assert "failed" in page
        assert SECRET not in page
        status, answer = board.post("/api/start", {"base": "tiny_cpu", "changes": {"run.folder": str(run)}})
        assert (status, answer["code"]) == (409, "E1160")
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["started.out"]
    assert (tmp_path / "outside" / "started.out").read_text() == f"$ mezzotint\n{SECRET}\n"


def test_only_links_that_stay_in_the_run_are_followed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (tmp_path / "outside").mkdir()
    write_image(tmp_path / "outside" / "00-raw.png", SECRET)
    (run / "samples" / "step-00000070").symlink_to(tmp_path / "outside")
    (run / "samples" / "step-00000060" / "02-raw.png").symlink_to(tmp_path / "outside" / "00-raw.png")
    (run / "exports").mkdir()
    (run / "exports" / "step-00000070").symlink_to(tmp_path / "outside")
    (run / "samples" / "step-00000080").symlink_to("step-00000060")
    shown = images.previews(run)
    assert shown.steps == [0, 30, 60, 80]
    assert SECRET not in shown.prompts.values()
    assert SECRET not in report.render_run(run)[0]
    assert runs.exports(run) == []
    assert len(shown.drawn) == 16, "two prompts, two weights, four steps"


@pytest.mark.parametrize(
    ("folder", "name", "pid"), [("requests", "stop", "1"), ("requests", "draw", "-1"), ("logs", "go", "null")]
)
def test_buttons_do_not_write_through_links(folder: str, name: str, pid: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "run", ended=None)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / name).write_text("mine")
    (run / folder).symlink_to(tmp_path / "outside")
    facts = f'{{"pid": {pid}, "host": "{socket.gethostname()}", "since": "2099-01-01T00:00:00Z"}}'
    (run / "lock").write_text(facts)
    with opened(tmp_path / "runs") as board:
        status, answer = board.post("/api/act", {"run": "0/run", "name": name})
    assert (status, answer["code"]) == (409, "E1946" if pid == "-1" else "E1160"), "no process has the number -1"
    assert [path.name for path in (tmp_path / "outside").iterdir()] == [name]
    assert (tmp_path / "outside" / name).read_text() == "mine"


def test_run_with_a_linked_recipe_cannot_be_resumed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", ended="stopped")
    assert [one.name for one in actions.list_actions(run)] == ["go"]
    (run / "recipe.yaml").rename(tmp_path / "recipe.yaml")
    (run / "recipe.yaml").symlink_to(tmp_path / "recipe.yaml")
    assert actions.list_actions(run) == []
