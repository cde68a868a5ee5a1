"""Pairs that the doctor decodes: shifted ones, and those that do not belong together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mezzotint.cli import main

pytest.importorskip("imagehash")


def texture(seed: int) -> Image.Image:
    """Smooth random shapes."""
    coarse = np.random.default_rng(seed).integers(0, 256, (10, 10, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((96, 96), Image.Resampling.BICUBIC)


def test_shifted_and_foreign_pairs_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "after").mkdir()
    (tmp_path / "before").mkdir()
    for number, name in enumerate(("fits", "shifted", "foreign")):
        image = texture(number)
        image.save(tmp_path / "after" / f"{name}.png")
        (tmp_path / "after" / f"{name}.txt").write_text("an edit")
        before = image.point(lambda level: level // 2 + 40)
        if name == "shifted":
            before = before.transform(before.size, Image.Transform.AFFINE, (1, 0, 6, 0, 1, 0))
        (texture(77) if name == "foreign" else before).save(tmp_path / "before" / f"{name}.png")
    recipe = tmp_path / "r.yaml"
    recipe.write_text(f"data: {{path: {tmp_path / 'after'}, conditions: {{source: {tmp_path / 'before'}}}}}\n")
    main(["doctor", str(recipe), f"data.cache.path={tmp_path / 'cache'}", "--json"])
    report = json.loads(capsys.readouterr().out)
    text = json.dumps(report)
    names = {finding["name"]: json.dumps(finding) for finding in report["findings"]}
    assert "shifted.png (about " in names["shifted-pairs"], text
    assert "fits.png" not in names["shifted-pairs"]
    assert "foreign.png (correlation " in names["unlike-pairs"]
    assert "shifted.png" not in names["unlike-pairs"]
