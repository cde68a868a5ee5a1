"""What the doctor finds about captions besides the common findings: the same for many, and their tags."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from mezzotint.data.files.tags import Tags
from mezzotint.data.findings.captions import LostWords, shorten
from mezzotint.data.findings.finding import Example, Finding, limit_examples
from mezzotint.errors import MezzotintError
from mezzotint.settings.counting import counted
from mezzotint.tasks.assemble import family_class, only_texts_of_files
from mezzotint.tasks.check import memory
from mezzotint.tasks.doctor._looking import ExaminedData
from mezzotint.tasks.prompts import long_captions

_MANY = 3
"""So many samples with one caption are a finding."""

_TAGS = 200


def of_captions(looked: ExaminedData) -> Iterator[Finding]:
    """Captions that samples share, and tags."""
    catalogue = looked.dataset.catalogue
    firsts = {row: catalogue.captions(row)[0] for row in looked.rows().tolist() if catalogue.captions(row)}
    prior = catalogue.overrides.prior
    yield from _shared({row: text for row, text in firsts.items() if text.strip() and not prior[row]})
    yield from _of_tags(list(firsts.values()))


def lost_words(looked: ExaminedData) -> tuple[LostWords | None, list[Finding]]:
    """Captions that the model's text encoder truncates, by its own tokenizer, and a finding where it cannot be read."""
    recipe = looked.recipe
    if only_texts_of_files(recipe):
        return None, []
    try:
        _, family = memory.described(family_class(recipe), recipe.model)
        return long_captions.lost_words(family, looked.dataset.catalogue, recipe.data.captions), []
    except MezzotintError as error:
        what = f"captions were not measured: {error.message.partition('; ')[0]}"
        return None, [Finding("no-tokenizer", "look", 1, what, "set model.path to the model that is trained")]


def _shared(captions: dict[int, str]) -> Iterator[Finding]:
    """Captions that many samples have."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, text in captions.items():
        rows_of[" ".join(text.split())].append(row)
    shared = sorted((item for item in rows_of.items() if len(item[1]) >= _MANY), key=lambda item: -len(item[1]))
    if not shared:
        return
    count = sum(len(rows) for _, rows in shared)
    is_all = len(rows_of) == 1
    yield Finding(
        "shared-captions", "know" if is_all else "look", count,
        f"all {count:,} pictures have one caption" if is_all
        else f"{count:,} pictures share {counted(len(shared), 'caption')}, each the same for {_MANY} or more",
        "right for one subject or style; otherwise say what differs, since the model learns the mean of what one text "
        "stands for",
        limit_examples(
            Example(f"{len(rows):,} times: {shorten(text)}", tuple(("", row) for row in rows[:6]))
            for text, rows in shared
        ),
    )  # fmt: skip


def _of_tags(captions: Sequence[str]) -> Iterator[Finding]:
    """How often each tag stands, where captions are lists of tags."""
    lists = [Tags.of(text) for text in captions]
    many = [tags for tags in lists if len(tags.tags) >= 2]
    if 2 * len(many) < len(captions) or not many:
        return
    words = [tag for tags in lists for tag in {tags.main, *tags.tags} if tag]
    if sum(len(tag.split()) for tag in words) > 5 * len(words):
        return  # sentences with commas
    counts = Counter(words)
    once = sum(number == 1 for number in counts.values())
    rows = [(shorten(tag), f"{number:,}", f"{number / len(captions):.0%}") for tag, number in counts.most_common(_TAGS)]
    yield Finding(
        "tags", "know", len(counts), f"{counted(len(counts), 'tag')}, {once:,} of them in one caption only",
        "a tag of nearly all captions says nothing by itself; one that stands once is hardly learned",
        (), (("tag", "captions", "share"), *rows),
    )  # fmt: skip
    spelled: dict[str, set[str]] = defaultdict(set)
    for tag in counts:
        spelled[" ".join(tag.replace("_", " ").replace("-", " ").casefold().split())].add(tag)
    ways = [sorted(one) for one in spelled.values() if len(one) > 1]
    ways.sort(key=lambda one: -sum(counts[tag] for tag in one))
    if ways:
        yield Finding(
            "tags-spelled-twice", "look", len(ways), f"{counted(len(ways), 'tag')} spelled in several ways",
            "spell each in one way: the model reads them as different words",
            limit_examples(Example(", ".join(f"{shorten(tag)} ({counts[tag]:,})" for tag in one)) for one in ways),
        )  # fmt: skip
