"""Further findings about captions: shared captions and tags."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from mezzotint.data.files.tags import Tags
from mezzotint.data.findings.captions import LostWords, shorten
from mezzotint.data.findings.finding import Example, Finding, limit_examples
from mezzotint.errors import MezzotintError
from mezzotint.settings.counting import format_count
from mezzotint.tasks.assemble import family_class, only_texts_of_files
from mezzotint.tasks.check import meta_model
from mezzotint.tasks.doctor._examining import ExaminedData
from mezzotint.tasks.prompts import long_captions

_MIN_SHARED = 3
"""The number of samples with the same caption that gives a finding."""

_TAGS = 200


def of_captions(examined: ExaminedData) -> Iterator[Finding]:
    """Findings about shared captions and tags."""
    catalogue = examined.dataset.catalogue
    first_captions = {row: catalogue.captions(row)[0] for row in examined.rows().tolist() if catalogue.captions(row)}
    prior = catalogue.overrides.prior
    yield from _find_shared({row: text for row, text in first_captions.items() if text.strip() and not prior[row]})
    yield from _of_tags(list(first_captions.values()))


def find_truncated(examined: ExaminedData) -> tuple[LostWords | None, list[Finding]]:
    """Captions that the model's text encoder truncates, and a finding where its tokenizer cannot be read."""
    recipe = examined.recipe
    if only_texts_of_files(recipe):
        return None, []
    try:
        _, family = meta_model.build_described_model(family_class(recipe), recipe.model)
        return long_captions.count_truncated(family, examined.dataset.catalogue, recipe.data.captions), []
    except MezzotintError as error:
        sentence = f"captions were not measured: {error.message.partition('; ')[0]}"
        return None, [Finding("no-tokenizer", "look", 1, sentence, "set model.path to the model to train")]


def _find_shared(captions: dict[int, str]) -> Iterator[Finding]:
    """A finding about captions that many samples share."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, text in captions.items():
        rows_of[" ".join(text.split())].append(row)
    shared = sorted((item for item in rows_of.items() if len(item[1]) >= _MIN_SHARED), key=lambda item: -len(item[1]))
    if not shared:
        return
    count = sum(len(rows) for _, rows in shared)
    is_all = len(rows_of) == 1
    yield Finding(
        "shared-captions", "know" if is_all else "look", count,
        f"all {count:,} images have one caption" if is_all
        else f"{count:,} images share {format_count(len(shared), 'caption')}, each the same for {_MIN_SHARED} or more",
        "fine for a single subject or style; otherwise describe what differs, since the model learns the average of "
        "all images with the same text",
        limit_examples(
            Example(f"{len(rows):,} times: {shorten(text)}", tuple(("", row) for row in rows[:6]))
            for text, rows in shared
        ),
    )  # fmt: skip


def _of_tags(captions: Sequence[str]) -> Iterator[Finding]:
    """Findings about the frequency and spelling of tags, where captions are lists of tags."""
    lists = [Tags.of(text) for text in captions]
    many = [tags for tags in lists if len(tags.tags) >= 2]
    if 2 * len(many) < len(captions) or not many:
        return
    all_tags = [tag for tags in lists for tag in {tags.main, *tags.tags} if tag]
    if sum(len(tag.split()) for tag in all_tags) > 5 * len(all_tags):
        return  # sentences with commas
    counts = Counter(all_tags)
    once = sum(number == 1 for number in counts.values())
    rows = [(shorten(tag), f"{number:,}", f"{number / len(captions):.0%}") for tag, number in counts.most_common(_TAGS)]
    yield Finding(
        "tags", "know", len(counts), f"{format_count(len(counts), 'tag')}, {once:,} of them in one caption only",
        "a tag in nearly all captions carries no information; a tag in only one is hardly learned",
        (), (("tag", "captions", "share"), *rows),
    )  # fmt: skip
    spelled: dict[str, set[str]] = defaultdict(set)
    for tag in counts:
        spelled[" ".join(tag.replace("_", " ").replace("-", " ").casefold().split())].add(tag)
    variants = [sorted(tags) for tags in spelled.values() if len(tags) > 1]
    variants.sort(key=lambda tags: -sum(counts[tag] for tag in tags))
    if variants:
        yield Finding(
            "tags-spelled-twice", "look", len(variants), f"{format_count(len(variants), 'tag')} spelled in "
            "several ways",
            "spell each in one way: the model reads them as different words",
            limit_examples(
                Example(", ".join(f"{shorten(tag)} ({counts[tag]:,})" for tag in tags)) for tags in variants
            ),
        )  # fmt: skip
