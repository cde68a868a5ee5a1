"""Settings of small buckets."""

from __future__ import annotations

from typing import Any

from mezzotint.recipe.sections.data import DataSettings


def settings_of(**values: Any) -> DataSettings:
    return DataSettings.model_validate({"resolution": 64, "buckets": {"step": 8}, **values})
