"""Where captions come from, and what happens to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, field_validator

from mezzotint.settings.base import ALLOW, Section, Share, as_list

OneForEach = Annotated[tuple[str, ...], BeforeValidator(as_list)]
"""One text for all folders, or one for each."""


class CaptionSettings(Section):
    """Where captions come from and what happens to them."""

    source: Annotated[Literal["sidecar", "filename", "either"], ALLOW] = "sidecar"
    """`sidecar` reads `picture.txt` or `picture.caption` beside the picture (both with different text is an error);
    `filename` takes the file's name without its ending, underscores as spaces; `either` takes the sidecar where there
    is one and the name otherwise."""

    lines: Annotated[Literal["join", "random", "first"], ALLOW] = "join"
    """A caption file of several lines: `join` makes one caption of them, `random` takes one line at each visit, drawn
    by address, `first` takes the first that is not empty, as kohya's scripts do; it is the default with
    `data.format=kohya`."""

    prefix: Annotated[str, ALLOW] = ""
    """Text that every caption begins with, such as a trigger word, a space behind it, as if it were written in each
    caption file: it belongs to the caption's first part, which stays when tags are shuffled or dropped, and commas in
    it count. A caption that is dropped is empty all the same. Write it yourself in prompts."""

    trigger: Annotated[OneForEach, ALLOW] = ()
    """The word you put in a prompt to get a folder's subject or style, such as `sks dog`: one for all, or one for each
    folder of `data.path`, "" for none. Without a template captions begin with it. With `data.format=kohya` a template's
    word is the one in the folder's name where none is written. Not for class pictures."""

    template: Annotated[OneForEach, ALLOW] = ()
    """How captions are made of the word: one for all, or one for each folder of `data.path`, "" for none. `{trigger}`
    stands for the word and must be there, `{caption}` for the picture's own caption: `a photo of {trigger}, {caption}`.
    Without `{caption}` pictures need no caption."""

    missing: Annotated[Literal["error", "skip", "empty"], ALLOW] = "error"
    """A picture without caption: `error` names the first ten and stops, `skip` leaves the picture out, `empty` trains
    it with the empty caption. All are counted in the data report."""

    clean: Annotated[bool, ALLOW] = False
    """Cleans captions by the rules of DeepFloyd IF, twice, as Open-Sora-Plan does before T5 reads them: lower case,
    without addresses, markup, file names, long numbers and CJK ideographs. It holds for prompts, too. For models
    that were trained so. Needs the extra `video`."""

    dropout: Annotated[Share, ALLOW] = 0.0
    """The chance, at each visit, that the caption is replaced by the empty one; it teaches the model what
    classifier-free guidance subtracts (Ho and Salimans 2022, arXiv:2207.12598). 0.04–0.1 is usual; more weakens the
    captions' hold. A picture's own chance, where the format has one, takes its place."""

    dropped: Annotated[Literal["empty", "zeros"], ALLOW] = "empty"
    """What a caption that is dropped becomes: the `empty` caption, as most models are trained, or an embedding of
    `zeros`, pooled text included, as SDXL's own training. What is not dropped and empty stays the empty caption. Draw
    from such a model with zeros for the unconditional half, too."""

    wildcards: Annotated[bool, ALLOW] = False
    """`{red|blue} car` says "red car" or "blue car", drawn anew at each visit, by address; `{{` and `}}` stand for
    braces. Held-out pictures and previews take the first of each. Without it braces are text."""

    shuffle_tags: Annotated[bool, ALLOW] = False
    """Cuts the caption at its commas and puts the parts after the first in another order at each visit, drawn by
    address; for captions that are lists of tags. Tags of unequal weight, where the format has them, come in an order
    drawn by weight, as many as their length limit has room for."""

    keep_tags: Annotated[NonNegativeInt, ALLOW] = 0
    """Where tags are shuffled or dropped, so many of them after the caption's first part stay where they are."""

    tag_dropout: Annotated[Share, ALLOW] = 0.0
    """Cuts the caption at its commas and drops each part after the first with this chance at each visit, drawn by
    address, but for those that `keep_tags` keeps."""

    @field_validator("prefix")
    @classmethod
    def _one_line(cls, value: str) -> str:
        if "\0" in value or len(value.splitlines()) > 1:
            raise ValueError("a prefix is one line of text")
        return value.strip()

    @field_validator("trigger", "template")
    @classmethod
    def _lines_of_text(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any("\0" in text or len(text.splitlines()) > 1 for text in value):
            raise ValueError("a word or a template is one line of text")
        return tuple(text.strip() for text in value)

    def contradictions(self) -> Iterator[str]:
        for template in self.template:
            if template and "{trigger}" not in template:
                yield (
                    f"data.captions.template {template!r} has no place for the word; write {{trigger}} where it "
                    "belongs, such as 'a photo of {trigger}'"
                )
        if self.clean and self.wildcards:
            yield (
                "data.captions.clean takes the braces of data.captions.wildcards away before they are read; leave out "
                "one of them"
            )


class ColumnSettings(Section):
    """Which columns of a table hold pictures and captions; for formats that read tables (`metadata`)."""

    image: Annotated[str, Field(min_length=1), ALLOW] = "image"
    """The column of the picture. In a metadata file `image` stands for the column `file_name`, and another name `NAME`
    for `NAME_file_name` or `NAME`; in a table that holds the pictures it is the column of that name."""

    caption: Annotated[str, Field(min_length=1), ALLOW] = "text"
    """The column of the caption: a text, or a list of texts of which each visit draws one."""
