"""What a command does first: limits how long the threads of torch's kernels spin, and hides some warnings of libraries.
Programs that import Mezzotint keep the settings of Python and the environment.

OpenMP threads spin for a while before they sleep. On a quiet machine this saves waking them, half of a small model's
step; if another program is running, they spin for a thread that is not scheduled, and a step takes many times as long.
A short spin is close to the best of both (decision 99). libgomp, which is part of torch's builds, reads its settings
when it is loaded, so they are set before torch is imported. Child processes inherit them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, MutableMapping

SPIN = {"GOMP_SPINCOUNT": "1000", "OMP_WAIT_POLICY": "passive"}
"""libgomp spins 1,000 times, some 20 to 70 µs, and then sleeps. Intel's OpenMP only reads the policy."""

_SET_BY_USER = (*SPIN, "KMP_BLOCKTIME", "KMP_LIBRARY")
_OPENMP = ("OMP_", "GOMP_", "KMP_")


def limit_spinning(environment: MutableMapping[str, str], *, is_torch_loaded: bool) -> None:
    """Sets `SPIN` unless the environment already configures how threads wait, or torch, and with it OpenMP, is
    loaded."""
    if not is_torch_loaded and not any(name in environment for name in _SET_BY_USER):
        environment.update(SPIN)


def openmp_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables OMP_*, GOMP_* and KMP_* of the environment, sorted by name."""
    return {name: environment[name] for name in sorted(environment) if name.startswith(_OPENMP)}


QUIET_LOGGERS = ("torchao", "torch.utils._pytree", "diffusers.quantizers.torchao")
"""Loggers that report at every import which optional kernels of torchao the machine lacks."""


def quiet_libraries() -> None:
    """Makes these loggers report only errors."""
    import logging  # --help does without it

    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)


IGNORED_WARNINGS = (
    # the number of workers changes no result, and check reports when there are more than processors
    (r"This DataLoader will create \d+ worker processes in total", r"torch\.utils\.data\.dataloader$"),
    # only the orientation and the colour profile of a TIFF are read
    (r"Metadata Warning, tag \d+ had too many entries", r"PIL\.TiffImagePlugin$"),
    # diffusers' own Chroma imports it there
    (r"`FluxPosEmbed` is deprecated", r"diffusers\.models\.embeddings$"),
)
"""Warnings without consequences here: (start of the message, module), as regular expressions."""


def ignore_warnings() -> None:
    """Hides these warnings. Python's own options (-W, PYTHONWARNINGS) have precedence."""
    for message, module in IGNORED_WARNINGS:
        warnings.filterwarnings("ignore", message=message, module=module, append=True)
