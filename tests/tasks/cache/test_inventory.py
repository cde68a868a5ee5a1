"""The assignment of cache entries to processes, and the reasons why entries were missing."""

from __future__ import annotations

import numpy as np

from mezzotint.tasks.cache.inventory import describe, images_of_process


def test_each_entry_is_assigned_to_exactly_one_process() -> None:
    addresses = np.random.Generator(np.random.Philox(key=1)).integers(0, 256, (300, 32), dtype=np.uint8)
    shares = np.stack([images_of_process(addresses, rank, 3) for rank in range(3)])
    assert (shares.sum(axis=0) == 1).all()
    assert (shares.sum(axis=1) > 60).all()
    assert images_of_process(addresses, 0, 1).all()


def test_reasons_are_counted_most_frequent_first() -> None:
    assert describe("image", ["VAE changed", "changed", "changed"]) == (
        "2 images changed",
        "1 image (VAE changed)",
    )
    assert describe("caption", []) == ()
