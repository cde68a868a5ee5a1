"""The interface of dataset formats. A format lists samples with their captions and decodes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mezzotint import registry
from mezzotint.data.files.image_settings import FolderSettings
from mezzotint.data.files.listing import Listing, is_remote
from mezzotint.data.files.masks import Masks
from mezzotint.data.files.remembered_texts import RememberedTexts
from mezzotint.data.files.remote import NearFiles, files_below
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import Sample

FOLDER = "data/formats"


class ImageStore(Protocol):
    """Storage for images that are not separate files."""

    def put(self, data: bytes) -> Path:
        """Stores the bytes of an image file and returns its path. The same bytes give the same path. Raises
        StorageError."""


@dataclass(frozen=True, slots=True)
class Source:
    """The folder of one set of images. root: the folder. settings: of the set (`DataSettings.image_sets`). listing: the
    result of `Format.files_at`. prefix: of each key, which makes keys of several sets distinct ("0/", "1/", …; empty
    for a single one). is_class: whether it has class images. images: storage for images extracted from other files; set
    whenever samples are read. texts: cached content of caption files. masks: of its images, which are not in `listing`.
    near: gives local paths of files on object storage. condition: the column of the condition whose images are read in
    place of the samples', with the samples' keys; empty for the samples themselves. image_settings: of single images,
    in the `mezzotint.jsonl` files of the folder."""

    root: Path
    settings: DataSettings
    listing: Listing
    prefix: str = ""
    is_class: bool = False
    images: ImageStore | None = None
    texts: RememberedTexts | None = None
    masks: Masks | None = None
    near: NearFiles | None = None
    condition: str = ""
    image_settings: FolderSettings | None = None

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of a local data set's files, relative to the root."""
        return self.image_settings.folders if self.image_settings is not None else ()

    @property
    def repeats(self) -> float:
        """How often an epoch visits each sample, if the format gives it no other number."""
        return self.settings.repeats

    def file(self, name: str) -> Path:
        """The local path of a listed file, downloaded if it is on object storage. Raises DatasetError E1841."""
        path = self.root / name
        return path if self.near is None else self.near.file(path)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that is not used. path: as in the report. is_wanted: whether the recipe excludes it, so it does not count
    as unusable."""

    path: str
    reason: str
    is_wanted: bool = False


@dataclass(frozen=True, slots=True)
class Noted:
    """A note for the report about something that is not skipped. path: of its subject."""

    path: str
    reason: str


Item = Sample | Skipped | Noted


@dataclass(frozen=True, slots=True)
class EmbeddingFile:
    """The text embedding of one caption, encoded by another program. states: (L, D) float32, with padding. mask: (L,)
    uint8, 1 for tokens, 0 for padding."""

    states: NDArray[np.float32]
    mask: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How one kind of data set is read. read_samples: yields the samples of a source, and the reasons for skipped
    files.

    suffixes: extensions of the files that it reads, in lower case. list_files: the files at a path of `data.path`; None
    lists all files below the folder that have these extensions. manifests: names or extensions of files whose
    content, and not only size and times, is part of the index's address. is_encoded: samples are latents and text
    embeddings already, which a cache imports instead of encoding. read_embedding: of a format whose entries name files
    of text embeddings: (path, length, width) → the content of a file; None accepts any length or width; raises
    CacheError with the reason why it cannot be used. own_flips: samples may override the probability of mirroring, so a
    cache stores several placements of each image. captions: where captions are that can be edited
    (`data/editing`): in metadata files (`tables`), if there are any, or next to the images (`sidecars`).
    folder_caption: the caption of an image without a caption file, by its name below the folder. reads_remote: it opens
    files only by `Source.file`, so they may be on object storage. Facts of a format for recipes are in
    `settings/formats/NAME.py`.
    """

    read_samples: Callable[[Source], Iterator[Item]]
    suffixes: frozenset[str]
    list_files: Callable[[Path, DataSettings], Listing] | None = None
    manifests: frozenset[str] = frozenset()
    is_encoded: bool = False
    read_embedding: Callable[[Path, int | None, int | None], EmbeddingFile] | None = None
    own_flips: bool = False
    captions: tuple[Literal["tables", "sidecars"], ...] = ()
    folder_caption: Callable[[str], str] = lambda name: ""
    reads_remote: bool = False

    def files_at(self, path: Path, settings: DataSettings) -> Listing:
        """The files of one folder of `data.path`. Raises DatasetError E1201 for a folder that cannot be read, E1842 for
        object storage if the format does not support it, and errors of the format's listing."""
        if is_remote(path) and not self.reads_remote:
            raise DatasetError(
                f"{path}: data.format={settings.format} reads local disks only; object storage is supported for tar "
                "shards (data.format=webdataset) and tables (data.format=metadata); pack the data set as one of them, "
                "or mount it as a folder",
                code="E1842",
            )
        return self.list_files(path, settings) if self.list_files else files_below(path, self.suffixes)


def format_of(name: str) -> Format:
    """The format with this name. Raises RecipeError E1010 with the nearest name if there is none."""
    chosen: Format = registry.find(FOLDER, name).FORMAT
    return chosen
