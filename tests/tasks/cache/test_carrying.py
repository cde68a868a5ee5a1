"""A cache on object storage is downloaded before the data is opened and uploaded afterwards, once per machine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mezzotint.data.cache import carried
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks import assemble
from mezzotint.tasks.cache import carrying


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    monkeypatch.setattr(carried, "download_indexes", lambda path, *, keep_gb: done.append("bring"))
    monkeypatch.setattr(carried, "upload_files", lambda path: done.append("carry"))
    monkeypatch.setattr(assemble, "open_dataset", lambda *words, **named: done.append("open"))
    return done


@pytest.mark.parametrize(
    ("path", "rank", "expected"),
    [
        ("cache", 0, ["open"]),
        ("s3://box/cache", 0, ["bring", "wait", "open", "carry", "wait"]),
        ("s3://box/cache", 2, ["bring", "wait", "open", "carry", "wait"]),
        ("s3://box/cache", 3, ["wait", "open", "wait"]),
    ],
)
def test_first_process_of_each_machine_transfers_the_cache(
    calls: list[str], path: str, rank: int, expected: list[str]
) -> None:
    runtime: Any = SimpleNamespace(rank=rank, local_size=2, barrier=lambda: calls.append("wait"))
    carrying.open_dataset(read_text("schema: 1", overrides=[f"data.cache.path={path}"]).recipe, runtime)
    assert calls == expected
