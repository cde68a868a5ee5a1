"""Commands of `everydream2` with their settings files, in the current folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from foreign_lines import ALONE, flat

from mezzotint.compat.everydream2.dialect import DIALECT
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Translation
from mezzotint.settings.reference import error_codes


def written(name: str, content: Any) -> str:
    Path(name).write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return name


def translate(*words: str) -> Translation:
    return DIALECT.translate(["--resume_ckpt=sd15", *words], ALONE)


def by(train: Any, *words: str) -> dict[str, Any]:
    """Settings of a train.json."""
    return flat(translate(f"--config={written('train.json', train)}", *words).settings)


def optimized(optimizer: Any, *words: str) -> Translation:
    return translate(f"--optimizer_config={written('opt.json', optimizer)}", *words)


def problems(*words: str) -> list[tuple[str, str, str, str]]:
    with pytest.raises(RecipeError) as caught:
        translate(*words)
    assert all(p.code in error_codes() for p in caught.value.problems)
    return [(p.where, p.code, p.message, p.remedy) for p in caught.value.problems]
