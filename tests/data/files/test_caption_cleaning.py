"""Captions are cleaned without warnings, and only if the packages are installed."""

from __future__ import annotations

import sys
import warnings

import pytest
from bs4.exceptions import ParserRejectedMarkup

from mezzotint.data.files.caption_cleaning import clean, cleaner
from support.messages import refused


@pytest.mark.parametrize("caption", ["cats.html", "videos/cat.xml", "http://example.com"])
def test_caption_like_a_file_name_is_cleaned_without_warning(caption: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clean(caption)


def test_markup_rejected_by_the_parser_is_kept_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(*_: object, **__: object) -> None:
        raise ParserRejectedMarkup("expected name token")

    monkeypatch.setattr("bs4.BeautifulSoup", reject)
    assert clean("a cat <![x> on a mat") == "a cat <! x> on a mat"


@pytest.mark.parametrize("package", ["ftfy", "bs4"])
def test_missing_package_is_reported(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cleaner() is clean
    monkeypatch.setitem(sys.modules, package, None)
    with refused("E1466", f"needs the package {package}.*install mezzotint"):
        cleaner()
