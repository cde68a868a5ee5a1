"""Class images (`data.prior`): how often an epoch visits them, and batches half of which are class images. Between the
samples' columns and the batches of `plan.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mezzotint.stages import Epoch

_Ints = NDArray[np.int64]


def balance_repeats(
    repeats: NDArray[np.float32] | NDArray[np.float64], prior: NDArray[np.bool_], per_visit: NDArray[np.int16] | int = 1
) -> NDArray[np.float64]:
    """Repeats with which an epoch visits class images as often as all others together, (n,). per_visit: how many of the
    entries share a visit (`Choices.is_random`).

    The rule of kohya's scripts (`DreamBoothDataset`: repeats of regularisation images grow until there are as many
    visits). If there are too many, kohya's scripts use the first ones; in Mezzotint a fraction is a probability, so
    epochs use different images.
    """
    exact = repeats.astype(np.float64)
    if prior.any() and not prior.all():
        visits = exact / per_visit
        exact[prior] *= visits[~prior].sum() / visits[prior].sum()
    return exact


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of an image of the subject and one of its class: the i-th of `num` pairs has visit i mod n of one side and
    i mod m of the other, as in diffusers' DreamBooth data set. sides: for each side its visits in sample order: their
    samples, and how often the epoch has used each before. counts: (samples,) visits of each sample."""

    sides: tuple[tuple[_Ints, _Ints], tuple[_Ints, _Ints]]
    counts: _Ints

    @classmethod
    def of(cls, counts: _Ints, prior: NDArray[np.bool_]) -> Pairs:
        """counts: (n,) visits of each sample. prior: (n,), which are class images."""
        first, second = (_visits(np.where(side, counts, 0)) for side in (~prior, prior))
        return cls((first, second), np.asarray(counts))

    @property
    def num(self) -> int:
        """Number of pairs of an epoch: the visits of the longer side; 0 if one side has no visits."""
        sizes = [len(samples) for samples, _ in self.sides]
        return max(sizes) if min(sizes) else 0

    def convert_to_samples(self, pairs: Epoch) -> Epoch:
        """Converts a plan of pairs to a plan of samples: in each batch first the subject's, then the class's."""
        lengths = np.diff(pairs.starts)
        within = np.arange(len(pairs.order)) - np.repeat(pairs.starts[:-1], lengths)
        first_positions = np.repeat(2 * pairs.starts[:-1], lengths) + within
        order, visit = (np.empty(2 * len(pairs.order), np.int32) for _ in range(2))
        factor = np.empty(len(order), np.float32)
        for side, (samples, before) in enumerate(self.sides):
            targets = first_positions + side * np.repeat(lengths, lengths)
            rounds, which = np.divmod(pairs.order.astype(np.int64), max(len(samples), 1))
            rounds += pairs.visit * -(-self.num // max(len(samples), 1))
            order[targets] = samples[which]
            visit[targets] = before[which] + rounds * self.counts[samples[which]]
            factor[targets] = pairs.factor
        return replace(
            pairs, order=order, visit=visit, factor=factor, starts=2 * pairs.starts,
            left_out=2 * pairs.left_out, filled=2 * pairs.filled,
        )  # fmt: skip


def _visits(counts: _Ints) -> tuple[_Ints, _Ints]:
    samples = np.repeat(np.arange(len(counts)), counts)
    return samples, np.arange(len(samples)) - (np.cumsum(counts) - counts)[samples]
