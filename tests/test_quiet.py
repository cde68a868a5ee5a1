"""Warnings of libraries that mean nothing are not shown; others are."""

from __future__ import annotations

import io
import warnings

import pytest
from PIL import Image
from torch.utils.data import DataLoader

from mezzotint import quiet
from mezzotint.cli import main


def many_workers() -> None:
    DataLoader(range(4), num_workers=4096)  # type: ignore[arg-type]  # made, not asked: no process starts


def odd_tiff() -> None:
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "TIFF", tiffinfo={33723: (1, 2, 3)})
    Image.open(file).getexif()


def shown(raises: object, *, quietly: bool, told: str = "") -> list[str]:
    """The warnings that a call leaves for the reader, as Python starts. told: an action that Python was told."""
    assert callable(raises)
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        if told:
            warnings.filterwarnings(told, category=UserWarning)  # type: ignore[arg-type]
        if quietly:
            main(["ls", "formats"])
        raises()
    return [str(one.message) for one in caught if issubclass(one.category, UserWarning)]


@pytest.mark.parametrize("raises", [many_workers, odd_tiff])
def test_what_means_nothing_is_not_shown_unless_python_is_told(raises: object) -> None:
    assert shown(raises, quietly=False), "the library does not warn any more: its entry can go"
    assert shown(raises, quietly=True) == []
    assert shown(raises, quietly=True, told="always")


def test_other_warnings_and_other_modules_are_shown() -> None:
    def others() -> None:
        warnings.warn_explicit("This DataLoader will create 9 worker processes in total", UserWarning, "x.py", 1, "x")
        warnings.warn_explicit("This DataLoader is slow", UserWarning, "x.py", 2, "torch.utils.data.dataloader")

    assert len(shown(others, quietly=True)) == 2
    assert all(message and module.endswith("$") for message, module in quiet.MEAN_NOTHING)
