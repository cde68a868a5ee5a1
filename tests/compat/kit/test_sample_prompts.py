"""Sample prompts with the keys of a trainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.compat.kit import setting_files
from mezzotint.compat.kit.sample_prompts import PromptKeys, read_line, read_table
from mezzotint.errors import RecipeError

KEYS = PromptKeys({"w": "width", "n": "negative"}, {"prompt": str, "width": int, "negative": str})


def test_line_has_the_options_of_the_trainer() -> None:
    prompt, dropped = read_line("a fox --w 64 --n bad, worse --h 32", KEYS)
    assert (prompt.text, dict(prompt.options), dropped) == ("a fox", {"width": 64, "negative": "bad, worse"}, ["h 32"])


def test_tables_have_the_keys_of_the_trainer(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text("[prompt]\nwidth = 64\n[[prompt.subset]]\nprompt = 'a'\n", "utf-8")
    [prompt] = read_table(setting_files.load(str(path)), KEYS)
    assert (prompt.text, dict(prompt.options)) == ("a", {"width": 64})
    path.write_text("[prompt]\nheight = 64\n[[prompt.subset]]\nprompt = 'a'\n", "utf-8")
    with pytest.raises(RecipeError, match=r"prompt\.height in p\.toml, line 2: unknown key"):
        read_table(setting_files.load(str(path)), KEYS)
