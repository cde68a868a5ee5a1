"""Class pictures among the others (`data.prior`): how often an epoch visits them, and batches of which one half is of
them. Between the samples' columns and the batches of `plan.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mezzotint.stages import Epoch

_Ints = NDArray[np.int64]


def balanced(repeats: NDArray[np.float32], prior: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Repeats with which an epoch visits class pictures as often as all others together, (n,).

    The rule of kohya's scripts (`DreamBoothDataset`: repeats of regularisation images grow until there are as many
    visits). There the first ones are taken where there are too many; here a fraction is a chance, so that an epoch
    takes others than the last.
    """
    exact = repeats.astype(np.float64)
    if prior.any() and not prior.all():
        exact[prior] *= exact[~prior].sum() / exact[prior].sum()
    return exact


@dataclass(frozen=True, slots=True)
class Pairs:
    """A picture of the subject and one of its class, pair after pair: the i-th of `num` pairs has visit i mod n of the
    one side and i mod m of the other, as diffusers' DreamBooth data set has it. sides: visits of each, in the order of
    samples: their samples, and how often the epoch has used each before. counts: (samples,) visits of each sample."""

    sides: tuple[tuple[_Ints, _Ints], tuple[_Ints, _Ints]]
    counts: _Ints

    @classmethod
    def of(cls, counts: _Ints, prior: NDArray[np.bool_]) -> Pairs:
        """counts: (n,) visits of each sample. prior: (n,), which are class pictures."""
        first, second = (_visits(np.where(side, counts, 0)) for side in (~prior, prior))
        return cls((first, second), np.asarray(counts))

    @property
    def num(self) -> int:
        """Pairs of an epoch: as many as the longer side has visits; none where one side has no visit at all."""
        sizes = [len(samples) for samples, _ in self.sides]
        return max(sizes) if min(sizes) else 0

    def taken_apart(self, pairs: Epoch) -> Epoch:
        """The plan of samples that a plan of pairs stands for: in each batch first the subject's, then the class's."""
        lengths = np.diff(pairs.starts)
        within = np.arange(len(pairs.order)) - np.repeat(pairs.starts[:-1], lengths)
        places = np.repeat(2 * pairs.starts[:-1], lengths) + within
        order, visit = (np.empty(2 * len(pairs.order), np.int32) for _ in range(2))
        factor = np.empty(len(order), np.float32)
        for side, (samples, before) in enumerate(self.sides):
            there = places + side * np.repeat(lengths, lengths)
            rounds, which = np.divmod(pairs.order.astype(np.int64), max(len(samples), 1))
            rounds += pairs.visit * -(-self.num // max(len(samples), 1))
            order[there] = samples[which]
            visit[there] = before[which] + rounds * self.counts[samples[which]]
            factor[there] = pairs.factor
        return replace(
            pairs, order=order, visit=visit, factor=factor, starts=2 * pairs.starts,
            left_out=2 * pairs.left_out, filled=2 * pairs.filled,
        )  # fmt: skip


def _visits(counts: _Ints) -> tuple[_Ints, _Ints]:
    samples = np.repeat(np.arange(len(counts)), counts)
    return samples, np.arange(len(samples)) - (np.cumsum(counts) - counts)[samples]
