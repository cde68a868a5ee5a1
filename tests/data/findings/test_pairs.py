"""Findings about pairs of samples and condition images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.findings.finding import Finding
from mezzotint.data.findings.images import of_copies
from mezzotint.data.findings.pairs import of_pairs
from mezzotint.settings.sections.data import DataSettings


def paint(path: Path, red: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 40), (red, 9, 9)).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number, name in enumerate("abc"):
        paint(tmp_path / "after" / f"{name}.png", 10 + number)
        paint(tmp_path / "before" / f"{name}.png", 100 + number)
        (tmp_path / "after" / f"{name}.txt").write_text("x")
    return tmp_path


def findings(root: Path) -> dict[str, Finding]:
    conditions = {"source": {"folder": root / "before", "optional": True}}
    settings = DataSettings.model_validate({"path": root / "after", "conditions": conditions})
    catalogue = catalogues.build(settings, root / "index")
    rows = np.arange(len(catalogue), dtype=np.int32)
    return {finding.name: finding for finding in (*of_pairs(catalogue, rows), *of_copies(catalogue, rows))}


def test_good_pairs_have_no_finding(root: Path) -> None:
    assert findings(root) == {}


def test_image_that_is_the_sample_is_found(root: Path) -> None:
    paint(root / "before" / "b.png", 11)
    assert [example.text for example in findings(root)["same-pairs"].examples] == ["b.png"]


def test_exchanged_pairs_are_found(root: Path) -> None:
    paint(root / "before" / "a.png", 12)
    paint(root / "before" / "c.png", 10)
    finding = findings(root)["exchanged-pairs"]
    assert (finding.count, finding.status, finding.examples[0].text) == (1, "mend", "a.png and c.png")


def test_missing_images_are_counted(root: Path) -> None:
    (root / "before" / "a.png").unlink()
    assert findings(root)["no-condition"].sentence == "1 sample without a source image"


def test_copy_with_another_condition_is_no_copy(root: Path) -> None:
    paint(root / "after" / "b.png", 10)
    assert "duplicates" not in findings(root)
    paint(root / "before" / "b.png", 100)
    assert findings(root)["duplicates"].count == 1
