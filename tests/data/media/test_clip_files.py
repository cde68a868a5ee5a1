"""Missing decoder of clips."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mezzotint.data import media
from mezzotint.data.catalogue import catalogue as catalogues
from support.clip_folders import settings_of
from support.messages import refused


def test_missing_decoder_is_reported_with_the_install_command(
    films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_clips", "_containers"):
        monkeypatch.delitem(sys.modules, f"mezzotint.data.media.{name}", raising=False)
        monkeypatch.delattr(media, name, raising=False)
    monkeypatch.setitem(sys.modules, "av", None)
    with refused("E1290", r"pip install 'mezzotint\[video\]'"):
        catalogues.build(settings_of(films), tmp_path, workers=1)
