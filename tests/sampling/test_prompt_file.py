"""Files of prompts: what they say, and that a mistake is named with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mezzotint.errors import RecipeError
from mezzotint.sampling import prompt_file
from mezzotint.sampling.prompt_file import Line, size_of


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def to(content: Any, name: str = "prompts.json") -> Path:
        path: Path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2), "utf-8")
        return path

    return to


def error_of(path: Path) -> str:
    with pytest.raises(RecipeError) as caught:
        prompt_file.read(path)
    assert caught.value.code == "E1073"
    assert caught.value.message.startswith(str(path))
    return caught.value.message.removeprefix(str(path))


def test_text_file_has_one_prompt_with_options_per_line(write: Any) -> None:
    file = prompt_file.read(write("\ufeff# mine\na fox --w 48 --h 40 --d 7 --s 1 --l 3\n\nein Fuß ☃\n", "p.txt"))
    assert file.lines == (Line("a fox", width=48, height=40, seed=7, steps=1, guidance=(3.0,)), Line("ein Fuß ☃"))
    assert (file.settings, file.at_start, file.batches, file.notes) == ({}, None, None, ())


def test_json_file_sets_common_and_per_prompt_options(write: Any) -> None:
    file = prompt_file.read(
        write(
            {
                "size": 768, "guidance": [7, 4, 1.01], "batch_size": 3, "solver": "euler_a",
                "steps": 30, "seed": 555, "negative_prompt": "text",
                "at_start": False, "every_batches": 200,
                "samples": [
                    {"prompt": "a fox", "negative_prompt": "", "seed": -1, "size": [512, 640]},
                    {"prompt": "a hen", "aspect_ratio": 1.5, "guidance": 5, "solver": "dpm++", "steps": 4},
                    {"random_caption": True, "size": [64, 64], "aspect_ratio": 2},
                ],
            }
        )
    )  # fmt: skip
    assert file.settings == {
        "size": (768, 768), "guidance": (7.0, 4.0, 1.01), "batch_size": 3, "solver": "euler-a", "steps": 30,
        "seed": 555, "negative_prompt": "text",
    }  # fmt: skip
    assert (file.at_start, file.batches, file.notes) == (False, 200, ())
    assert file.lines == (
        Line("a fox", negative="", seed=-1, width=512, height=640),
        Line("a hen", aspect=1.5, guidance=(5.0,), solver="dpm++", steps=4),
        Line("", width=64, height=64, random_caption=True),
    )


def test_common_random_seed_applies_to_prompts_without_seed(write: Any) -> None:
    file = prompt_file.read(write({"seed": -1, "samples": [{"prompt": "a"}, {"prompt": "b", "seed": 3}]}))
    assert [line.seed for line in file.lines] == [-1, 3]
    assert "seed" not in file.settings


def test_empty_file_has_no_prompts(write: Any) -> None:
    for content, name in (("", "a.txt"), ("# later\n\n", "b.txt"), (" \n", "c.json"), ('{"samples": []}', "d.json")):
        assert prompt_file.read(write(content, name)).lines == ()


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        ({"guidanc": 7}, 2, "guidanc unknown key; did you mean guidance?"),
        (
            {"samples": [{"prompt": "a"}, {"prompt": "b", "sed": 1}]},
            8,
            "samples[1].sed unknown key; did you mean seed?",
        ),
        ({"samples": [{"prompt": "a"}, {"seed": 1}]}, 6, 'samples[1] has no prompt; write "prompt": "…"'),
        ({"samples": [{"prompt": 5}]}, 4, "samples[0].prompt is 5; write a text in double quotes"),
        ({"samples": {"prompt": "a"}}, 2, 'samples is {"prompt": "a"}; write a list'),
        ({"samples": ["a fox"]}, 3, 'samples[0] is "a fox"; write { "key": value'),
        ({"solver": "eulr"}, 2, "solver there is no solver 'eulr'; did you mean euler?"),
        ({"guidance": []}, 2, "guidance is empty"),
        ({"guidance": [7, -1]}, 2, "guidance is -1; write a number from 0 to"),
        ({"guidance": "7"}, 2, 'guidance is "7"'),
        ({"size": 500}, 2, "size is 500; write a multiple of 8 of at least 8"),
        ({"steps": 0}, 2, "steps is 0; write a whole number of at least 1 and at most"),
        ({"batch_size": True}, 2, "batch_size is true"),
        ({"seed": 1.5}, 2, "seed is 1.5; write a whole number;"),
        ({"at_start": 1}, 2, "at_start is 1; write true or false"),
        ({"samples": [{"prompt": "a", "size": "512"}]}, 5, 'samples[0].size is "512"; write [width, height]'),
        ({"samples": [{"prompt": "a", "aspect_ratio": 0}]}, 5, "samples[0].aspect_ratio is 0; write a number from 0.1"),
    ],
)
def test_json_mistake_is_reported_with_its_line(write: Any, change: Any, line: int, said: str) -> None:
    assert f" line {line}: {said}" in error_of(write(change)) + ";"


def test_invalid_json_is_reported_with_its_line(write: Any) -> None:
    assert error_of(write('{\n  "seed": 1,\n  "samples": [}\n')).startswith(
        " line 3: is not valid JSON (Expecting value)"
    )
    assert "is not valid JSON" in error_of(write("[" * 100_000))
    assert "write { " in error_of(write("[1]"))
    assert "is NaN" in error_of(write('{"guidance": NaN}'))


def test_tab_indented_or_long_file_is_refused(write: Any) -> None:
    assert ": cfg unknown key" in error_of(write('{\n\t"cfg": 7\n}'))
    assert error_of(write('{"cfg": 7' + " " * 1_000_000 + "}")).startswith(": cfg unknown key")


def test_unreadable_file_is_named(write: Any, tmp_path: Path) -> None:
    assert "No such file" in error_of(tmp_path / "none.txt")
    (tmp_path / "p.txt").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in error_of(tmp_path / "p.txt")


@pytest.mark.parametrize(
    ("aspect", "resolution", "size"),
    [
        (1.0, 512, (512, 512)), (1.5, 512, (576, 448)), (2.0, 512, (704, 384)), (0.5, 512, (384, 704)),
        (1.5, 768, (896, 640)), (1.0, 1024, (1024, 1024)), (1.5, 48, (56, 40)),
    ],
)  # fmt: skip
def test_aspect_ratio_keeps_the_area(aspect: float, resolution: int, size: tuple[int, int]) -> None:
    assert size_of(aspect, resolution) == size
    assert abs(size[0] * size[1] - resolution**2) <= max(resolution**2 / 32, 128)


def test_sizes_for_512_equal_everydream2() -> None:
    sides = range(256, 961, 64)
    near = [(w, h) for w in sides for h in sides if abs(w * h - 512 * 512) <= 8192]
    for aspect in (0.3, 0.6, 0.9, 1.1, 1.4, 1.9, 3.0):
        assert size_of(aspect, 512) == min(near, key=lambda s: abs(1 - aspect * s[1] / s[0]))
