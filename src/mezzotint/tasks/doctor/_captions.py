"""What the doctor finds about captions: cut, the same for many, contradicted by a mirror, and their tags."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from mezzotint.data.catalogue import findings
from mezzotint.data.catalogue.data_report import readable
from mezzotint.data.files.tags import Tags
from mezzotint.errors import MezzotintError
from mezzotint.recipe.counting import counted
from mezzotint.tasks.assemble import family_class, only_texts_of_files
from mezzotint.tasks.check import memory, notes
from mezzotint.tasks.doctor._findings import Example, Finding, some
from mezzotint.tasks.doctor._looking import ExaminedData
from mezzotint.tasks.prompts import long_captions

_MANY = 3
"""So many samples with one caption are worth a word."""

_WIDTH = 90
_TAGS = 200


def of_captions(looked: ExaminedData) -> Iterator[Finding]:
    """All findings about captions."""
    catalogue, dataset = looked.dataset.catalogue, looked.dataset
    place_of = {row: place for place, row in enumerate(looked.rows().tolist())}
    empty = [place_of[row] for row in catalogue.with_empty_captions().tolist() if row in place_of]
    if empty:
        yield Finding(
            "empty-captions", "look", len(empty), f"{counted(len(empty), 'sample')} with an empty caption",
            "write them, or leave such pictures out with data.captions.missing=skip; a share without words is "
            "data.captions.dropout",
            some([Example(looked.name(place), (place,)) for place in empty]),
        )  # fmt: skip
    many = [row for row in np.flatnonzero(catalogue.caption_counts() >= findings.MANY_CAPTIONS).tolist()
            if row in place_of]  # fmt: skip
    if many:
        words = [f"{looked.name(place_of[row])} ({catalogue.caption_counts()[row]} captions)" for row in many]
        yield Finding(
            "many-captions", "look", len(many),
            f"{counted(len(many), 'sample')} with {findings.MANY_CAPTIONS} captions or more, of which each visit draws "
            "one",
            "with data.captions.lines=random each line of a caption file is a caption; for translations set "
            "data.captions.lines=first, for one text over several lines data.captions.lines=join",
            some([Example(text, (place_of[row],)) for text, row in zip(words, many, strict=True)]),
        )  # fmt: skip
    wrong = notes.contradicted(dataset, looked.recipe.data)
    if wrong:
        yield Finding(
            "mirrored-words", "mend", len(wrong),
            f"{counted(len(wrong), 'caption')} with left, right, a turn or a direction of motion, and "
            f"data.flip={looked.recipe.data.flip:g} mirrors their pictures, so that the words are wrong",
            "set data.flip=0, or take the words out",
            _quoted(looked, wrong, place_of),
        )  # fmt: skip
    yield from _cut(looked, place_of)
    firsts = {row: catalogue.captions(row)[0] for row in place_of if catalogue.captions(row)}
    prior = catalogue.overrides.prior
    yield from _shared(looked, {row: text for row, text in firsts.items() if text.strip() and not prior[row]}, place_of)
    yield from _of_tags(list(firsts.values()))


def _quoted(looked: ExaminedData, rows: Sequence[int], place_of: dict[int, int]) -> tuple[Example, ...]:
    catalogue = looked.dataset.catalogue
    return some([
        Example(f"{looked.name(place_of[row])}: {_short(' | '.join(catalogue.captions(row)))}", (place_of[row],))
        for row in rows
    ])  # fmt: skip


def _short(text: str) -> str:
    text = readable(" ".join(text.split()))
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _cut(looked: ExaminedData, place_of: dict[int, int]) -> Iterator[Finding]:
    """Captions longer than the text encoder reads, by its own tokenizer."""
    recipe, catalogue = looked.recipe, looked.dataset.catalogue
    if only_texts_of_files(recipe):
        return
    try:
        _, family = memory.described(family_class(recipe), recipe.model)
        lost = long_captions.lost_words(family, catalogue, recipe.data.captions)
    except MezzotintError as error:
        what = f"captions were not measured: {error.message.partition('; ')[0]}"
        yield Finding("no-tokenizer", "look", 1, what, "set model.path to the model that is trained")
        return
    if lost is None or not lost.cut:
        return
    rows = sorted((row for row in lost.tokens if row in place_of), key=lambda row: -lost.tokens[row])
    about = "" if lost.looked_at == lost.long else f" (told from {lost.looked_at:,} of {lost.long:,} long ones)"
    yield Finding(
        "cut-captions", "look", lost.cut,
        f"{counted(lost.cut, 'caption')} of {lost.all:,} longer than the text encoder of {recipe.model.path.name} "
        f"reads{about}; up to {max(lost.tokens.values()):,} tokens at the end are lost",
        "put what matters first, or shorten them" + (
            "; where caption files have several lines, such as translations, set data.captions.lines=first"
            if recipe.data.captions.lines == "join" else ""
        ),
        some([Example(f"{looked.name(place_of[row])} ({counted(lost.tokens[row], 'token')} lost)", (place_of[row],))
              for row in rows]),
    )  # fmt: skip


def _shared(looked: ExaminedData, captions: dict[int, str], place_of: dict[int, int]) -> Iterator[Finding]:
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
        some([Example(f"{len(rows):,} times: {_short(text)}", tuple(place_of[row] for row in rows[:6]))
              for text, rows in shared]),
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
    rows = [(_short(tag), f"{number:,}", f"{number / len(captions):.0%}") for tag, number in counts.most_common(_TAGS)]
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
            some([Example(", ".join(f"{_short(tag)} ({counts[tag]:,})" for tag in one)) for one in ways]),
        )  # fmt: skip
