"""Condition images in the data set itself: columns of tables, members of shards."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue import sharing
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.media import decoding
from mezzotint.settings.sections.data import DataSettings
from support.arrow_tables import IMAGE, write
from support.messages import refused
from support.shards import shard

Rows = list[tuple[int, int | None, str]]
"""The shades of a sample and of its source (None without one), and its caption."""

ROWS: Rows = [(10, 110, "first"), (20, 120, "second"), (30, 130, "third")]


def png(shade: int, size: tuple[int, int] = (40, 32)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (shade, 7, 9)).save(file, "PNG")
    return file.getvalue()


def with_files(root: Path, rows: Rows) -> list[dict[str, str]]:
    """Images in files, and the lines of a table that name them. Names of sources differ from those of samples."""
    for folder in ("after", "before"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    lines = []
    for after, before, caption in rows:
        (root / "after" / f"{after}.png").write_bytes(png(after))
        line = {"edited_file_name": f"after/{after}.png", "prompt": caption, "source": ""}
        if before is not None:
            (root / "before" / f"{before}.png").write_bytes(png(before))
            line["source"] = f"before/{before}.png"
        lines.append(line)
    return lines


def write_jsonl(root: Path, rows: Rows) -> None:
    lines = [{name: value or None for name, value in line.items()} for line in with_files(root, rows)]
    (root / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))


def write_csv(root: Path, rows: Rows) -> None:
    lines = with_files(root, rows)
    with open(root / "metadata.csv", "w", newline="") as file:
        table = csv.DictWriter(file, list(lines[0]))
        table.writeheader()
        table.writerows(lines)


def write_parquet(root: Path, rows: Rows) -> None:
    def inside(shade: int | None) -> dict[str, Any] | None:
        return None if shade is None else {"bytes": png(shade), "path": None}

    columns = {
        "source": [inside(before) for _, before, _ in rows], "prompt": [caption for *_, caption in rows],
        "edited": [inside(after) for after, *_ in rows],
    }  # fmt: skip
    write(root / "pairs.parquet", columns, {"source": IMAGE, "edited": IMAGE})


def write_shards(root: Path, rows: Rows) -> None:
    for number, (after, before, caption) in enumerate(rows):
        members: list[tuple[str, Any]] = [(f"{after}.png", png(after)), (f"{after}.txt", caption)]
        if before is not None:
            members.insert(number % 3, (f"{after}.Source.png", png(before)))
        shard(root / f"{number % 2}-{number}.tar", *members)


WRITERS: dict[str, Callable[[Path, Rows], None]] = {
    "jsonl": write_jsonl, "csv": write_csv, "parquet": write_parquet, "shards": write_shards,
}  # fmt: skip


def settings(root: Path, kind: str, **values: Any) -> DataSettings:
    of_kind: dict[str, Any] = {"format": "metadata", "columns": {"image": "edited", "caption": "prompt"}}
    if kind == "shards":
        of_kind = {"format": "webdataset"}
    usual = {"path": root, "resolution": 32, "buckets": {"step": 8}, "conditions": {"source": {}}}
    return DataSettings.model_validate({**usual, **of_kind, **values})


def build(root: Path, kind: str, **values: Any) -> Catalogue:
    return catalogues.build(settings(root / "set", kind, **values), root / "index", workers=1)


def shades(catalogue: Catalogue) -> dict[int, int | None]:
    """The shade of each sample, and that of its source."""
    paired = catalogue.conditions["source"]
    return {
        shade_of(catalogue, row): None if image < 0 else shade_of(paired.images, image)
        for row, image in enumerate(paired.rows.tolist())
    }


def shade_of(catalogue: Catalogue, row: int) -> int:
    return int(decoding.whole_image(catalogue.path(row), background="#ffffff", max_pixels=10**6).flat[0])


@pytest.mark.parametrize("kind", WRITERS)
def test_each_sample_gets_the_image_of_its_row(tmp_path: Path, kind: str) -> None:
    WRITERS[kind](tmp_path / "set", ROWS)
    catalogue = build(tmp_path, kind)
    assert shades(catalogue) == {10: 110, 20: 120, 30: 130}  # and no source is a sample
    assert list(catalogue.conditions["source"].images.keys()) == list(catalogue.keys())
    assert "not named" not in str(catalogue.report.skipped)


@pytest.mark.parametrize("kind", WRITERS)
def test_missing_image_is_an_error_unless_it_is_optional(tmp_path: Path, kind: str) -> None:
    WRITERS[kind](tmp_path / "set", [*ROWS, (40, None, "fourth")])
    remedy = "add KEY.source.png to the shard" if kind == "shards" else "put one into its column 'source'"
    with refused("E1294", f"1 sample without a source image: .*; {remedy}, remove the sample"):
        build(tmp_path, kind)
    found = build(tmp_path, kind, conditions={"source": {"optional": True}})
    assert shades(found) == {10: 110, 20: 120, 30: 130, 40: None}


@pytest.mark.parametrize("kind", WRITERS)
def test_another_column_is_another_index(tmp_path: Path, kind: str) -> None:
    WRITERS[kind](tmp_path / "set", ROWS)
    own = build(tmp_path, kind, conditions={"source": {"column": "source"}})
    assert shades(own) == {10: 110, 20: 120, 30: 130}
    if kind == "shards":
        with refused("E1294", "no sample has a source image .*no before image.*; add KEY.before.png to the shard"):
            build(tmp_path, kind, conditions={"source": {"column": "before"}})
    else:
        with refused("E1212", "no column .*'before' for a condition; .*; set data.conditions.NAME.column"):
            build(tmp_path, kind, conditions={"source": {"column": "before"}})


@pytest.mark.parametrize("kind", WRITERS)
def test_changed_image_changes_the_fingerprint_and_is_found(tmp_path: Path, kind: str) -> None:
    WRITERS[kind](tmp_path / "set", ROWS)
    first = build(tmp_path, kind)
    assert build(tmp_path, kind).fingerprint == first.fingerprint
    changed: Rows = [ROWS[0], (20, 220, "second"), ROWS[2]]
    WRITERS[kind](tmp_path / "set", changed)
    second = build(tmp_path, kind)
    assert shades(second) == {10: 110, 20: 220, 30: 130}
    assert second.fingerprint != first.fingerprint
    WRITERS[kind](tmp_path / "set", ROWS)
    assert build(tmp_path, kind).fingerprint == first.fingerprint


@pytest.mark.parametrize("kind", WRITERS)
def test_damaged_index_is_made_again(tmp_path: Path, kind: str) -> None:
    WRITERS[kind](tmp_path / "set", ROWS)
    images = build(tmp_path, kind).conditions["source"].images
    (images.folder / "manifest.json").write_text("{")
    assert shades(build(tmp_path, kind)) == {10: 110, 20: 120, 30: 130}


@pytest.mark.parametrize("kind", WRITERS)
def test_another_process_opens_the_same_pairs(tmp_path: Path, kind: str) -> None:
    WRITERS[kind](tmp_path / "set", ROWS)
    catalogue = build(tmp_path, kind)
    opened = sharing.at_address(sharing.to_address(catalogue), settings(tmp_path / "set", kind))
    assert opened is not None
    assert opened.fingerprint == catalogue.fingerprint
    assert shades(opened) == shades(catalogue)


def test_one_source_may_have_several_edits(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "set", [(10, 110, "first"), (20, 110, "second")])
    assert shades(build(tmp_path, "jsonl")) == {10: 110, 20: 110}


def test_sample_with_two_captions_is_two_samples_with_their_sources(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "set", [(10, 110, "first"), (10, 120, "second")])
    catalogue = build(tmp_path, "jsonl")
    assert list(catalogue.keys()) == ["after/10.png", "after/10.png#2"]
    paired = catalogue.conditions["source"]
    assert [shade_of(paired.images, row) for row in paired.rows.tolist()] == [110, 120]


def test_sets_have_their_own_columns(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "one", ROWS[:1])
    write_jsonl(tmp_path / "two", ROWS[1:])
    path = tmp_path / "two" / "metadata.jsonl"
    path.write_text(path.read_text().replace('"source"', '"input_file_name"'))
    sets = [{"path": tmp_path / "one"}, {"path": tmp_path / "two", "conditions": {"source": {"column": "input"}}}]
    catalogue = build(tmp_path, "jsonl", path=None, sets=sets)
    assert shades(catalogue) == {10: 110, 20: 120, 30: 130}


def test_unusable_images_are_named(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "set", ROWS)
    (tmp_path / "set" / "before" / "120.png").unlink()
    with refused("E1294", "1 sample without a source image: after/20.png .*120.png.: no such file"):
        build(tmp_path, "jsonl")
    path = tmp_path / "set" / "metadata.jsonl"
    path.write_text(path.read_text().replace("before/120.png", "../120.png"))
    with refused("E1213", "names a file outside the folder of the table"):
        build(tmp_path, "jsonl")


def test_two_images_of_one_key_are_refused(tmp_path: Path) -> None:
    shard(
        tmp_path / "set" / "0.tar", ("a.png", png(1)), ("a.txt", "a"), ("a.source.png", png(2)),
        ("a.source.jpg", png(3)),
    )  # fmt: skip
    with refused("E1294", "are condition images with the same key"):
        build(tmp_path, "shards")


@pytest.mark.parametrize(
    ("kind", "conditions", "message"),
    [
        ("jsonl", {"source": {"folder": "x", "column": "y"}}, "has a folder and a column; leave out one"),
        ("jsonl", {"source": {"column": "edited"}}, "is the column of the samples"),
    ],
)
def test_contradictions(tmp_path: Path, kind: str, conditions: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(tmp_path, kind, conditions=conditions)


def test_folder_in_one_set_and_a_column_in_another_are_refused(tmp_path: Path) -> None:
    sets = [{"path": "a"}, {"path": "b", "conditions": {"source": "before"}}]
    with pytest.raises(ValueError, match="has a folder in some sets and none in others"):
        settings(tmp_path, "jsonl", path=None, sets=sets)
