"""What a run that has begun may die of, by name: memory, a lost peer, a signal, the disk; each with the line that goes
on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mezzotint.errors import Diverged, OutOfMemory, PeerLost, Stopped, StorageError
from mezzotint.recipe.advice import less_memory
from mezzotint.recipe.recipe import Recipe
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Runtime
from mezzotint.tasks.assemble import named_shortage


@contextmanager
def named_failures(runtime: Runtime, folder: RunFolder, command: str, recipe: Recipe) -> Iterator[None]:
    """Gives the library's failures their names, and says the line that goes on whenever a run that has begun stops
    early."""

    def going_on() -> str:
        return f"go on: {command}" if folder.recipe.exists() else "start the same command again"

    try:
        with named_shortage(f"{runtime.device} has not enough memory", less_memory(recipe)):
            yield
    except RuntimeError as error:
        if "can't allocate memory" in str(error):  # torch's words for the host's own memory
            raise OutOfMemory(
                f"this process ran out of memory ({str(error).splitlines()[0]}); lower run.micro_batch (the "
                f"mathematics stays the same), or take a smaller data.resolution; {going_on()}",
                code="E1750",
            ) from error
        if runtime.world_size > 1 and _is_about_peers(error):
            raise PeerLost(
                f"process {runtime.rank} lost another process of this run ({str(error).splitlines()[0]}); "
                f"the newest checkpoint is whole; {going_on()}",
                code="E1804",
            ) from error
        raise
    except Stopped as stopped:
        raise Stopped(f"{stopped.message}; {going_on()}", signal_number=stopped.signal_number) from stopped
    except (StorageError, Diverged) as error:
        raise type(error)(f"{error.message}; {going_on()}", code=error.code) from error


def _is_about_peers(error: RuntimeError) -> bool:
    words = ("Connection closed", "Connection reset", "Timed out", "peer", "NCCL", "Broken pipe", "gloo")
    return any(word in str(error) for word in words)
