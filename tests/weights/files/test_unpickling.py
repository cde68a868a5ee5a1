"""The program that reads pickles: what it lets pass, and what it can never do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.errors import WeightsError
from mezzotint.weights.files import pickled
from support.pickles import Canary, Save, save_legacy, save_raw, save_zip


@pytest.mark.usefixtures("pickles_read_here")
@pytest.mark.parametrize("save", [save_zip, save_legacy, save_raw])
def test_a_canary_never_runs(tmp_path: Path, save: Save) -> None:
    nest, bird = tmp_path / "nest", tmp_path / "x.ckpt"
    save({"state_dict": {"a": 1, "b": Canary(nest)}}, bird)
    with pytest.raises(WeightsError, match=r"imports posix\.system") as caught:
        pickled.convert(bird, tmp_path / "x.safetensors")
    assert caught.value.code == "E1411"
    assert not nest.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["x.ckpt"]


def test_the_canary_would_have_run(tmp_path: Path) -> None:
    save_zip({"b": Canary(tmp_path / "nest")}, tmp_path / "x.ckpt")
    torch.load(tmp_path / "x.ckpt", weights_only=False)
    assert (tmp_path / "nest").exists()


class Imported:
    """Asks for any function at all when it is unpickled."""

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
def test_tensors_that_are_no_weights_are_refused(tmp_path: Path, content: Callable[[], Any], words: str) -> None:
    torch.save({"a": content()}, tmp_path / "x.pt")
    with pytest.raises(WeightsError, match=words):
        pickled.convert(tmp_path / "x.pt", tmp_path / "x.safetensors")


@pytest.mark.usefixtures("pickles_read_here")
@pytest.mark.parametrize("value", [{"state_dict": {}, "a": 1}, torch.ones(2)])
def test_files_without_named_tensors_are_refused(tmp_path: Path, value: Any) -> None:
    torch.save(value, tmp_path / "x.pt")
    with pytest.raises(WeightsError, match="it contains"):
        pickled.convert(tmp_path / "x.pt", tmp_path / "x.safetensors")


DEEDS = {
    "os.system('touch NEST')": "os.system",
    "open('NEST', 'w')": "open",
    "os.mkdir('NEST')": "os.mkdir",
    "subprocess.run(['touch', 'NEST'])": "subprocess.Popen",
    "__import__('socket').create_connection(('127.0.0.1', 9))": "socket.",
}
TRIES = r"""
import json, os, runpy, subprocess, sys
page = runpy.run_path(sys.argv[1])
for deed in json.loads(sys.argv[2]):
    child = os.fork()
    if not child:
        page["_drop_privileges"](sys.argv[3], 1 << 30, 60, 100)
        exec(deed)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])  # it has written its reason, without an end of line
    print(f"\t{status}", flush=True)
"""


def test_the_process_that_reads_can_do_no_harm(tmp_path: Path) -> None:
    reader = Path(pickled.__file__).with_name("_unpickling.py")
    deeds = [deed.replace("NEST", str(tmp_path / "nest")) for deed in DEEDS]
    words = [sys.executable, "-c", TRIES, str(reader), json.dumps(deeds), str(tmp_path / "target")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for line, name in zip(done.stdout.splitlines(), DEEDS.values(), strict=True):
        reason, _, status = line.partition("\t")
        assert f"it tried to do something that weights never need ({name}" in json.loads(reason)["reason"]
        assert status == "3"
    assert not (tmp_path / "nest").exists()
