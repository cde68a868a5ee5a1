"""What the recipe knows of formats."""

from __future__ import annotations

from mezzotint import registry
from mezzotint.settings.formats import base
from mezzotint.settings.sections.data import DataSettings


def test_format_without_settings_has_default_facts() -> None:
    assert base.format_spec("of-another-package") == base.FormatSpec()


def test_every_format_with_facts_is_readable() -> None:
    assert set(registry.names(base.FOLDER)) <= set(registry.names("data/formats"))
    assert {name for name in registry.names(base.FOLDER) if base.format_spec(name).has_clips} >= {"videofolder"}


def test_formats_fix_and_preset_existing_settings() -> None:
    for name in registry.names(base.FOLDER):
        spec = base.format_spec(name)
        for path in (setting for fixed in spec.fixed for setting in fixed.settings):
            section = DataSettings()
            for word in path.split("."):
                assert word in type(section).model_fields, f"{name}: {path}"
                section = getattr(section, word)
        assert all(fixed.sentence.count("{name}") == 1 for fixed in spec.fixed)
        assert spec.usual.keys() <= {"", *DataSettings.model_fields}
