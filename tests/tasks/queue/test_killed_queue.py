"""A queue on a machine that is killed: started again, it resumes exactly what ran."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from mezzotint.cli import main
from mezzotint.run_folder import RunFolder
from mezzotint.tasks.queue.entries import Queue
from support.run_folders import tensors_of

STEPS = 60
SETTINGS = (
    "data.path=shapes", "data.resolution=32", "data.batch_size=2", "optim.accumulation=1", f"run.steps={STEPS}",
    'run.save.every=["4 steps"]', "run.export.every=null",
)  # fmt: skip


def start(folder: Path) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-P", "-m", "mezzotint", "queue", "run", "--devices=cpu"]
    with open(folder / "said.txt", "ab") as said:
        return subprocess.Popen(line, cwd=folder, stdout=said, stderr=said)


@pytest.mark.slow
@pytest.mark.faults
def test_queue_of_five_with_one_that_fails_resumes_bit_exactly_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in "abcde":
        more = ["data.path=empty"] if name == "b" else []
        steps = [] if name == "c" else ["run.steps=2"]
        assert main(["queue", "add", "tiny_cpu", *SETTINGS, f"run.name={name}", *more, *steps]) == 0
    queue = Queue(tmp_path / "queue")
    assert main(["train", "tiny_cpu", *SETTINGS, "run.name=undisturbed"]) == 0

    run = start(tmp_path)
    until = time.monotonic() + 300
    checkpoints = tmp_path / "runs" / "c" / "checkpoints"
    while not any(checkpoints.glob("step-*/manifest.json")):
        assert time.monotonic() < until, (tmp_path / "said.txt").read_text()
        time.sleep(0.02)
    training = json.loads((tmp_path / "runs" / "c" / "lock").read_text())["pid"]
    os.kill(training, signal.SIGSTOP)  # both end at the same moment, as they do when the power is cut
    os.kill(run.pid, signal.SIGKILL)
    os.kill(training, signal.SIGKILL)
    run.wait()
    while queue.entry("c").state == "running":  # the system ends it a moment later
        assert time.monotonic() < until
        time.sleep(0.02)

    entries = {entry.name: entry for entry in queue.entries()}
    states = {name: entry.state for name, entry in entries.items()}
    assert states == {"a": "finished", "b": "failed", "c": "waiting", "d": "waiting", "e": "waiting"}
    assert "E12" in entries["b"].reason
    assert entries["c"].is_begun

    assert start(tmp_path).wait(timeout=300) == 2, (tmp_path / "said.txt").read_text()
    states |= {"c": "finished", "d": "finished", "e": "finished"}
    assert {entry.name: entry.state for entry in queue.entries()} == states
    assert queue.entry("b").reason == entries["b"].reason
    events = {name: [event["event"] for event in RunFolder(tmp_path / "runs" / name).events()] for name in "abcde"}
    assert "resumed" in events["c"]
    assert events["c"].count("started") == 2
    assert [events[name].count("started") for name in "abde"] == [1, 0, 1, 1]  # what had ended was not started again
    mine, other = tensors_of(tmp_path / "runs" / "c"), tensors_of(tmp_path / "runs" / "undisturbed")
    assert mine.keys() == other.keys()
    assert all(torch.equal(mine[name], other[name]) for name in other)
