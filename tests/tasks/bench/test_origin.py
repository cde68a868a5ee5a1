"""The origin of benchmark results: command, date, machine and commit, without private paths."""

from __future__ import annotations

import os
import platform
import re
from contextlib import closing
from pathlib import Path

import pytest

from mezzotint.runtimes.base import Launch, open_runtime
from mezzotint.settings.sections.run import RunSettings
from mezzotint.tasks.bench import origin
from mezzotint.tasks.proof import commit


def test_origin_states_command_date_machine_and_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "current_commit", lambda: "c" * 40)
    monkeypatch.setattr(origin.time, "gmtime", lambda: (2026, 1, 2, 3, 4, 5, 4, 2, 0))
    monkeypatch.setattr(origin, "processor", lambda: "a processor")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    words = ["photos", "data.path=/home/me/my photos", "--steps=3", "~/recipes/own.yaml", "data.cache.path=s3://b/c"]
    with closing(open_runtime(RunSettings(device="cpu"), Launch())) as runtime:
        said = origin.origin(words, runtime, Launch())
    assert said["command"] == [
        "mezzotint", "bench", "photos", "data.path=…/my photos", "--steps=3", "…/own.yaml", "data.cache.path=s3://b/c",
    ]  # fmt: skip
    assert said["date"] == "2026-01-02T03:04:05Z"
    assert said["processor"] == {"model": "a processor", "cores": os.cpu_count()}
    assert said["environment"]["commit"] == "c" * 40
    assert said["environment"]["openmp"]["OMP_WAIT_POLICY"] == "passive"


def test_processor_name_comes_from_the_system(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: EPYC 9B14 \nmodel name\t: another\n")
    assert origin.processor(tmp_path / "cpuinfo") == "EPYC 9B14"
    (tmp_path / "cpuinfo").write_text("Features\t: fp asimd\n")
    assert origin.processor(tmp_path / "cpuinfo") == (platform.processor() or platform.machine())
    assert re.search(r"\w", origin.processor(tmp_path / "none"))
