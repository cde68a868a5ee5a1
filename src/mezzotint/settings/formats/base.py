"""What a recipe needs to know of a data format before any data is read: a `FormatSpec`, found by listing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from mezzotint import registry
from mezzotint.settings.base import Section

if TYPE_CHECKING:
    from mezzotint.settings.sections.data import DataSettings

FOLDER = "settings/formats"


@dataclass(frozen=True, slots=True)
class Fixed:
    """Settings of `data` that must keep their defaults. settings: their names below `data`. sentence: the error message
    for another value; `{name}` is replaced by the format's name."""

    settings: tuple[str, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSpec:
    """The facts of a format. settings: the section `data.NAME` of this format. contradictions: what does not fit
    together in a section `data` of this format, a sentence each. has_clips: its samples are clips, so pixels have
    frames. reads_texts: whether text embeddings come from files that it names, so captions are not encoded.
    reads_masks: whether masks may be next to its images. own_masks: where else it has masks, for messages.
    own_conditions: whether it may have condition images itself. has_columns: whether its samples are rows of tables.
    is_encoded: its samples are latents and embeddings already, as its `FORMAT` says. has_folder_words: whether folder
    names may be caption words. takes_generated: whether images generated into its folder are samples.
    hints_at_repeats: it visits every image once, so folders with names like kohya's are pointed out. has_own_paths:
    whether `data.path` may be something other than a file or a folder, such as a data set of a hub or a range of
    shards. stills_format: the format of images joined to its clips, unless the recipe sets one. usual: defaults of the
    format for settings that the recipe does not set, by section of `data`. fixed: settings that it ignores, in the
    order in which they are checked."""

    settings: type[Section] | None = None
    contradictions: Callable[[DataSettings], Iterator[str]] = lambda data: iter(())
    has_clips: bool = False
    reads_texts: Callable[[DataSettings], bool] = lambda data: False
    reads_masks: bool = False
    own_masks: str = ""
    own_conditions: bool = False
    has_columns: bool = False
    is_encoded: bool = False
    has_folder_words: bool = False
    takes_generated: bool = False
    hints_at_repeats: bool = False
    has_own_paths: bool = False
    joined_images_format: str = "image-folder"
    usual: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fixed: tuple[Fixed, ...] = ()


MASK_COLUMN = "the column 'mask', a file below the table's folder or an image in the table"
NO_TABLES = Fixed(
    ("columns", "split", "hub_config", "hub_cache"),
    "data.columns, data.split, data.hub_config and data.hub_cache have no effect with data.format={name}; "
    "set data.format=metadata, or leave them out",
)
NO_PARTS = Fixed(
    ("split", "hub_config", "hub_cache"),
    "data.split, data.hub_config and data.hub_cache have no effect with data.format={name}; leave them out",
)
NO_CAPTION_SOURCE = Fixed(
    ("captions.source",),
    "data.captions.source has no effect with data.format={name}, which defines where captions are; "
    "leave it out, or set data.format=image-folder",
)


def specs() -> dict[str, FormatSpec]:
    """The facts of each format that has a file here; of those from other packages only the imported ones."""
    return {name: format_spec(name) for name in registry.names(FOLDER, skip_unimported=True)}


def section_of(name: str) -> str:
    """The name of a format's section in `data`."""
    return name.replace("-", "_")


@cache
def format_spec(name: str) -> FormatSpec:
    """The facts of a format; the defaults if it has no file here."""
    if name.replace("_", "-") not in registry.names(FOLDER):
        return FormatSpec()
    spec: FormatSpec = registry.find(FOLDER, name).SPEC
    return spec
