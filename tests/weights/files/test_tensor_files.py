"""Weights files: valid ones round-trip, others are refused with the reason."""

from __future__ import annotations

import errno
import json
import os
import resource
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.autograd.profiler import profile

from mezzotint import durable
from mezzotint.errors import StorageError, WeightsError
from mezzotint.weights.files import tensor_files
from support.forked import exit_status


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)}, path)
    return path


def test_tensors_round_trip(tmp_path: Path) -> None:
    tensors = {
        "w": torch.randn(3, 4, 2),
        "half": torch.ones(2, dtype=torch.float16),
        "count": torch.tensor(7),
        "none": torch.empty(0, 3),
    }
    tensor_files.write(tensors, tmp_path / "x.safetensors", {"step": "3"})
    back = tensor_files.read(tmp_path / "x.safetensors")
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[k], tensors[k]) and back[k].dtype == tensors[k].dtype for k in tensors)
    assert tensor_files.read_metadata(tmp_path / "x.safetensors") == {"step": "3"}
    assert os.listdir(tmp_path) == ["x.safetensors"]
    again, digest = tensor_files.read_hashed(tmp_path / "x.safetensors")
    assert digest == durable.sha256(tmp_path / "x.safetensors")
    assert all(torch.equal(again[k], back[k]) and again[k].dtype == back[k].dtype for k in back)
    assert again.keys() == back.keys()


def test_header_has_dtypes_and_shapes(sound: Path) -> None:
    assert tensor_files.read_header(sound) == {"a": ("F32", (2, 3)), "b": ("BF16", (4,))}


def test_shared_and_non_contiguous_tensors_are_written_separately(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {"whole": base, "turned": base.T, "row": base[1], "again": base}
    tensor_files.write(tensors, tmp_path / "x.safetensors")
    back = tensor_files.read(tmp_path / "x.safetensors")
    assert all(torch.equal(back[k], tensors[k]) for k in tensors)


def test_only_named_tensors_are_read(sound: Path) -> None:
    assert tensor_files.read(sound, ["b"]).keys() == {"b"}
    with pytest.raises(WeightsError, match=r"lacks 1 tensor \(z\)") as caught:
        tensor_files.read(sound, ["b", "z"])
    assert caught.value.code == "E1405"


def test_read_tensors_do_not_depend_on_the_file(sound: Path) -> None:
    back = tensor_files.read(sound)
    with sound.open("r+b") as file:
        file.truncate(0)
    assert torch.equal(back["a"], torch.arange(6.0).reshape(2, 3))


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"nothing\.safetensors") as caught:
        tensor_files.read(tmp_path / "nothing.safetensors")
    assert caught.value.code == "E1401"


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(float("nan"), torch.float32), (float("inf"), torch.float16), (float("-inf"), torch.bfloat16)],
)
def test_non_finite_values_are_refused(tmp_path: Path, value: float, dtype: torch.dtype) -> None:
    spoilt = torch.ones(5, dtype=dtype)
    spoilt[3] = value
    path = tmp_path / "x.safetensors"
    save_file({"good": torch.ones(2), "bad": spoilt}, path)
    with pytest.raises(WeightsError, match="bad has 1 of 5") as caught:
        tensor_files.read(path)
    assert caught.value.code == "E1403"
    assert tensor_files.read(path, ["good"]).keys() == {"good"}
    with pytest.raises(WeightsError, match="bad has 1 of 5"):
        tensor_files.write({"bad": spoilt}, tmp_path / "new.safetensors")
    assert os.listdir(tmp_path) == ["x.safetensors"]


def test_full_disk_keeps_the_old_file(sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sound.read_bytes()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="make room") as caught:
        tensor_files.write({"a": torch.zeros(9)}, sound)
    assert caught.value.code == "E1701"
    assert str(sound) in caught.value.message
    assert sound.read_bytes() == before
    assert os.listdir(sound.parent) == [sound.name]


def test_file_is_byte_identical_to_safetensors(tmp_path: Path) -> None:
    """Written one tensor after the other, in the order and with the header of safetensors."""
    tensors = {
        "z": torch.arange(6.0).reshape(2, 3), "a": torch.ones(4, dtype=torch.bfloat16), "b": torch.tensor(3),
        "c": torch.ones(3, dtype=torch.bool), "d": torch.ones(2, dtype=torch.float16), "e": torch.empty(0, 4),
        "f": torch.ones(5, dtype=torch.uint8), "g": torch.ones(2, dtype=torch.float64),
        "h": torch.ones(3).to(torch.float8_e4m3fn), "i": torch.ones(2, dtype=torch.int32),
        "j": torch.ones(2, dtype=torch.int16), "k": torch.ones(2, dtype=torch.int8),
    }  # fmt: skip
    tensor_files.write(tensors, tmp_path / "ours")
    save_file(tensors, tmp_path / "theirs", metadata={"format": "pt"})
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_writing_copies_one_tensor_at_a_time(tmp_path: Path) -> None:
    """32 tensors of 1 MB that need a copy because of dtype and memory layout: one is copied at a time."""
    tensors = {f"{number:02}": torch.ones(512, 512).t() for number in range(32)}
    with profile(profile_memory=True) as seen:
        tensor_files.write(tensors, tmp_path / "x.safetensors", dtype=torch.float16)
    events = [event for event in seen.kineto_results.events() if event.name() == "[memory]"]
    taken = max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))
    assert 2**19 <= taken <= 3 * 2**20
    assert load_file(tmp_path / "x.safetensors")["00"].dtype == torch.float16


def test_file_size_limit_is_a_storage_error(sound: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StorageError, match="make room on the disk"):
            tensor_files.write({"a": torch.zeros(100_000)}, sound.with_name("large.safetensors"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(sound.parent) == [sound.name]


def test_written_file_has_default_permissions(tmp_path: Path) -> None:
    tensor_files.write({"a": torch.zeros(1)}, tmp_path / "x.safetensors")
    (tmp_path / "plain").touch()
    assert (tmp_path / "x.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode


def _index(folder: Path, table: object) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps(table))
    return path


def test_shards_are_read_as_one_file(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "s-1.safetensors")
    save_file({"b": torch.zeros(2)}, tmp_path / "s-2.safetensors")
    index = _index(tmp_path, {"weight_map": {"a": "s-1.safetensors", "b": "s-2.safetensors"}})
    assert tensor_files.read_header(index) == {"a": ("F32", (1,)), "b": ("F32", (2,))}
    assert tensor_files.read(index).keys() == {"a", "b"}
    assert tensor_files.read(index, ["b"]).keys() == {"b"}


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"weight_map": {"a": "../secret.safetensors"}}, "in its folder"),
        ({"weight_map": {"a": "/etc/passwd"}}, "in its folder"),
        ({"weight_map": {"a": "shard.bin"}}, "in its folder"),
        ({"weight_map": {"a": "gone.safetensors"}}, "does not exist"),
        ({"weight_map": {"a": 3}}, "in its folder"),
        ({"weight_map": [1]}, "weight_map"),
        ({}, "weight_map"),
        ([], "weight_map"),
    ],
)
def test_index_may_only_name_files_in_its_folder(tmp_path: Path, table: object, reason: str) -> None:
    save_file({"a": torch.ones(1)}, tmp_path.parent / "secret.safetensors")
    with pytest.raises(WeightsError, match=reason) as caught:
        tensor_files.read(_index(tmp_path, table))
    assert caught.value.code == "E1404"


def test_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "s-1.safetensors")
    save_file({"a": torch.zeros(1), "b": torch.zeros(1)}, tmp_path / "s-2.safetensors")
    index = _index(tmp_path, {"weight_map": {"a": "s-1.safetensors", "b": "s-2.safetensors"}})
    with pytest.raises(WeightsError, match="another shard"):
        tensor_files.read_header(index)


def test_iteration_over_shards_reuses_one_buffer(tmp_path: Path) -> None:
    shards = [tmp_path / f"m-0000{number}-of-00002.safetensors" for number in (1, 2)]
    save_file({"a": torch.full((4,), 1.0)}, shards[0])
    save_file({"b": torch.full((9,), 2.0)}, shards[1])
    index = _index(tmp_path, {"weight_map": {"a": shards[0].name, "b": shards[1].name}})
    places = set()
    for _name, tensor in tensor_files.iterate(index, ["a", "b"]):  # a tensor is kept while the next file is opened
        places.add(tensor.untyped_storage().data_ptr())
        assert tensor.untyped_storage().nbytes() == 9 * 4
    assert len(places) == 1


def test_mapped_tensors_equal_read_ones(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tensors = {
        "w": torch.randn(300, 1000),
        "half": torch.randn(5, dtype=torch.float16),
        "count": torch.tensor(7),
        "small": torch.randn(3).to(torch.float8_e4m3fn),
        "none": torch.empty(0, 3),
    }
    path = tmp_path / "x.safetensors"
    order = ("w", "small", "half", "count", "none")  # tensors after the second are not aligned
    kinds = {name: tensor_files.kind_of(tensors[name].dtype) for name in order}
    header = {name: tensor_files.TensorInfo(kinds[name], tuple(tensors[name].shape)) for name in order}
    tensor_files.write_iteratively(path, header, ((name, tensors[name]) for name in header))
    back = dict(tensor_files.iterate(path, ["w"], parts=True))
    held = back["w"].untyped_storage().nbytes()
    assert held == path.stat().st_size, "a view of the whole file"
    back |= dict(tensor_files.iterate(path, [name for name in header if name != "w"], parts=True))
    one_by_one = {name: tensor.clone() for name, tensor in tensor_files.iterate(path, header)}
    for name, tensor in tensors.items():
        for mine in (back[name], one_by_one[name]):
            assert (mine.dtype, mine.shape) == (tensor.dtype, tensor.shape)
            assert torch.equal(mine.float(), tensor.float()), name
    places = {tensor.untyped_storage().data_ptr() for _, tensor in tensor_files.iterate(path, header)}
    assert len(places) == 1, "memory for one tensor"
    with pytest.raises(WeightsError, match="lacks 1 tensor \\(v\\)"):
        list(tensor_files.iterate(path, ["v", "half"]))


@pytest.mark.parametrize("parts", [False, True])
def test_file_truncated_during_reading_is_reported(parts: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(3), "b": torch.ones(1 << 14)}, path)
    child = os.fork()  # with a memory map the process would be killed by a signal
    if not child:
        status = 1
        try:
            layer_streamer = tensor_files.iterate(path, ["a", "b"], parts=parts)
            next(layer_streamer)
            os.truncate(path, 8192)
            for _, tensor in layer_streamer:
                tensor.sum()
        except WeightsError as error:
            status = 0 if error.code == "E1402" and "it is shorter than its header declares" in error.message else 2
        finally:
            os._exit(status)
    assert exit_status(child) == 0
