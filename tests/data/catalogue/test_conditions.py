"""Condition images: paired with their samples by name, and placed as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue import sharing
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.settings.sections.data import DataSettings
from support.messages import refused

NAMES = ("a", "b", "sub/c")


def draw(folder: Path, names: tuple[str, ...] = NAMES, *, blue: int = 0, size: tuple[int, int] = (40, 24)) -> Path:
    for number, name in enumerate(names):
        path = folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = np.zeros((size[1], size[0], 3), np.uint8)
        image[..., 0], image[..., 1], image[..., 2] = np.arange(size[0]) * 6 % 256, 40 * number, blue
        Image.fromarray(image).save(path)
        path.with_suffix(".txt").write_text(f"caption {name}")
    return folder


def settings(root: Path, **values: Any) -> DataSettings:
    conditions = {"source": {"folder": root / "before"}}
    return DataSettings.model_validate(
        {"path": root / "after", "resolution": 16, "buckets": {"step": 8}, "conditions": conditions, **values}
    )


def build(root: Path, **values: Any) -> Catalogue:
    return catalogues.build(settings(root, **values), root / "index")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    draw(tmp_path / "after")
    draw(tmp_path / "before", blue=200)
    return tmp_path


def names_of(catalogue: Catalogue, name: str = "source") -> list[str]:
    paired = catalogue.conditions[name]
    return ["" if row < 0 else paired.images.key(row) for row in paired.rows.tolist()]


def test_images_are_paired_by_name_whatever_their_extension(pairs: Path) -> None:
    (pairs / "before" / "b.png").rename(pairs / "before" / "b.webp")
    Image.open(pairs / "before" / "b.webp").save(pairs / "before" / "b.webp")
    catalogue = build(pairs)
    assert list(catalogue.keys()) == ["a.png", "b.png", "sub/c.png"]
    assert names_of(catalogue) == ["a.png", "b.webp", "sub/c.png"]


def test_file_name_is_enough_if_it_is_unique(pairs: Path) -> None:
    (pairs / "before" / "sub" / "c.png").rename(pairs / "before" / "c.png")
    assert names_of(build(pairs)) == ["a.png", "b.png", "c.png"]


def test_folder_below_the_data_set_is_not_trained(tmp_path: Path) -> None:
    draw(tmp_path / "after")
    draw(tmp_path / "after" / "before", blue=9)
    catalogue = build(tmp_path, conditions={"source": tmp_path / "after" / "before"})
    assert list(catalogue.keys()) == ["a.png", "b.png", "sub/c.png"]
    assert names_of(catalogue) == ["a.png", "b.png", "sub/c.png"]


def test_each_set_has_its_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        draw(tmp_path / name)
        draw(tmp_path / f"{name}-before", blue=len(name))
    sets = [{"path": tmp_path / name, "conditions": {"source": tmp_path / f"{name}-before"}} for name in ("one", "two")]
    catalogue = build(tmp_path, path=None, conditions={}, sets=sets)
    paired = catalogue.conditions["source"]
    assert [paired.images.path(row).parts[-2] for row in paired.rows[[0, 3]].tolist()] == ["one-before", "two-before"]


def test_missing_image_is_an_error_unless_it_is_optional(pairs: Path) -> None:
    (pairs / "before" / "b.png").unlink()
    with refused("E1294", "1 sample without a source image: b.png; add an image of the same name"):
        build(pairs)
    conditions = {"source": {"folder": pairs / "before", "optional": True}}
    assert names_of(build(pairs, conditions=conditions)) == ["a.png", "", "sub/c.png"]


def test_two_images_of_one_name_are_refused(pairs: Path) -> None:
    Image.open(pairs / "before" / "a.png").save(pairs / "before" / "a.jpg")
    with refused("E1294", "a.jpg and .*a.png are source images of one sample|a.png and .*a.jpg are source images"):
        build(pairs)


def test_other_shape_is_refused_and_another_size_is_not(pairs: Path) -> None:
    draw(pairs / "before", ("a",), size=(81, 49))  # twice the size, give or take a pixel
    build(pairs)
    draw(pairs / "before", ("a",), size=(24, 40))
    with refused("E1295", "1 source image of another shape than the sample: a.png is 40×24, its image 24×40"):
        build(pairs)


def test_fingerprint_depends_on_the_images(pairs: Path) -> None:
    first = build(pairs).fingerprint
    draw(pairs / "before", ("extra",))
    assert build(pairs).fingerprint == first
    draw(pairs / "before", ("b",), blue=7)
    assert build(pairs).fingerprint != first
    assert build(pairs, conditions={}).fingerprint != first


def test_another_process_opens_the_same_pairs(pairs: Path) -> None:
    catalogue = build(pairs)
    opened = sharing.at_address(sharing.to_address(catalogue), settings(pairs))
    assert opened is not None
    assert opened.fingerprint == catalogue.fingerprint
    assert names_of(opened) == names_of(catalogue)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"conditions": {"Source": "x"}}, "the name of a condition has small letters"),
        ({"conditions": {"source": {}}}, "need a folder with data.format=image-folder"),
        ({"conditions": {"source": "x"}, "prior": {"path": "y"}}, "class images .data.prior. do not go together"),
        ({"condition_dropout": 0.1}, "has no effect without data.conditions"),
        ({"conditions": {"source": "x"}, "format": "videofolder"}, "data.format=videofolder has none"),
        ({"path": None, "sets": [{"path": "a", "conditions": {"source": "x"}}, {"path": "b"}]},
         "other condition images .source; none."),
    ],
)  # fmt: skip
def test_contradictions(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataSettings.model_validate({"path": "p", **values})
