"""`mezzotint completion`: its scripts in the shells that are installed."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import pytest

from mezzotint.cli import main

_ASK = {
    "bash": """source script.sh
COMP_LINE="$1" COMP_POINT=${#1} COMP_WORDS=($1) COMP_CWORD=0
_mezzotint 2>&1; printf '%s\\n' "${COMPREPLY[@]}" """,
    # zsh completes only in a terminal: what would be added is printed
    "zsh": """source script.sh
compset() { PREFIX=${PREFIX#*=} }
compadd() { local word; for word in ${@:${@[(i)--]}+1}; do [[ $word == $PREFIX* ]] && print -r -- $word; done }
_files() { local word; for word in *(N); do [[ $word == $PREFIX* ]] && print -r -- $word; done }
words=(${=1}); [[ $1 == *' ' ]] && words+=(''); CURRENT=$#words; PREFIX=$words[-1]
_mezzotint""",
    "fish": """source script.sh
complete -C $argv[1] | string split -f 1 \\t""",
}


@functools.cache
def script(shell: str) -> str:
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["completion", shell]) == 0
    return out.getvalue()


@pytest.fixture(params=["bash", "zsh", "fish"])
def complete(request: pytest.FixtureRequest, tmp_path: Path):  # type: ignore[no-untyped-def]
    """`complete(line)`: the words that a shell offers for the last word of a line, without what was typed up to `=`."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script.sh").write_text(script(shell))
    (tmp_path / "minerals.yaml").touch()
    first = {"bash": ["bash", "--norc", "-c"], "zsh": ["zsh", "-f", "-c"], "fish": ["fish", "--no-config", "-c"]}[shell]

    def ask(line: str) -> set[str]:
        words = [*first, _ASK[shell], *([] if shell == "fish" else [shell]), line]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert not done.stderr
        return {word.rpartition("=")[2] or word for word in done.stdout.split()}

    return ask


def test_commands_are_completed(complete) -> None:  # type: ignore[no-untyped-def]
    assert complete("mezzotint qu") == {"queue"}
    assert {"train", "board", "completion"} <= complete("mezzotint ")


def test_options_and_their_values_are_completed(complete) -> None:  # type: ignore[no-untyped-def]
    assert {word.rstrip("=") for word in complete("mezzotint queue --de")} == {"--devices"}
    assert complete("mezzotint convert --dtype=b") == {"bf16"}
    assert complete("mezzotint convert --dtype b") == {"bf16"}


def test_first_words_are_completed(complete) -> None:  # type: ignore[no-untyped-def]
    assert complete("mezzotint queue re") == {"resume", "remove"}
    assert complete("mezzotint completion z") == {"zsh"}
    assert complete("mezzotint train mine") == {"minerals.yaml"}
    assert {"mini", "mini-lora", "minerals.yaml"} <= complete("mezzotint train mi")


def test_settings_and_their_values_are_completed(complete) -> None:  # type: ignore[no-untyped-def]
    assert complete("mezzotint train mini opti") == {"optim."}
    assert complete("mezzotint train mini run.half_prec") >= {"run.half_precision="}
    assert "optim.lr=" in complete("mezzotint queue add mini optim.l")
    assert complete("mezzotint train mini run.half_precision=m") >= {"matmuls", "most"}
    assert complete("mezzotint train mini data.cache.latents=") >= {"true", "false"}
    assert not complete("mezzotint explain optim.") & {"optim.lr="}


def test_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zhs"]) == 2
    assert "did you mean zsh?" in capsys.readouterr().err
