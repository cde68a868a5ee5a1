"""Where captions come from, and how they are changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt

from mezzotint.settings.base import ALLOW, Section, Share, require_one_line, take_only

Text = Annotated[str, BeforeValidator(take_only), AfterValidator(require_one_line)]


class CaptionSettings(Section):
    """Where captions come from and how they are changed."""

    source: Annotated[Literal["sidecar", "filename", "either"], ALLOW] = "sidecar"
    """`sidecar` reads `image.txt` or `image.caption` next to the image (both with different text is an error);
    `filename` uses the file's name without its extension, underscores as spaces; `either` uses the sidecar file if
    there is one, otherwise the name."""

    extension: Annotated[Literal["any", ".txt", ".caption"], ALLOW] = "any"
    """Which caption files are read: those with one extension, or `any` of both."""

    lines: Annotated[Literal["join", "random", "first"], ALLOW] = "join"
    """A caption file with several lines: `join` makes one caption of them; `random` takes one line at each visit, drawn
    by address; `first` takes the first that is not empty, as kohya's scripts do, and is the default with
    `data.format=kohya`."""

    prefix: Annotated[Text, ALLOW] = ""
    """Text at the start of every caption, such as a trigger word, followed by a space, as if it were written in each
    caption file: it belongs to the caption's first part, which stays when tags are shuffled or dropped, and its commas
    count. A dropped caption is empty all the same. Prompts do not get it."""

    suffix: Annotated[Text, ALLOW] = ""
    """Text at the end of every caption, after a space, as if it were written in each caption file."""

    trigger: Annotated[Text, ALLOW] = ""
    """The word you put in a prompt to get the subject or style of the images, such as `sks dog`. Without a template
    captions start with it. With `data.format=kohya` a template uses the word in the folder's name if none is given
    here. Class images use only the trigger of their own set."""

    class_word: Annotated[Text, ALLOW] = ""
    """What the trigger is one of, such as `dog` for `sks dog`, for `objective.preserve.kind=output`. Empty is the
    trigger without its first word."""

    template: Annotated[Text, ALLOW] = ""
    """How captions are built from the trigger. `{trigger}` is the trigger and is required; `{caption}` is the image's
    caption: `a photo of {trigger}, {caption}`. Without `{caption}` images need no caption."""

    missing: Annotated[Literal["error", "skip", "empty"], ALLOW] = "error"
    """An image without a caption: `error` names the first ten and stops, `skip` leaves the image out, `empty` trains it
    with the empty caption. All are counted in the data report."""

    clean: Annotated[bool, ALLOW] = False
    """Cleans captions by the rules of DeepFloyd IF, twice, as Open-Sora-Plan does before T5 reads them: lower case,
    without URLs, markup, file names, long numbers and CJK ideographs. Prompts are cleaned, too. For models trained this
    way. Needs the extra `video`."""

    dropout: Annotated[Share, ALLOW] = 0.0
    """The probability, at each visit, that the caption is replaced by the empty one. It trains the unconditional
    prediction that classifier-free guidance subtracts (Ho and Salimans 2022, arXiv:2207.12598). 0.04–0.1 is usual; more
    weakens the effect of captions. A probability that the format gives for an image replaces it."""

    dropout_every: Annotated[NonNegativeInt, ALLOW] = 0
    """Every so many epochs all captions are dropped for one: with 3 in the third, the sixth and so on. 0 never."""

    dropped: Annotated[Literal["empty", "zeros"], ALLOW] = "empty"
    """What replaces a dropped caption: the `empty` caption, as in most models, or an embedding of `zeros`, pooled text
    included, as in SDXL's training. Captions that are empty and not dropped stay the empty caption. Sample from such a
    model with zeros for the unconditional half, too."""

    wildcards: Annotated[bool, ALLOW] = False
    """`{red|blue} car` becomes "red car" or "blue car", drawn by address at each visit; `{{` and `}}` are literal
    braces. Held-out images and previews use the first choice. Without it braces are plain text."""

    shuffle_tags: Annotated[bool, ALLOW] = False
    """Splits the caption at commas and shuffles the parts after the first at each visit, drawn by address; for captions
    that are lists of tags. Tags with unequal weights, if the format has them, are ordered by a weighted draw, as many
    as their length limit allows."""

    keep_tags: Annotated[int, Field(ge=-1, le=10**6), ALLOW] = 0
    """With shuffled or dropped tags: how many tags after the caption's first part stay where they are. With -1 the
    first part is shuffled or dropped like the others."""

    keep_separator: Annotated[Text, ALLOW] = ""
    """With shuffled or dropped tags: a text, such as `|||`, before which parts of a caption stay where they are, and
    after whose second occurrence, if there is one. It is removed. In captions without it `keep_tags` counts."""

    second_separator: Annotated[Text, ALLOW] = ""
    """With shuffled or dropped tags: a text, such as `;;;`, that separates tags which are shuffled or dropped together:
    it becomes a comma afterwards."""

    tag_dropout: Annotated[Share, ALLOW] = 0.0
    """Splits the caption at commas and drops each part after the first with this probability at each visit, drawn by
    address, except those kept by `keep_tags`."""

    @property
    def can_drop(self) -> bool:
        """Whether captions may be dropped."""
        return self.dropout > 0 or self.dropout_every > 0

    @property
    def subject_class(self) -> str:
        """What the trigger is one of; "" if that is unknown."""
        return self.class_word or self.trigger.partition(" ")[2]

    @property
    def full_template(self) -> str:
        """The template, or the default one with a trigger; "" if captions are used as they are."""
        return self.template or ("{trigger} {caption}" if self.trigger else "")

    def contradictions(self) -> Iterator[str]:
        if (self.keep_separator or self.second_separator) and not (self.shuffle_tags or self.tag_dropout):
            yield (
                "data.captions.keep_separator and second_separator are for shuffled or dropped tags; set "
                "data.captions.shuffle_tags or tag_dropout, or leave them out"
            )
        if self.template and "{trigger}" not in self.template:
            yield (
                f"data.captions.template {self.template!r} does not contain {{trigger}}; write it where the trigger "
                "belongs, such as 'a photo of {trigger}'"
            )
        if self.clean and self.wildcards:
            yield (
                "data.captions.clean removes the braces of data.captions.wildcards before they are read; leave out "
                "one of them"
            )


class ColumnSettings(Section):
    """Which columns of a table hold images and captions; for formats that read tables (`metadata`)."""

    image: Annotated[str, Field(min_length=1), ALLOW] = "image"
    """The image column. In a metadata file `image` means the column `file_name`, and another name `NAME` means
    `NAME_file_name` or `NAME`; in a table that stores the images it is the column with that name."""

    caption: Annotated[str, Field(min_length=1), ALLOW] = "text"
    """The caption column: a text, or a list of texts of which each visit draws one."""
