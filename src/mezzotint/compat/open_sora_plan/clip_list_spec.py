"""Facts of the format `clip-list` for recipes, and its settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from mezzotint.settings.base import ALLOW, Section
from mezzotint.settings.formats.base import NO_CAPTION_SOURCE, NO_TABLES, FormatSpec

if TYPE_CHECKING:
    from mezzotint.settings.sections.data import DataSettings


class ClipListSettings(Section):
    """With `data.format=clip-list`: missing files of a list, and text embeddings in files."""

    missing: Annotated[Literal["skip", "count"], ALLOW] = "skip"
    """A missing clip, image or embedding of a list: `skip` leaves its entry out, and reports how many; `count` counts
    it among the unusable files, which `data.max_skipped` limits."""

    text_embeddings: Annotated[bool, ALLOW] = False
    """Each line of a list has three paths, the second of them the folder of Open-Sora-Plan's text embeddings (.npz).
    With `data.cache.text` they are used instead of being computed; whether they belong to the model's text encoder
    cannot be checked."""


def reads_texts(data: DataSettings) -> bool:
    """Whether the lists name files of text embeddings."""
    return data.get_section(ClipListSettings).text_embeddings


def _contradictions(data: DataSettings) -> Iterator[str]:
    if not reads_texts(data):
        return
    if not data.cache.text:
        yield (
            "data.clip_list.text_embeddings uses embeddings for the text cache; set data.cache.text=true, or "
            "leave it out to encode the captions"
        )
    same = ("prefix", "trigger", "template")
    changed = data.random_caption_settings() + [
        f"data.captions.{name}" for name in same if getattr(data.captions, name)
    ]
    if changed:
        yield (
            f"{changed[0]} has no effect on embeddings in files (data.clip_list.text_embeddings); leave out one of them"
        )


SPEC = FormatSpec(
    settings=ClipListSettings, contradictions=_contradictions, has_clips=True, reads_texts=reads_texts,
    own_masks="the key 'mask' of an annotation, a file inside the media folder", joined_images_format="clip-list",
    fixed=(NO_TABLES, NO_CAPTION_SOURCE),
)  # fmt: skip
