"""The program that reads pickles: what it accepts, and what it cannot do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.errors import WeightsError
from mezzotint.weights.files import pickled, unpickling
from support.forked import exit_status
from support.pickles import Canary, Save, save_legacy, save_raw, save_zip


@pytest.mark.usefixtures("pickles_read_here")
@pytest.mark.parametrize("save", [save_zip, save_legacy, save_raw])
def test_code_in_a_pickle_never_runs(tmp_path: Path, save: Save) -> None:
    nest, bird = tmp_path / "nest", tmp_path / "x.ckpt"
    save({"state_dict": {"a": 1, "b": Canary(nest)}}, bird)
    with pytest.raises(WeightsError, match=r"imports posix\.system") as caught:
        pickled.convert(bird, tmp_path / "x.safetensors")
    assert caught.value.code == "E1411"
    assert not nest.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["x.ckpt"]


def test_code_in_a_pickle_would_run_when_loaded_unsafely(tmp_path: Path) -> None:
    save_zip({"b": Canary(tmp_path / "nest")}, tmp_path / "x.ckpt")
    torch.load(tmp_path / "x.ckpt", weights_only=False)
    assert (tmp_path / "nest").exists()


class Imported:
    """Calls a function when it is unpickled in the usual way."""

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


@pytest.mark.usefixtures("pickles_read_here")
@pytest.mark.parametrize(
    ("function", "arguments", "name"), [(eval, ("1",), "eval"), (torch.load, ("x",), r"torch\.serialization\.load")]
)
def test_functions_are_refused_by_name(tmp_path: Path, function: Any, arguments: tuple[Any, ...], name: str) -> None:
    save_zip({"a": torch.ones(1), "b": Imported(function, arguments)}, tmp_path / "x.pt")
    with pytest.raises(WeightsError, match=f"imports .*{name}"):
        pickled.convert(tmp_path / "x.pt", tmp_path / "x.safetensors")


@pytest.mark.usefixtures("pickles_read_here")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda: torch.zeros(1).expand(10**12), "would take 4000000000000 bytes"),
        (lambda: torch.ones(2, dtype=torch.complex64), "has a type that weights never have"),
    ],
)
def test_tensors_that_cannot_be_weights_are_refused(tmp_path: Path, content: Callable[[], Any], words: str) -> None:
    torch.save({"a": content()}, tmp_path / "x.pt")
    with pytest.raises(WeightsError, match=words):
        pickled.convert(tmp_path / "x.pt", tmp_path / "x.safetensors")


@pytest.mark.usefixtures("pickles_read_here")
@pytest.mark.parametrize("value", [{"state_dict": {}, "a": 1}, torch.ones(2)])
def test_files_without_named_tensors_are_refused(tmp_path: Path, value: Any) -> None:
    torch.save(value, tmp_path / "x.pt")
    with pytest.raises(WeightsError, match="it contains"):
        pickled.convert(tmp_path / "x.pt", tmp_path / "x.safetensors")


FORBIDDEN = {
    "os.system('touch NEST')": "os.system",
    "open('NEST', 'w')": "open",
    "os.mkdir('NEST')": "os.mkdir",
    "__import__('subprocess').run(['touch', 'NEST'])": "subprocess.Popen",
    "__import__('socket').create_connection(('127.0.0.1', 9))": "socket.",
}


def run_restricted(statement: str, tmp_path: Path) -> tuple[int, str]:
    """The exit status and output of a forked process that runs a statement after it dropped its privileges."""
    out = tmp_path / "out"
    child = os.fork()
    if not child:
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        unpickling.drop_privileges(str(tmp_path / "target"), 1 << 30, 60, 100)
        try:
            exec(statement)
        finally:
            os._exit(0)
    return exit_status(child), out.read_text()


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_reading_process_cannot_start_programs_connect_or_write(statement: str, tmp_path: Path) -> None:
    status, output = run_restricted(statement.replace("NEST", str(tmp_path / "nest")), tmp_path)
    assert status == 3
    expected = f"it tried to do something that weights never need ({FORBIDDEN[statement]}"
    assert expected in json.loads(output)["reason"]
    assert not (tmp_path / "nest").exists()


def test_reading_process_has_limited_memory_time_and_file_size(tmp_path: Path) -> None:
    limits = "[resource.getrlimit(resource.RLIMIT_CPU), resource.getrlimit(resource.RLIMIT_FSIZE)]"
    _, output = run_restricted(f"import resource\nos.write(1, json.dumps({limits}).encode())", tmp_path)
    assert json.loads(output) == [[60, 60], [200 + (1 << 26)] * 2]
    allocate = "try:\n torch.empty(1 << 31)\nexcept RuntimeError as error:\n os.write(1, str(error).encode())"
    assert "can't alloc" in run_restricted(allocate, tmp_path)[1]
