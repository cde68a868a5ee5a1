"""What the launch says about processes and precision: the one place that reads the launcher's environment. It needs no
torch, so that a foreign command line is translated, and refused, at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from mezzotint.errors import RecipeError


@dataclass(frozen=True, slots=True)
class Launch:
    """What the launcher (torchrun, accelerate, mpirun, nothing) says: this process's place and the precision it hands
    over. meeting: where processes meet, for a launcher that leaves that open; "" for torchrun's variables. attempt: how
    often torchrun has started all of them again (`--max-restarts`)."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_size: int = 1
    mixed_precision: str | None = None
    launcher: str = "none"
    meeting: str = ""
    attempt: int = 0

    @staticmethod
    def read(environ: Mapping[str, str] | None = None) -> Launch:
        """Reads RANK, LOCAL_RANK, WORLD_SIZE as torchrun and accelerate set them, and ACCELERATE_MIXED_PRECISION; Open
        MPI's variables where those are not set. Raises RecipeError E1083 for several servers without MASTER_ADDR."""
        variables = os.environ if environ is None else environ
        precision = variables.get("ACCELERATE_MIXED_PRECISION")
        if "RANK" not in variables or "WORLD_SIZE" not in variables:
            return _of_mpi(variables) or Launch(mixed_precision=precision)
        launcher = "accelerate" if any(name.startswith("ACCELERATE_") for name in variables) else "torchrun"
        return Launch(
            rank=int(variables["RANK"]),
            local_rank=int(variables.get("LOCAL_RANK", "0")),
            world_size=int(variables["WORLD_SIZE"]),
            local_size=int(variables.get("LOCAL_WORLD_SIZE", variables["WORLD_SIZE"])),
            mixed_precision=precision,
            launcher=launcher,
            attempt=int(variables.get("TORCHELASTIC_RESTART_COUNT", "0")),
        )


def take_place(rank: int, processes: int, port: int) -> None:
    """Makes this process one of several on this machine, by the variables that torchrun sets. port: where they meet."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))


def free_port() -> int:
    """A port of this machine that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _of_mpi(variables: Mapping[str, str]) -> Launch | None:
    """The place that Open MPI's mpirun gives a process, None where it has started none."""
    name = "OMPI_COMM_WORLD_"
    if f"{name}RANK" not in variables or f"{name}SIZE" not in variables:
        return None
    size = int(variables[f"{name}SIZE"])
    local = int(variables.get(f"{name}LOCAL_SIZE", size))
    address = variables.get("MASTER_ADDR", "127.0.0.1" if local == size else "")
    if not address:
        raise RecipeError(
            f"mpirun has started {size} processes on several servers, and MASTER_ADDR is not set: give mpirun "
            "-x MASTER_ADDR=ADDRESS of the first server, or start torchrun on each",
            code="E1083",
        )
    return Launch(
        rank=int(variables[f"{name}RANK"]),
        local_rank=int(variables.get(f"{name}LOCAL_RANK", "0")),
        world_size=size,
        local_size=local,
        launcher="mpirun",
        meeting=f"tcp://{address}:{variables.get('MASTER_PORT', '29500')}",
    )
