"""The command line: verbs, errors, exit statuses, and how fast it answers."""

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
from mezzotint.tasks.reading import arguments
from mezzotint.tasks.reading.verbs import VERBS, Verb
from mezzotint.tasks.reading.words import parse

Run = Callable[[Sequence[str]], int]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Puts a function in the place of every verb's page."""

    import_module = importlib.import_module

    def put(run: Run) -> None:
        def imported(name: str) -> Any:
            return SimpleNamespace(run=run) if name.startswith("mezzotint.tasks.") else import_module(name)

        monkeypatch.setattr(importlib, "import_module", imported)

    return put


def started(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "mezzotint", *arguments], capture_output=True, text=True, check=False, **options
    )


def test_help_answers_at_once_and_imports_neither_pydantic_nor_torch() -> None:
    code = (
        "import sys\nfrom mezzotint.cli import main\nmain(['--help'])\nmain(['train', '--help'])\n"
        "heavy = {'pydantic', 'torch', 'yaml', 'numpy', 'rich'} & set(sys.modules)\nassert not heavy, heavy"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
    took = []
    for _ in range(3):
        before = os.times()
        assert started("--help").returncode == 0
        after = os.times()
        took.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(took) < 0.3  # seconds of its own, whatever else the machine does


def page(verb: Verb) -> Path:
    return Path(cli.__file__).parents[1].joinpath(*verb.module.split(".")).with_suffix(".py")


def test_help_lists_every_verb_and_only_verbs_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    for each in VERBS:
        assert f"  {each.name} " in text
        assert page(each).is_file(), each.name


@pytest.mark.parametrize("name", [each.name for each in VERBS])
def test_each_verb_shows_three_examples_of_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    examples = [
        line for line in text.partition("examples\n")[2].splitlines() if line.startswith("  ") and line[2] != " "
    ]
    assert len(examples) == 3
    assert all(f"mezzotint {name}" in line for line in examples)
    assert main(["help", name]) == 0
    assert capsys.readouterr().out == text


def test_the_meanings_of_switches_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", "--help"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  --")]
    assert len(lines) == len(next(each for each in VERBS if each.name == "sample").switches)
    assert len({len(line) - len(line[2:].partition("  ")[2].lstrip()) for line in lines}) == 1


@pytest.mark.parametrize("name", ["train", "cache", "check", "bench", "sample", "convert", "merge"])
def test_help_names_the_lines_of_other_trainers_where_they_are_taken(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--help"]) == 0
    assert f"mezzotint {name} --as NAME -- THE LINE AS IT IS" in capsys.readouterr().out
    assert main([name, "--as", "everydream3", "--", "x"]) == 2
    assert "everydream2" in capsys.readouterr().err


def test_names_of_switches_are_clear_within_a_verb() -> None:
    for each in VERBS:
        names = [name for switch in each.known() for name in (switch.name, *switch.aliases)]
        assert len(names) == len(set(names)), each.name
        assert all(each.switch(name.replace("-", "_")) is each.switch(name) for name in names)
        assert not set(names) & set(each.instead), each.name


def test_settings_that_switches_stand_for_exist() -> None:
    from mezzotint.recipe.reading.paths import by_path

    named = [switch.setting for each in VERBS for switch in each.switches if switch.setting]
    assert "sample.steps" in named
    assert set(named) <= set(by_path())


def test_examples_name_settings_that_exist() -> None:
    from mezzotint.recipe.reading.read import read_text

    for each in VERBS:
        for line, _ in each.examples:
            read_text("schema: 1", overrides=[word for word in line.split() if "=" in word and "--" not in word])


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mezzotint {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "did you mean `mezzotint train`?"),
        (["fox.yaml"], "did you mean `mezzotint train fox.yaml`?"),
        (["zzz"], "it knows train"),
        (["train"], "no recipe is given"),
        (["train", "optim.lr=1"], "'optim.lr=1' stands where the recipe belongs"),
        (["train", "--as", "everydream3", "--", "--lr", "1"], "did you mean everydream2"),
        (["train", "nowhere.yaml"], "there is no file nowhere.yaml"),
        (["explain"], "write mezzotint explain PATH|CODE|NAME OF ANOTHER TRAINER …; got 0 names"),
        (["explain", "E9999"], "there is no error code E9999"),
        (["explain", "learning_rat"], "did you mean optim.lr?"),
        (["schema", "--yaml"], "mezzotint schema has no switch --yaml"),
        (["schema", "--markdwon"], "did you mean --markdown?"),
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
def test_a_wrong_request_is_answered_in_a_sentence(
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
def test_errors_of_the_readers_world_have_a_status_and_no_traceback(
    error: BaseException | Callable[[], object],
    status: int,
    words: str,
    verb: Callable[[Run], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: Sequence[str]) -> int:
        if isinstance(error, BaseException):
            raise error
        error()
        raise AssertionError(error)

    verb(fail)
    assert main(["ls"]) == status
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_a_bug_shows_its_traceback(verb: Callable[[Run], None], capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: Sequence[str]) -> int:
        raise ZeroDivisionError("ours")

    verb(fail)
    assert main(["ls"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("this is a bug in Mezzotint")


def test_the_verb_gets_its_words_and_gives_its_status(verb: Callable[[Run], None]) -> None:
    got: list[str] = []

    def run(arguments: Sequence[str]) -> int:
        got.extend(arguments)
        return 7

    verb(run)
    assert main(["ls", "a", "b"]) == 7
    assert got == ["a", "b"]


def test_a_wrong_recipe_is_refused_before_the_verb_is_imported(
    tmp_path: Path, verb: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    called: list[str] = []
    verb(lambda arguments: called.extend(arguments) or 0)  # type: ignore[func-returns-value]
    recipe = tmp_path / "r.yaml"
    recipe.write_text("optim: {lr: 1e-6}\n")
    assert main(["train", str(recipe), "optim.lrr=1"]) == 2
    assert called == []
    assert "given  optim.lrr  E1001 unknown key; did you mean optim.lr?" in capsys.readouterr().err
    assert main(["train", str(recipe), "optim.lr=1"]) == 0
    assert called == [str(recipe), "optim.lr=1"]


def test_switches_stand_anywhere_and_unknown_ones_are_named(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("optim: {lr: 1e-6}\n")
    line = ["--out=a=b", str(recipe), "--json", "optim.accumulation=2", "--warm_up", "3"]
    reading, given = arguments.parse_with(line, "bench")
    assert reading.recipe.optim.accumulation == 2
    assert (given.get("--out"), "--json" in given, given.whole("--warm-up", 0)) == ("a=b", True, 3)
    assert "--fast" not in given
    for word, hint in (
        ("--jsn", "did you mean --json?"),
        ("--out", "--out needs a value; write --out=FOLDER"),
        ("--json=1", "--json takes no value; write --json"),
    ):
        with pytest.raises(errors.RecipeError) as caught:
            arguments.parse_with([str(recipe), word], "bench")
        assert caught.value.code == "E1012"
        assert hint in str(caught.value)
    with pytest.raises(errors.RecipeError, match=r"write optim\.lr=1"):
        arguments.parse([str(recipe), "--optim.lr=1"], "train")


def test_words_may_be_typed_again_without_a_verbs_own_switches() -> None:
    foreign = ["--as", "diffusers-sd", "optim.lr=1", "--processes", "2", "--allow-package=x", "--", "--processes=3"]
    line = parse(foreign, "check")
    assert (line.dialect, line.packages, line.whole("--processes", 1)) == ("diffusers-sd", ("x",), 2)
    again = line.written(leaving=["--processes"])
    assert again == ["--as", "diffusers-sd", "optim.lr=1", "--allow-package=x", "--", "--processes=3"]
    assert parse(again, "train").foreign == ("--processes=3",)


def test_faults_are_armed_from_the_environment(
    verb: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: Sequence[str]) -> int:
        fault_injection.reach("step.begin")
        return 0

    verb(run)
    try:
        monkeypatch.setenv("MEZZOTINT_FAULT", "step.begin@1:enospc")
        assert main(["ls"]) == 4
        monkeypatch.setenv("MEZZOTINT_FAULT", "nowhere@1:kill")
        assert main(["ls"]) == 2
        assert "MEZZOTINT_FAULT cannot be read" in capsys.readouterr().err
    finally:
        fault_injection.arm("")


def test_ls_names_what_a_recipe_may_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "fox.yaml"
    file.write_text("# yaml-language-server: $schema=x.json\n#\n# Foxes, in ten minutes.\nrun: {name: fox}\n")
    monkeypatch.setattr("mezzotint.tasks.ls.shipped_recipes", lambda: {"fox": file})
    assert main(["ls"]) == 0
    text = capsys.readouterr().out
    assert "  fox  Foxes, in ten minutes.\n" in text
    for word in ("dialects\n", "runtimes\n", "tiny-sd ", "mezzotint-mini  whole, with its weights\n"):
        assert word in text
    assert main(["ls", "families", "formats"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("families\n  latte  LatteT2V of Open-Sora-Plan v1.1\n  sd     Stable Diffusion 1.x and 2.x,")
    assert "  sdxl   SDXL's base model and its refiner, from" in text, "without the paper's number"
    assert "  metadata       captions in a table\n" in text
    assert all(len(line.split(maxsplit=1)) == 2 for line in text.splitlines() if line.startswith("  "))


def test_cp_copies_and_never_writes_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ships" / "docs").mkdir(parents=True)
    schema = tmp_path / "ships" / "docs" / "recipe.schema.json"
    schema.write_text("{}")
    (tmp_path / "ships" / "recipes").mkdir()
    file = tmp_path / "ships" / "recipes" / "my_fox.yaml"
    file.write_text("# yaml-language-server: $schema=../docs/recipe.schema.json\nrun: {name: fox}\n")
    monkeypatch.setattr("mezzotint.tasks.cp.shipped_recipes", lambda: {"my_fox": file})
    (tmp_path / "here" / "folder").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    for words, target in (
        (["my-fox"], "my_fox.yaml"),
        (["my_fox", "b.yaml"], "b.yaml"),
        (["my_fox", "folder"], "folder/my_fox.yaml"),
        (["my_fox", "new/recipes/"], "new/recipes/my_fox.yaml"),
    ):
        assert main(["cp", *words]) == 0
        assert f"mezzotint check {target}" in capsys.readouterr().out
        assert Path(target).read_text() == f"# yaml-language-server: $schema={schema}\nrun: {{name: fox}}\n"
    Path("b.yaml").write_text("mine")
    assert main(["cp", "my_fox", "b.yaml"]) == 2
    assert "E1014" in capsys.readouterr().err
    assert Path("b.yaml").read_text() == "mine"
    capsys.readouterr()
    assert main(["cp", "my_fox", "b.yaml/x.yaml"]) == 4
    assert "b.yaml: no folder can be made there" in capsys.readouterr().err
    assert main(["cp", "my_fix"]) == 2
    assert "did you mean my_fox?" in capsys.readouterr().err


def test_explain_takes_settings_sections_and_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "optim.lr", "optim.clip", "e1007"]) == 0
    text = capsys.readouterr().out
    for words in ("The peak learning rate", "optim.clip.scope", "E1007\n"):
        assert words in text


def test_output_that_nobody_reads_ends_quietly(tmp_path: Path) -> None:
    command = f"{sys.executable} -m mezzotint schema | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    closed = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m mezzotint --help >&-"], capture_output=True, text=True, check=False
    )
    assert (closed.returncode, closed.stderr) == (0, "")


def test_streams_that_were_closed_before_the_start_change_no_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = f"exec >&-; {sys.executable} -m mezzotint"
    shown = subprocess.run(["bash", "-c", f"{command} ls"], capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")
    monkeypatch.chdir(tmp_path)
    child = os.fork()  # which is such a process, but for the seconds that imports take
    if not child:
        status = 70
        try:
            os.close(1)
            sys.stdout = sys.__stdout__ = None  # type: ignore[assignment, misc]  # as the interpreter has it
            sys.stderr = (tmp_path / "err").open("w")
            status = main(["train", "tiny_cpu", "run.steps=1", "data.cache.path=cache"])
            sys.stderr.flush()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (tmp_path / "err").read_text() == ""
    assert (tmp_path / "runs" / "tiny_cpu" / "exports" / "step-00000001").is_dir()


def test_a_terminal_without_arrows_gets_escapes() -> None:
    done = started("--help", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "mezzotint VERB \\u2026" in done.stdout


def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--help"])
    assert "\033" not in capsys.readouterr().out
    monkeypatch.setattr(cli, "_is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(["--help"])
    assert "\033[1m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    main(["--help"])
    assert "\033" not in capsys.readouterr().out
