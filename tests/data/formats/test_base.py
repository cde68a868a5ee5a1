"""Properties of every dataset format."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint import registry
from mezzotint.data.formats.base import FOLDER, format_of
from mezzotint.settings.formats.base import format_spec
from mezzotint.settings.sections.data import DataSettings
from support.messages import refused


@pytest.mark.parametrize("name", registry.names(FOLDER))
def test_format_reports_a_missing_folder(name: str, tmp_path: Path) -> None:
    chosen = format_of(name)
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in chosen.suffixes)
    with refused("E1231" if name == "clip-list" else "E1201", str(tmp_path / "gone")):
        chosen.files_at(tmp_path / "gone", DataSettings(format=name))


@pytest.mark.parametrize("name", registry.names(FOLDER))
def test_format_spec_agrees_on_encoded_formats(name: str) -> None:
    assert format_spec(name).is_encoded == format_of(name).is_encoded


def test_unknown_format_error_suggests_the_nearest() -> None:
    with refused("E1010", "did you mean kohya"):
        format_of("koya")
