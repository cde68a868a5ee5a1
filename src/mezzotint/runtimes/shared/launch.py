"""The launcher's environment, which only this module reads. It needs no torch, so commands of other trainers are
translated, and rejected, quickly."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from mezzotint.errors import RecipeError


@dataclass(frozen=True, slots=True)
class Launch:
    """Settings from the launcher (torchrun, accelerate, mpirun, none): this process's rank, and the precision. meeting:
    the rendezvous address, for a launcher that sets none; "" for torchrun's variables. attempt: how often torchrun has
    restarted all processes (`--max-restarts`)."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_size: int = 1
    mixed_precision: str | None = None
    launcher: str = "none"
    rendezvous: str = ""
    attempt: int = 0

    @staticmethod
    def read(environ: Mapping[str, str] | None = None) -> Launch:
        """Reads RANK, LOCAL_RANK, WORLD_SIZE as torchrun and accelerate set them, and ACCELERATE_MIXED_PRECISION;
        otherwise Open MPI's variables. Raises RecipeError E1083 for several servers without MASTER_ADDR."""
        variables = os.environ if environ is None else environ
        precision = variables.get("ACCELERATE_MIXED_PRECISION")
        if "RANK" not in variables or "WORLD_SIZE" not in variables:
            return _read_mpi(variables) or Launch(mixed_precision=precision)
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


def set_launch_variables(rank: int, processes: int, port: int) -> None:
    """Makes this process one of several on this machine by setting torchrun's variables. port: of the rendezvous."""
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    os.environ.update({name: str(value) for name, value in variables.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))


def free_port() -> int:
    """A port of this machine that is currently free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _read_mpi(variables: Mapping[str, str]) -> Launch | None:
    """The launch of a process started by Open MPI's mpirun, otherwise None."""
    name = "OMPI_COMM_WORLD_"
    if f"{name}RANK" not in variables or f"{name}SIZE" not in variables:
        return None
    size = int(variables[f"{name}SIZE"])
    local = int(variables.get(f"{name}LOCAL_SIZE", size))
    address = variables.get("MASTER_ADDR", "127.0.0.1" if local == size else "")
    if not address:
        raise RecipeError(
            f"mpirun started {size} processes on several servers, but MASTER_ADDR is not set; pass mpirun "
            "-x MASTER_ADDR=ADDRESS of the first server, or start torchrun on each",
            code="E1083",
        )
    return Launch(
        rank=int(variables[f"{name}RANK"]),
        local_rank=int(variables.get(f"{name}LOCAL_RANK", "0")),
        world_size=size,
        local_size=local,
        launcher="mpirun",
        rendezvous=f"tcp://{address}:{variables.get('MASTER_PORT', '29500')}",
    )
