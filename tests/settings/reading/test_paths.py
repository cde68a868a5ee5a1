"""Every setting by its path: how paths of files are marked."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from mezzotint.settings.base import InputPath, Located
from mezzotint.settings.reading.paths import Shape, settings, shape_of


def holds_an_unmarked_path(shape: Shape) -> bool:
    if shape.base is Path:
        return not any(isinstance(mark, Located) for mark in shape.marks)
    inner = get_args(shape.base) if shape.base is not Path else ()
    return any(holds_an_unmarked_path(shape_of(one)) for one in inner if one is not Ellipsis)


def test_every_path_setting_declares_its_lookup() -> None:
    assert [one.path for one in settings() if holds_an_unmarked_path(one.shape)] == []
    marked = {one.path for one in settings() if any(isinstance(mark, Located) for mark in one.shape.marks)}
    assert {"model.path", "model.vae", "data.cache.path", "optim.ema.start", "run.folder", "run.resume"} <= marked


@pytest.mark.parametrize("kind", [Path, Path | None, tuple[Path, ...], dict[str, Path], dict[str, tuple[Path, int]]])
def test_path_without_a_mark_is_detected(kind: object) -> None:
    assert holds_an_unmarked_path(shape_of(kind))
    assert not holds_an_unmarked_path(shape_of(tuple[InputPath, ...] | None))
