"""How the threads of torch's kernels wait for each other: asleep, unless the environment says otherwise.

OpenMP's threads usually spin for some milliseconds before they sleep. On a machine that does other things they spin
for one that is not running, and a step takes many times as long. The library (libgomp in torch's own builds, Intel's
in conda's; both know `OMP_WAIT_POLICY`) reads the environment when it is loaded, so this comes before torch. Processes
that are started from here inherit it.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Literal

POLICY = "OMP_WAIT_POLICY"
_DECIDES = (POLICY, "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
_OF_OPENMP = ("OMP_", "GOMP_", "KMP_")

Waiting = Literal["asleep", "as the environment says", "as OpenMP does by itself"]


def wait_asleep(environment: MutableMapping[str, str], *, is_loaded: bool) -> None:
    """Lets threads sleep where nobody has decided how they wait. is_loaded: whether torch is there already, and with it
    an OpenMP that has read the environment; nothing is changed then."""
    if not is_loaded and not any(name in environment for name in _DECIDES):
        environment[POLICY] = "passive"


def waiting(environment: Mapping[str, str]) -> Waiting:
    """How threads wait in a process with such an environment."""
    if environment.get(POLICY, "").strip().lower() == "passive":
        return "asleep"
    return "as the environment says" if any(name in environment for name in _DECIDES) else "as OpenMP does by itself"


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What the environment says to OpenMP: all of OMP_*, GOMP_* and KMP_*, in order of their names."""
    return {name: environment[name] for name in sorted(environment) if name.startswith(_OF_OPENMP)}
