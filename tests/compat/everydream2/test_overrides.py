"""Overrides of samples, from a folder of EveryDream2 to the catalogue and the cache."""

from __future__ import annotations

from pathlib import Path

from everydream_folders import manifest, settings_of, write_files

from mezzotint.data.cache.entries import LatentCache
from mezzotint.data.catalogue.catalogue import build
from mezzotint.data.files.tags import Tags
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size


def test_several_sources_keep_their_own_overrides(tmp_path: Path) -> None:
    one = write_files(tmp_path / "one", {"a.png": None, "batch_id.txt": "x", "multiply.txt": "2"})
    two = write_files(tmp_path / "two", {"a.png": None, "a.yaml": "rating: 3\nflip_p: 0.5\nbatch_id: y"})
    listed = manifest(two, {"image": "a.png", "rating": 3, "batch_id": "x"})
    data_set = build(settings_of(one, listed), tmp_path / "index", workers=1)
    assert [data_set.key(row) for row in range(2)] == ["0/a.png", "1/a.png"]
    assert data_set.repeats.tolist() == [2, 1]
    assert [data_set.overrides.group_name(n) for n in data_set.overrides.group.tolist()] == ["x", "x"]
    assert data_set.overrides.rating.tolist() == [1, 3]


def test_second_start_reads_overrides_from_the_catalogue(tmp_path: Path) -> None:
    mapping = "flip_p: 0.1\ncond_dropout: 0\nbatch_id: b\ntags: [{tag: t, weight: 2}, u]\nshuffle_tags: true"
    root = write_files(tmp_path / "data", {"a.png": None, "a.yaml": mapping, "c.png": None})
    first = build(settings_of(root), tmp_path / "index", workers=1)
    again = build(settings_of(root), tmp_path / "index", workers=1)
    for data_set in (first, again):
        own = data_set.overrides
        assert (own.flip_of(0), own.caption_dropout_of(0), own.flip_of(1)) == (0.1, 0.0, None)
        assert data_set.overrides.group.tolist() == [1, 0]
        assert data_set.overrides.shuffle_tags.tolist() == [1, 0]
        assert Tags.decoded(data_set.overrides.tags_of(0)).weights == (2.0, 1.0)
        assert data_set.overrides.tags_of(1) == ""
    assert first.folder == again.folder


def test_changed_folder_file_changes_the_dataset_identity(tmp_path: Path) -> None:
    root = write_files(tmp_path / "data", {"a.png": None})
    seen = {build(settings_of(root), tmp_path / "index", workers=1).fingerprint}
    for name, text in (
        ("flip_p.txt", "0.5"),
        ("batch_id.txt", "x"),
        ("shuffle_tags.txt", ""),
        ("local.yaml", "rating: 2"),
    ):
        write_files(root, {name: text})
        seen.add(build(settings_of(root), tmp_path / "index", workers=1).fingerprint)
    assert len(seen) == 5


def test_images_without_overrides_have_the_same_identity_elsewhere(tmp_path: Path) -> None:
    root = write_files(tmp_path / "data", {"a.png": None, "a.txt": "a cat"})
    plain = DataSettings.model_validate({"path": root})
    ours = build(settings_of(root), tmp_path / "index", workers=1)
    assert ours.fingerprint == build(plain, tmp_path / "index", workers=1).fingerprint


def test_images_with_own_flips_have_several_cache_entries(tmp_path: Path) -> None:
    root = write_files(tmp_path / "data", {"a.png": None, "flip_p.txt": "0.5", "sub/b.png": None})
    settings = settings_of(root, resolution=64, cache={"latents": True, "crops": 20})
    data_set = build(settings, tmp_path / "index", workers=1)
    latents = LatentCache(tmp_path / "cache", settings, identity="vae", compute="fp32", seed=3)
    assert latents.views == 20
    flipped = [{latents.placement(data_set, row, n, Size(64, 64)).flipped for n in range(20)} for row in (0, 1)]
    assert flipped == [{False, True}, {False}]
