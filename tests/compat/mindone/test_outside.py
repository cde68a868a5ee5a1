"""A YAML file of MindONE's that is none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint.compat.mindone.dialect import DIALECT
from mezzotint.errors import MezzotintError
from mezzotint.settings.reading.translation import Launched


@pytest.mark.parametrize(("kind", "word"), [("pipe", "a pipe"), ("endless", "a device")])
def test_folder_in_place_of_a_yaml_file_is_not_called_missing(kind: str, word: str) -> None:
    place = Path("ff.yaml")
    os.mkfifo(place) if kind == "pipe" else place.symlink_to("/dev/zero")
    drawing, training = ["--config=ff.yaml"], ["--config=ff.yaml", "--weight=x.ckpt", "--data_path=p"]
    readers: tuple[Callable[[], object], ...] = (
        lambda: DIALECT.translate(training, Launched()), lambda: DIALECT.translate_tool("sample", drawing),
    )  # fmt: skip
    for reader in readers:
        with pytest.raises(MezzotintError, match=f"it is {word}, not a regular file") as caught:
            reader()
        assert caught.value.code == "E1017"
