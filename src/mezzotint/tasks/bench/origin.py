"""Where a benchmark's figures come from: the command, the day, the machine, and which Mezzotint it was."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mezzotint.runtimes.base import Launch, Runtime
from mezzotint.tasks.train.run_files import environment

_FOLDERS = re.compile(r"(^|=)(?:~|/|[A-Za-z]:[\\/])[^=]*[\\/]")


def origin(words: Sequence[str], runtime: Runtime, launch: Launch) -> dict[str, Any]:
    """As JSON, for the document of a benchmark. words: behind `mezzotint bench`; of paths the last name is kept.

    `date` is in UTC, to the second; `environment` has the commit and how threads wait.
    """
    return {
        "command": ["mezzotint", "bench", *(_FOLDERS.sub(r"\1…/", word) for word in words)],
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processor": {"model": processor(), "cores": os.cpu_count()},
        "environment": environment(runtime, launch),
    }


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The model of this machine's processor as the system names it; of a system that names none, its architecture."""
    with suppress(OSError):
        if match := re.search(r"^model name\s*: (.*)", cpuinfo.read_text("utf-8"), re.MULTILINE):
            return match[1].strip()
    return platform.processor() or platform.machine()
