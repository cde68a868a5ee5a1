"""Run folders: locks, files, links and history."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint import durable
from mezzotint.errors import CheckpointError, RecipeError, StorageError
from mezzotint.reports.curves import read_metrics
from mezzotint.reports.run_report import summarize_run
from mezzotint.run_folder import RunFolder
from mezzotint.training.callbacks.metrics_log import Lines
from mezzotint.training.callbacks.progress_line import ConsoleLog

HOLD = """
import sys, time
from pathlib import Path
from mezzotint.run_folder import RunFolder
folder = RunFolder(Path(sys.argv[1])).open()
lock = folder.lock()
print("held", flush=True)
time.sleep(60)
"""


def test_second_run_is_refused_and_a_lock_of_a_dead_one_is_free(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "run")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    folder = RunFolder(tmp_path / "run").open()
    with pytest.raises(CheckpointError, match=f"process {holder.pid} on .* is writing here"):
        folder.lock()
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with folder.lock():
        pass


def test_sweep_removes_partial_folders_and_keeps_user_files(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run").open()
    (folder.checkpoints / ".partial-step-00000004-abcd").mkdir()
    (folder.exports / ".partial-final").mkdir()
    (folder.checkpoints / ".best.1.partial").symlink_to(tmp_path)
    (folder.path / "notes.txt").write_text("mine")
    (folder.path / ".gitignore").write_text("*")
    assert folder.sweep() == [".best.1.partial", ".partial-final", ".partial-step-00000004-abcd"]
    assert not (folder.checkpoints / ".best.1.partial").is_symlink()
    assert (folder.path / "notes.txt").exists()
    assert (folder.path / ".gitignore").exists()


def test_refused_start_leaves_no_new_files(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name in ("runs/fox", "mine", "fox"):
        folder = RunFolder(tmp_path / name).open()
        with folder.lock():
            folder.log.write_text("examining images")
            folder.discard_if_unused()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"], "an empty folder of the user is kept"
    used = RunFolder(tmp_path / "runs" / "fox").open()
    with used.lock():
        used.record("started")
        used.discard_if_unused()
    assert used.samples.is_dir()
    (used.path / "samples").rmdir()
    again = RunFolder(used.path).open()
    with again.lock():
        again.discard_if_unused()
    assert not used.samples.exists()
    assert used.history.exists()


def test_history_survives_a_torn_line(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run").open()
    folder.record("started", step=0)
    with open(folder.history, "a") as file:
        file.write('{"event": "sto')
    folder.record("started", step=3)
    assert [event["step"] for event in folder.events()] == [0, 3]
    assert folder.attempts() == 2


def test_run_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(StorageError, match="is a file"):
        RunFolder(tmp_path / "run").open()


@pytest.mark.parametrize("name", ["file/run", "n" * 300])
def test_path_where_no_folder_can_be_created_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="no folder can be created there") as caught:
        RunFolder(tmp_path / name).open()
    assert caught.value.code == "E1703"


def test_small_file_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    durable.write_json(path, {"a": 1})
    durable.write_json(path, {"a": 2})
    assert path.read_text() == '{\n "a": 2\n}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["value.json"]


def test_full_disk_is_reported_with_bytes(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match=r"the disk is full, 10 bytes are needed, [\d,]+ are free"),
        durable.storage_errors(tmp_path / "x", needed=10),
    ):
        raise OSError(28, "No space left on device")


def test_disk_failure_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="the disk failed"), durable.storage_errors(tmp_path / "x"):
        raise OSError(errno.EIO, "Input/output error")


def test_lock_whose_file_was_deleted_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last holder deletes the lock file: a process that opened it before holds a lock that others do not see."""
    folder, flock, calls = RunFolder(tmp_path / "run").open(), fcntl.flock, []

    def late(file: object, how: int) -> None:
        calls.append(how)
        if len(calls) == 1:
            (folder.path / "lock").unlink()
        flock(file, how)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", late)
    with folder.lock(), pytest.raises(CheckpointError, match="is writing here"):
        folder.lock()
    assert len(calls) == 3


def test_failed_log_does_not_block_on_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    lines = Lines(tmp_path / "metrics.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(durable, "open_own", refuse)
        with pytest.raises(StorageError):
            lines.add({"step": 1})
    os.mkfifo(tmp_path / "metrics.jsonl")
    lines.add({"step": 2})


def test_run_folder_that_is_not_utf_8_is_refused_and_not_created(tmp_path: Path) -> None:
    place = Path(os.fsdecode(bytes(tmp_path / "run") + b"\xff"))
    with pytest.raises(RecipeError, match="not UTF-8") as caught:
        RunFolder(place).open()
    assert caught.value.code == "E1007"
    assert not place.exists()


OURS = ("lock", "run.log", "history.jsonl", "metrics.jsonl", "bad_steps.jsonl")


def write_to(folder: RunFolder, name: str) -> None:
    """Writes to one of the files of a run."""
    match name:
        case "lock":
            folder.lock().release()
        case "run.log":
            ConsoleLog(io.StringIO(), folder.log).say("hello")
        case "metrics.jsonl":
            Lines(folder.metrics).add({"step": 1})
        case "history.jsonl":
            folder.record("started", step=0)
        case "bad_steps.jsonl":
            durable.append_line(folder.bad_steps, {"step": 1})
        case _:
            raise AssertionError(name)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("kind", ["link", "loose link", "pipe", "folder"])
def test_run_writes_only_to_regular_files(name: str, kind: str, tmp_path: Path) -> None:
    """Run folders may be untrusted: the target of a link in them does not belong to the run."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    folder = RunFolder(tmp_path / "run").open()
    place = folder.path / name
    match kind:
        case "link":
            place.symlink_to(precious)
        case "loose link":
            place.symlink_to(tmp_path / "nowhere")
        case "pipe":
            os.mkfifo(place)
        case _:
            place.mkdir()
    with pytest.raises(CheckpointError, match=name) as caught:
        write_to(folder, name)
    assert caught.value.code == "E1160"
    assert precious.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link to itself"])
def test_irregular_history_is_refused_before_it_is_read(kind: str, tmp_path: Path) -> None:
    """Reading does not block, and is refused like writing; also for metrics and bad steps."""
    folder = RunFolder(tmp_path / "run").open()
    readers: dict[Path, Callable[[], object]] = {
        folder.history: folder.attempts,
        folder.metrics: lambda: read_metrics(folder),
        folder.bad_steps: lambda: summarize_run(folder),
    }
    for place, read in readers.items():
        match kind:
            case "pipe":
                os.mkfifo(place)
            case "device":
                place.symlink_to("/dev/zero")
            case "folder":
                place.mkdir()
            case _:
                place.symlink_to(place.name)
        with pytest.raises(CheckpointError, match=rf"{place.name}: is a .*, and a run writes") as caught:
            read()
        assert caught.value.code == "E1160"
        place.rmdir() if kind == "folder" else place.unlink()
    assert folder.events() == []


@pytest.mark.parametrize("name", OURS)
def test_regular_file_of_a_run_is_appended_to(name: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run").open()
    write_to(folder, name)
    first = (folder.path / name).read_bytes()
    write_to(folder, name)
    assert (folder.path / name).read_bytes().startswith(first)
    assert name == "lock" or len(first.splitlines()) == 1


def test_new_file_never_replaces_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for taken in ("file", "link"):
        path = tmp_path / taken
        path.write_text("mine") if taken == "file" else path.symlink_to("nowhere")
        with pytest.raises(RecipeError, match="was not changed") as caught:
            durable.write_new(path, "ours")
        assert caught.value.code == "E1014"
    assert (tmp_path / "file").read_text() == "mine"

    def meanwhile(source: Path, target: Path) -> None:
        target.write_text("theirs")
        raise FileExistsError(errno.EEXIST, "File exists", str(target))

    monkeypatch.setattr(os, "link", meanwhile)
    with pytest.raises(RecipeError, match="was not changed"):
        durable.write_new(tmp_path / "late", "ours")
    assert (tmp_path / "late").read_text() == "theirs"

    def unknown(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", unknown)
    durable.write_new(tmp_path / "new", "ours")
    assert (tmp_path / "new").read_text() == "ours"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "late", "link", "new"]


RUN_FOLDERS = ("checkpoints", "exports", "samples", "logs", "requests", "cache")


@pytest.mark.parametrize("name", [*RUN_FOLDERS, "samples/step-00000000", "exports/step-00000001"])
def test_link_out_of_the_run_is_refused_unless_its_target_is_allowed(name: str, tmp_path: Path) -> None:
    (tmp_path / "out" / "inner").mkdir(parents=True)
    (tmp_path / "run" / name).parent.mkdir(parents=True)
    for target in ("out", "out/inner", "out/is-not-there"):
        (tmp_path / "run" / name).symlink_to(tmp_path / target)
        for others in ((), (tmp_path / "out" / "inne",)):
            with pytest.raises(CheckpointError, match=f"{name}: is a link to {tmp_path}/{target}, outside") as caught:
                RunFolder(tmp_path / "run", others).refuse_links()
            assert caught.value.code == "E1160"
        RunFolder(tmp_path / "run", (tmp_path / "other", tmp_path / "out")).refuse_links()
        (tmp_path / "run" / name).unlink()


def test_links_inside_a_run_and_to_a_run_folder_are_accepted(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run").open()
    (folder.checkpoints / "step-00000001").mkdir()
    (folder.checkpoints / "best").symlink_to("step-00000001")
    (folder.path / "weights").symlink_to("exports")
    (folder.path / "mine").symlink_to(tmp_path)
    (folder.samples / "grid.png").symlink_to(tmp_path / "grid.png")
    (tmp_path / "grid.png").write_text("replaced, never followed")
    (tmp_path / "run-2").symlink_to("run")
    for name in ("run", "run-2"):
        RunFolder(tmp_path / name).refuse_links()


def test_linked_history_is_not_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run").open()
    (tmp_path / "history.jsonl").write_text('{"event": "started"}\n')
    folder.history.symlink_to(tmp_path / "history.jsonl")
    with pytest.raises(CheckpointError, match="is a link"):
        folder.events()
