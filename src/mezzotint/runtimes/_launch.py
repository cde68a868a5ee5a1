"""What the launch says about processes and precision: the one place that reads the launcher's environment. It needs no
torch, so that a foreign command line is translated, and refused, at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Launch:
    """What the launcher (torchrun, accelerate, nothing) says: this process's place and the precision it hands over."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_size: int = 1
    mixed_precision: str | None = None
    launcher: str = "none"

    @staticmethod
    def read(environ: Mapping[str, str] | None = None) -> Launch:
        """Reads RANK, LOCAL_RANK, WORLD_SIZE as torchrun and accelerate set them, and ACCELERATE_MIXED_PRECISION."""
        given = os.environ if environ is None else environ
        precision = given.get("ACCELERATE_MIXED_PRECISION")
        if "RANK" not in given or "WORLD_SIZE" not in given:
            return Launch(mixed_precision=precision)
        launcher = "accelerate" if any(name.startswith("ACCELERATE_") for name in given) else "torchrun"
        return Launch(
            rank=int(given["RANK"]),
            local_rank=int(given.get("LOCAL_RANK", "0")),
            world_size=int(given["WORLD_SIZE"]),
            local_size=int(given.get("LOCAL_WORLD_SIZE", given["WORLD_SIZE"])),
            mixed_precision=precision,
            launcher=launcher,
        )
