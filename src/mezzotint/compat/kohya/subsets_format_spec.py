"""Facts of the format `kohya-subsets` for recipes, and its settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator

from mezzotint.settings.base import ALLOW, FREE, DataPath, InputPath, Section, make_optional_copy, override, take_only
from mezzotint.settings.formats.base import NO_TABLES, Fixed, FormatSpec
from mezzotint.settings.sections.captions import Text

if TYPE_CHECKING:
    from mezzotint.settings.sections.data import DataSettings


class FolderRules(Section):
    """How a folder of images is read."""

    class_tokens: Annotated[Text, ALLOW] = ""
    """The caption of images without a caption file."""

    metadata_file: Annotated[InputPath | None, FREE] = None
    """A JSON file that names the images, with or without extension, and has their captions and tags. Caption files are
    not read."""


_OptionalRules = make_optional_copy(FolderRules, "OptionalRules")


class Folder(_OptionalRules):  # type: ignore[misc, valid-type]
    """One folder. What it does not set is as in `data.kohya_subsets`."""

    path: Annotated[DataPath, BeforeValidator(take_only), FREE]
    """A folder of `data.path`, `data.sets` or `data.prior.path`."""


class KohyaSubsetsSettings(FolderRules):
    """With `data.format=kohya-subsets`: how folders are read, as in the data set files of kohya's scripts."""

    folders: Annotated[tuple[Folder, ...], ALLOW] = ()
    """Folders that differ from the settings beside this one: [{path: subject, class_tokens: sks dog}]."""

    def of(self, path: Path | None) -> FolderRules:
        """The rules of a folder."""
        own = next((one for one in self.folders if one.path == path), None)
        shared = FolderRules(**{name: getattr(self, name) for name in FolderRules.model_fields})
        if own is None:
            return shared
        chosen = {name: getattr(own, name) for name in FolderRules.model_fields}
        return override(shared, FolderRules.model_construct(**chosen))


def _contradictions(data: DataSettings) -> Iterator[str]:
    settings = data.get_section(KohyaSubsetsSettings)
    paths = {*data.paths, data.prior.path}
    for path, count in Counter(one.path for one in settings.folders).items():
        if count > 1:
            yield f"data.kohya_subsets.folders has {path} {count} times; keep one entry"
        if data.sets and path not in paths:
            yield f"data.kohya_subsets.folders has {path}, which is not in the data set; correct it, or leave it out"


SPEC = FormatSpec(
    settings=KohyaSubsetsSettings,
    contradictions=_contradictions,
    reads_masks=True,
    usual={"captions": {"lines": "first"}},
    fixed=(
        NO_TABLES,
        Fixed(
            ("captions.source",),
            "data.captions.source has no effect with data.format={name}, which takes captions of images without a "
            "file from data.kohya_subsets.class_tokens; leave it out, or set data.format=image-folder",
        ),
    ),
)
