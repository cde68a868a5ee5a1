"""The launcher's environment."""

from __future__ import annotations

import pytest

from mezzotint.errors import RecipeError
from mezzotint.runtimes.shared.launch import Launch


def test_launch_is_read_from_the_environment() -> None:
    assert Launch.read({}) == Launch()
    variables = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}
    assert Launch.read(variables) == Launch(3, 1, 4, 4, None, "torchrun")
    assert Launch.read(variables | {"TORCHELASTIC_RESTART_COUNT": "2"}).attempt == 2
    assert Launch.read(variables | {"ACCELERATE_MIXED_PRECISION": "bf16"}) == Launch(3, 1, 4, 4, "bf16", "accelerate")


def test_launch_of_mpirun_is_read_from_the_variables_of_open_mpi() -> None:
    name = "OMPI_COMM_WORLD_"
    variables = {f"{name}RANK": "3", f"{name}SIZE": "8", f"{name}LOCAL_RANK": "3", f"{name}LOCAL_SIZE": "8"}
    assert Launch.read(variables) == Launch(3, 3, 8, 8, None, "mpirun", "tcp://127.0.0.1:29500")
    assert Launch.read(variables | {"RANK": "0", "WORLD_SIZE": "2"}).launcher == "torchrun"
    two = variables | {f"{name}LOCAL_SIZE": "4"}
    assert Launch.read(two | {"MASTER_ADDR": "a", "MASTER_PORT": "1"}).rendezvous == "tcp://a:1"
    with pytest.raises(RecipeError, match="-x MASTER_ADDR=ADDRESS"):
        Launch.read(two)
