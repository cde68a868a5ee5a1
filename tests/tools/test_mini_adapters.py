"""The page about adapters that learn a word shows the stored figures."""

from __future__ import annotations

import json
import os

from mini import adapters


def test_every_row_is_stored() -> None:
    figures = json.loads(adapters.FIGURES.read_text("utf-8"))
    assert figures.keys() == adapters.KINDS.keys()
    assert figures["rank-32"]["new"]["all"] >= 0.9, "the shipped recipe learns its word"
    kept = [row["old"]["all"] for name, row in figures.items() if name != "faster"]
    assert min(kept) >= 0.9, "other objects are kept, except with a learning rate that breaks the model"


def test_page_shows_the_stored_figures() -> None:
    page = adapters.PAGE.read_text("utf-8")
    between = page.split(adapters.BEGIN)[1].split(adapters.END)[0]
    assert between == adapters.table(), "run: python tools/mini/adapters.py --page"
    assert f"]({os.path.relpath(adapters.SHEET, adapters.PAGE.parent)})" in page
