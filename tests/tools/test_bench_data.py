"""Benchmarks of the data path measure what their names describe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench_checks import data
from mezzotint.data.media import decoding


def test_first_listing_reads_all_images_again_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images are decoded with `verify: on_start` only, and no round uses the index of an earlier one."""
    looked: list[str] = []
    for name in ("probe_quickly", "probe"):
        look = getattr(decoding, name)

        def watched(path: Path, *rest: Any, look: Any = look, name: str = name, **words: Any) -> Any:
            looked.append(name)
            return look(path, *rest, **words)

        monkeypatch.setattr(decoding, name, watched)
    hashed, decoded, opened = data.first_listing(tmp_path, 2, 4)
    assert looked == ["probe_quickly"] * 4 + ["probe"] * 4 + ["probe_quickly"] * 4 + ["probe"] * 4
    assert min(hashed, decoded, opened) > 0
    sizes = [path.stat().st_size for path in (tmp_path / "jpegs").glob("*.jpg")]
    assert all(130_000 < size < 150_000 for size in sizes)
    contents = {path.read_bytes() for path in (tmp_path / "jpegs").glob("*.jpg")}
    assert len(contents) == 4
