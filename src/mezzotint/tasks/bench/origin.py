"""The provenance of a benchmark's figures: the command, the date, the machine, and the version of Mezzotint."""

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


def origin(arguments: Sequence[str], runtime: Runtime, launch: Launch) -> dict[str, Any]:
    """The provenance as JSON values. arguments: the arguments of `mezzotint bench`; paths are cut to their last name.

    `date` is in UTC, to the second; `environment` contains the commit and the wait policy of threads.
    """
    return {
        "command": ["mezzotint", "bench", *(_FOLDERS.sub(r"\1…/", word) for word in arguments)],
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processor": {"model": processor(), "cores": os.cpu_count()},
        "environment": environment(runtime, launch),
    }


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model name, or its architecture if the system does not report one."""
    with suppress(OSError):
        if match := re.search(r"^model name\s*: (.*)", cpuinfo.read_text("utf-8"), re.MULTILINE):
            return match[1].strip()
    return platform.processor() or platform.machine()
