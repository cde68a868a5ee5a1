"""What a run ran on: versions, device, threads. Written once an attempt into environment.json; holds no names of
people or paths."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Any

import torch

import mezzotint
from mezzotint import startup
from mezzotint.runtimes.base import Launch, Runtime


def environment(runtime: Runtime, launch: Launch) -> dict[str, Any]:
    """Versions, device and processes, as JSON."""
    facts: dict[str, Any] = {
        "mezzotint": mezzotint.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {
            name: _version(name) for name in ("torch", "diffusers", "transformers", "safetensors", "numpy", "pillow")
        },
        "device": str(runtime.device),
        "processes": runtime.world_size,
        "launcher": launch.launcher,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "threads_wait": startup.waiting(os.environ),
        "openmp": startup.settings(os.environ),
    }
    if runtime.device.type == "cuda":
        properties = torch.cuda.get_device_properties(runtime.device)
        facts["gpu"] = {"name": properties.name, "bytes": properties.total_memory, "cuda": torch.version.cuda}
    return facts


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
