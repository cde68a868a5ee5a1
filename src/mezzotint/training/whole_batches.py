"""One shape for each bucket: short micro-batches are padded with samples of weight 0."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from mezzotint.settings.sections.run import RunSettings, is_on
from mezzotint.stages import Batch, ConditionImages, TextEmbedding


def resolve_padded_size(run: RunSettings, batch_size: int, processes: int) -> int | None:
    """The size to which every micro-batch of a process is padded; None without padding. batch_size: over all
    processes."""
    if not is_on(run.kernels.pad_batches, run.compile):
        return None
    share = -(-batch_size // processes)
    return min(share, run.micro_batch or share)


def pad_batch(batch: Batch, count: int) -> Batch:
    """Pads a batch of at least one sample to `count` samples, by repeating the last one with weight 0. Does not
    synchronize with the host."""
    missing = count - batch.size
    return batch if missing <= 0 else _repeat_last(batch, missing, per_sample=1)


def _repeat_last(batch: Batch, times: int, *, per_sample: int) -> Batch:
    """per_sample: number of rows of one sample: of joined images, those of one clip."""

    def extend(value: Any) -> Any:
        match value:
            case Tensor():
                return torch.cat([value, *[value[-per_sample:]] * times])
            case tuple():
                return value + value[-per_sample:] * times
            case dict():
                return {name: extend(one) for name, one in value.items()}
            case TextEmbedding() | ConditionImages():
                return replace(value, **{field.name: extend(getattr(value, field.name)) for field in fields(value)})
            case Batch():
                return _repeat_last(value, times, per_sample=value.size // batch.size)
            case _:
                return value

    padded = replace(batch, **{field.name: extend(getattr(batch, field.name)) for field in fields(batch)})
    weight = torch.cat([batch.weight, batch.weight.new_zeros(times * per_sample)])
    return replace(padded, weight=weight)
