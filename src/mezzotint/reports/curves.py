"""The numbers of a loss plot, between the reader of metrics.jsonl and the one file that draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curves:
    """Numbers of the plot. steps, loss, smoothed: (n,); rates: (n,) by group; held_out_steps, held_out,
    held_out_ema: (m,). NaN where there is none. is_every_step: whether no step is missing between those there."""

    steps: Column
    loss: Column
    smoothed: Column
    rates: Mapping[str, Column]
    held_out_steps: Column
    held_out: Column
    held_out_ema: Column
    is_every_step: bool = True
