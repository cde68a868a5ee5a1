"""Rows of the section `data` for repeats in folder names, and for captions at each visit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.errors import DatasetError, RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.prompts import previews
from mezzotint.tasks.train import held_out
from support.contradictions import contradiction

Make = Callable[..., Any]


def captions_of(fed: Any) -> list[str]:
    return [caption for batch in fed.batches() for caption in batch.captions]


# breaks if the numbers of the folders do not reach the plan, or their words the captions
@pytest.mark.effect("data.format")
def test_format_kohya_reads_repeats_and_captions_from_folders(feed: Make, noisy: Make, tmp_path: Path) -> None:
    noisy(tmp_path / "set" / "3_red fox", [(32, 32)])
    (tmp_path / "set" / "3_red fox" / "000.txt").unlink()
    noisy(tmp_path / "set" / "2_dog", [(32, 32)])
    assert Counter(captions_of(feed(tmp_path / "set", format="kohya"))) == {"red fox": 3, "image 0": 2}


# breaks if lines are joined, or another line than the first is used
@pytest.mark.effect("data.captions.lines")
def test_captions_lines_first_takes_the_first(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)])
    (folder / "000.txt").write_text("\none, of tags\ntwo\n")
    assert captions_of(feed(folder, captions__lines="first", steps=3)) == ["one, of tags"] * 3


# breaks if the prefix is missing, precedes dropped captions, or moves with the tags
@pytest.mark.effect("data.captions.prefix")
def test_captions_prefix_stays_first_in_every_caption(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)])
    (folder / "000.txt").write_text("a cat, one, two, three")
    assert captions_of(feed(folder, captions__prefix="sks style")) == ["sks style a cat, one, two, three"]
    assert captions_of(feed(folder)) == ["a cat, one, two, three"], "another index"
    moved = captions_of(feed(folder, steps=40, captions__prefix="'sks,'", captions__shuffle_tags=True))
    assert {caption.split(", ")[0] for caption in moved} == {"sks"}
    assert {caption.split(", ")[1] for caption in moved} == {"a cat", "one", "two", "three"}, "its comma counts"
    assert set(captions_of(feed(folder, captions__prefix="sks", captions__dropout=1))) == {""}
    (folder / "000.txt").write_text("")
    assert captions_of(feed(folder, captions__prefix="sks")) == ["sks"]


# breaks if the probability differs, first parts or kept tags are dropped, or all visits lose the same tags
@pytest.mark.effect("data.captions.tag_dropout", "data.captions.keep_tags")
def test_captions_tag_dropout_drops_tags_by_their_share(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)])
    (folder / "000.txt").write_text("a cat, kept,one,  two, three")
    tags = [caption.split(", ") for caption in captions_of(feed(folder, steps=200, captions__tag_dropout=0.3))]
    assert {parts[0] for parts in tags} == {"a cat"}
    for tag in ("kept", "one", "two", "three"):
        assert abs(sum(tag in parts for parts in tags) / 200 - 0.7) < 0.13  # four standard deviations
    assert all(parts == sorted(parts, key=["a cat", "kept", "one", "two", "three"].index) for parts in tags)
    kept = captions_of(feed(folder, steps=40, captions__tag_dropout=1, captions__keep_tags=1))
    assert set(kept) == {"a cat, kept"}
    both = captions_of(feed(folder, steps=100, captions__tag_dropout=0.3, captions__shuffle_tags=True))
    assert {"a cat, three, one", "a cat, two, kept"} <= {", ".join(c.split(", ")[:3]) for c in both}


# breaks if braces are interpreted by default, or one choice is likelier than others or the same at every visit
@pytest.mark.effect("data.captions.wildcards")
def test_captions_wildcards_choose_one_option(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)])
    (folder / "000.txt").write_text("a {red|blue|green} {car|bike}, {{x}} {}")
    assert captions_of(feed(folder)) == ["a {red|blue|green} {car|bike}, {{x}} {}"]
    counts = Counter(captions_of(feed(folder, steps=240, captions__wildcards=True)))
    every = {f"a {colour} {thing}, {{x}} {{}}" for colour in ("red", "blue", "green") for thing in ("car", "bike")}
    assert counts.keys() == every
    assert all(abs(count - 40) < 24 for count in counts.values())  # four standard deviations


# breaks if a cached run selects a caption that the cache does not have, or always the same one
@pytest.mark.effect("data.cache.shuffles")
def test_cache_shuffles_keeps_variants_of_random_captions(prepare: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "own", [(64, 64)] * 4)
    for path in folder.glob("*.txt"):
        path.write_text(f"{{a|one}} thing {path.stem}, red, {{big|small}}, round")
    ready = prepare(
        data__path=folder, data__captions__wildcards=True, data__captions__tag_dropout=0.5, data__cache__shuffles=4,
        data__captions__dropout=0, data__holdout__fraction=0.25, data__captions__prefix="sks", run__preview__every=100,
    )  # fmt: skip
    seen: dict[str, set[str]] = {}
    for _ in range(8):
        for batch in ready.next_batches().batches:
            assert batch.text is not None
            for key, caption in zip(batch.keys, batch.captions, strict=True):
                seen.setdefault(key, set()).add(caption)
    assert len(seen) == 3
    assert all(len(captions) <= 4 for captions in seen.values())
    assert max(map(len, seen.values())) > 1
    assert all(one.startswith(("sks a thing", "sks one thing")) for captions in seen.values() for one in captions)
    job = ready.job
    [held] = held_out.batches(job.resolved.recipe, job.dataset, job.caches)["loss"]
    [row] = job.dataset.held.tolist()
    number = job.dataset.catalogue.key(row)[:3]
    assert held.captions == (f"sks a thing {number}, red, big, round",)
    first = int(job.dataset.rows.min())
    number = job.dataset.catalogue.key(first)[:3]
    assert previews.captions(job.resolved.recipe, job.dataset)[0] == f"sks a thing {number}, red, big, round"


@pytest.mark.parametrize("setting", ["tag_dropout: 0.1", "wildcards: true"])
def test_random_captions_need_cache_shuffles_above_one(setting: str) -> None:
    with pytest.raises(
        RecipeError, match=rf"data\.captions\.{setting.split(':')[0]} .*set data\.cache\.shuffles above 1"
    ):
        read_text(f"data: {{path: x, captions: {{{setting}}}, cache: {{text: true}}}}")
    read_text(f"data: {{path: x, captions: {{{setting}}}, cache: {{text: true, shuffles: 3}}}}")


def test_wildcards_are_refused_with_caption_cleaning() -> None:
    with pytest.raises(RecipeError, match=r"data\.captions\.clean removes the braces of data\.captions\.wildcards"):
        read_text("data: {path: x, captions: {clean: true, wildcards: true}}")


def test_prefix_must_be_one_line() -> None:
    assert read_text("data: {captions: {prefix: ' sks '}}").recipe.data.captions.prefix == "sks"
    with pytest.raises(RecipeError, match="one line of text"):
        read_text('data: {captions: {prefix: "a\\nb"}}')


# breaks if captions reach a batch as written, or an index of uncleaned captions is reused for cleaned ones
@pytest.mark.effect("data.captions.clean")
def test_captions_clean_applies_before_batching(
    feed: Callable[..., Any], noisy: Callable[..., Any], tmp_path: Path
) -> None:
    folder = noisy(tmp_path / "images", [(32, 32), (32, 32)])
    (folder / "000.txt").write_text("A <b>RED</b> Cat https://example.com/cat.png (1024x768)")
    plain = feed(folder, batch_size=2)
    cleaned = feed(folder, batch_size=2, captions__clean=True)
    assert set(plain.batches()[0].captions) == {"A <b>RED</b> Cat https://example.com/cat.png (1024x768)", "image 1"}
    assert set(cleaned.batches()[0].captions) == {"a red cat .", "image 1"}
    assert cleaned.catalogue.fingerprint != plain.catalogue.fingerprint


# breaks if the other file is read all the same
@pytest.mark.effect("data.captions.extension")
def test_extension_chooses_the_caption_file(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "set", [(32, 32)])
    (folder / "000.caption").write_text("of the other file")
    assert captions_of(feed(folder, captions__extension=".caption")) == ["of the other file"]
    assert captions_of(feed(folder, captions__extension=".txt")) == ["image 0"]
    with pytest.raises(DatasetError, match="different captions"):
        feed(folder)


# breaks if the text is missing, in tags, or put behind a dropped caption
@pytest.mark.effect("data.captions.suffix")
def test_suffix_ends_each_caption(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "set", [(32, 32)])
    around = {"captions__prefix": "sks", "captions__suffix": "in oil"}
    assert captions_of(feed(folder, **around)) == ["sks image 0 in oil"]
    assert captions_of(feed(folder, **around, captions__dropout=1)) == [""]


# breaks if another epoch is dropped, or only some of its captions
@pytest.mark.effect("data.captions.dropout_every")
def test_dropout_every_empties_all_captions_of_an_epoch(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "set", [(32, 32)] * 3)
    captions = captions_of(feed(folder, batch_size=3, steps=5, captions__dropout_every=2))
    assert [captions[3 * epoch : 3 * epoch + 3] == [""] * 3 for epoch in range(5)] == [False, True, False, True, False]
    assert "data.epoch_seed=add" in contradiction("data.captions.dropout_every=2", "data.epoch_seed=add")


# breaks if fixed parts move, or separators stay in captions
@pytest.mark.effect("data.captions.keep_separator", "data.captions.second_separator")
def test_separators_fix_tags_and_join_others(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "set", [(32, 32)])
    (folder / "000.txt").write_text("sks, dog ||| red hat;;; gold band, grass")
    seen = captions_of(feed(folder, steps=30, captions__shuffle_tags=True, captions__keep_separator="|||",
                            captions__second_separator=";;;"))  # fmt: skip
    assert set(seen) == {"sks, dog, red hat, gold band, grass", "sks, dog, grass, red hat, gold band"}
    assert "for shuffled or dropped tags" in contradiction("data.captions.keep_separator=x")
