"""Reading of data set files: levels, keys, errors with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from musubi_commands import problems

IMAGES = 'image_directory = "a"\ncaption_extension = ".txt"\n'


def refused(text: str, script: str = "wan_train_network") -> list[tuple[str, str, str, int | None]]:
    Path("d.toml").write_text(text, "utf-8")
    found = problems(script, "--dataset_config=d.toml")
    return [(one.where, one.code, one.message + "; " + one.remedy, one.line) for one in found]


@pytest.mark.parametrize(
    ("text", "where", "code", "words", "line"),
    [
        (f"[[datasets]]\n{IMAGES}num_repeat = 2\n", "datasets.0.num_repeat", "E1016", "did you mean num_repeats", 4),
        (f"[[datasets]]\n{IMAGES}batch_size = 'a'\n", "datasets.0.batch_size", "E1017", "must be an integer", 4),
        (f"[[datasets]]\n{IMAGES}resolution = [1]\n", "datasets.0.resolution", "E1017", "or [width, height]", 4),
        ('[[datasets]]\ncaption_extension = ".txt"\n', "datasets.0", "E1017", "has none", 1),
        (f'[[datasets]]\n{IMAGES}video_directory = "b"\n', "datasets.0", "E1017", "image_directory and video", 1),
        (f"[[datasets]]\n{IMAGES}target_frames = [5]\n", "datasets.0.target_frames", "E1016", "sets of clips", 4),
        ("[general]\nbatch_size = 1\n", "datasets", "E1017", "is missing", None),
        (f'[general]\nimage_directory = "a"\n[[datasets]]\n{IMAGES}', "general.image_directory", "E1016",
         "write it in [[datasets]]", 2),
        (f"batch_size = 1\n[[datasets]]\n{IMAGES}", "batch_size", "E1016", "below [general]", 1),
        (f'[[datasets]]\n{IMAGES}[[datasets.subsets]]\nimage_dir = "b"\n', "datasets.0.subsets", "E1016", "no subsets",
         1),
        (f"[[datasets]]\n{IMAGES}frame_extraction = 'all'\n", "datasets.0.frame_extraction", "E1017", "takes head", 4),
    ],
)  # fmt: skip
def test_error_names_key_and_line(text: str, where: str, code: str, words: str, line: int | None) -> None:
    found = {one[0]: one for one in refused(text)}
    assert set(found) >= {f"{where} in d.toml"}
    _, actual, message, number = found[f"{where} in d.toml"]
    assert (actual, number) == (code, line)
    assert words in message


@pytest.mark.parametrize("text", ["a: 1\n", "[[datasets]\n"])
def test_other_files_are_refused(text: str) -> None:
    [(where, code, message, _)] = refused(text)
    assert (where, code) == ("--dataset_config", "E1017")
    assert "d.toml" in message
