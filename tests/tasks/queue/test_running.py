"""`mezzotint queue run`, with trainings that are scripts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.errors import RecipeError, Stopped, StorageError
from mezzotint.settings.reading.read import read
from mezzotint.tasks.queue import running
from mezzotint.tasks.queue.entries import Queue
from mezzotint.tasks.queue.running import QueueRun, parse_devices, visible_devices

Script = Callable[[str], None]


def put(queue: Queue, *names: str) -> None:
    for name in names:
        queue.folder.mkdir(exist_ok=True)
        (queue.folder / f"{name}.yaml").write_text(f"schema: 1\nrun: {{name: {name}}}\n")


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    queue = Queue(tmp_path / "queue")
    put(queue, "a", "b", "c")
    return queue


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """`script(code)`: what a training runs; `name` is its entry's."""
    monkeypatch.setattr(running, "LOOK_SECONDS", 0.02)
    begin = subprocess.Popen

    def replace(code: str) -> None:
        def popen(line: list[str], **how: Any) -> Any:
            head = "import os, pathlib, signal, sys, time\nname = pathlib.Path(sys.argv[2]).stem\n"
            return begin([sys.executable, "-S", "-c", head + code, *line[4:]], **how)

        monkeypatch.setattr(running.subprocess, "Popen", popen)

    return replace


def states(queue: Queue) -> dict[str, str]:
    return {entry.name: entry.state for entry in queue.entries()}


def test_failure_is_kept_with_its_reason_and_the_rest_goes_on(queue: Queue, script: Script) -> None:
    script("print('error[E1234]: no\\nresume with: x'); sys.exit(3 if name == 'b' else 0)")
    lines: list[str] = []
    failed = QueueRun(queue, ["cpu"], say=lines.append).run()
    assert [entry.name for entry in failed] == ["b"]
    assert failed[0].reason == "error[E1234]: no (status 3)"
    assert states(queue) == {"a": "finished", "b": "failed", "c": "finished"}
    assert "b: failed; error[E1234]: no (status 3)" in lines
    script("(pathlib.Path(name)).touch()")
    QueueRun(queue, ["cpu"], say=lines.append).run()
    assert not (queue.base / "b").exists()  # nothing is tried again by itself
    queue.resume("b")
    assert QueueRun(queue, ["cpu"], say=lines.append).run() == []
    assert (queue.base / "b").exists()
    assert not (queue.base / "a").exists()


def test_changed_recipe_waits_again(queue: Queue, script: Script) -> None:
    script("")
    QueueRun(queue, ["cpu"], say=str).run()
    (queue.folder / "a.yaml").write_text("schema: 1\nrun: {name: a, steps: 9}\n")
    assert states(queue) == {"a": "waiting", "b": "finished", "c": "finished"}


def test_devices_train_at_once_and_each_sees_only_its_own(queue: Queue, script: Script) -> None:
    script(
        "open(f'{name}.env', 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "other = {'a': 'b', 'b': 'a'}.get(name)\n"
        "while other and not os.path.exists(f'{other}.env'): time.sleep(0.01)"
    )
    QueueRun(queue, ["0", "5"], say=str).run()
    assert {(queue.base / f"{name}.env").read_text() for name in "ab"} == {"0", "5"}


def test_two_queue_runs_start_nothing_twice(queue: Queue, script: Script) -> None:
    put(queue, *"defgh")
    script("open(f'{name}.starts', 'a').write('x'); time.sleep(0.05)")
    child = os.fork()
    if not child:
        QueueRun(queue, ["0", "1"], say=str).run()
        os._exit(0)
    QueueRun(queue, ["0", "1"], say=str).run()
    assert os.waitpid(child, 0)[1] == 0
    assert [(queue.base / f"{name}.starts").read_text() for name in "abcdefgh"] == ["x"] * 8


def test_training_that_outlives_its_queue_run_keeps_its_entry_and_its_device(queue: Queue, script: Script) -> None:
    script("open('pid', 'w').write(str(os.getpid())); time.sleep(60 if name == 'a' else 0)")
    child = os.fork()
    if not child:
        QueueRun(queue, ["0"], say=str).run()
    pid = queue.base / "pid"
    while not pid.exists() or not pid.read_text():
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert queue.claim("a") is None
    assert queue.claim_device("0") is None
    os.kill(int(pid.read_text()), signal.SIGKILL)
    while (lock := queue.claim("a")) is None:
        time.sleep(0.01)
    lock.release()
    script("")
    assert QueueRun(queue, ["0"], say=str).run() == []
    assert set(states(queue).values()) == {"finished"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_is_passed_on_and_what_ran_is_first_again(queue: Queue, script: Script, number: int) -> None:
    script(
        "def stop(n, f): open('seen', 'w').write(str(n)); sys.exit(128 + n)\n"
        "signal.signal(signal.SIGTERM, stop); signal.signal(signal.SIGINT, stop)\n"
        f"os.kill(os.getppid(), {int(number)}); time.sleep(60)"
    )
    with pytest.raises(Stopped) as stopped:
        QueueRun(queue, ["cpu"], say=str).run()
    assert stopped.value.signal_number == number
    assert (queue.base / "seen").read_text() == str(int(number))
    assert states(queue) == {"a": "waiting", "b": "waiting", "c": "waiting"}


def test_pausing_stops_a_training_and_the_next_one_starts(queue: Queue, script: Script) -> None:
    script("open(f'{name}.ran', 'w'); time.sleep(60 if name == 'a' else 0)")

    def pause() -> None:
        while not (queue.base / "a.ran").exists():
            time.sleep(0.01)
        queue.pause("a")

    thread = threading.Thread(target=pause)
    thread.start()
    assert QueueRun(queue, ["cpu"], say=str).run() == []
    thread.join()
    assert states(queue) == {"a": "paused", "b": "finished", "c": "finished"}


def test_training_stopped_by_somebody_else_is_paused(queue: Queue, script: Script) -> None:
    script("sys.exit(143 if name == 'a' else 0)")
    assert QueueRun(queue, ["cpu"], say=str).run() == []
    assert states(queue)["a"] == "paused"
    assert "stopped" in queue.entry("a").reason


def test_killed_training_is_resumed_while_its_checkpoints_advance(queue: Queue, script: Script) -> None:
    script(
        "run = pathlib.Path('runs', name, 'checkpoints'); n = len(list(run.glob('*'))) if run.exists() else 0\n"
        "if name == 'a' and n == 3: sys.exit(0)\n"
        "if name == 'a': (run / f'step-{n:08}').mkdir(parents=True)\n"
        "if name != 'c': os.kill(os.getpid(), 9)"
    )
    failed = QueueRun(queue, ["cpu"], say=str).run()
    assert [(entry.name, entry.reason) for entry in failed] == [("b", "killed by signal 9 (status 137)")]
    assert states(queue)["a"] == "finished"


def test_damaged_entry_is_reported_once_and_the_rest_goes_on(queue: Queue, script: Script) -> None:
    script("")
    (queue.folder / "b.yaml").write_text("schema: 1\nrun: [\n")
    (queue.folder / "x\n\x1b[31m.yaml").write_text("schema: 1\n")
    (queue.folder / "link.yaml").symlink_to("/etc/passwd")
    (queue.folder / "folder.yaml").mkdir()
    lines: list[str] = []
    failed = QueueRun(queue, ["cpu"], say=lines.append).run()
    assert {entry.name for entry in failed} == {"b", "x\n\x1b[31m", "link", "folder"}
    assert all(entry.state == "invalid" for entry in failed)
    assert sum("left out" in line for line in lines) == 4
    assert not any("root:" in line for line in lines)
    assert states(queue)["a"] == states(queue)["c"] == "finished"


def test_output_that_leads_elsewhere_is_not_written(queue: Queue, script: Script) -> None:
    script("")
    (queue.folder / "output").mkdir()
    (queue.base / "mine").write_text("mine")
    queue.output_file("a").symlink_to(queue.base / "mine")
    assert [entry.name for entry in QueueRun(queue, ["cpu"], say=str).run()] == ["a"]
    assert (queue.base / "mine").read_text() == "mine"
    assert "E1160" in queue.entry("a").reason


def test_state_that_cannot_be_written_ends_nothing(
    queue: Queue, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script("sys.exit(2)")

    def refuse(*_: Any) -> None:
        raise StorageError("the disk is full", code="E1701")

    monkeypatch.setattr(Queue, "record", refuse)
    lines: list[str] = []
    failed = QueueRun(queue, ["cpu"], say=lines.append).run()
    assert [entry.name for entry in failed] == ["a", "b", "c"]
    assert sum("the disk is full" in line for line in lines) == 3


def test_run_that_has_finished_is_not_trained_again(queue: Queue, script: Script) -> None:
    """Its `queue run` was killed before it could record that."""
    script("open(name, 'w')")
    run = queue.base / "runs" / "a"
    run.mkdir(parents=True)
    digest = read(queue.folder / "a.yaml").digest
    events = [{"event": "started", "recipe": digest, "steps": 5}, {"event": "finished"}]
    (run / "history.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    QueueRun(queue, ["cpu"], say=str).run()
    assert not (queue.base / "a").exists()
    assert (queue.base / "b").exists()


def test_waiting_queue_run_trains_what_is_added_later(queue: Queue, script: Script) -> None:
    script("os.kill(os.getppid(), 15) if name == 'late' else None")
    run = QueueRun(queue, ["cpu"], waits=True, say=lambda line: put(queue, "late") if line == "c: finished" else None)
    with pytest.raises(Stopped):
        run.run()
    assert queue.output_file("late").exists()


@pytest.mark.parametrize("text", ["", "x", "0,0", "0;1", "-1", "cuda:0"])
def test_wrong_devices_are_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="--devices"):
        parse_devices(text)


def test_devices_are_counted_among_those_that_may_be_used() -> None:
    assert parse_devices("0, 1,GPU-ab,cpu") == ["0", "1", "GPU-ab", "cpu"]
    assert [visible_devices(device, {}) for device in ("0", "3", "GPU-ab", "cpu")] == ["0", "3", "GPU-ab", ""]
    allowed = {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert [visible_devices(device, allowed) for device in ("0", "1", "cpu")] == ["2", "3", ""]
    with pytest.raises(RecipeError, match="allows 2 GPUs"):
        visible_devices("2", allowed)
