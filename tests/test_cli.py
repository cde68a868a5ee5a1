"""The command line: commands, errors, exit statuses, and how fast it answers."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mezzotint import __version__, cli, errors, fault_injection
from mezzotint.cli import main
from mezzotint.tasks.reading.commands import COMMANDS, Command

Run = Callable[[Sequence[str]], int]


@pytest.fixture
def replace_commands(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Replaces the modules of all commands by a function."""

    import_module = importlib.import_module

    def put(run: Run) -> None:
        def imported(name: str) -> Any:
            return SimpleNamespace(run=run) if name.startswith("mezzotint.tasks.") else import_module(name)

        monkeypatch.setattr(importlib, "import_module", imported)

    return put


def run_mezzotint(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "mezzotint", *arguments], capture_output=True, text=True, check=False, **options
    )


def test_help_is_fast_and_imports_neither_pydantic_nor_torch() -> None:
    code = (
        "import sys\nfrom mezzotint.cli import main\nmain(['--help'])\nmain(['train', '--help'])\n"
        "heavy = {'pydantic', 'torch', 'yaml', 'numpy', 'rich'} & set(sys.modules)\nassert not heavy, heavy"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
    took = []
    for _ in range(3):
        before = os.times()
        assert run_mezzotint("--help").returncode == 0
        after = os.times()
        took.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(took) < 0.3  # CPU seconds, independent of the load of the machine


def module_file(command: Command) -> Path:
    return Path(cli.__file__).parents[1].joinpath(*command.module.split(".")).with_suffix(".py")


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    for each in COMMANDS:
        assert f"  {each.name} " in text
        assert module_file(each).is_file(), each.name


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mezzotint {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "did you mean `mezzotint train`?"),
        (["fox.yaml"], "did you mean `mezzotint train fox.yaml`?"),
        (["zzz"], "the commands are train"),
        (["train"], "no recipe is given"),
        (["train", "optim.lr=1"], "'optim.lr=1' is where the recipe is expected"),
        (["train", "nowhere.yaml"], "there is no file nowhere.yaml"),
        (["explain"], "explain: no name is given; write mezzotint explain PATH|CODE|WORDS|NAME OF ANOTHER TRAINER …\n"),
        (["explain", "E9999"], "there is no error code E9999; codes are written like E1007"),
        (["explain", "optim.lrr"], "did you mean optim.lr?"),
        (["schema", "--yaml"], "mezzotint schema has no option --yaml"),
        (["doctor", "--htlm=x"], "did you mean --html?"),
        (["schema", "x"], "write mezzotint schema; got 1 name\n"),
        (["convert", "a"], "write mezzotint convert SOURCE DESTINATION; got 1 name\n"),
        (["convert", "a", "b", "--ema", "some"], "--ema is ignore or use or keep, got some"),
        (["convert", "a", "b", "--dtype"], "--dtype needs a value; write --dtype=fp16"),
        (["merge", "a", "b", "--report="], "--report needs a value; write --report=FILE.json"),
        (["check", "tiny_cpu", "--json", "--json"], "mezzotint check: --json is given twice"),
        (["ls", "--", "recipes"], "-- needs --as NAME"),
        (["ls", "recipe"], "did you mean recipes?"),
        (["cp"], "mezzotint cp NAME"),
        (["cp", "zzz"], "no recipe zzz ships"),
    ],
)
def test_wrong_arguments_give_a_short_message(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (errors.DatasetError("photos: empty", code="E1201"), 2, "error[E1201]: photos: empty"),
        (errors.Diverged("loss"), 3, "error[E1600]: loss"),
        (errors.StorageError("full"), 4, "full"),
        (OSError(28, "No space left on device", "x.bin"), 4, "x.bin cannot be written: No space left on device"),
        (errors.OutOfMemory("small"), 5, "small"),
        (MemoryError(), 5, "out of memory"),
        (lambda: torch.empty(10**15), 5, "E1750]: this process ran out of memory (tried to allocate 4000000000000000"),
        (errors.PeerLost("gone"), 6, "gone"),
        (errors.Stopped("saved; go on with …", signal_number=signal.SIGTERM), 143, "saved; go on with …"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_user_errors_have_an_exit_status_and_no_traceback(
    error: BaseException | Callable[[], object],
    status: int,
    words: str,
    replace_commands: Callable[[Run], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: Sequence[str]) -> int:
        if isinstance(error, BaseException):
            raise error
        error()
        raise AssertionError(error)

    replace_commands(fail)
    assert main(["ls"]) == status
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_bug_shows_its_traceback(replace_commands: Callable[[Run], None], capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: Sequence[str]) -> int:
        raise ZeroDivisionError("a bug")

    replace_commands(fail)
    assert main(["ls"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("this is a bug in Mezzotint")


def test_command_receives_its_arguments_and_returns_its_status(replace_commands: Callable[[Run], None]) -> None:
    got: list[str] = []

    def run(arguments: Sequence[str]) -> int:
        got.extend(arguments)
        return 7

    replace_commands(run)
    assert main(["ls", "a", "b"]) == 7
    assert got == ["a", "b"]


def test_wrong_recipe_is_refused_before_the_command_is_imported(
    tmp_path: Path, replace_commands: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    called: list[str] = []
    replace_commands(lambda arguments: called.extend(arguments) or 0)  # type: ignore[func-returns-value]
    recipe = tmp_path / "r.yaml"
    recipe.write_text("optim: {lr: 1e-6}\n")
    assert main(["train", str(recipe), "optim.lrr=1"]) == 2
    assert called == []
    assert "given  optim.lrr  E1001 unknown key; did you mean optim.lr?" in capsys.readouterr().err
    assert main(["train", str(recipe), "optim.lr=1"]) == 0
    assert called == [str(recipe), "optim.lr=1"]


def test_faults_are_armed_from_the_environment(
    replace_commands: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: Sequence[str]) -> int:
        fault_injection.reach("step.begin")
        return 0

    replace_commands(run)
    try:
        monkeypatch.setenv("MEZZOTINT_FAULT", "step.begin@1:enospc")
        assert main(["ls"]) == 4
        monkeypatch.setenv("MEZZOTINT_FAULT", "nowhere@1:kill")
        assert main(["ls"]) == 2
        assert "MEZZOTINT_FAULT cannot be read" in capsys.readouterr().err
    finally:
        fault_injection.arm("")


def test_closed_output_pipe_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m mezzotint schema | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    closed = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m mezzotint --help >&-"], capture_output=True, text=True, check=False
    )
    assert (closed.returncode, closed.stderr) == (0, "")


@pytest.mark.slow
def test_closed_standard_streams_do_not_change_the_exit_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"exec >&-; {sys.executable} -m mezzotint"
    shown = subprocess.run(["bash", "-c", f"{command} ls"], capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")
    monkeypatch.chdir(tmp_path)
    child = os.fork()  # a fork, because importing torch again takes seconds
    if not child:
        status = 70
        try:
            os.close(1)
            sys.stdout = sys.__stdout__ = None  # type: ignore[assignment, misc]  # as the interpreter sets it
            sys.stderr = (tmp_path / "err").open("w")
            status = main(["train", "tiny_cpu", "run.steps=1", "data.cache.path=cache"])
            sys.stderr.flush()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (tmp_path / "err").read_text() == ""
    assert (tmp_path / "runs" / "tiny_cpu" / "exports" / "step-00000001").is_dir()


@pytest.mark.parametrize("name", ["~nosuchuser/x", "a" * 5000])
def test_impossible_path_gives_a_short_message(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert [main([word, name]) for word in ("train", "verify", "doctor")] == [2, 2, 2]
    assert "Traceback" not in capsys.readouterr().err


def test_characters_outside_the_encoding_are_escaped() -> None:
    done = run_mezzotint("--help", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "mezzotint COMMAND \\u2026" in done.stdout
