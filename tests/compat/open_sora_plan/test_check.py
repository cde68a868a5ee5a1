"""What `check` reports about a malformed list of clips."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.tasks.check.check import Checked, check
from mezzotint.tasks.reading.arguments import parse


@pytest.fixture
def checked(shared_world: Any) -> Callable[..., Checked]:
    """`checked(data__path=…)`: the check of a recipe of a list, for an image model, the smallest there is."""

    def run(**settings: Any) -> Checked:
        plain = {"format": "clip-list", "batch_size": 2, "resolution": 32, "workers": 0}
        values = {f"data__{key}": value for key, value in plain.items()}
        values |= {"data__buckets__step": 8, "data__clips__frames": 5}
        return check(parse(shared_world.words("films", **values | settings), "check"))

    return run


@pytest.mark.parametrize(
    ("listed", "annotation", "code", "expected"),
    [
        ("\n", "[]", "E1231", "is empty; write a line for each data set"),
        ("media\n", "[]", "E1231", "line 1: 1 path where 2 are needed: media folder,annotation.json"),
        ("media,media,a.json\n", "[]", "E1231", "with a folder of embeddings set data.clip_list.text_embeddings=true"),
        ("media,a.json\n", '[{"path": "0.mp4"}]', "E1232", "entry 1: no 'cap'; it has 'path'"),
        ("media,a.json\n", "[]", "E1202", "set another data.path"),
    ],
)
def test_malformed_list_is_reported_by_check(
    listed: str, annotation: str, code: str, expected: str, checked: Callable[..., Checked],
    write_clip: Callable[..., Path], tmp_path: Path
) -> None:  # fmt: skip
    write_clip(tmp_path / "media" / "0.mp4", 8)
    (tmp_path / "a.json").write_text(annotation)
    (tmp_path / "list.txt").write_text(listed)
    messages = {problem.code: problem.message for problem in checked(data__path=tmp_path / "list.txt").problems}
    assert expected in messages[code]
