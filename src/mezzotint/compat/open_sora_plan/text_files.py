"""Text embeddings as Open-Sora-Plan and its MindSpore port keep them: one .npz for each entry of an annotation, found
by name. Read without pickle; shapes and lengths are checked, their age cannot be.
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
"""Of any model: a file that claims more is not unpacked."""


def name_of(media: str, others: Iterable[tuple[str, str]]) -> str:
    """The name of an entry's file below the folder of embeddings: the media file's own with another ending and, before
    it, the other keys of the entry with their values, in its order (`Fish/a-frame_idx-0:65.npz`).

    media: path of the clip or picture as the entry has it. others: key and value of all but `path` and `cap`.
    """
    return os.path.splitext(media)[0] + "".join(f"-{key}-{value}" for key, value in others) + ".npz"


def read(path: Path, length: int | None = None, width: int | None = None) -> EmbeddingFile:
    """The embedding in a file. length: tokens that the model is given (`model_max_length`). width: of its text encoder;
    None where any will do.

    Raises CacheError E1310 with the reason a file cannot be used: not there, damaged, pickled, other arrays, another
    length or width, numbers that are not finite, a mask of anything but 0 and 1.
    """
    try:
        arrays = _arrays(path, most=8 * (length or _MOST_TOKENS) * (width or _MOST_WIDTH) + _HEADER_BYTES)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error
    except (
        ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError,
        RecursionError, SyntaxError, OverflowError, TypeError, tokenize.TokenError,
    ) as error:  # fmt: skip
        raise _refused(path, f"damaged, or no embeddings: {error}") from error
    states, mask = (_without_batch(arrays[name], dims) for name, dims in (("text_emb", 2), ("mask", 1)))
    if states.ndim != 2 or mask.ndim != 1 or len(states) != len(mask):
        raise _refused(path, f"text_emb has the shape {states.shape} and mask {mask.shape}; (L, D) and (L,) are needed")
    if length is not None and len(states) != length:
        raise _refused(path, f"holds {len(states)} tokens and the model is given {length}")
    if width is not None and states.shape[1] != width:
        raise _refused(path, f"is {states.shape[1]} wide and the model's text is {width} wide")
    if states.dtype.kind != "f" or mask.dtype.kind not in "bui" or not np.isin(mask, (0, 1)).all():
        raise _refused(path, "text_emb must be floats and mask 0 or 1")
    if not np.isfinite(states).all():
        raise _refused(path, "holds numbers that are not finite")
    return EmbeddingFile(states.astype(np.float32), mask.astype(np.uint8))


def write(path: Path, text: EmbeddingFile) -> None:
    """Writes an embedding so that both trainers read it; what is there is replaced whole. Raises StorageError."""
    assert text.states.ndim == 2
    assert text.mask.shape == text.states.shape[:1]
    file = io.BytesIO()
    np.savez(file, text_emb=text.states.astype(np.float32), mask=text.mask.astype(np.uint8))
    with durable.storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    durable.write_file(path, file.getvalue())


def _arrays(path: Path, most: int) -> dict[str, NDArray[Any]]:
    """The two arrays of an archive whose members are looked at before they are unpacked."""
    arrays: dict[str, NDArray[Any]] = {}
    with outside.open_plain(path) as file, zipfile.ZipFile(file) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        for name in ("text_emb", "mask"):
            if name not in members:
                raise _refused(path, f"has no {name}, but {', '.join(map(ascii, sorted(members)[:10])) or 'nothing'}")
            size = members[name].file_size
            if size > most:
                raise _refused(path, f"{name} has {size:,} bytes, more than the model's text can need ({most:,})")
            arrays[name] = _array(archive.read(members[name]))
    return arrays


def _array(data: bytes) -> NDArray[Any]:
    """The array of a .npy file. It is looked at where its bytes lie: no header can ask for more than there are."""
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


def _refused(path: Path, reason: str) -> CacheError:
    return CacheError(f"{path}: {reason}; make the text cache again, or train without it", code="E1310")
