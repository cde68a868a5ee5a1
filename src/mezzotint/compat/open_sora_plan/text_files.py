"""Text embeddings of Open-Sora-Plan and its MindSpore port: one .npz file for each entry of an annotation, found by
name. They are read without pickle; shapes and lengths are checked, their age cannot be.
"""

from __future__ import annotations

import io
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint import durable, outside
from mezzotint.data.formats.base import EmbeddingFile
from mezzotint.errors import CacheError

_HEADER_BYTES = 4096
_MOST_TOKENS, _MOST_WIDTH = 1024, 8192
"""Limits for any model: a file with larger arrays is not unpacked."""


def name_of(media: str, others: Iterable[tuple[str, str]]) -> str:
    """The name of an entry's file in the folder of embeddings: the media file's name with another suffix, preceded by
    the other keys of the entry with their values, in order (`Fish/a-frame_idx-0:65.npz`).

    media: path of the clip or image in the entry. others: keys and values except `path` and `cap`.
    """
    return os.path.splitext(media)[0] + "".join(f"-{key}-{value}" for key, value in others) + ".npz"


def read(path: Path, length: int | None = None, width: int | None = None) -> EmbeddingFile:
    """The embedding in a file. length: number of tokens of the model (`model_max_length`). width: of its text encoder.
    None accepts any.

    Raises CacheError E1310 with the reason if the file is missing, damaged, pickled, or has other arrays, another
    length or width, non-finite numbers, or a mask of other values than 0 and 1.
    """
    try:
        arrays = _arrays(path, most=8 * (length or _MOST_TOKENS) * (width or _MOST_WIDTH) + _HEADER_BYTES)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    except (
        ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError,
        RecursionError, SyntaxError, OverflowError, TypeError, tokenize.TokenError,
    ) as error:  # fmt: skip
        raise _unusable(path, f"is damaged, or has no embeddings: {error}") from error
    states, mask = (_without_batch(arrays[name], dims) for name, dims in (("text_emb", 2), ("mask", 1)))
    if states.ndim != 2 or mask.ndim != 1 or len(states) != len(mask):
        raise _unusable(
            path, f"text_emb has the shape {states.shape} and mask {mask.shape}; (L, D) and (L,) are needed"
        )
    if length is not None and len(states) != length:
        raise _unusable(path, f"has {len(states)} tokens, but the model needs {length}")
    if width is not None and states.shape[1] != width:
        raise _unusable(path, f"has a width of {states.shape[1]}, but the model needs {width}")
    if states.dtype.kind != "f" or mask.dtype.kind not in "bui" or not np.isin(mask, (0, 1)).all():
        raise _unusable(path, "text_emb must be floats and mask 0 or 1")
    if not np.isfinite(states).all():
        raise _unusable(path, "has non-finite numbers")
    return EmbeddingFile(states.astype(np.float32), mask.astype(np.uint8))


def write(path: Path, text: EmbeddingFile) -> None:
    """Writes an embedding that both trainers can read; an existing file is replaced atomically. Raises StorageError."""
    assert text.states.ndim == 2
    assert text.mask.shape == text.states.shape[:1]
    file = io.BytesIO()
    np.savez(file, text_emb=text.states.astype(np.float32), mask=text.mask.astype(np.uint8))
    with durable.storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    durable.write_file(path, file.getvalue())


def _arrays(path: Path, most: int) -> dict[str, NDArray[Any]]:
    """The two arrays of an archive, whose members are checked before they are unpacked."""
    arrays: dict[str, NDArray[Any]] = {}
    with outside.open_plain(path) as file, zipfile.ZipFile(file) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        for name in ("text_emb", "mask"):
            if name not in members:
                raise _unusable(
                    path, f"has no {name}; it has {', '.join(map(ascii, sorted(members)[:10])) or 'nothing'}"
                )
            size = members[name].file_size
            if size > most:
                raise _unusable(path, f"{name} has {size:,} bytes, more than the model's text can have ({most:,})")
            arrays[name] = _array(archive.read(members[name]))
    return arrays


def _array(data: bytes) -> NDArray[Any]:
    """The array of a .npy file, as a view of its bytes: no header can allocate more memory."""
    content = io.BytesIO(data)
    version = np.lib.format.read_magic(content)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read_header(content)
    if dtype.hasobject:
        raise ValueError("Object arrays are pickles")
    flat = np.frombuffer(data, dtype, offset=content.tell())
    return flat.reshape(shape, order="F" if is_fortran else "C")


def _without_batch(array: NDArray[Any], dims: int) -> NDArray[Any]:
    return array[0] if array.ndim == dims + 1 and array.shape[0] == 1 else array


def _unusable(path: Path, reason: str) -> CacheError:
    return CacheError(f"{path}: {reason}; write the text cache again, or train without it", code="E1310")
