"""Weights formats besides safetensors: registered ones are recognised by their first bytes and written by suffix."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mezzotint.errors import RecipeError, WeightsError
from mezzotint.settings import weights_formats
from mezzotint.weights import kinds
from mezzotint.weights.files import formats, tensor_files
from support.numbers_format import add_numbers_format

TENSORS = {"a.weight": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the format `numbers`, with the suffix of another format."""
    add_numbers_format(tmp_path / "packages", monkeypatch)
    written, path = tmp_path / "x.numbers", tmp_path / "x.safetensors"
    numbers = formats.format_for(written)
    assert numbers is not None
    numbers.write(written, TENSORS.items())
    return written.rename(path)


def test_registered_format_is_recognised_for_any_suffix(file: Path) -> None:
    assert formats.name_at(file) == "numbers"
    assert tensor_files.read_header(file)["a.weight"] == tensor_files.TensorInfo("F32", (2, 3))
    assert tensor_files.read_metadata(file) == {"by": "numbers"}
    read, layer_streamer = tensor_files.read(file), dict(tensor_files.iterate(file, ["b", "a.weight"]))
    assert all(read[name].equal(tensor) and layer_streamer[name].equal(tensor) for name, tensor in TENSORS.items())
    save_file(TENSORS, file.with_name("y.numbers"))
    assert formats.name_at(file.with_name("y.numbers")) is None
    assert formats.name_at(file.with_name("no.numbers")) is None
    names = tuple(TENSORS)
    assert tensor_files.digest(file, names) == tensor_files.digest(file.with_name("y.numbers"), names)
    assert kinds.describe_path(file.rename(file.with_suffix(".x"))) == "an unknown kind of file"


def test_file_that_its_format_cannot_read_is_reported(file: Path) -> None:
    file.write_bytes(b"#locked " + bytes(100))
    with pytest.raises(WeightsError, match="cannot be read as weights: it is locked; unlock it"):
        tensor_files.read_header(file)


def test_suffixes_include_registered_formats(file: Path) -> None:
    assert weights_formats.suffix_of("numbers") == ".numbers"
    assert weights_formats.suffix_of("safetensors") == ".safetensors"
    assert {".safetensors", ".numbers"} <= set(weights_formats.suffixes())
    assert {".safetensors", ".ckpt", ".numbers"} <= set(weights_formats.readable_suffixes())
    with pytest.raises(RecipeError, match=r"did you mean numbers\?"):
        weights_formats.suffix_of("number")
