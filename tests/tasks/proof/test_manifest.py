"""Digests of samples in a manifest, sharded by key."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.settings.sections.data import DataSettings
from mezzotint.tasks.proof import manifest


def catalogue_of(root: Path, index: Path) -> Catalogue:
    settings = DataSettings.model_validate(
        {"path": [root], "resolution": 64, "buckets": {"step": 8}, "captions": {"missing": "skip"}}
    )
    return build(settings, index)


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    root = tmp_path / "images"
    root.mkdir()
    for number in range(6):
        Image.new("RGB", (32, 32), (number, 0, 0)).save(root / f"{number}.png")
        (root / f"{number}.txt").write_text(f"image {number}")
    return catalogue_of(root, tmp_path / "index")


def test_dataset_with_one_caption_has_one_shard(catalogue: Catalogue, tmp_path: Path) -> None:
    before = manifest.shards(catalogue)
    (tmp_path / "images" / "3.txt").write_text("another")
    after = manifest.shards(catalogue_of(tmp_path / "images", tmp_path / "index"))
    assert before.keys() == after.keys()
    assert sum(before[shard] != after[shard] for shard in before) == 1


def test_second_start_does_not_hash_shards_again(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = manifest.shards(catalogue)
    monkeypatch.setattr(catalogues, "MANY", 1)
    assert manifest.shards_at_start(catalogue) == shards
    with monkeypatch.context() as context:
        context.setattr(manifest, "shards", None)  # would be called for new shards
        assert manifest.shards_at_start(catalogue) == shards
    place = catalogue.memo.path
    place.write_bytes(place.read_bytes().replace(b'": "', b'": "0', 1))
    assert manifest.shards_at_start(catalogue) == shards
