"""A Python object as the data set of a run (`mezzotint.train(recipe, dataset=…)`).

The object is read once, before the run starts, into a folder of PNG files and captions in the cache folder; after that
everything works as with files: buckets, crops, caches, several workers, `doctor`. Random augmentation belongs to the
recipe (`data.flip`, `data.crop`), not to the object.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mezzotint import durable
from mezzotint.api.recipes import LoadedRecipe
from mezzotint.errors import RecipeError
from mezzotint.runtimes.shared.launch import Launch
from mezzotint.settings.base import with_values
from mezzotint.settings.reading.read import digest_of, resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks import assemble

FOLDER = "objects"
"""Subfolder of the cache folder for data sets read from objects."""

ImageLike = Image.Image | NDArray[np.uint8] | Path | str
"""A PIL image, (H, W, 3) uint8, or the path of an image file."""


class ImageDataset(Protocol):
    """A sequence of (image, caption).

    Caching and resuming need a `KeyedImageDataset`, which also names its samples.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[ImageLike, str]: ...


@runtime_checkable
class KeyedImageDataset(ImageDataset, Protocol):
    """A data set that names its samples, so that its caches and checkpoints can be used again. `key(index)` does not
    change when other samples are added or removed; `content_hash(index)` changes with the image or the caption. Two
    data sets of one class must not return the same key and hash for different samples: hash the content, or the file's
    path, size and time.
    """

    def key(self, index: int, /) -> str:
        """The name of a sample."""
        ...

    def content_hash(self, index: int, /) -> str:
        """A hash that changes with the sample's image or caption."""
        ...


@contextmanager
def with_dataset(loaded: LoadedRecipe, dataset: ImageDataset | None) -> Iterator[LoadedRecipe]:
    """The recipe with an object as its data set; unchanged if it is None. The folder of a data set without keys is
    removed at the end.

    Raises RecipeError E1096 for a data set without keys if a cache, a checkpoint or another process must identify its
    samples, and for samples that are not (image, caption).
    """
    if dataset is None:
        yield loaded
        return
    recipe = resolve_paths(loaded)
    root = assemble.cache_folder(recipe) / FOLDER
    if isinstance(dataset, KeyedImageDataset):
        yield _replace_data(loaded, recipe, _read_keyed(dataset, root))
        return
    _refuse_without_keys(recipe, type(dataset).__name__)
    folder = root / f"once-{uuid.uuid4().hex}"
    try:
        _write(folder, ((f"{n:08d}", partial(dataset.__getitem__, n)) for n in range(len(dataset))))
        yield _replace_data(loaded, with_values(recipe, {"run.resume": "never"}), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_without_keys(recipe: Recipe, name: str) -> None:
    why = {
        "data.cache.latents=true caches latents": recipe.data.cache.latents,
        "data.cache.text=true caches text embeddings": recipe.data.cache.text,
        f"run.resume={recipe.run.resume} resumes a run": recipe.run.resume not in ("auto", "never"),
        "several processes train": Launch.read().world_size > 1,
    }
    reasons = [reason for reason, applies in why.items() if applies]
    if reasons:
        raise RecipeError(
            f"{' and '.join(reasons)}, and the data set {name} does not name its samples; give it the methods "
            "key(index) and content_hash(index), or switch that off",
            code="E1096",
        )


def _replace_data(loaded: LoadedRecipe, recipe: Recipe, folder: Path) -> LoadedRecipe:
    changed = with_values(
        recipe, {"data.path": folder, "data.sets": (), "data.format": "metadata", "data.repeats": 1.0}
    )
    return replace(loaded, recipe=changed, digest=digest_of(changed))


def _read_keyed(dataset: KeyedImageDataset, root: Path) -> Path:
    """Writes the data set below `root`, unless it exists, and returns its folder. Samples in the pool are not read
    again."""
    names = [(str(dataset.key(n)), str(dataset.content_hash(n))) for n in range(len(dataset))]
    repeated = len(names) - len({key for key, _ in names})
    if repeated:
        raise RecipeError(
            f"the data set {type(dataset).__name__} returns {repeated} repeated keys; each sample needs its own key",
            code="E1096",
        )
    folder = root / _hash_names(dataset, names)
    pool = root / "pool"
    pool.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process reads the data set, the others wait and use it
        if not (folder / "metadata.jsonl").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            _write(folder, ((key, _read_pooled(dataset, n, pool, names[n])) for n, (key, _) in enumerate(names)))
    return folder


def _read_pooled(
    dataset: KeyedImageDataset, index: int, pool: Path, name: tuple[str, str]
) -> Callable[[], tuple[ImageLike, str]]:
    """Returns a function that reads a sample from the pool, after adding it if it is missing."""

    def read() -> tuple[ImageLike, str]:
        address = _hash_names(dataset, name)
        entry_path = pool / f"{address}.json"
        if not entry_path.is_file():
            image, caption = _check_sample(dataset[index], index)
            file = _save(image, pool / address, index)
            durable.write_file(entry_path, json.dumps({"file": file.name, "caption": caption}).encode())
        entry = json.loads(entry_path.read_text())
        return pool / entry["file"], entry["caption"]

    return read


def _hash_names(dataset: KeyedImageDataset, names: object) -> str:
    """A hash of keys and content hashes, and of the data set's class: equal keys of two classes name different
    samples."""
    kind = f"{type(dataset).__module__}.{type(dataset).__qualname__}"
    return hashlib.sha256(json.dumps([kind, names]).encode()).hexdigest()[:32]


def _write(folder: Path, samples: Iterator[tuple[str, Callable[[], tuple[ImageLike, str]]]]) -> None:
    """Writes images and captions; metadata.jsonl is written last: a folder that has it is complete."""
    folder.mkdir(parents=True)
    lines = []
    for index, (key, read) in enumerate(samples):
        image, caption = _check_sample(read(), index)
        file = _save(image, folder / _file_name(key), index)
        lines.append(json.dumps({"file_name": file.name, "text": caption}, ensure_ascii=False))
    durable.write_file(folder / "metadata.jsonl", "".join(f"{line}\n" for line in lines).encode())


def _file_name(key: str) -> str:
    name = quote(key, safe=" ")
    return name if len(name) <= 200 else f"{name[:150]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _check_sample(sample: Any, index: int) -> tuple[ImageLike, str]:
    if isinstance(sample, tuple) and len(sample) == 2 and isinstance(sample[1], str):
        return sample
    raise RecipeError(
        f"sample {index} of the data set is {type(sample).__name__}, not (image, caption), with the caption as str",
        code="E1096",
    )


def _save(image: ImageLike, stem: Path, index: int) -> Path:
    """Writes an image losslessly and synced to disk, or copies the file of a path. Returns the written file."""
    if isinstance(image, (str, Path)):
        source = Path(image)
        target = stem.with_name(stem.name + source.suffix.lower())
        durable.write_file(target, source.read_bytes())
        return target
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (3, 4):
            raise RecipeError(
                f"sample {index} of the data set is an array of {image.dtype} {image.shape}; write uint8 (H, W, 3)",
                code="E1096",
            )
        image = Image.fromarray(image)
    if not isinstance(image, Image.Image):
        raise RecipeError(
            f"sample {index} of the data set has an image of type {type(image).__name__}; return a PIL image, a "
            "uint8 array (H, W, 3), or a path",
            code="E1096",
        )
    content = io.BytesIO()
    image.save(content, "PNG", compress_level=1)
    target = stem.with_name(f"{stem.name}.png")
    durable.write_file(target, content.getvalue())
    return target
