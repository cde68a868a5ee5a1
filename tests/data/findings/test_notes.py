"""Findings as notes: problems are counted and named with advice; a sound data set has none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mezzotint.data import findings
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.catalogue.data_report import DataReport
from mezzotint.data.findings import captions, data_set, files
from mezzotint.data.findings.captions import LostWords
from mezzotint.data.findings.finding import MOST_EXAMPLES, Example, Finding
from mezzotint.settings.sections.data import DataSettings

ROOTS = (Path("/a"), Path("/b"))


def report_of(**fields: Any) -> DataReport:
    values: dict[str, Any] = dict.fromkeys(("skipped", "left_out", "notes", "converted", "unknown"), ())
    counts = dict.fromkeys(("used", "upscaled", "empty_captions", "long_captions", "decoded"), 0)
    return DataReport(**(values | counts | fields))


def catalogue_of(**fields: Any) -> Catalogue:
    return cast(Any, SimpleNamespace(label=lambda row: f"{row}.x", **fields))


def test_note_names_three_examples_and_counts_the_rest() -> None:
    examples = tuple(Example(f"{n}.png") for n in range(5))
    [note] = findings.as_notes([Finding("x", "look", 5, "5 things", "mend them", examples)])
    assert note == "5 things: 0.png, 1.png, 2.png and 2 more; mend them"
    many = Finding("x", "look", 10**6, "many", "mend them", examples[:1] * MOST_EXAMPLES)
    assert "and 999,997 more;" in findings.as_notes([many])[0]
    assert findings.as_notes([Finding("x", "look", 1, "one", "mend it")]) == ["one; mend it"]


def test_files_are_counted_with_their_reasons() -> None:
    report = report_of(
        skipped=(("a\x1b.png", "broken"), ("b.png", "broken"), ("c.png", "empty")), unknown=((".md", 2), (".rar", 1)),
        left_out=(("d.png", "no caption"),),
    )  # fmt: skip
    by_name = {finding.name: finding for finding in files.of_files(report, ROOTS)}
    assert by_name.keys() == {"skipped", "left-out", "archives", "unknown-files"}
    assert by_name["skipped"].status == "mend"
    assert by_name["skipped"].table == (("reason", "files"), ("broken", "2"), ("empty", "1"))
    assert findings.as_notes(by_name.values())[0].startswith(
        "3 files skipped, which cannot be used: a\\x1b.png: broken, b.png: broken, c.png: empty; "
    )
    assert by_name["left-out"].table == ()
    assert findings.as_notes([by_name["archives"]]) == [
        "1 .rar archive below /a, /b is not opened: images in it are not trained; unpack it there"
    ]
    assert [example.text for example in by_name["unknown-files"].examples] == [".md (2)"]
    [packed] = files.of_files(report_of(unknown=((".tar", 1), (".zip", 2))), ROOTS)
    assert packed.sentence.startswith("1 .tar archive and 2 .zip archives below /a, /b are not opened")
    assert list(files.of_files(report_of(), ROOTS)) == []


def test_groups_split_by_the_holdout_are_counted() -> None:
    groups = np.array([0, 1, 1, 2, 3, 4, 4, 4])
    catalogue = catalogue_of(overrides=SimpleNamespace(group=groups, group_name=lambda number: f"name {number}"))
    held = np.array([1, 3, 4, 5, 7], np.int32)
    [split] = data_set.of_split_names(catalogue, np.array([0, 2, 6], np.int32), held)
    assert (
        "it holds out 1 of the 2 of 'name 1', 1 of the 1 of 'name 2', 1 of the 1 of 'name 3' and 1 more"
        in split.sentence
    )
    assert list(data_set.of_split_names(catalogue, np.arange(1, 8, dtype=np.int32), np.zeros(1, np.int32))) == []


def test_kohya_folders_are_reported_for_other_formats(tmp_path: Path) -> None:
    for name in ("10_sks dog/a.png", "3_cat/b.JPG", "2024_summer/c.png", "01_first/d.png", "5_notes/e.txt", "7_/f.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    [finding] = files.of_repeats((tmp_path,) * 2, DataSettings())
    assert finding.sentence.startswith(f"10_sks dog, 3_cat below {tmp_path} look like kohya's folders")
    assert finding.sentence.endswith("data.format=image-folder uses every image once")
    assert "data.format=kohya reads the number" in finding.advice
    [finding] = files.of_repeats((tmp_path,), DataSettings(repeats=(8,)))
    assert finding.sentence.endswith("does not read it; data.repeats applies to all of a set")


@pytest.mark.parametrize("has_clips", [False, True])
def test_captions_made_wrong_by_flipping_are_counted(has_clips: bool) -> None:
    texts = [("a car drives to the left",), ("a leftover",), ("plain", "a RIGHT hand"), ("turns counter-clockwise",),
             ("westward bound",)]  # fmt: skip
    catalogue = catalogue_of(
        overrides=SimpleNamespace(flip=np.array([np.nan] * 4 + [0.0], np.float32)), captions=texts.__getitem__
    )
    rows = np.arange(5, dtype=np.int32)
    settings = DataSettings(flip=0.5, format="videofolder" if has_clips else "webdataset")
    [finding] = captions.of_directions(catalogue, rows, settings)
    word = "clip" if has_clips else "image"
    assert finding.sentence.startswith(f"3 {word}s with left, right, a turn or a direction of motion in the caption")
    assert f"data.flip=0.5 mirrors {word}s" in finding.sentence
    assert finding.examples[0].text == "0.x: a car drives to the left"
    assert [example.samples for example in finding.examples] == [(("", row),) for row in (0, 2, 3)]
    assert list(captions.of_directions(catalogue, rows, settings.model_copy(update={"flip": 0.0}))) == []


def test_truncated_captions_are_estimated_from_a_sample() -> None:
    settings = DataSettings().captions
    [finding] = captions.of_lost_words(catalogue_of(), LostWords({1: 2, 0: 5}, 2, 4, 4, 9), settings)
    assert findings.as_notes([finding])[0].startswith(
        "2 captions of 9 are longer than the text encoder reads, and the end is lost: 0.x (5 tokens lost), 1.x (2 "
    )
    [finding] = captions.of_lost_words(catalogue_of(), LostWords({1: 2}, 1, 10, 300, 900), settings)
    assert finding.count == 30
    assert "(estimated from 10 of the 300 longer ones)" in finding.sentence
    assert list(captions.of_lost_words(catalogue_of(), None, settings)) == []
