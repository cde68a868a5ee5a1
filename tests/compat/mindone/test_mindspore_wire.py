"""The bytes of MindSpore's checkpoints: what is read, and where a damaged one is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mindspore_files import RECORD, entry, everything, file_of

from mezzotint.compat.mindone import _mindspore_wire as wire
from mezzotint.compat.mindone import mindspore_format
from mezzotint.errors import WeightsError
from mezzotint.weights.files import formats, tensor_files


def test_packed_dimensions_are_read(tmp_path: Path) -> None:
    tensor = wire.field(1, wire.varint(2) + wire.varint(300)) + wire.field(2, b"UInt8") + wire.field(3, bytes(600))
    path = file_of(tmp_path / "x.ckpt", wire.field(1, wire.field(1, b"x") + wire.field(2, tensor)))
    assert everything(path)["x"].shape == (2, 300)


@pytest.mark.parametrize(("limit", "sizes"), [(40, [40]), (39, [20, 20]), (16, [16, 12, 12]), (4, [4] * 10)])
def test_large_tensor_is_stored_in_equal_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(mindspore_format, "SLICE", limit)
    path = tmp_path / "x.ckpt"
    tensor = torch.arange(10.0).reshape(5, 2)
    mindspore_format.write(path, {"before": torch.ones(1), "x": tensor, "after": torch.ones(1)})
    with path.open("rb") as file:
        values = list(wire.values(file.fileno(), path.stat().st_size))
    assert [value.size for value in values if value.name == "x"] == sizes
    assert {value.dims for value in values if value.name == "x"} == {(5, 2)}
    assert everything(path)["x"].equal(tensor)
    assert tensor_files.read_header(path) == {
        "before": tensor_files.TensorInfo("F32", (1,)),
        "x": tensor_files.TensorInfo("F32", (5, 2)),
        "after": tensor_files.TensorInfo("F32", (1,)),
    }


def test_endless_empty_slices_are_refused_quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mindspore_format, "ENTRY_LIMIT", 1000)
    path = file_of(tmp_path / "x.ckpt", entry("x", (1 << 40,), "UInt8", b"") * 1001)
    with pytest.raises(WeightsError, match="too many entries"):
        mindspore_format.read_header(path)


ONE = entry("x", (1,), "Float32", bytes(4))
DAMAGES: dict[str, tuple[bytes, str]] = {
    "no type": (wire.field(1, wire.field(1, b"x") + wire.field(2, wire.field(3, b"1"))), "has no type"),
    "no name": (wire.field(1, wire.field(2, wire.field(2, b"Bool"))), "no name"),
    "no tensor": (wire.field(1, wire.field(1, b"x")), "no tensor"),
    "sparse": (wire.field(1, wire.field(1, b"x") + wire.field(3, b"")), "sparse table"),
    "unknown type": (entry("x", (1,), "Float7", b"1"), "'x' is of type 'Float7'; known types: Float64"),
    "too few bytes": (entry("x", (2, 3), "Float32", bytes(20)), r"'x' has 20 bytes, its shape \[2, 3\] needs 24"),
    "too many bytes": (entry("x", (2,), "Float32", bytes(20)), "'x' has 20 bytes"),
    "absurd shape": (entry("x", (1 << 62, 1 << 62), "Float32", bytes(4)), "needs 85,070,5"),
    "negative": (entry("x", (2**64 - 1,), "Float32", bytes(4)), "impossible dimensions"),
    "deep": (entry("x", (1,) * 65, "UInt8", b"1"), "impossible dimensions"),
    "twice": (ONE + ONE, "'x' is in the file twice"),
    "twice, apart": (ONE + entry("y", (1,), "Float32", bytes(4)) + ONE, "'x' is in the file twice"),
    "slice of another shape": (
        entry("x", (4,), "UInt8", b"12") + entry("x", (2, 2), "UInt8", b"34"),
        "'x' continues in another shape or type",
    ),
    "slice that lacks": (entry("x", (4,), "UInt8", b"12") + entry("y", (1,), "UInt8", b"3"), "'x' has 2 bytes"),
    "length beyond the entry": (wire.field(1, wire.head(1, 50) + b"x"), "lengths contradict each other|cut short"),
    "another message": (ONE + b"\x08\x01", "starts with 8"),
    "endless number": (ONE + b"\xff" * 12, "a number does not end"),
    "long name": (entry("n" * 5000, (1,), "UInt8", b"1"), "a name has 5,000 bytes"),
    "name of bytes": (ONE + wire.field(1, wire.field(1, b"\xff\xfe") + wire.field(2, b"")), "a name is not text"),
    "unknown field": (ONE + wire.field(1, wire.field(1, b"y") + wire.field(7, b"")), r"unexpected field \(7"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_refused_with_the_position(tmp_path: Path, damage: str) -> None:
    content, words = DAMAGES[damage]
    path = file_of(tmp_path / "x.ckpt", content)
    for act in (mindspore_format.read_header, everything, mindspore_format.read_metadata):
        with pytest.raises(WeightsError, match=words) as caught:
            act(path)
        assert caught.value.code == "E1420"
        assert str(path) in str(caught.value)
        assert "at byte" in str(caught.value)


def test_truncated_file_is_reported_wherever_it_ends(tmp_path: Path) -> None:
    whole = RECORD.read_bytes()
    ends = [0]
    with RECORD.open("rb") as file:
        ends += [value.end for value in wire.values(file.fileno(), len(whole))]
    for length in sorted({*range(0, len(whole), 2), *ends[:-1]}):
        path = file_of(tmp_path / "cut.ckpt", whole[:length])
        if length in ends:
            assert len(mindspore_format.read_header(path)) == ends.index(length) - (length > ends[-3])
            continue
        with pytest.raises(WeightsError, match="cut short"):
            mindspore_format.read_header(path)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\n", b"\n\x05\n", b"PK\x03\x04abc", b"\x80\x02}q\x00.", b"{}", b"\n\n\n\n\n\n",
        b"\n\x0c\n\x08" + bytes(8) + b"{}", b"\n\x08\n\x04text\x1a\x00", b"\x0a\x02\x0a\x09longer than told",
    ],
    ids=range(10),
)  # fmt: skip
def test_other_files_are_not_recognized(tmp_path: Path, content: bytes) -> None:
    path = file_of(tmp_path / "x.ckpt", content)
    assert formats.name_at(path) is None
    with pytest.raises(WeightsError) as caught:
        tensor_files.read_header(path)
    assert caught.value.code == "E1402"
