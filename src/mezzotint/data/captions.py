"""Which caption a visit is trained with: a choice among the sample's captions, then dropout. Both are drawn by address,
so that they depend on no worker, rank or history. It stands between the plan and the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint import draws


def choose(captions: Sequence[str], *, seed: int, epoch: int, key_hash: int, visit: int, dropout: float) -> str:
    """The caption of one visit.

    captions: what the catalogue holds for the sample; none at all counts as the empty caption. seed, epoch: as
    `plan.addressed` gives them. key_hash: the catalogue's 64-bit number of the sample. visit: from `Epoch.visit`.
    dropout: the chance, 0 to 1, that the empty caption takes its place. Choice and dropout are independent draws:
    another dropout leaves the choices as they were.
    """
    if not captions:
        return ""
    if dropout > 0 and draws.uniform(draws.key(seed, "drop", epoch, key_hash, visit)) < dropout:
        return ""
    if len(captions) == 1:
        return captions[0]
    return captions[draws.below(draws.key(seed, "caption", epoch, key_hash, visit), len(captions))]
