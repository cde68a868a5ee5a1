"""How callbacks use the networks without leaving a trace: no gradient, evaluation mode, raw or averaged weights."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import torch
from torch import nn

from mezzotint.training.update import Update

Weights = Literal["raw", "ema"]

WRITTEN: Mapping[Weights, str] = {"raw": "raw", "ema": "shadow"}
"""What files, pictures and curves call them, as they have from the first on."""


@contextmanager
def evaluating(parts: Mapping[str, nn.Module]) -> Iterator[None]:
    """Within, networks are in evaluation mode and no gradient is recorded; afterwards every module is in the mode it
    was in."""
    switched = [module for part in parts.values() for module in part.modules() if module.training]
    for module in switched:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in switched:
            module.training = True


@contextmanager
def weights_in_use(update: Update, which: Weights) -> Iterator[None]:
    """Within, the networks compute with the trained weights (raw) or with their average (ema)."""
    if which == "raw":
        yield
    else:
        with update.ema_swapped_in():
            yield


@contextmanager
def skipped_when_out_of_memory(what: str, warn: Callable[[str], None]) -> Iterator[None]:
    """Within, a device or host that runs out of memory costs what was to be shown, never the run: it is said, and
    memory is given back."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, (torch.OutOfMemoryError, MemoryError)) and "can't allocate memory" not in str(error):
            raise  # torch has a class of its own for a device's memory alone
        warn(f"{what}: left out, the memory does not suffice; training goes on")
    else:
        return
    # outside the handler: a living exception would hold the frames, and with them the tensors
    gc.collect()
    if torch.accelerator.is_available():
        torch.accelerator.empty_cache()
