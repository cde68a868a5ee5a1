"""Files that are not models are refused with the reason that their bytes suggest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mezzotint.errors import WeightsError
from mezzotint.weights.files import tensor_files


def _header(entries: object, body: bytes = b"") -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + body


BROKEN = {
    "empty": (b"", "empty"),
    "lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull"),
    "web page": (b"\n<!DOCTYPE html><html><body>Sign in</body></html>", "web page"),
    "zip": (b"PK\x03\x04" + b"\0" * 60, "pickle"),
    "raw pickle": (b"\x80\x02}q\x00X\x01" + b"\0" * 60, "pickle"),
    "json": (b'{"error": "Repository not found, or access is restricted"}', "JSON"),
    "gguf": (b"GGUF\x03\0\0\0" + b"\0" * 40, "GGUF"),
    "header too large": ((200_000_000).to_bytes(8, "little") + b"{" + b" " * 40, "damaged"),
    "noise": (bytes(range(100, 200)), "damaged"),
    "few bytes": (b"\x01\x02", "damaged"),
    "too long": (_header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"\0" * 9), "too many"),
    "hole": (_header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"\0" * 8), "gaps"),
    "not a JSON object": (_header([1, 2]), "not a JSON object"),
    "no tensors": (_header({"a": 3}), "describes no tensors"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_file_that_is_not_a_model_is_refused_with_the_likely_reason(tmp_path: Path, kind: str) -> None:
    content, reason = BROKEN[kind]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    for read in (tensor_files.read_header, tensor_files.read):
        with pytest.raises(WeightsError, match=reason) as caught:
            read(path)
        assert caught.value.code == "E1402"
        assert str(path) in caught.value.message


@pytest.mark.parametrize("kept", [40, -1, -7])
def test_truncated_file_is_reported(tmp_path: Path, kept: int) -> None:
    sound = tmp_path / "model.safetensors"
    save_file({"a": torch.arange(6.0)}, sound)
    sound.write_bytes(sound.read_bytes()[:kept])
    with pytest.raises(WeightsError, match="cut short") as caught:
        tensor_files.read_header(sound)
    assert caught.value.code == "E1402"
