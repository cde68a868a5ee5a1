"""The machine report: what does not work, without secrets."""

from __future__ import annotations

import importlib.metadata
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mezzotint.cli import main
from mezzotint.tasks.doctor import _machine
from mezzotint.tasks.doctor._machine import Machine

SOUND = Machine(
    requirements=(), gpus=(("H100, 80 GB", (9, 0)),), driver="550.1", cuda="12.8", processors=8, quota=None, threads=8,
    memory=64 * 10**9, shared=8 * 10**9, open_files=4096, disks={"here": (10**12, "ext4")}, encoding="utf-8",
    environment={}, is_optimized=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "status", "changes"),
    [
        ("requirement", "mend", {"requirements": ("mezzotint needs torch>=2.10, and 2.1 is installed",)}),
        ("gpu-unseen", "mend", {"gpus": ()}),
        ("cpu-torch", "mend", {"gpus": (), "cuda": ""}),
        ("no-bf16", "know", {"gpus": (("T4", (7, 5)),)}),
        ("gpus-differ", "look", {"gpus": (("A", (8, 0)), ("B", (9, 0)))}),
        ("launch-blocking", "look", {"environment": {"CUDA_LAUNCH_BLOCKING": "1"}}),
        ("threads", "look", {"threads": 64}),
        ("threads", "look", {"quota": 2.0}),
        ("two-openmp", "look", {"environment": {"KMP_DUPLICATE_LIB_OK": "True"}}),
        ("memory", "look", {"memory": 10**9}),
        ("shared-memory", "look", {"shared": 64 << 20}),
        ("open-files", "look", {"open_files": 256}),
        ("disk", "look", {"disks": {"here": (5 * 10**9, "ext4")}}),
        ("disk", "mend", {"disks": {"here": (10**8, "ext4")}}),
        ("network-disk", "look", {"disks": {"cache": (10**12, "nfs4")}}),
        ("file-names", "mend", {"encoding": "ascii"}),
        ("optimized", "look", {"is_optimized": True}),
    ],
)
def test_known_incompatibilities_are_findings(name: str, status: str, changes: dict[str, Any]) -> None:
    assert list(_machine.findings(SOUND)) == []
    (finding,) = _machine.findings(replace(SOUND, **changes))
    assert (finding.name, finding.status) == (name, status)
    assert finding.sentence
    assert finding.advice


def test_incompatible_package_versions_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    asks = {"mezzotint": ["torch>=2.10", "numpy>=2.0", 'peft>=0.19; extra == "adapters"', 'av>=18; extra == "video"',
                          "nowhere>=1"],
            "xformers": ["torch==2.1.0"]}  # fmt: skip
    versions = {"torch": "2.9.1", "numpy": "2.3", "peft": "0.1"}

    def of(table: dict[str, Any], name: str) -> Any:
        if name not in table:
            raise importlib.metadata.PackageNotFoundError(name)
        return table[name]

    monkeypatch.setattr(importlib.metadata, "requires", lambda name: of(asks, name))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: of(versions, name))
    assert list(_machine.unmet_requirements()) == [
        "mezzotint needs torch>=2.10, but 2.9.1 is installed",
        "mezzotint needs peft>=0.19, but 0.1 is installed",
        "mezzotint needs nowhere>=1, which is not installed",
        "xformers needs torch==2.1.0, but 2.9.1 is installed",
    ]


def test_machine_report_contains_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = {"HF_TOKEN": "hf_secret", "WANDB_API_KEY": "secret1", "AWS_SECRET_ACCESS_KEY": "secret2",
              "TORCH_HUB_TOKEN": "secret3", "NCCL_TOPO_FILE": f"{tmp_path}/secret4", "CUDA_PROXY": "http://me:secret5@h/",
              "TORCH_HOME": "~/secret6"}  # fmt: skip
    for name, value in {**secret, "OMP_NUM_THREADS": "3"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path / "secret-home"))
    monkeypatch.chdir(tmp_path)
    status = main(["doctor"])
    text = capsys.readouterr().out
    assert status in (0, 2)
    for part in ("secret", str(tmp_path), socket.gethostname(), "HF_TOKEN"):
        assert part not in text, part
    assert "OMP_NUM_THREADS=3" in text
    assert "NCCL_TOPO_FILE=PATH" in text
    assert main(["doctor", "--json"]) == status
    about = json.loads(capsys.readouterr().out)["about"]
    assert about.keys() >= {"mezzotint", "python", "packages", "torch", "driver", "processors", "disk", "locale"}
    assert f"torch {importlib.metadata.version('torch')}" in about["packages"]
