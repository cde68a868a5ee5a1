"""Commands run in forked processes, which a test can kill or start several of, as a launcher does."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mezzotint.cli import main


@functools.cache
def import_all() -> None:
    """Imports what a run does, once: forked ones then start at once."""
    for heavy in (
        "mezzotint.tasks.train.train",
        "mezzotint.tasks.cache.cache",
        "mezzotint.families.sd",
        "mezzotint.training.callbacks.tensorboard_log",
        "transformers.models.clip.modeling_clip",
        "transformers.models.clip.tokenization_clip",
        "transformers.models.t5.modeling_t5",
        "transformers.models.t5.tokenization_t5",
        "matplotlib.pyplot",
    ):
        importlib.import_module(heavy)
    gc.freeze()  # otherwise garbage collection in a forked process would copy these objects


def fork(words: Sequence[str], out: Path, env: Mapping[str, str]) -> int:
    """Runs `mezzotint` with these arguments in a forked process; returns its PID. Output is appended to `out`."""
    import_all()
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        torch.set_num_threads(1)
        os.environ.update(env)
        status = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


@functools.cache
def import_networks() -> None:
    """Imports the networks of Stable Diffusion, which every forked run would import by itself."""
    for name in ("unets.unet_2d_condition", "autoencoders.autoencoder_kl"):
        importlib.import_module(f"diffusers.models.{name}")
    gc.freeze()


def run_python(
    line: Sequence[str], *, check: bool = False, cwd: Path | None = None, **_: Any
) -> subprocess.CompletedProcess[bytes]:
    """Replaces `subprocess.run` for `python -m MODULE …` and `python -c CODE …`: a forked process runs them, so that
    nothing is imported again."""
    import_all()
    import_networks()
    kind, program, *arguments = [word for word in line[1:] if word != "-P"]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if not child:
            status = 70
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                sys.argv = [program, *arguments]
                torch.set_num_threads(1)
                os.chdir(cwd or ".")
                if kind == "-m":
                    runpy.run_module(program, run_name="__main__")
                else:
                    exec(program, {"__name__": "__main__"})
                status = 0
            except SystemExit as end:
                status = int(end.code or 0)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = exit_status(child)
        out.seek(0)
        errors.seek(0)
        done = subprocess.CompletedProcess(list(line), status, out.read(), errors.read())
    if check:
        done.check_returncode()
    return done


def exit_status(child: int) -> int:
    """Exit status of a forked process: 128 + n for signal n."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def variables(rank: int, port: int, processes: int = 2) -> dict[str, str]:
    """Environment variables that torchrun sets for one of its processes on this machine."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_PORT": port}
    return {name: str(value) for name, value in place.items()} | {
        "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip


def each_of_two(work: Callable[[int], None]) -> None:
    """Calls a function with each rank in two connected processes, which must succeed."""
    port, children = free_port(), []
    for rank in range(2):
        child = os.fork()
        if not child:
            status = 1
            try:
                os.environ.update(variables(rank, port))
                torch.set_num_threads(1)
                work(rank)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        children.append(child)
    assert [exit_status(child) for child in children] == [0, 0]


def run_two(words: Sequence[str], out: Path, **more: str) -> str:
    """Runs `mezzotint` in two processes like torchrun; both must succeed. Returns their output. more: variables that
    another launcher sets."""
    port = free_port()
    children = [fork(words, out, variables(rank, port) | more) for rank in range(2)]
    assert [exit_status(child) for child in children] == [0, 0], out.read_text()
    return out.read_text()
