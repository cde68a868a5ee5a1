"""The training pictures that are nearest to a run's last previews, in pixels and in the encoder's space."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from mezzotint import outside
from mezzotint.data.catalogue import likeness, thumbnails
from mezzotint.data.loading.loader import held_out
from mezzotint.recipe.recipe import Recipe
from mezzotint.run_folder import RunFolder
from mezzotint.tasks import assemble

MOST = 1000
"""How many training pictures are compared, evenly spread over them."""

_AT_ONCE = 64
_SIDE = 8


def nearest(
    recipe: Recipe, folder: RunFolder, dataset: assemble.Dataset, caches: assemble.Caches,
    encode: Callable[[Tensor], Tensor],
) -> dict[str, Any]:  # fmt: skip
    """For each preview of the last step that has some, the training picture that is nearest: by 8×8 shades, and by its
    latents where the cache has them, averaged to 8×8. As JSON; "usual" is the median distance of a training picture to
    the one nearest to it. Empty without previews of pictures. encode: pixels → moments. Raises MezzotintError and
    OSError."""
    previews = last_previews(folder)
    rows = dataset.rows
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(MOST, len(rows))).astype(np.int64))]
    if not previews or not len(rows):
        return {}
    spaces = {"pixels": _shades(recipe, dataset, rows)}
    if caches.latents is not None:
        spaces["latents"] = _latents(recipe, dataset, caches, rows)
    usual = {space: _usual(vectors) for space, (_, vectors) in spaces.items()}
    entries = []
    for path in previews:
        entry: dict[str, Any] = {"preview": str(path.relative_to(folder.path))}
        for space, (of_row, vectors) in spaces.items():
            own = [_shades_of(path)] if space == "pixels" else _encoded(path, encode)
            if len(vectors):
                row, apart = min((likeness.nearest(vectors, one, 1)[0] for one in own), key=lambda pair: pair[1])
                key = dataset.catalogue.key(int(of_row[row]))
                entry[space] = {"picture": key, "apart": apart, "usual": usual[space]}
        entries.append(entry)
    return {"compared": len(rows), "of": len(dataset.rows), "previews": entries}


def last_previews(folder: RunFolder) -> list[Path]:
    """The pictures of the last step that drew some; strips of clips are not compared."""
    steps = sorted(folder.samples.glob("step-*"), key=lambda path: (len(path.name), path.name))
    pictures = sorted(steps[-1].glob("*.png")) if steps else []
    return [path for path in pictures if not path.with_suffix(".mp4").exists()]


def _shades(
    recipe: Recipe, dataset: assemble.Dataset, rows: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:  # fmt: skip
    """Rows that can be read, and their shades."""
    small = [(row, thumbnails.thumbnail(dataset.catalogue, row, recipe.data)) for row in rows.tolist()]
    of_row = [
        (row, likeness.shades_of(Image.open(io.BytesIO(content)))) for row, content in small if content is not None
    ]
    return np.array([row for row, _ in of_row]), np.array([shades for _, shades in of_row])


def _shades_of(path: Path) -> NDArray[Any]:
    shades = thumbnails.shades_at(path)
    if shades is None:
        raise OSError(0, "is no picture that can be read", str(path))
    return shades


def _latents(
    recipe: Recipe, dataset: assemble.Dataset, caches: assemble.Caches, rows: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:  # fmt: skip
    """Rows and their latents in the cache, as they are seen in epoch 0."""
    of_row, vectors = [], []
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        for batch in held_out(dataset.catalogue, part, recipe.data, seed=recipe.run.seed, caches=caches):
            latents = batch.latents if batch.latents is not None else batch.moments
            if latents is None or latents.ndim != 4:
                return np.zeros(0, np.int64), np.zeros((0, 1), np.float32)
            vectors.append(_pooled(latents if batch.latents is not None else latents.chunk(2, dim=1)[0]))
            of_row.append(part[batch.positions.numpy()])
    return np.concatenate(of_row), np.concatenate(vectors)


def _pooled(latents: Tensor) -> NDArray[np.float32]:
    pooled: NDArray[np.float32] = torch.nn.functional.adaptive_avg_pool2d(latents.float().cpu(), _SIDE).numpy()
    return pooled


def _encoded(path: Path, encode: Callable[[Tensor], Tensor]) -> list[NDArray[np.float32]]:
    """A preview's latents, as it is and mirrored: a cached picture may be."""
    with outside.open_plain(path) as file, Image.open(file) as image:
        pixels = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)[None].float() / 127.5 - 1
    return [_pooled(encode(seen).chunk(2, dim=1)[0])[0] for seen in (pixels, pixels.flip(-1))]


def _usual(vectors: NDArray[Any]) -> float:
    """The median distance of a row to the one nearest to it; 0 without two rows."""
    flat = vectors.reshape(len(vectors), -1).astype(np.float64)
    if len(flat) < 2:
        return 0.0
    norms = (flat**2).sum(1)
    squared = norms[:, None] + norms[None] - 2 * flat @ flat.T
    np.fill_diagonal(squared, np.inf)
    return float(np.median(np.sqrt(np.maximum(squared.min(1), 0) / flat.shape[1])))
