"""What the command line does before anything else: how the threads of torch's kernels wait, and which warnings of
libraries are not shown. Who imports Mezzotint keeps what Python and the environment say.

OpenMP's threads usually spin for some milliseconds before they sleep. On a machine that does other things they spin
for one that is not running, and a step takes many times as long; so they sleep, unless the environment says otherwise.
The library (libgomp in torch's own builds, Intel's in conda's; both know `OMP_WAIT_POLICY`) reads the environment when
it is loaded, so this comes before torch. Processes that are started from here inherit it.
"""

from __future__ import annotations

import warnings
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


MEAN_NOTHING = (
    # how many workers there are changes no draw, and check says when they are more than the processors
    (r"This DataLoader will create \d+ worker processes in total", r"torch\.utils\.data\.dataloader$"),
    # a TIFF's own tags are read for nothing but its orientation and profile
    (r"Metadata Warning, tag \d+ had too many entries", r"PIL\.TiffImagePlugin$"),
)
"""Warnings that mean nothing here, by (the message's beginning, the module) as regular expressions."""


def leave_out_warnings() -> None:
    """From now on these warnings are not shown. What Python was told (-W, PYTHONWARNINGS) comes first."""
    for message, module in MEAN_NOTHING:
        warnings.filterwarnings("ignore", message=message, category=UserWarning, module=module, append=True)
