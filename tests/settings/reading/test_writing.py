"""A tree of settings as the YAML of a recipe."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint.settings.reading import yaml_rules
from mezzotint.settings.reading.writing import as_yaml

SETTINGS: dict[str, Any] = {
    "optim": {"lr": 1e-6, "ema": {"rule": "none"}},
    "model": {"path": "a b", "train": ["denoiser", "text_encoder"]},
    "schema": 1,
}


def test_sections_keep_order_with_flags_on_their_lines() -> None:
    text = as_yaml(SETTINGS, {"optim.lr": "--lr\n  twice"})
    assert text.splitlines() == [
        "schema: 1", "model:", "  path: a b", "  train: [denoiser, text_encoder]", "optim:",
        "  lr: 1e-06  # --lr twice", "  ema:", "    rule: none",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "value",
    ["no", "1e-6", "a: b", "# x", "", " x", "línea\u2028", "null", "~/images", "'", '"', [1, "on"], {}, None, 0.1],
)
def test_written_values_read_back_equal(value: Any) -> None:
    text = as_yaml({"model": {"path": value}}, {})
    assert yaml_rules.load(text, "a recipe").tree["model"]["path"] == value
