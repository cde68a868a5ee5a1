"""The description of a run: `check` and `train` print it, the history, report and board show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.board.reading import runs
from mezzotint.cli import main
from mezzotint.reports.run_report import summarize_run
from mezzotint.run_folder import RunFolder

TITLES = ("model", "parameters", "data", "buckets", "batches", "length", "objective", "update", "computing", "saving")


def account_in(text: str) -> dict[str, str]:
    """The printed lines of the description, with wrapped lines joined."""
    account: dict[str, str] = {}
    title = ""
    for line in text.splitlines():
        head, _, rest = line.strip().partition(" ")
        if line.startswith(" " * 12) and title:
            account[title] += f" {line.strip()}"
        else:
            title = head if head in TITLES and head not in account and rest else ""
            if title:
                account[title] = rest.strip()
    return account


def test_check_train_report_and_board_describe_the_run_alike(
    finished_run: tuple[Path, list[str], str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, words, printed = finished_run
    monkeypatch.chdir(root)
    account = account_in(printed)
    assert tuple(account) == TITLES
    capsys.readouterr()
    assert main(["check", *words, "objective.loss=l1", f"run.folder={root / 'another'}"]) == 0
    assert account_in(capsys.readouterr().out) == account
    folder = RunFolder(root / "run")
    assert account_in("\n".join(f"  {line}" for line in summarize_run(folder))) == account
    shown = runs.description(runs.history(folder.path))
    assert dict(shown[: len(TITLES)]) == account
    assert f"  note       {shown[-1][1]}" in printed, "notes follow the description"


def test_history_without_description_shows_none() -> None:
    assert runs.description([]) == []
    assert runs.description([{"event": "started", "description": [["a"], "b", ["c", "d"]], "notes": 3}]) == [("c", "d")]
