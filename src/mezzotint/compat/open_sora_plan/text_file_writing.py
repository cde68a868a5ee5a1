"""Files of text embeddings that lists of clips name (`data.clip_list.text_embeddings`): `mezzotint cache` writes
missing ones; a run without any of them is refused with the command that writes them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from mezzotint.compat.open_sora_plan import clip_list, text_files
from mezzotint.compat.open_sora_plan.latte_spec import LatteSettings
from mezzotint.data.catalogue.catalogue import joined_images_settings
from mezzotint.data.files.caption_cleaning import cleaner
from mezzotint.data.formats.base import EmbeddingFile
from mezzotint.errors import CacheError
from mezzotint.runtimes.base import Runtime
from mezzotint.settings.counting import format_count
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks import assemble
from mezzotint.weights.model_files import ModelFiles

ENCODER = "DeepFloyd/t5-v1_1-xxl"
_BATCH_SIZE = 16


def require(recipe: Recipe, arguments: Sequence[str]) -> None:
    """Raises CacheError E1310 if the lists name embeddings and none of them exists; DatasetError E1231 and E1232.
    arguments: of the command, for the printed command."""
    paths = list(_captions_by_path(recipe))
    if not paths or any(os.path.isfile(path) for path in paths):
        return
    arguments = list(arguments)
    if _encoder(recipe) is None:
        index = arguments.index("--") if "--" in arguments else len(arguments)
        arguments.insert(index, f"model.latte.text_encoder={ENCODER}")
    raise CacheError(
        f"{paths[0]}: does not exist, nor any other of {format_count(len(paths), 'embedding')} that the lists name; "
        f"write them with: {shlex.join(['mezzotint', 'cache', *arguments])}",
        code="E1310",
    )


@torch.no_grad()
def make(recipe: Recipe, files: ModelFiles, runtime: Runtime, say: Callable[[str], None]) -> int:
    """Writes the missing embeddings that the lists name, if the recipe has a text encoder; each process writes its
    share. Returns the total number. Raises WeightsError, StorageError, DatasetError."""
    if _encoder(recipe) is None:
        return 0
    absent = [(path, caption) for path, caption in _captions_by_path(recipe).items() if not os.path.isfile(path)]
    runtime.barrier()  # all processes must see the same missing files before any of them writes
    if not absent:
        return 0
    say(f"cache: {format_count(len(absent), 'embedding')} to write to files, with {_encoder(recipe)}")
    load = assemble.encoders(recipe, files, runtime.device)
    mine = absent[runtime.rank :: runtime.world_size]
    clean = cleaner() if recipe.data.captions.clean else str
    family = load("text") if mine else None
    for first in range(0, len(mine), _BATCH_SIZE):
        chunk = mine[first : first + _BATCH_SIZE]
        assert family is not None
        embedding = family.encode_text([clean(caption) for _, caption in chunk])
        assert embedding.mask is not None
        states, masks = embedding.states.float().cpu().numpy(), embedding.mask.to(torch.uint8).cpu().numpy()
        for (path, _), state, mask in zip(chunk, states, masks, strict=True):
            text_files.write(path, EmbeddingFile(state, mask))
    runtime.barrier()
    return len(absent)


def _captions_by_path(recipe: Recipe) -> dict[Path, str]:
    """Captions by the file of their embedding, for every entry whose clip or image exists."""
    clips = recipe.data.clips
    lists = list(recipe.data.paths)
    stills_are_listed = joined_images_settings(recipe.data).format == recipe.data.format
    if clips.images_from == "images" and stills_are_listed:
        lists += clips.images_path
    captions: dict[Path, str] = {}
    for path in lists:
        for embedding, caption in clip_list.embeddings(Path(os.path.abspath(path.expanduser()))):
            captions.setdefault(embedding, caption)
    return captions


def _encoder(recipe: Recipe) -> Path | None:
    """The folder of the recipe's text encoder."""
    return recipe.model.get_section(LatteSettings).text_encoder
