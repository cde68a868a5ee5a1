"""Evaluation of the networks by callbacks without side effects: no gradient, eval mode, raw or averaged weights."""

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
"""The names of the two kinds of weights in file names, image metadata and curves."""


@contextmanager
def set_eval_mode(parts: Mapping[str, nn.Module]) -> Iterator[None]:
    """Context manager: the networks are in evaluation mode and no gradient is recorded; on exit every module returns to
    its previous mode."""
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
    """Context manager: the networks compute with the trained weights (raw), of an optimizer that averages them its
    average, or with their EMA."""
    if which == "raw":
        weights = update.evaluation_weights()
    else:
        assert update.ema is not None
        weights = update.ema.weights
    with update.swap_in(weights):
        yield


@contextmanager
def skip_when_out_of_memory(subject: str, warn: Callable[[str], None]) -> Iterator[None]:
    """Context manager: if the device or the host runs out of memory, `subject` is skipped with a warning, the memory is
    freed and the run continues."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, (torch.OutOfMemoryError, MemoryError)) and "can't allocate memory" not in str(error):
            raise  # torch's own class covers device memory only
        warn(f"{subject}: skipped, not enough memory; training continues")
    else:
        return
    # outside the handler: a live exception would keep the frames and their tensors alive
    gc.collect()
    if torch.accelerator.is_available():
        torch.accelerator.empty_cache()
