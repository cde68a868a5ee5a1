"""The command line of `sample`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mezzotint.errors import RecipeError
from mezzotint.sampling.prompt_file import Line, read_line
from mezzotint.tasks.sample.args import parse


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["--cfg", "3"], {"overrides": ("sample.guidance=3",)}),
        (["--cfg_scale=3,5"], {"overrides": ("sample.guidance=[3,5]",)}),
        (["--sampler", "euler_a"], {"overrides": ("sample.solver=euler_a",)}),
        (["--size=512"], {"sizes": ((512, 512),)}),
        (["--size=512,64x96"], {"sizes": ((512, 512), (64, 96))}),
        (["--seed=1-4"], {"seeds": (1, 2, 3, 4)}),
        (["--seed=1-2,-3"], {"seeds": (1, 2, -3)}),
        (["--weights=ema"], {"weights": "ema"}),
    ],
)
def test_sample_accepts_option_names_of_user_interfaces(words: list[str], values: dict[str, Any]) -> None:
    from mezzotint.tasks.sample.args import parse

    args = parse(["model", "--prompt=x", *words])
    assert {name: getattr(args, name) for name in values} == values


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a fox --h 60", "--h is 60; write a multiple of 8 of at least 8"),
        ("a fox --ar 16:9", "--ar is not an option of a prompt; options are --n negative prompt"),
        ("a fox --w", "--w is written once, followed by its value"),
        ("a fox --w 64 --w 32", "--w is written once"),
        ("a fox --w 0", "--w is 0; write a multiple of 8 of at least 8"),
        ("a fox --s two", '--s is "two"; write a whole number of at least 1'),
        ("a fox --l -1", "--l is -1; write a number from 0 to"),
    ],
)
def test_unreadable_prompt_line_is_named(line: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text(f"fine\n{line}\n")
    with pytest.raises(RecipeError) as caught:
        parse(["m", f"--file={file}"])
    assert caught.value.code == "E1073"
    assert f"{file} line 2: {said}" in str(caught.value)


def test_prompt_lines_are_read_verbatim() -> None:
    assert read_line("a fox, 3--4 years -- old", "x") == Line("a fox, 3--4 years -- old")
    assert read_line("--d 5", "x") == Line("", seed=5)
    assert read_line("a --n", "x") == Line("a", negative="")


def test_empty_or_binary_prompt_file_is_refused(tmp_path: Path) -> None:
    for content, said in ((b"# nothing\n\n", "has no prompt"), (b"\xff\xfe\x00", "not UTF-8")):
        (tmp_path / "p.txt").write_bytes(content)
        with pytest.raises(RecipeError, match=said):
            parse(["m", f"--file={tmp_path / 'p.txt'}"])


def test_settings_and_prompts_are_distinguished() -> None:
    args = parse(["m", "--prompt", "x=1 is a formula", "run.device=cpu", "a: b", "--steps", "3", "sample.seed=4"])
    assert [line.prompt for line in args.lines] == ["x=1 is a formula", "a: b"]
    assert args.overrides == ("run.device=cpu", "sample.seed=4", "sample.steps=3")
