"""`mezzotint queue add`, `list`, `pause`, `resume`, `move` and `remove`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mezzotint.cli import main
from mezzotint.run_folder import RunFolder
from mezzotint.settings.reading.read import locate_all_paths, read
from mezzotint.tasks.queue import running
from mezzotint.tasks.queue.entries import Queue

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.chdir(tmp_path)
    return Queue(Path("queue"))


def add(*names: str) -> None:
    for name in names:
        assert main(["queue", "add", "mini", "data.path=shapes", f"run.name={name}"]) == 0


def names(queue: Queue) -> list[str]:
    return [entry.name for entry in queue.entries()]


def test_entry_gives_the_same_run_from_any_folder(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()
    text = "schema: 1\ndata: {path: photos, cache: {path: cache}}\nsample: {guidance: 7.5}\n"
    (tmp_path / "fox.yaml").write_text(text)
    here = locate_all_paths(read("fox.yaml", ["optim.lr=1e-6", "model.path=mezzotint-mini", "run.name=fox"]))
    line = ["queue", "add", "fox.yaml", "optim.lr=1e-6", "model.path=mezzotint-mini", "run.name=fox"]
    assert main(line) == 0
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    added = read(queue.folder / "fox.yaml")
    assert added.recipe.run.folder == tmp_path / "runs" / "fox"
    assert added.recipe.data.cache.path == tmp_path / "cache"
    assert added.recipe.model == here.model
    assert added.recipe.data.paths == here.data.paths
    assert added.recipe.optim == here.optim
    assert "sample.guidance" in added.origin, "what was written stays written, though it may be the default"
    assert "objective.snr" not in (queue.folder / "fox.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["mini", "data.path=shapes", "optim.lr=fast"], "E1002"),
        (["mini", "data.path=nothing-here"], "E1201"),
        (["mini", "data.path=shapes", "model.path=nothing-here"], "E1401"),
        (["mini", "data.path=shapes", "run.name=a"], "E1961"),
        (["mini", "data.path=shapes", "run.folder=runs/../runs/a"], "E1961"),
        (["no-such-recipe"], "E1011"),
        ([], "E1012"),
        (["mini", "--json"], "E1012"),
        (["--as", "nobody", "--", "x"], "E1015"),
    ],
)
def test_recipe_that_cannot_run_is_not_added(queue: Queue, words: list[str], code: str, capsys: Captured) -> None:
    add("a")
    assert main(["queue", "add", *words]) == 2
    assert code in capsys.readouterr().err
    assert names(queue) == ["a"]


def test_line_of_another_trainer_is_added(queue: Queue, tmp_path: Path) -> None:
    line = ["--pretrained_model_name_or_path=mezzotint-mini", "--train_data_dir=shapes", "--output_dir=out"]
    assert main(["queue", "add", "--as", "diffusers-sd", "--", *line]) == 0
    (entry,) = queue.entries()
    assert entry.run == tmp_path / "out"


def test_run_folder_is_added_to_be_resumed(queue: Queue, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "old" / "fox").open()
    run.recipe.write_text(
        "schema: 1\nmodel: {path: mezzotint-mini}\ndata: {path: shapes}\nrun: {linked_folders: [/]}\n"
    )
    assert main(["queue", "add", "old/fox"]) == 0
    assert queue.entry("fox").run == run.path
    assert read(queue.folder / "fox.yaml").recipe.run.linked_folders == ()  # not allowed by the user


def test_list_shows_states_in_order(queue: Queue, capsys: Captured) -> None:
    assert main(["queue", "list"]) == 0
    assert "is empty" in capsys.readouterr().out
    add("a", "b", "c")
    (queue.folder / "d.yaml").write_text("schema: 1\nrun: {steps: many}\n")
    queue.pause("b")
    queue.record(queue.entry("c"), "failed", "error[E1]: \x1b[31m no")
    capsys.readouterr()
    assert main(["queue", "list"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[:3] for row in rows] == [
        ["1", "a", "waiting"], ["2", "b", "paused"], ["3", "c", "failed"], ["4", "d", "invalid"],
    ]  # fmt: skip
    assert rows[2].endswith("error[E1]: \\x1b[31m no")
    assert "E1002" in rows[3]
    assert main(["queue", "list", "--json"]) == 0
    assert [row["state"] for row in json.loads(capsys.readouterr().out)] == ["waiting", "paused", "failed", "invalid"]


def test_running_entry_shows_its_step_and_is_not_removed(queue: Queue, capsys: Captured) -> None:
    add("a")
    run = RunFolder(queue.entry("a").run or Path()).open()
    run.record("started", recipe=queue.entry("a").digest, steps=20)
    run.metrics.write_text('{"step": 7, "loss": 1}\n{"step": 8, "lo')
    with run.lock():
        entry = queue.entry("a")
        assert (entry.state, entry.step, entry.steps) == ("running", 7, 20)
        assert main(["queue", "remove", "a"]) == 2
        assert "E1960" in capsys.readouterr().err
        queue.pause("a")
        assert (run.requests / "stop").exists()  # nobody else stops it
        assert queue.entry("a").state == "running"
    assert queue.entry("a").state == "paused"


def test_entries_are_moved(queue: Queue, capsys: Captured) -> None:
    add("a", "b", "c")
    assert main(["queue", "move", "c", "first"]) == 0
    assert names(queue) == ["c", "a", "b"]
    assert main(["queue", "move", "c", "2"]) == 0
    assert names(queue) == ["a", "c", "b"]
    assert main(["queue", "move", "a", "last"]) == 0
    assert main(["queue", "move", "c", "99"]) == 0
    assert names(queue) == ["b", "a", "c"]
    for words in (["c", "0"], ["c", "-1"], ["c", "up"], ["x", "1"], ["c"]):
        assert main(["queue", "move", *words]) == 2
    assert names(queue) == ["b", "a", "c"]
    (queue.folder / "order.txt").write_bytes(b"c\n\xff\n../x\n\nc\n")
    (queue.folder / "0.yaml").write_text("schema: 1\n")
    assert names(queue) == ["c", "0", "a", "b"]  # what the order lacks comes last


def test_removed_entry_leaves_its_run_and_its_recipe(queue: Queue) -> None:
    add("a")
    run = queue.entry("a").run
    assert run is not None
    run.mkdir(parents=True)
    assert main(["queue", "remove", "a"]) == 0
    add("a")
    assert main(["queue", "remove", "a"]) == 0
    assert names(queue) == []
    assert run.is_dir()
    assert len(list((queue.folder / "removed").iterdir())) == 2


def test_pause_and_resume_are_refused_in_other_states(queue: Queue, capsys: Captured) -> None:
    add("a")
    assert main(["queue", "resume", "a"]) == 2
    assert main(["queue", "pause", "a"]) == 0
    assert main(["queue", "pause", "a"]) == 2
    assert main(["queue", "resume", "a"]) == 0
    assert queue.entry("a").state == "waiting"
    assert main(["queue", "pause", "../../a"]) == 2
    assert main(["queue", "pause", "b"]) == 2
    assert "did you mean a?" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["state", "output", "locks", "removed"])
def test_folder_that_leads_elsewhere_is_refused(queue: Queue, tmp_path: Path, name: str, capsys: Captured) -> None:
    (tmp_path / "elsewhere").mkdir()
    queue.folder.mkdir()
    (queue.folder / name).symlink_to(tmp_path / "elsewhere")
    for words in (["add", "mini", "data.path=shapes"], ["list"], ["run", "--devices=cpu"]):
        assert main(["queue", *words]) == 2
        assert "E1962" in capsys.readouterr().err
    assert not os.listdir(tmp_path / "elsewhere")


def test_hostile_run_name_stays_in_the_folder(queue: Queue) -> None:
    for folder in ("../x/..data", "a\nb", "-rf", "é" * 120):
        assert main(["queue", "add", "mini", "data.path=shapes", f"run.folder={json.dumps(folder)}"]) == 0
    entries = queue.entries()
    assert len(entries) == 4
    assert all(entry.path.parent == queue.folder and entry.state == "waiting" for entry in entries)


@pytest.mark.parametrize(
    "words", [[], ["ad"], ["list", "x"], ["list", "--devices=0"], ["run", "a"], ["run", "--devices=x"], ["pause"]]
)
def test_wrong_command_lines_are_refused(queue: Queue, words: list[str], capsys: Captured) -> None:
    assert main(["queue", *words]) == 2
    assert "E1012" in capsys.readouterr().err


def test_status_tells_whether_something_failed(queue: Queue, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LOOK_SECONDS", 0.01)
    assert main(["queue", "run", "--devices=cpu"]) == 0
    add("a")
    queue.record(queue.entry("a"), "failed", "no")
    assert main(["queue", "run", "--devices=cpu"]) == 2
    assert "failed: a" in capsys.readouterr().out


def test_changes_wait_for_each_other(queue: Queue) -> None:
    add("a", "b")
    children = []
    for name in "ab":
        child = os.fork()
        if not child:
            for number in range(20):
                queue.move(name, str(1 + number % 2))
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert sorted(names(queue)) == ["a", "b"]
    assert sorted((queue.folder / "order.txt").read_text().split()) == ["a", "b"]
