"""Fingerprints depend on content, not on names, paths or times."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from mezzotint.errors import WeightsError
from mezzotint.weights.files import fingerprint


def test_fingerprint_depends_on_content_and_not_on_the_path(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(bytes(100_000))
    first = fingerprint.of_file(path)
    assert len(first) == 64
    copy = shutil.copy(path, tmp_path / "b.safetensors")
    assert fingerprint.of_file(Path(copy)) == first
    path.write_bytes(bytes(99_999) + b"\x01")
    assert fingerprint.of_file(path) != first


def test_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"once")
    count = 0
    digest = hashlib.file_digest

    def counted(*arguments: object) -> object:
        nonlocal count
        count += 1
        return digest(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "file_digest", counted)
    assert fingerprint.of_file(path) == fingerprint.of_file(path)
    assert count == 1
    path.write_bytes(b"twice")
    fingerprint.of_file(path)
    assert count == 2


def test_fingerprint_covers_every_shard(tmp_path: Path) -> None:
    for name in ("1", "2"):
        (tmp_path / f"{name}.safetensors").write_bytes(name.encode())
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}))
    first = fingerprint.of_file(index)
    (tmp_path / "2.safetensors").write_bytes(b"3")
    assert fingerprint.of_file(index) != first


def test_fingerprint_of_several_files_covers_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("ab")
    (tmp_path / "merges.txt").write_text("c")
    both = [tmp_path / "vocab.json", tmp_path / "merges.txt", tmp_path / "absent.json"]
    first = fingerprint.of_files(both)
    assert fingerprint.of_files(both[::-1]) == first
    (tmp_path / "vocab.json").write_text("a")
    (tmp_path / "merges.txt").write_text("bc")
    assert fingerprint.of_files(both) != first


def test_order_of_values_does_not_matter() -> None:
    assert fingerprint.of_values({"a": 1, "b": [2, 3]}) == fingerprint.of_values({"b": [2, 3], "a": 1})
    assert fingerprint.of_values({"a": 1}) != fingerprint.of_values({"a": 2})


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="gone") as caught:
        fingerprint.of_file(tmp_path / "gone.safetensors")
    assert caught.value.code == "E1401"
