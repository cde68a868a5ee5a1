"""`numbers`, a weights format of another package: a line of JSON and float32 tensors, for models of the family sd."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.installed import install

_SPEC = """
from mezzotint.settings.weights_formats import WeightsFormatSpec

SPEC = WeightsFormatSpec(
    suffix=".numbers",
    recognises=lambda start: start.startswith(b"#numbers "),
    unreadable=(((b"#locked ",), "it is locked; unlock it"),),
)
"""
_FORMAT = """
import json
import math

import torch

from mezzotint.weights.files.spans import StoredTensor, bytes_at


def _first_line(path):
    with path.open("rb") as file:
        line = file.readline()
    return json.loads(line.removeprefix(b"#numbers ")), len(line)


def read_header(path):
    (shapes, _), at = _first_line(path)
    tensors = {}
    for name, shape in shapes.items():
        tensors[name] = StoredTensor("F32", tuple(shape), ((at, 4 * math.prod(shape)),), torch.float32)
        at += 4 * math.prod(shape)
    return tensors


def read_metadata(path):
    return _first_line(path)[0][1]


def read(path, names):
    header = read_header(path)
    with path.open("rb") as file:
        for name in names:
            yield name, bytes_at(file, header[name].spans).view(torch.float32).reshape(header[name].shape)


def write(path, tensors):
    tensors = {name: tensor.float().contiguous() for name, tensor in tensors}
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    numbers = (tensor.numpy().tobytes() for tensor in tensors.values())
    path.write_bytes(b"#numbers " + json.dumps([shapes, {"by": "numbers"}]).encode() + b"\\n" + b"".join(numbers))
"""
_LAYOUT = """
from dataclasses import replace

from mezzotint.weights.layouts import sd

LAYOUT = replace(sd.LAYOUT, name="numbers-sd", suffix=".numbers", sign="^no tensor$", variants=())
"""


def add_numbers_format(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs the package below `root` for this test."""
    modules = {"numbers_spec": _SPEC, "numbers_format": _FORMAT, "numbers_layout": _LAYOUT}
    points = {
        "mezzotint.settings.weights_formats": {"numbers": "of_numbers.numbers_spec"},
        "mezzotint.weights.formats": {"numbers": "of_numbers.numbers_format"},
        "mezzotint.weights.layouts": {"numbers-sd": "of_numbers.numbers_layout"},
    }
    files = {"of_numbers/__init__.py": "", **{f"of_numbers/{name}.py": text for name, text in modules.items()}}
    install(root, monkeypatch, files, points, name="of_numbers")
    for name in [name for name in sys.modules if name.partition(".")[0] == "of_numbers"]:
        monkeypatch.delitem(sys.modules, name)
