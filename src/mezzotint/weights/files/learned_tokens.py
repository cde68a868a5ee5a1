"""Textual inversion embedding files (learned tokens), in the formats of diffusers, A1111 and kohya's scripts.

diffusers    learned_embeds.safetensors, for SDXL also learned_embeds_2.safetensors; one tensor (n, D), named like the
             token
kohya        one .safetensors file: `emb_params` (n, D); for SDXL `clip_l` and `clip_g`. A1111 and ComfyUI read it; the
             token is the file's name
A1111        a pickle with `string_to_param`; read, not written
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
"""For the first text encoder, and for the second."""

_BY_TABLE = ("clip_l", "clip_g")


def read(path: Path, encoders: Sequence[str]) -> dict[str, Tensor]:
    """A token's embedding rows (n, D) by text encoder, in float32.

    path: a file, or a folder with diffusers' files. encoders: those of the model, in its order. Raises WeightsError
    E1471 where the file is not an embedding, or is for another number of text encoders; E1401 to E1403 and E1411 as for
    any tensor file.
    """
    if path.is_dir():
        files = [path / name for name in DIFFUSERS_NAMES if (path / name).is_file()]
        if not files:
            raise _not_an_embedding(path, f"has no {DIFFUSERS_NAMES[0]}")
        tables = [_only(file, _tensors(file)) for file in files]
    else:
        tensors = _tensors(path)
        both = [tensors[name] for name in _BY_TABLE if name in tensors]
        tables = both if both else [_only(path, tensors)]
    if len(tables) != len(encoders):
        raise _not_an_embedding(
            path,
            f"is for a model with {len(tables)} text encoder{'s' * (len(tables) > 1)}, this one has {len(encoders)}"
            + ("; for SDXL give the folder with both files" if path.is_file() and len(encoders) == 2 else ""),
        )
    rows = {part: table.reshape(-1, table.shape[-1]).float() for part, table in zip(encoders, tables, strict=True)}
    if len({len(table) for table in rows.values()}) != 1:
        raise _not_an_embedding(path, "has a different number of rows for each text encoder")
    return rows


def write(
    folder: Path, tokens: Mapping[str, Mapping[str, Tensor]], dtype: torch.dtype, metadata: Mapping[str, str]
) -> list[Path]:
    """Writes the embeddings of learned tokens into a folder in diffusers' format, and into its subfolder `embeddings`
    in the format of A1111 and ComfyUI; returns the files. With several tokens, diffusers' files of each are in a folder
    of their own. tokens: rows (n, D) by text encoder, of each token. Raises as `tensor_files.write`."""
    written: list[Path] = []
    for word, by_part in tokens.items():
        stem = plain_name(word)
        rows = [table.detach().cpu().to(dtype).contiguous() for table in by_part.values()]
        token_folder = folder if len(tokens) == 1 else folder / stem
        token_folder.mkdir(parents=True, exist_ok=True)
        names = ["emb_params"] if len(rows) == 1 else list(_BY_TABLE)
        files = {token_folder / file: {word: table} for file, table in zip(DIFFUSERS_NAMES, rows, strict=False)}
        files[folder / "embeddings" / f"{stem}.safetensors"] = dict(zip(names, rows, strict=True))
        for file, tensors in files.items():
            file.parent.mkdir(exist_ok=True)
            tensor_files.write(tensors, file, metadata)
            written.append(file)
    return written


def tokens_next_to(path: Path) -> dict[str, Path]:
    """The learned tokens whose files are in the folder of an adapter, as `write` leaves them, with the file to load for
    each. path: of the adapter, or its folder. Files that cannot be read are left out."""
    folder = path if path.is_dir() else path.parent
    tokens: dict[str, Path] = {}
    for file in sorted((*folder.glob(DIFFUSERS_NAMES[0]), *folder.glob(f"*/{DIFFUSERS_NAMES[0]}"))):
        with suppress(WeightsError):
            for word in tensor_files.read_header(file):
                single = folder / "embeddings" / f"{plain_name(word)}.safetensors"
                tokens[word] = single if single.is_file() else file
    return tokens


def fingerprint_of(path: Path) -> str:
    """64 hexadecimal digits that identify an embedding file, or the files in its folder."""
    if path.is_dir():
        return fingerprint.of_files([path / name for name in DIFFUSERS_NAMES if (path / name).is_file()])
    return fingerprint.of_file(path)


def plain_name(word: str) -> str:
    """A token as a file name: `<red toy>` gives `red-toy`."""
    return re.sub(r"[^\w.-]+", "-", word).strip("-.") or "word"


def _tensors(path: Path) -> dict[str, Tensor]:
    if not pickled.is_pickled(path):
        return tensor_files.read(path)
    with TemporaryDirectory(prefix="mezzotint-word-") as scratch:
        converted = Path(scratch, "word.safetensors")
        pickled.convert(path, converted)
        return tensor_files.read(converted)


def _only(path: Path, tensors: Mapping[str, Tensor]) -> Tensor:
    tables = [tensor for tensor in tensors.values() if tensor.ndim in (1, 2) and tensor.is_floating_point()]
    if len(tensors) != 1 or not tables:
        raise _not_an_embedding(path, f"contains {tensor_files.summary(tensors, 3)}")
    return tables[0]


def _not_an_embedding(path: Path, why: str) -> WeightsError:
    return WeightsError(
        f"{path}: {why}; a textual inversion file has one tensor of rows for each text encoder, as diffusers, A1111 "
        "and kohya's scripts write it",
        code="E1471",
    )
