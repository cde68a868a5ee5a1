"""MindSpore's checkpoints: read and written to the byte, and damaged ones are refused by name and place."""

from __future__ import annotations

import binascii
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from mindspore_files import RECORD, entry, entry_head, everything, file_of
from safetensors.torch import save_file
from torch import Tensor

from mezzotint import durable
from mezzotint.compat.mindone import mindspore_format
from mezzotint.errors import WeightsError
from mezzotint.weights.files import formats, tensor_files

DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool,
)  # fmt: skip


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.with_suffix(".json").read_text())
    return found


def test_mindspore_file_is_read_bit_exactly() -> None:
    found = everything(RECORD)
    record = recorded()
    for name, (kind, shape, values) in record["tensors"].items():
        assert str(found[name].dtype).removeprefix("torch.") == kind.lower()
        assert list(found[name].shape) == shape
        assert found[name].flatten().tolist() == values
    appended = {name: value for name, value in record["appended"].items() if not isinstance(value, str)}
    assert {name: found[name].item() for name in appended} == appended
    assert mindspore_format.read_metadata(RECORD) == {"note": "hello"}
    assert len(found) == len(record["tensors"]) + 3


def test_written_bytes_equal_those_of_mindspore(tmp_path: Path) -> None:
    found = everything(RECORD)
    mindspore_format.write(tmp_path / "again.ckpt", {name: found[name] for name in recorded()["tensors"]})
    written = (tmp_path / "again.ckpt").read_bytes()
    assert len(written) > 200
    assert RECORD.read_bytes().startswith(written)  # numbers and a text come after the tensors there


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 0, 3), (2, 1, 3, 2)], ids=str)
def test_tensors_of_each_dtype_and_shape_round_trip(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    count = torch.Size(shape).numel()
    raw = torch.randint(0, 256, (count * dtype.itemsize,), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    tensor = (raw & 1 if dtype == torch.bool else raw).view(dtype).reshape(shape)
    mindspore_format.write(tmp_path / "x.ckpt", {"x": tensor, "after": torch.ones(2)})
    found = everything(tmp_path / "x.ckpt")
    assert found["x"].dtype == dtype
    assert found["x"].shape == shape
    assert found["x"].reshape(-1).view(torch.uint8).equal(tensor.reshape(-1).view(torch.uint8))
    assert found["after"].tolist() == [1, 1]


def test_unsupported_dtypes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"x is torch.complex64, which MindSpore's format does not have") as caught:
        mindspore_format.write(tmp_path / "x.ckpt", {"x": torch.zeros(2, dtype=torch.complex64)})
    assert caught.value.code == "E1420"
    assert list(tmp_path.iterdir()) == []


def test_single_zero_dimension_of_older_versions_is_a_scalar(tmp_path: Path) -> None:
    path = file_of(
        tmp_path / "x.ckpt",
        entry("old", (0,), "Float32", b"\0\0\x80\x3f"),
        entry("empty", (0,), "Float32", b""),
        entry("packed", (), "Int8", b"\7"),
    )
    found = everything(path)
    assert (found["old"].shape, found["old"].item()) == ((), 1.0)
    assert found["empty"].shape == (0,)
    assert found["packed"].item() == 7


def test_int4_tensors_stay_packed(tmp_path: Path) -> None:
    path = file_of(tmp_path / "x.ckpt", entry("x", (2, 2), "Int4", b"\x12\x34\x56\xf8"))
    assert everything(path)["x"].tolist() == [[0x12, 0x34], [0x56, -8]]


def test_slices_begin_above_512_mebibytes() -> None:
    assert mindspore_format.SLICE == 512 * 1024 * 1024


def test_large_file_reads_only_headers_and_requested_tensors(tmp_path: Path) -> None:
    """Six gibibytes of nothing in twelve slices, which take no room on the disk, and a small tensor behind them."""
    path, part = tmp_path / "large.ckpt", mindspore_format.SLICE
    head = entry_head("large", (12, part // 4), "Float32", part)
    with path.open("wb") as file:
        for _ in range(12):
            file.write(head)
            file.seek(part, 1)
        file.write(entry("small", (2,), "Int8", b"\1\2"))
    read = counted_reads(path)
    assert mindspore_format.read_header(path)["large"].shape == (12, part // 4)
    assert everything_named(path, "small")["small"].tolist() == [1, 2]
    assert counted_reads(path) - read < 1_000_000


def counted_reads(path: Path) -> int:
    """Bytes that this process has read."""
    record = Path("/proc/self/io").read_text()
    return int(record.partition("rchar: ")[2].split()[0])


def everything_named(path: Path, *names: str) -> dict[str, Tensor]:
    return dict(mindspore_format.read(path, names))


def test_tensors_are_written_one_at_a_time(tmp_path: Path) -> None:
    made_when: list[int] = []
    path = tmp_path / "x.ckpt"
    aside = durable.temporary_path(path)

    def pairs() -> Iterator[tuple[str, Tensor]]:
        for number in range(3):
            made_when.append(aside.stat().st_size)
            yield f"x{number}", torch.full((1 << 15,), float(number))

    mindspore_format.write(path, pairs())
    assert made_when[0] == 0
    assert made_when[2] > made_when[1] > 100_000
    assert everything(path)["x2"][0] == 2


def test_trailing_checksum_is_verified(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    mindspore_format.write(path, {"x": torch.arange(100.0)})
    content = path.read_bytes()
    whole = content + b"crc_num" + binascii.crc32(content).to_bytes(10, "big")
    path.write_bytes(whole)
    assert everything(path)["x"].equal(torch.arange(100.0))
    path.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    assert mindspore_format.read_header(path)["x"].shape == (100,)
    with pytest.raises(WeightsError, match=r"its checksum is 0x[0-9a-f]{8}, its content gives 0x") as caught:
        everything(path)
    assert caught.value.code == "E1420"


def test_content_that_resembles_a_checksum_is_kept(tmp_path: Path) -> None:
    path = file_of(tmp_path / "x.ckpt", entry("x", (20,), "UInt8", b"abc" + b"crc_num" + bytes(10)))
    assert bytes(everything(path)["x"].tolist()).startswith(b"abccrc_num")
    assert len(everything(path)["x"]) == 20


def test_failed_write_keeps_the_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    mindspore_format.write(path, {"x": torch.ones(1)})
    before = path.read_bytes()

    def pairs() -> Iterator[tuple[str, Tensor]]:
        yield "x", torch.zeros(1)
        raise RuntimeError("pulled out")

    with pytest.raises(RuntimeError, match="pulled out"):
        mindspore_format.write(path, pairs())
    with pytest.raises(WeightsError, match="is a duplicate"):
        mindspore_format.write(path, [("x", torch.ones(1)), ("x", torch.ones(1))])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.ckpt"]


def test_invalid_strings_are_refused(tmp_path: Path) -> None:
    path = file_of(tmp_path / "x.ckpt", entry("note", (0,), "str", b"\xff\xff\xff\xff"))
    assert mindspore_format.read_header(path) == {}
    with pytest.raises(WeightsError, match="'note' is marked as text but is not text"):
        mindspore_format.read_metadata(path)


def test_corrupted_bytes_give_tensors_or_a_weights_error(tmp_path: Path) -> None:
    whole, dice, refused = RECORD.read_bytes(), random.Random(7), 0
    path = tmp_path / "x.ckpt"
    for _ in range(1000):
        content = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            place = dice.randrange(len(content))
            match dice.randrange(4):
                case 0:
                    content[place] ^= 1 << dice.randrange(8)
                case 1:
                    content[place] = dice.choice((0, 0x7F, 0x80, 0xFF))
                case 2:
                    del content[place : place + dice.randint(1, 9)]
                case _:
                    content[place:place] = dice.randbytes(dice.randint(1, 9))
        path.write_bytes(content)
        try:
            found = everything(path)
            mindspore_format.read_metadata(path)
            assert sum(tensor.nbytes for tensor in found.values()) <= len(content)
        except WeightsError as error:
            assert error.code == "E1420"  # noqa: PT017 - both ends are right
            refused += 1
    assert 400 < refused < 1000


def test_model_files_are_recognized_by_content(tmp_path: Path) -> None:
    tensors = {"a.weight": torch.arange(6.0).reshape(2, 3).bfloat16(), "b": torch.tensor(2)}
    mindspore_format.write(tmp_path / "x.safetensors", tensors)
    with (tmp_path / "x.safetensors").open("ab") as file:
        file.write(entry("note", (0,), "str", "from a trainer".encode("utf-32-le")))
    save_file(tensors, tmp_path / "y.ckpt")
    for name, is_ours in (("x.safetensors", True), ("y.ckpt", False)):
        path = tmp_path / name
        assert (formats.name_at(path) == "mindspore") is is_ours
        assert tensor_files.read_header(path)["a.weight"] == tensor_files.TensorInfo("BF16", (2, 3))
        found = tensor_files.read(path)
        assert all(found[key].equal(tensor) for key, tensor in tensors.items())
    assert tensor_files.read_metadata(tmp_path / "x.safetensors") == {"note": "from a trainer"}
    with pytest.raises(WeightsError, match="lacks 1 tensor"):
        tensor_files.read(tmp_path / "x.safetensors", ["c"])


def test_encrypted_checkpoint_is_refused(tmp_path: Path) -> None:
    path = file_of(tmp_path / "x.ckpt", (0x7F3A5ED8).to_bytes(4, "little") + bytes(100))
    with pytest.raises(WeightsError, match="encrypted MindSpore checkpoint"):
        tensor_files.read_header(path)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    assert formats.name_at(tmp_path / "x.ckpt") is None
    with pytest.raises(WeightsError) as caught:
        mindspore_format.read_header(tmp_path / "x.ckpt")
    assert caught.value.code == "E1401"


def test_non_finite_values_are_refused(tmp_path: Path) -> None:
    mindspore_format.write(tmp_path / "x.ckpt", {"x": torch.tensor([1.0, float("nan")])})
    with pytest.raises(WeightsError, match="1 of 2 values that are not finite"):
        tensor_files.read(tmp_path / "x.ckpt")


def test_weights_digest_depends_on_names_dtypes_shapes_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mindspore_format, "SLICE", 8)

    def digest(**tensors: Tensor) -> str:
        mindspore_format.write(tmp_path / "x.ckpt", tensors)
        return tensor_files.digest(tmp_path / "x.ckpt", ("a", "b"))

    a, b = torch.arange(4.0), torch.ones(2)
    first = digest(a=a, b=b)
    assert digest(b=b, c=b, a=a) == first
    others = [digest(a=a + 1, b=b), digest(a=a.reshape(2, 2), b=b), digest(a=a.int(), b=b), digest(a=a, c=b)]
    assert len({first, *others}) == 5
    save_file({"a": a, "b": b}, tmp_path / "y.safetensors")
    assert tensor_files.digest(tmp_path / "y.safetensors", ("a", "b")) == first
