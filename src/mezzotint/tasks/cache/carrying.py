"""A cache on object storage (`data.cache.path: s3://…`): brought before the data is opened, carried there after each
filling. One process of each machine does it, the others wait."""

from __future__ import annotations

import sys
from collections.abc import Callable

from mezzotint.data.cache import carried
from mezzotint.data.files.listing import is_remote
from mezzotint.runtimes.base import Runtime
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks import assemble


def open_dataset(
    recipe: Recipe, runtime: Runtime, progress: Callable[[int, int], None] | None = None
) -> assemble.Dataset:
    """`assemble.open_dataset`, with the index from a cache on object storage where one was carried there. Raises what
    that raises, and DatasetError E1840, E1841, StorageError E1844."""
    cache = recipe.data.cache
    if is_remote(cache.path):
        if runtime.rank % runtime.local_size == 0:
            carried.bring(cache.path, keep_gb=cache.fetched_gb)
        runtime.barrier()
    dataset = assemble.open_dataset(recipe, runtime, progress)
    carry(recipe, runtime)
    return dataset


def carry(recipe: Recipe, runtime: Runtime) -> None:
    """Carries what was made here to a cache on object storage. Raises DatasetError E1840, StorageError E1844."""
    if is_remote(recipe.data.cache.path):
        if runtime.rank % runtime.local_size == 0:
            carried.carry(recipe.data.cache.path)
        runtime.barrier()


def print_progress(done: int, total: int) -> None:
    """Ten lines while many pictures are looked at, for verbs that have no line of their own."""
    if total >= 1000 and done * 10 // total > (done - 1) * 10 // total:
        print(f"looking at pictures: {done:,} of {total:,}", file=sys.stderr)
