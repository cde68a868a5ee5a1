"""Files of new words (textual inversion), as diffusers, A1111 and kohya's scripts write and read them.

diffusers    learned_embeds.safetensors, of SDXL learned_embeds_2.safetensors besides; one tensor (n, D), called as
             the word
kohya        one .safetensors file: `emb_params` (n, D); of SDXL `clip_l` and `clip_g`. A1111 and ComfyUI read it; the
             word is the file's name
A1111        a pickle with `string_to_param`; read, and not written
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from mezzotint.errors import WeightsError
from mezzotint.weights.files import fingerprint, pickled, tensor_files

DIFFUSERS_NAMES = ("learned_embeds.safetensors", "learned_embeds_2.safetensors")
"""Of the first text encoder, and of the second."""

_BY_TABLE = ("clip_l", "clip_g")


def read(path: Path, encoders: Sequence[str]) -> dict[str, Tensor]:
    """A word's rows (n, D) by text encoder, in float32.

    path: a file, or a folder with diffusers' files. encoders: those of the model, in its order. Raises WeightsError
    E1471 where the file holds no word, or one for another number of text encoders; E1401 to E1403, E1411 as any file of
    tensors.
    """
    if path.is_dir():
        files = [path / name for name in DIFFUSERS_NAMES if (path / name).is_file()]
        if not files:
            raise _no_word(path, f"has no {DIFFUSERS_NAMES[0]}")
        tables = [_only(file, _tensors(file)) for file in files]
    else:
        tensors = _tensors(path)
        both = [tensors[name] for name in _BY_TABLE if name in tensors]
        tables = both if both else [_only(path, tensors)]
    if len(tables) != len(encoders):
        raise _no_word(
            path,
            f"is of a model with {len(tables)} text encoder{'s' * (len(tables) > 1)}, and this one has {len(encoders)}"
            + ("; of SDXL give the folder with both files" if path.is_file() and len(encoders) == 2 else ""),
        )
    rows = {part: table.reshape(-1, table.shape[-1]).float() for part, table in zip(encoders, tables, strict=True)}
    if len({len(own) for own in rows.values()}) != 1:
        raise _no_word(path, "has another number of rows for each text encoder")
    return rows


def write(
    folder: Path, words: Mapping[str, Mapping[str, Tensor]], dtype: torch.dtype, metadata: Mapping[str, str]
) -> list[Path]:
    """Writes words' rows into a folder, for diffusers, and into a folder `embeddings` in it as A1111 and ComfyUI keep
    them; returns the files. Of several words, each has a folder of its own for diffusers' files. words: rows (n, D) by
    text encoder, of each word. Raises as `tensor_files.write`."""
    written: list[Path] = []
    for word, by_part in words.items():
        stem = plain_name(word)
        rows = [own.detach().cpu().to(dtype).contiguous() for own in by_part.values()]
        own_folder = folder if len(words) == 1 else folder / stem
        own_folder.mkdir(parents=True, exist_ok=True)
        names = ["emb_params"] if len(rows) == 1 else list(_BY_TABLE)
        files = {own_folder / file: {word: table} for file, table in zip(DIFFUSERS_NAMES, rows, strict=False)}
        files[folder / "embeddings" / f"{stem}.safetensors"] = dict(zip(names, rows, strict=True))
        for file, tensors in files.items():
            file.parent.mkdir(exist_ok=True)
            tensor_files.write(tensors, file, metadata)
            written.append(file)
    return written


def beside(path: Path) -> dict[str, Path]:
    """The new words whose files lie in the folder of an adapter, as `write` leaves them there, and the file of each
    that brings it. path: of the adapter, or its folder. What cannot be read is left out."""
    folder = path if path.is_dir() else path.parent
    words: dict[str, Path] = {}
    for file in sorted((*folder.glob(DIFFUSERS_NAMES[0]), *folder.glob(f"*/{DIFFUSERS_NAMES[0]}"))):
        with suppress(WeightsError):
            for word in tensor_files.read_header(file):
                own = folder / "embeddings" / f"{plain_name(word)}.safetensors"
                words[word] = own if own.is_file() else file
    return words


def fingerprint_of(path: Path) -> str:
    """64 hexadecimal digits of a word's file, or of the files in its folder."""
    if path.is_dir():
        return fingerprint.of_files([path / name for name in DIFFUSERS_NAMES if (path / name).is_file()])
    return fingerprint.of_file(path)


def plain_name(word: str) -> str:
    """A word as a file's name: `<red toy>` is `red-toy`."""
    return re.sub(r"[^\w.-]+", "-", word).strip("-.") or "word"


def _tensors(path: Path) -> dict[str, Tensor]:
    if not pickled.is_pickled(path):
        return tensor_files.read(path)
    with TemporaryDirectory(prefix="mezzotint-word-") as scratch:
        converted = Path(scratch, "word.safetensors")
        pickled.convert(path, converted)
        return tensor_files.read(converted)


def _only(path: Path, tensors: Mapping[str, Tensor]) -> Tensor:
    rows = [one for one in tensors.values() if one.ndim in (1, 2) and one.is_floating_point()]
    if len(tensors) != 1 or not rows:
        raise _no_word(path, f"holds {tensor_files.listed(tensors, 3)}")
    return rows[0]


def _no_word(path: Path, why: str) -> WeightsError:
    return WeightsError(
        f"{path}: {why}; a file of a new word has one tensor of rows for each text encoder, as diffusers, A1111 and "
        "kohya's scripts write it",
        code="E1471",
    )
