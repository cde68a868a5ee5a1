"""Settings of single samples as columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mezzotint.data.files.overrides import Marked, OverridesBuilder, SampleOverrides, overridden_columns
from mezzotint.data.files.tags import Tags
from mezzotint.stages import Sample


def columns_of(*samples: Sample) -> dict[str, np.ndarray]:
    builder = OverridesBuilder()
    for sample in samples:
        builder.add(sample)
    return builder.columns(np.arange(len(samples), dtype=np.int64))


def sample(name: str, *overrides: tuple[str, str], group: str = "") -> Sample:
    return Sample(name, Path(name), ("a caption",), group=group, overrides=overrides)


def test_overrides_round_trip_through_columns() -> None:
    tags = Tags("", ("a", "b"), (2.0, 1.0)).encoded()
    own = sample("a", ("flip", "0.1"), ("caption_dropout", "0"), ("shuffle_tags", "true"), ("rating", "3"),
                 ("tags", tags), ("start", "7"), ("sizes", "1,2,3,4,5,6"), group="x")  # fmt: skip
    table = columns_of(own, sample("b"), sample("c", group="x"))
    columns = SampleOverrides.of(table)
    assert (columns.flip_of(0), columns.caption_dropout_of(0), columns.flip_of(1)) == (0.1, 0.0, None)
    assert columns.shuffle_tags.tolist() == [1, 0, 0]
    assert columns.rating.tolist() == [3.0, 1.0, 1.0]
    assert columns.start.tolist() == [7, -1, -1]
    assert [columns.group_name(number) for number in columns.group.tolist()] == ["x", "", "x"]
    assert (Tags.decoded(columns.tags_of(0)).weights, columns.tags_of(1)) == ((2.0, 1.0), "")
    assert (columns.sizes_of(0), columns.sizes_of(1)) == ([1, 2, 3, 4, 5, 6], None)
    assert {"flip", "rating", "group", "start", "tags", "sizes"} <= set(overridden_columns(table))


def test_samples_without_overrides_use_no_column() -> None:
    assert overridden_columns(columns_of(sample("a"), sample("b"))) == ()


def test_mark_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a file.npz"
    path.write_bytes(b"one")
    before = Marked.of(path)
    assert Marked.decoded(before.encoded) == before
    path.write_bytes(b"other")
    assert Marked.of(path).mark != before.mark
