"""A cache on object storage (`data.cache.path: s3://…`): downloaded before the data is opened, uploaded after each
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
    """As `assemble.open_dataset`, with the index from a cache on object storage if it contains one. Raises as that
    does, and DatasetError E1840, E1841, StorageError E1844."""
    cache = recipe.data.cache
    if is_remote(cache.path):
        if runtime.rank % runtime.local_size == 0:
            carried.download_indexes(cache.path, keep_gb=cache.fetched_gb)
        runtime.barrier()
    dataset = assemble.open_dataset(recipe, runtime, progress)
    upload(recipe, runtime)
    return dataset


def upload(recipe: Recipe, runtime: Runtime) -> None:
    """Uploads new files to a cache on object storage. Raises DatasetError E1840, StorageError E1844."""
    if is_remote(recipe.data.cache.path):
        if runtime.rank % runtime.local_size == 0:
            carried.upload_files(recipe.data.cache.path)
        runtime.barrier()


def print_progress(done: int, total: int) -> None:
    """Prints ten lines while many images are examined, for commands without a progress line of their own."""
    if total >= 1000 and done * 10 // total > (done - 1) * 10 // total:
        print(f"examining images: {done:,} of {total:,}", file=sys.stderr)
