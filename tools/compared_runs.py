"""Runs journeys with one tree, each command in a forked process, so that torch is imported once.

    PYTHONPATH=TREE/src python tools/compared_runs.py TREE WORK WORLD PLAN.json

`compare_with.py` writes the plan: journeys whose command lines and files are in the words of that tree.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import logging
import os
import pkgutil
import runpy
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compared_journeys import Command, Journey, read


@dataclass
class Driver:
    """Runs journeys with the tree that PYTHONPATH names."""

    work: Path
    world: Path

    def run(self, journey: Journey) -> None:
        """Writes NN.out, NN.err and NN.status of each command into the journey's folder, numbered on from those that
        are there. NN.words has the command in the oldest words, and the exit status that it should have."""
        folder = self.work / journey.name
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in journey.files:
            (folder / name).write_text(self._fill_in(text), encoding="utf-8")
        first = len(list(folder.glob("*.status")))
        for number, command in enumerate(journey.commands, first):
            words = {"words": command.words, "status": 137 if command.fault else 0}
            (folder / f"{number:02d}.words").write_text(json.dumps(words))
            status = self._run(command, folder, f"{number:02d}")
            (folder / f"{number:02d}.status").write_text(f"{status}\n")

    def _run(self, command: Command, folder: Path, name: str) -> int:
        """The exit status of a command, of several processes the largest."""
        line = [self._fill_in(word) for word in command.line or command.words]
        children = []
        for rank, variables in enumerate(variables_of(command)):
            child = os.fork()
            if not child:
                run_as_main(line, folder, f"{name}{f'-{rank}' if rank else ''}", variables)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        return max(code if code >= 0 else 128 - code for code in codes)

    def _fill_in(self, text: str) -> str:
        return text.replace("{world}", str(self.world))


def variables_of(command: Command) -> list[dict[str, str]]:
    """The environment variables of each process of a command; of several, what torchrun sets."""
    fault = {"MEZZOTINT_FAULT": command.fault} if command.fault else {}
    if command.processes == 1:
        return [fault]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {"WORLD_SIZE": str(command.processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    own |= fault | {"GLOO_SOCKET_IFNAME": "lo"}
    return [own | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(command.processes)]


def run_as_main(line: Sequence[str], folder: Path, name: str, variables: Mapping[str, str]) -> None:
    """`python -m mezzotint LINE` in this process, which ends. Rank 0 writes NAME.out, other ranks NAME-RANK.log."""
    status = 70
    try:
        is_first = "-" not in name
        for handle, ending in ((1, "out" if is_first else "log"), (2, "err" if is_first else "log")):
            os.dup2(os.open(folder / f"{name}.{ending}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), handle)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        os.chdir(folder)
        os.environ.update(variables)
        sys.argv = ["mezzotint", *line]
        try:
            runpy.run_module("mezzotint", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def warm_up(tree: Path) -> None:
    """Imports what takes seconds, and every module of the tree, whatever they are called. Raises RuntimeError if it is
    another tree's."""
    package = importlib.import_module("mezzotint")
    if not Path(str(package.__file__)).is_relative_to(tree):
        raise RuntimeError(f"mezzotint is imported from {package.__file__}, not from {tree}")
    logging.disable()  # libraries that report what they lack
    for name in ("torch", "diffusers", "transformers", "matplotlib.pyplot", "peft", "av"):
        with contextlib.suppress(ImportError):  # an extra that is not installed
            importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, "mezzotint.", onerror=lambda name: None):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    logging.disable(logging.NOTSET)


def main(words: Sequence[str]) -> int:
    tree, work, world, plan = (Path(word) for word in words)
    warm_up(tree)
    import torch

    torch.set_num_threads(1)
    driver = Driver(work, world)
    for journey in read(plan.read_text()):
        if not journey.needs or importlib.util.find_spec(journey.needs):
            driver.run(journey)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
