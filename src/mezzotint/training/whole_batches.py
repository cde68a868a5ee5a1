"""One shape for each bucket: short micro-batches filled up with samples of weight 0."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from mezzotint.settings.sections.run import RunSettings, is_on
from mezzotint.stages import Batch, TextEmbedding


def whole_size(run: RunSettings, batch_size: int, processes: int) -> int | None:
    """The samples that every micro-batch of a process has; None where each has what there is. batch_size: of all
    processes."""
    if not is_on(run.kernels.pad_batches, run.compile):
        return None
    share = -(-batch_size // processes)
    return min(share, run.micro_batch or share)


def filled(batch: Batch, count: int) -> Batch:
    """A batch of at least one sample with its last one repeated, of weight 0, until there are so many. Nothing is read
    back to the host."""
    missing = count - batch.size
    return batch if missing <= 0 else _with_last(batch, missing, each=1)


def _with_last(batch: Batch, times: int, *, each: int) -> Batch:
    """each: rows that are the last sample's: of stills, those of the last clip."""

    def of(value: Any) -> Any:
        match value:
            case Tensor():
                return torch.cat([value, *[value[-each:]] * times])
            case tuple():
                return value + value[-each:] * times
            case TextEmbedding():
                return replace(value, **{field.name: of(getattr(value, field.name)) for field in fields(value)})
            case Batch():
                return _with_last(value, times, each=value.size // batch.size)
            case _:
                return value

    whole = replace(batch, **{field.name: of(getattr(batch, field.name)) for field in fields(batch)})
    weight = torch.cat([batch.weight, batch.weight.new_zeros(times * each)])
    return replace(whole, weight=weight)
