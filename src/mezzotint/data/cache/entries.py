"""Latents and text embeddings in the cache: which entry belongs to a visit, and how it becomes tensors again.

This is the middle between the stores, which know only bytes, and those who fill them (`tasks.cache`) and read them
(`loader.py`). Entries of one identity (a VAE with its settings, a text encoder with its settings) lie in one folder,
`latents/…` or `text/…`, beside a small `layout.json` that says what they are, so that a cached run needs no encoder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from mezzotint import draws, durable, outside
from mezzotint.data.buckets.clip_sampling import stills_of_clip
from mezzotint.data.cache import _addresses
from mezzotint.data.cache.store import Store, explained
from mezzotint.data.cache.text_rows import TextLayout, TextRows
from mezzotint.data.formats.base import format_of
from mezzotint.data.schedule import clip_visits, placement
from mezzotint.data.schedule.captions import DrawnCaptions
from mezzotint.data.schedule.plan import Visit
from mezzotint.errors import CacheError
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.shapes import Size, latent_size
from mezzotint.stages import Placement, TextEmbedding

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class LatentLayout:
    """channels: of a stored row (twice the latent's for moments). pixels: per latent, in height and width. frames: per
    latent, 0 where it was never seen, in a cache of pictures."""

    channels: int
    pixels: int
    frames: int = 0


class LatentCache:
    """Latents of placed pictures, found by address. One store for each bucket size.

    folder: `data.cache.path`, resolved. identity: `family.media_identity(…)`. compute: the type that the VAE runs in
    ("fp32", "fp16", "bf16"). seed: of the run. `views`: how many placements of each picture are kept; 1 unless crop,
    flip or the frames of a clip are drawn, of some at least. `seeds`: what placements and kept draws depend on; 0 where
    nothing is drawn. `is_imported`: entries are not encoded but read from another trainer's files.
    """

    def __init__(self, folder: Path, settings: DataSettings, *, identity: str, compute: str, seed: int) -> None:
        self.root = folder
        self.identity = _addresses.latent_identity(settings, identity, compute)
        self.folder = folder / "latents" / _addresses.short(self.identity)
        self.content = settings.cache.content
        chosen = format_of(settings.format)
        self.is_imported = chosen.is_encoded
        is_drawn = chosen.own_flips or settings.crop != "center" or 0.0 < settings.flip < 1.0
        is_drawn |= settings.has_clips and settings.clips.begin != "first"
        self.views = settings.cache.crops if is_drawn else 1
        draws_sample = self.content == "sample" and not self.is_imported
        self.seeds = (seed if is_drawn else 0, seed if draws_sample else 0)
        self._settings = settings
        self._seed = seed
        self._stores: dict[tuple[Size, bool], Store] = {}
        self.layout: LatentLayout | None = None
        self.refresh()

    def refresh(self) -> None:
        """Looks for what other processes have made since."""
        if self.layout is None and (stored := _read_layout(self.folder, LatentLayout)):
            self.layout = LatentLayout(**stored)
        for store in self.stores:
            store.refresh()

    def define(self, layout: LatentLayout) -> None:
        """Says, before the first entry, what entries look like. Raises CacheError E1305 when the folder's are
        different."""
        _write_layout(self.folder, self.identity, self.layout, layout)
        self.layout = layout

    def cached_view(self, visit: Visit) -> int:
        """The view that a visit takes, in [0, views)."""
        return draws.below(visit.draw("variant"), self.views)

    def placement(self, catalogue: Catalogue, row: int, view: int, bucket: Size) -> Placement:
        """Where the picture of a row lies in its bucket, in one of its views."""
        return placement.cached_view(catalogue, row, bucket, self._settings, seed=self._seed, view=view)

    def draw(self, key_hash: int, view: int, still: int = -1) -> int | None:
        """The address of the one posterior draw that is kept; None when moments are, or what others have drawn. still:
        of a frame that is trained as a picture, its place among those."""
        if self.is_imported or self.content != "sample":
            return None
        which = () if still < 0 else (still,)
        return draws.key(self._seed, "posterior-sample", key_hash, view, *which)

    def address(self, catalogue: Catalogue, row: int, placed: Placement, view: int) -> bytes:
        """The address of a row's latents in a placement."""
        return self._address(catalogue, row, placed, view, self.times(catalogue, row, placed.bucket.frames, view))

    def address_of_still(self, catalogue: Catalogue, row: int, placed: Placement, view: int, still: int) -> bytes:
        """The address of a frame of a row's clip that is trained as a picture. placed: of the clip. still: its place
        among those frames."""
        time = self.time_of_still(catalogue, row, placed.bucket.frames, view, still)
        return self._address(catalogue, row, as_still(placed), view, time, still)

    def _address(
        self, catalogue: Catalogue, row: int, placed: Placement, view: int, times: clip_visits.Instants,
        still: int = -1,
    ) -> bytes:  # fmt: skip
        draw = self.draw(int(catalogue.key_hash[row]), view, still)
        digest = catalogue.digest[row].tobytes()
        return _addresses.latent_address(digest, placed, self.identity, draw=draw, times=times.tolist())

    def times(self, catalogue: Catalogue, row: int, frames: int, view: int) -> clip_visits.Instants:
        """When the frames of a row are shown that one of its views keeps; of a picture there are none."""
        key = draws.key(self._seed, "clip-variant", int(catalogue.key_hash[row]), view)
        return clip_visits.instants(catalogue, row, frames, self._settings.clips, address=key)

    def time_of_still(
        self, catalogue: Catalogue, row: int, frames: int, view: int, still: int
    ) -> clip_visits.Instants:  # fmt: skip
        """`times` of one frame that is trained as a picture, too. frames: of its clip's sample."""
        places = stills_of_clip(frames, self._settings.clips.stills)
        return self.times(catalogue, row, frames, view)[places[still : still + 1]]

    def store(self, bucket: Size, *, is_still: bool = False) -> Store | None:
        """The rows of a bucket's size; None before `define`. is_still: of pictures beside clips."""
        if self.layout is None:
            return None
        has_frames = self._settings.has_clips and not is_still
        if (bucket, has_frames) not in self._stores:
            latent = latent_size(bucket, self.layout.pixels, max(self.layout.frames, 1))
            frames = (latent.frames,) if has_frames else ()
            shape = (self.layout.channels, *frames, latent.height, latent.width)
            store = Store(self.folder, kind="rows", shape=shape, dtype=self._settings.cache.dtype)
            self._stores[bucket, has_frames] = store
        return self._stores[bucket, has_frames]

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores that were opened so far."""
        return tuple(self._stores.values())

    def read(self, addresses: Sequence[bytes], bucket: Size, names: Sequence[str], *, is_still: bool = False) -> Tensor:
        """Rows (B, C, h, w), or (B, C, f, h, w) of clips, in the stored type. names: of the samples. Raises CacheError
        E1303 for an entry that is absent or damaged."""
        return _read(self.store(bucket, is_still=is_still), addresses, names, self.folder)


def as_still(placed: Placement) -> Placement:
    """The placement of one frame of a placed clip."""
    size, resized = placed.bucket, placed.resized
    return replace(placed, bucket=Size(size.width, size.height), resized=Size(resized.width, resized.height))


class TextCache:
    """Text embeddings of captions, found by address.

    folder: `data.cache.path`, resolved. identity: `family.text_identity(…)`. compute: the type that the text encoder
    runs in. `drops`: whether captions are dropped. `wanted_shape`: tokens and width of the model's text, where its
    files say them; embeddings of files are held to it.
    """

    def __init__(self, folder: Path, settings: DataSettings, *, identity: str, compute: str) -> None:
        self.root = folder
        self.identity = _addresses.text_identity(settings.cache.dtype, identity, compute)
        self.folder = folder / "text" / _addresses.short(self.identity)
        self.drops = settings.captions.dropout > 0
        self.is_imported = format_of(settings.format).is_encoded
        self._dtype = settings.cache.dtype
        self._settings = settings
        self._rows: TextRows | None = None
        self.layout: TextLayout | None = None
        self.wanted_shape: tuple[int, int] | None = None
        self.refresh()

    def refresh(self) -> None:
        """Looks for what other processes have made since."""
        if self.layout is None and (stored := _read_layout(self.folder, TextLayout)):
            self.layout = TextLayout(**stored)
        for store in self.stores:
            store.refresh()

    def define(self, layout: TextLayout) -> None:
        """Says, before the first entry, what entries look like. Raises CacheError E1305 when the folder's are
        different."""
        _write_layout(self.folder, self.identity, self.layout, layout)
        self.layout = layout

    def address(self, caption: str, mark: str = "") -> bytes:
        """The address of a caption's embedding. mark: the file it was taken from (`overrides.Marked.encoded`)."""
        return _addresses.text_address(caption, self.identity, mark=mark)

    def captions_of(self, catalogue: Catalogue, row: int) -> tuple[str, ...]:
        """The captions that a row can be shown with."""
        return DrawnCaptions.of(catalogue, row, self._settings).all_cached(catalogue.captions(row))

    def rows(self) -> TextRows | None:
        """The rows; None before `define`."""
        if self._rows is None and self.layout is not None:
            self._rows = TextRows(self.folder, self.layout, self._dtype)
        return self._rows

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores that were opened so far."""
        return self._rows.stores if self._rows is not None else ()

    def read(self, captions: Sequence[str], marks: Sequence[str] | None = None) -> TextEmbedding:
        """The embeddings of captions, (B, L, D), in the stored type. marks: see `address`; none without them. Raises
        CacheError E1303 for an entry that is absent or damaged."""
        marks = marks if marks is not None else [""] * len(captions)
        addresses = [self.address(caption, mark) for caption, mark in zip(captions, marks, strict=True)]
        rows = self.rows()
        embedding = rows.read(addresses) if rows is not None else np.arange(len(addresses))
        if rows is not None and isinstance(embedding, np.ndarray):
            rows.refresh()  # another process may have made it since
            embedding = rows.read(addresses)
        if isinstance(embedding, np.ndarray):
            raise lost([f"the caption {captions[i]!r}" for i in embedding.tolist()], self.folder)
        return embedding


@dataclass(frozen=True, slots=True)
class Caches:
    """Filled caches, or None where pictures and captions are encoded as they come."""

    latents: LatentCache | None = None
    text: TextCache | None = None


def _read(store: Store | None, addresses: Sequence[bytes], names: Sequence[str], folder: Path) -> Tensor:
    entries = np.full(len(addresses), -1, dtype=np.int64) if store is None else store.sound(addresses)
    if store is not None and (entries < 0).any():
        store.refresh()  # another process may have made it since
        entries = store.sound(addresses)
    if store is None or (entries < 0).any():
        raise lost([names[i] for i in np.flatnonzero(entries < 0).tolist()], folder)
    return store.read(entries)


def is_cache(folder: Path) -> bool:
    """Whether a folder is one that caches lie in."""
    return any(next((folder / kind).glob("*/layout.json"), None) is not None for kind in ("latents", "text"))


def lost(names: Sequence[str], folder: Path) -> CacheError:
    """What to say of entries that should be in a cache and are not."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return CacheError(
        f"{', '.join(names[:3])}{more}: no sound entry in the cache {folder}; start the same command again, which "
        "makes what is missing or damaged, or run `mezzotint cache` first",
        code="E1303",
    )


def _read_layout(folder: Path, kind: type[LatentLayout] | type[TextLayout]) -> dict[str, Any] | None:
    try:
        layout = outside.read_json(folder / "layout.json")["layout"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    names = {field.name for field in fields(kind)}
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    is_known = isinstance(layout, dict) and needed <= layout.keys() <= names
    return layout if is_known and all(isinstance(v, int) for v in layout.values()) else None


def _write_layout(folder: Path, identity: str, old: object, new: LatentLayout | TextLayout) -> None:
    if old == new:
        return
    if old is not None:
        raise CacheError(
            f"{folder}: its entries have another shape ({old}) than the model makes ({new}) though both claim to be "
            "the same encoder; delete this folder",
            code="E1305",
        )
    text = json.dumps({"identity": identity, "layout": asdict(new)}, indent=1, sort_keys=True)
    write_durably(folder / "layout.json", text.encode())


def write_durably(path: Path, data: bytes) -> None:
    """Writes a small file so that it is there in full or not at all. Raises CacheError E1301 or
    StorageError E1708 when it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with durable.swapped_in(path) as aside:
            aside.write_bytes(data)
    except OSError as error:
        raise explained(path.parent, error, len(data)) from error
