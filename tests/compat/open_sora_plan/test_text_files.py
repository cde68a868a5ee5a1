"""Foreign files of text embeddings: what is written is read, and everything else is refused with a reason."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.compat.open_sora_plan.text_files import EmbeddingFile, name_of, read, write
from mezzotint.errors import CacheError

STATES = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
MASK = np.array([1, 1, 0, 0], dtype=np.uint8)


def refused(path: Path, length: int = 4, width: int = 3) -> str:
    with pytest.raises(CacheError) as caught:
        read(path, length=length, width=width)
    assert caught.value.code == "E1310"
    return caught.value.message.removeprefix(f"{path}: ")


def test_file_names_hold_the_other_keys_in_order() -> None:
    assert name_of("Fish/a.mp4", [("frame_idx", "0:65")]) == "Fish/a-frame_idx-0:65.npz"
    assert name_of("a.b/c.d.jpg", []) == "a.b/c.d.npz"
    assert name_of("a.mp4", [("z", "1"), ("frame_idx", "3:9")]) == "a-z-1-frame_idx-3:9.npz"


def test_written_embeddings_are_read_by_both_programs(tmp_path: Path) -> None:
    path = tmp_path / "Fish" / "a-frame_idx-0:65.npz"
    write(path, EmbeddingFile(STATES, MASK))
    ours = read(path, length=4, width=3)
    assert np.array_equal(ours.states, STATES)
    assert np.array_equal(ours.mask, MASK)
    with np.load(path, allow_pickle=False) as theirs:
        assert (theirs["text_emb"].dtype, theirs["text_emb"].shape) == (np.float32, (4, 3))
        assert (theirs["mask"].dtype, theirs["mask"].shape) == (np.uint8, (4,))
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_leading_axis_other_dtypes_and_extra_arrays_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(
        path, text_emb=STATES[None].astype(np.float16), mask=MASK[None].astype(np.int64), tokens=np.arange(4)
    )
    found = read(path, length=4, width=3)
    assert np.array_equal(found.states, STATES.astype(np.float16).astype(np.float32))
    assert found.mask.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"text_emb": STATES}, "has no mask; it has 'text_emb'"),
        ({"a": STATES}, "has no text_emb; it has 'a'"),
        ({"text_emb": STATES[:3], "mask": MASK[:3]}, "has 3 tokens, but the model needs 4"),
        ({"text_emb": STATES[:, :2], "mask": MASK}, "has a width of 2, but the model needs 3"),
        ({"text_emb": STATES, "mask": MASK[:3]}, "text_emb has the shape (4, 3) and mask (3,)"),
        ({"text_emb": np.stack([STATES] * 2), "mask": MASK}, "text_emb has the shape (2, 4, 3)"),
        ({"text_emb": STATES, "mask": MASK * 2}, "text_emb must be floats and mask 0 or 1"),
        ({"text_emb": STATES.astype(int), "mask": MASK}, "text_emb must be floats and mask 0 or 1"),
        ({"text_emb": STATES + np.float32("inf"), "mask": MASK}, "has non-finite numbers"),
        ({"text_emb": np.zeros((400, 30)), "mask": MASK}, "text_emb has 96,128 bytes, more than the model's text"),
        (
            {"text_emb": np.array([STATES, None], dtype=object), "mask": MASK},
            "is damaged, or has no embeddings: Object arrays",
        ),
    ],
)
def test_other_files_are_refused(arrays: dict[str, Any], reason: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    found = refused(tmp_path / "a.npz")
    assert found.startswith(reason)
    assert found.endswith("; write the text cache again, or train without it")


def test_damaged_and_missing_files_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.npz").startswith("No such file or directory")
    file = io.BytesIO()
    np.savez(file, text_emb=STATES, mask=MASK)
    data = bytearray(file.getvalue())
    (tmp_path / "cut.npz").write_bytes(data[:-30])
    assert refused(tmp_path / "cut.npz").startswith("is damaged")
    at = data.index(STATES.tobytes())
    data[at + 5] ^= 0xFF
    (tmp_path / "flipped.npz").write_bytes(data)
    assert "CRC" in refused(tmp_path / "flipped.npz")
    (tmp_path / "npy.npz").write_bytes(b"\x93NUMPY")
    assert refused(tmp_path / "npy.npz").startswith("is damaged")
    with zipfile.ZipFile(tmp_path / "pickle.npz", "w") as archive:
        for name in ("text_emb", "mask"):
            archive.writestr(f"{name}.npy", b"cos\nsystem\n(S'true'\ntR.")
    assert refused(tmp_path / "pickle.npz").startswith("is damaged, or has no embeddings")


def test_arrays_claiming_terabytes_are_refused_before_allocation(tmp_path: Path) -> None:
    header = io.BytesIO()
    claim = {"descr": "<f4", "fortran_order": False, "shape": (1 << 20, 1 << 20)}
    np.lib.format.write_array_header_1_0(header, claim)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name in ("text_emb", "mask"):
            archive.writestr(f"{name}.npy", header.getvalue() + bytes(16))
    for length, width in ((4, 3), (None, None)):
        with pytest.raises(CacheError) as caught:
            read(tmp_path / "a.npz", length=length, width=width)
        assert caught.value.code == "E1310"
