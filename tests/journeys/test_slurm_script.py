"""The script for Slurm in docs/guides/scaling-out.md, with replacements of Slurm and torchrun."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/guides/scaling-out.md"
STAND_INS = {
    "srun": 'exec "$@"',
    "scontrol": '[ "$1" = show ] && printf "node1\\nnode2\\n" || echo "$@" >> said',
    "torchrun": 'echo "$@" > line; trap "sleep 0.3; echo saved >> said; exit 1" TERM; touch begun\n'
    "while [ ! -e end ]; do sleep 0.05; done; exit $(cat end)",
}


@pytest.fixture
def job(tmp_path: Path) -> subprocess.Popen[bytes]:
    """The started script."""
    script = re.search(r"```bash\n(#!/bin/bash\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert script is not None
    (tmp_path / "job.sh").write_text(script[1])
    for name, text in STAND_INS.items():
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    variables = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SLURM_NNODES": "2", "SLURM_JOB_ID": "7",
                 "SLURM_JOB_NODELIST": "node[1-2]"}  # fmt: skip
    child = subprocess.Popen(["bash", "job.sh"], cwd=tmp_path, env=os.environ | variables)
    while not (tmp_path / "begun").exists():
        time.sleep(0.02)
    return child


def test_signal_of_slurm_saves_and_requeues_the_job(job: subprocess.Popen[bytes], tmp_path: Path) -> None:
    job.send_signal(signal.SIGTERM)
    assert job.wait(20) == 0
    assert (tmp_path / "said").read_text().splitlines() == ["saved", "requeue 7"]
    line = (tmp_path / "line").read_text()
    assert "--rdzv-endpoint node1:29500" in line
    assert line.endswith("-m mezzotint train recipe.yaml\n")


@pytest.mark.parametrize("status", [0, 1])
def test_finished_run_is_not_requeued(job: subprocess.Popen[bytes], tmp_path: Path, status: int) -> None:
    (tmp_path / "end.new").write_text(f"{status}\n")
    (tmp_path / "end.new").rename(tmp_path / "end")
    assert job.wait(20) == status
    assert not (tmp_path / "said").exists()
