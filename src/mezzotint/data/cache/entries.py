"""Latents and text embeddings in the cache: which entry belongs to a visit, and how it becomes tensors again.

This is the middle between the stores, which know only bytes, and those who fill them (`tasks.cache`) and read them
(`loader.py`). Entries of one identity (a VAE with its settings, a text encoder with its settings) lie in one folder,
`latents/…` or `text/…`, beside a small `layout.json` that says what they are, so that a cached run needs no encoder.

An address is 32 bytes made of everything that an entry depends on: a changed picture, VAE or setting has another one,
and nothing is found there.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint import draws, durable, outside
from mezzotint.data.buckets.clip_sampling import stills_of_clip
from mezzotint.data.cache.store import Store, explained
from mezzotint.data.cache.text_rows import TextLayout, TextRows
from mezzotint.data.formats.base import format_of
from mezzotint.data.media import clip_files, decoding
from mezzotint.data.media.colour import Conversion
from mezzotint.data.schedule import clip_visits, placement
from mezzotint.data.schedule.captions import Changes, DrawnCaptions
from mezzotint.data.schedule.plan import Visit
from mezzotint.errors import CacheError
from mezzotint.settings.counting import listed
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size, latent_size
from mezzotint.stages import Placement, TextEmbedding

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue


ENCODING = 2
"""The version of the rule by which entries are encoded (`tasks/cache/_encoding.py`): part
of their addresses. Raise it when the shape changes that an encoder is shown."""

OF_FILES = "files"
"""The identity of text that is encoded by nobody here."""

_MOST_OF_A_SIDE = 1 << 20


@dataclass(frozen=True, slots=True)
class LatentLayout:
    """channels: of a stored row (twice the latent's for moments). pixels: per latent, in height and width. frames: per
    latent, 0 where it was never seen, in a cache of pictures."""

    channels: int
    pixels: int
    frames: int = 0


Layout = TypeVar("Layout", LatentLayout, TextLayout)


class _Entries(ABC, Generic[Layout]):
    """Entries of one identity. root: `data.cache.path`, resolved. kind: the folder below it. dependencies: what the
    numbers depend on besides sample and settings of a visit."""

    def __init__(self, root: Path, kind: str, layout_type: type[Layout], **dependencies: str | int) -> None:
        self.root = root
        self.identity = json.dumps(dependencies, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        self.folder = root / kind / hashlib.sha256(self.identity.encode()).hexdigest()[:16]
        self.layout: Layout | None = None
        self._layout_type: type[Layout] = layout_type

    @property
    @abstractmethod
    def stores(self) -> tuple[Store, ...]:
        """The stores that were opened so far."""

    def refresh(self) -> None:
        """Looks for what other processes have made since."""
        self.layout = self.layout or self._stored_layout()
        for store in self.stores:
            store.refresh()

    def define(self, layout: Layout) -> None:
        """Says, before the first entry, what entries look like. Raises CacheError E1305 when the folder's are
        different."""
        if self.layout not in (None, layout):
            raise CacheError(
                f"{self.folder}: its entries have another shape ({self.layout}) than the model makes ({layout}) though "
                "both claim to be the same encoder; delete this folder",
                code="E1305",
            )
        if self.layout is None:
            text = json.dumps({"identity": self.identity, "layout": asdict(layout)}, indent=1, sort_keys=True)
            write_durably(self.folder / "layout.json", text.encode())
        self.layout = layout

    def _stored_layout(self) -> Layout | None:
        try:
            layout = outside.read_json(self.folder / "layout.json")["layout"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        names = {field.name for field in fields(self._layout_type)}
        needed = {field.name for field in fields(self._layout_type) if field.default is MISSING}
        is_known = isinstance(layout, dict) and needed <= layout.keys() <= names
        is_sound = is_known and all(_is_side(name, size) for name, size in layout.items())
        return self._layout_type(**layout) if is_sound else None


def _is_side(name: str, size: object) -> bool:
    """Whether a layout may say this of its entries."""
    least = 1 if name in ("channels", "pixels", "length", "width") else 0
    return isinstance(size, int) and isinstance(size, bool) == (name == "mask") and least <= size <= _MOST_OF_A_SIDE


class LatentCache(_Entries[LatentLayout]):
    """Latents of placed pictures, found by address. One store for each bucket size.

    folder: `data.cache.path`, resolved. identity: `family.media_identity(…)`: weights, configuration, scaling and
    tiling of the VAE. compute: the type that it runs in ("fp32", "fp16", "bf16"). seed: of the run. `views`: how many
    placements of each picture are kept; 1 unless crop, flip or the frames of a clip are drawn, of some at least
    (`is_drawn`). `seeds`: what placements and kept draws depend on; 0 where nothing is drawn. `is_imported`: entries
    are not encoded but read from another trainer's files.
    """

    def __init__(self, folder: Path, settings: DataSettings, *, identity: str, compute: str, seed: int) -> None:
        chosen = format_of(settings.format)
        super().__init__(
            folder,
            "latents",
            LatentLayout,
            media=identity,
            compute=compute,
            preprocessing=_preprocessing(settings, encodes=not chosen.is_encoded),
            resize=settings.resize if settings.antialias else f"{settings.resize}, not antialiased",
            background=settings.background,
            content=settings.cache.content,
            dtype=settings.cache.dtype,
            **({"clips": clip_files.PREPROCESSING} if settings.has_clips else {}),
            **_encoding(encodes=not chosen.is_encoded),
        )
        self.content = settings.cache.content
        self.is_imported = chosen.is_encoded
        self.is_drawn = chosen.own_flips or settings.crop not in ("center", "stretch") or 0.0 < settings.flip < 1.0
        self.is_drawn |= settings.has_clips and settings.clips.start != "first"
        self.views = settings.cache.crops if self.is_drawn else 1
        draws_sample = self.content == "sample" and not self.is_imported
        self.seeds = (seed if self.is_drawn else 0, seed if draws_sample else 0)
        self._settings = settings
        self._seed = seed
        self._stores: dict[tuple[Size, bool], Store] = {}
        self._masks: dict[Size, Store] = {}
        self.refresh()

    @property
    def stores(self) -> tuple[Store, ...]:
        return (*self._stores.values(), *self._masks.values())

    def cached_view(self, visit: Visit) -> int:
        """The view that a visit takes, in [0, views)."""
        return draws.below(visit.draw("variant"), self.views)

    def placement(self, catalogue: Catalogue, row: int, view: int, bucket: Size) -> Placement:
        """Where a row lies in its bucket in one of its kept views, in [0, views): the same in every epoch."""
        return placement.cached_view(catalogue, row, bucket, self._settings, seed=self._seed, view=view)

    def draw(self, key_hash: int, view: int, still: int = -1) -> int | None:
        """The address of the one posterior draw that is kept; None when moments are, or what others have drawn. still:
        of a frame that is trained as a picture, its place among those."""
        if self.is_imported or self.content != "sample":
            return None
        which = () if still < 0 else (still,)
        return draws.key(self._seed, "posterior-sample", key_hash, view, *which)

    def address(self, catalogue: Catalogue, row: int, placed: Placement, view: int, *, still: int = -1) -> bytes:
        """The address of a row's latents in a placement, or of a frame of its clip that is trained as a picture; still:
        its place among those frames."""
        before, after = self._around_draw(catalogue, row, placed, view, still)
        draw = self.draw(int(catalogue.key_hash[row]), view, still)
        text = f"latents\0{catalogue.digest[row].tobytes().hex()}{before}{-1 if draw is None else draw}{after}"
        return hashlib.sha256(text.encode()).digest()

    def addresses(self, catalogue: Catalogue, rows: NDArray[np.int32], bucket: Size, view: int) -> list[bytes]:
        """`address` of many rows in their placements of one view, one after the other."""
        if self.is_drawn or not len(rows) or catalogue.rate.any():
            placed = ((row, self.placement(catalogue, row, view, bucket)) for row in rows.tolist())
            return [self.address(catalogue, row, where, view) for row, where in placed]
        # nothing is drawn, so pictures of one size lie in their bucket alike
        size = catalogue.width[rows].astype(np.int64) << 32 | catalogue.height[rows]
        _, firsts, kinds = np.unique(size, return_index=True, return_inverse=True)
        around = [
            self._around_draw(catalogue, row, self.placement(catalogue, row, view, bucket), view)
            for row in rows[firsts].tolist()
        ]
        befores, afters = ([part.encode() for part in parts] for parts in zip(*around, strict=True))
        digests = catalogue.digest[rows].tobytes().hex().encode()
        addresses = []
        for i, (kind, key_hash) in enumerate(zip(kinds.tolist(), catalogue.key_hash[rows].tolist(), strict=True)):
            draw = self.draw(key_hash, view)
            number = b"-1" if draw is None else b"%d" % draw
            text = b"latents\0" + digests[64 * i : 64 * i + 64] + befores[kind] + number + afters[kind]
            addresses.append(hashlib.sha256(text).digest())
        return addresses

    def _around_draw(
        self, catalogue: Catalogue, row: int, placed: Placement, view: int, still: int = -1
    ) -> tuple[str, str]:
        """What stands in the text of an address behind the picture's hash, up to its draw and after it."""
        times = self.times(catalogue, row, placed.bucket.frames, view, still).tolist()
        p = placed if still < 0 else as_still(placed)
        numbers = (
            p.bucket.width, p.bucket.height, p.bucket.frames, p.resized.width, p.resized.height, p.resized.frames,
            *p.crop_top_left, int(p.flipped),
        )  # fmt: skip
        seen = f"\0{','.join(map(repr, times))}" if times else ""
        return f"\0{','.join(map(str, numbers))},", f"{seen}\0{self.identity}"

    def times(
        self, catalogue: Catalogue, row: int, frames: int, view: int, still: int = -1
    ) -> clip_visits.Instants:  # fmt: skip
        """When the frames of a row are shown that one of its views keeps; of a picture there are none. still: of one
        that is trained as a picture, its place among those."""
        if catalogue.rate[row] == 0:
            return np.zeros(0)
        key = draws.key(self._seed, "clip-variant", int(catalogue.key_hash[row]), view)
        times = clip_visits.instants(catalogue, row, frames, self._settings.clips, address=key)
        if still < 0:
            return times
        return times[stills_of_clip(frames, self._settings.clips.images)[still : still + 1]]

    def store(self, bucket: Size, *, is_still: bool = False) -> Store | None:
        """The rows of a bucket's size; None before `define`. is_still: of pictures beside clips."""
        if self.layout is None:
            return None
        has_frames = self._settings.has_clips and not is_still
        if (bucket, has_frames) not in self._stores:
            latent = latent_size(bucket, self.layout.pixels, max(self.layout.frames, 1))
            frames = (latent.frames,) if has_frames else ()
            shape = (self.layout.channels, *frames, latent.height, latent.width)
            self._stores[bucket, has_frames] = Store(self.folder, shape=shape, dtype=self._settings.cache.dtype)
        return self._stores[bucket, has_frames]

    def read(self, addresses: Sequence[bytes], bucket: Size, names: Sequence[str], *, is_still: bool = False) -> Tensor:
        """Rows (B, C, h, w), or (B, C, f, h, w) of clips, in the stored type. names: of the samples. Raises CacheError
        E1303 for an entry that is absent or damaged."""
        store = self.store(bucket, is_still=is_still)
        if store is None:
            raise lost(names, self.folder)
        return _fetched(store, addresses, names, self.folder)

    def mask_store(self, bucket: Size) -> Store | None:
        """Masks of a bucket's size as float32 in [0, 1], (1, h, w); None before `define`."""
        if self.layout is None:
            return None
        if bucket not in self._masks:
            latent = latent_size(bucket, self.layout.pixels, 1)
            self._masks[bucket] = Store(self.folder / "masks", shape=(1, latent.height, latent.width), dtype="fp32")
        return self._masks[bucket]

    def mask_address(self, catalogue: Catalogue, row: int, placed: Placement) -> bytes:
        """The address of a row's mask in a placement; of a row that `has_mask`."""
        digests = catalogue.overrides.mask_digest
        own = catalogue.overrides.mask_of(row) is not None
        digest = digests[row] if own and digests is not None else catalogue.digest[row]
        numbers = (
            placed.bucket.width, placed.bucket.height, placed.resized.width, placed.resized.height,
            *placed.crop_top_left, int(placed.flipped),
        )  # fmt: skip
        kind = "file" if own else "alpha"
        text = f"mask {decoding.PREPROCESSING}\0{kind}\0{digest.tobytes().hex()}\0{','.join(map(str, numbers))}"
        return hashlib.sha256(text.encode("ascii")).digest()

    def read_masks(
        self, catalogue: Catalogue, rows: Sequence[int], placed: Sequence[Placement], names: Sequence[str],
        broken: Collection[int] = (),
    ) -> Tensor:  # fmt: skip
        """Masks (B, h, w) of some rows in placements of one bucket, ones where a row has none. broken: places in
        `rows` of damaged pictures, which have none either. Raises as `read`."""
        store = self.mask_store(placed[0].bucket)
        if store is None:
            raise lost(names, self.folder)
        masks = torch.ones((len(rows), *store.shape[1:]))
        own = [i for i, row in enumerate(rows) if i not in broken and has_mask(catalogue, row, self._settings)]
        if own:
            addresses = [self.mask_address(catalogue, rows[i], placed[i]) for i in own]
            masks[own] = _fetched(store, addresses, [names[i] for i in own], self.folder)[:, 0]
        return masks


def has_mask(catalogue: Catalogue, row: int, settings: DataSettings) -> bool:
    """Whether a row's picture has a mask, by `data.mask.source`: a file, or pixels that are not opaque."""
    if settings.mask.source == "alpha":
        return bool(int(catalogue.conversions[row]) & Conversion.ALPHA)
    return settings.mask.is_on and catalogue.overrides.mask_of(row) is not None


def _fetched(store: Store, addresses: Sequence[bytes], names: Sequence[str], folder: Path) -> Tensor:
    """Rows of a store. Raises CacheError E1303 for an entry that is absent or damaged."""
    rows = store.fetch(addresses)
    if isinstance(rows, np.ndarray):
        store.refresh()  # another process may have made it since
        rows = store.fetch(addresses)
    if isinstance(rows, np.ndarray):
        raise lost([names[i] for i in rows.tolist()], folder)
    return rows


def as_still(placed: Placement) -> Placement:
    """The placement of a clip's frame as that of a picture: without frames, the same cut."""
    size, resized = placed.bucket, placed.resized
    return replace(placed, bucket=Size(size.width, size.height), resized=Size(resized.width, resized.height))


class TextCache(_Entries[TextLayout]):
    """Text embeddings of captions, found by address.

    folder: `data.cache.path`, resolved. identity: `family.text_identity(…)`: tokenizer, encoder weights, clip skip,
    token length. compute: the type that the text encoder runs in. `drops`: whether captions are dropped.
    `expected_shape`: tokens and width of the model's text, where its files say them; embeddings of files are held to
    it.
    """

    def __init__(self, folder: Path, settings: DataSettings, *, identity: str, compute: str) -> None:
        super().__init__(
            folder,
            "text",
            TextLayout,
            text=identity,
            compute=compute,
            dtype=settings.cache.dtype,
            **_encoding(encodes=not (identity == OF_FILES or format_of(settings.format).is_encoded)),
        )
        self._before = f"text\0{self.identity}\0".encode()
        self.drops = settings.captions.dropout > 0
        self.is_imported = format_of(settings.format).is_encoded
        self._settings = settings
        self._rows: TextRows | None = None
        self.expected_shape: tuple[int, int] | None = None
        self.refresh()

    @property
    def stores(self) -> tuple[Store, ...]:
        return self._rows.stores if self._rows is not None else ()

    def address(self, caption: str, mark: str = "") -> bytes:
        """The address of the embedding of a caption, as it goes to the tokenizer. mark: the file that it was taken
        from, where another trainer has made it (`overrides.Marked.encoded`)."""
        if mark:
            text = f"text\0{self.identity}\0{mark}\0{caption}"
            return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        return self.address_of(caption.encode("utf-8", "surrogatepass"))

    def address_of(self, caption: bytes) -> bytes:
        """`address` of a caption in UTF-8."""
        return hashlib.sha256(self._before + caption).digest()

    def captions_of(self, catalogue: Catalogue, row: int) -> tuple[str, ...]:
        """Everything that a row's captions can be shown as: the texts whose embeddings are needed."""
        return DrawnCaptions.of(catalogue, row, self._settings).all_cached(catalogue.captions(row))

    def captions_as_written(
        self, catalogue: Catalogue, rows: NDArray[np.int32]
    ) -> tuple[list[bytes], NDArray[np.int32]] | None:
        """The captions of some rows in UTF-8, one after the other, and the row of each; None where a caption is kept in
        other forms than it is written in."""
        changes = Changes.of(self._settings.captions, shuffles_own=bool(catalogue.overrides.shuffle_tags[rows].any()))
        return None if changes.are_any else catalogue.captions_in_utf8(rows)

    def rows(self) -> TextRows | None:
        """The rows; None before `define`."""
        if self._rows is None and self.layout is not None:
            self._rows = TextRows(self.folder, self.layout, self._settings.cache.dtype)
        return self._rows

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


def _preprocessing(settings: DataSettings, *, encodes: bool) -> int:
    """The version of a picture's pixels. Clips, and what stands beside them, are decoded whole."""
    is_scaled = settings.decode == "scaled" and encodes and not settings.has_clips
    return decoding.version(scaled=is_scaled, resize=settings.resize, antialias=settings.antialias)


def _encoding(*, encodes: bool) -> dict[str, int]:
    """What an identity says of the shapes that encoders are shown: nothing where nothing is encoded."""
    return {"encoding": ENCODING} if encodes else {}


@dataclass(frozen=True, slots=True)
class Caches:
    """Filled caches, or None where pictures and captions are encoded as they come."""

    latents: LatentCache | None = None
    text: TextCache | None = None

    @property
    def in_use(self) -> tuple[LatentCache | TextCache, ...]:
        """Those that are not None."""
        return tuple(cache for cache in (self.latents, self.text) if cache is not None)

    @property
    def stores(self) -> tuple[Store, ...]:
        """Their stores that were opened so far."""
        return tuple(store for cache in self.in_use for store in cache.stores)


def is_cache(folder: Path) -> bool:
    """Whether entries of latents or text have been written below a folder."""
    return any(next((folder / kind).glob("*/layout.json"), None) is not None for kind in ("latents", "text"))


def lost(names: Sequence[str], folder: Path) -> CacheError:
    """What to say of entries that should be in a cache and are not."""
    return CacheError(
        f"{listed(names, 3)}: no sound entry in the cache {folder}; start the same command again, which makes what is "
        "missing or damaged, or run `mezzotint cache` first",
        code="E1303",
    )


def write_durably(path: Path, data: bytes) -> None:
    """Writes a small file so that it is there in full or not at all. Raises CacheError E1301 or
    StorageError E1708 when it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.sweep(path.parent, path.name)
        with durable.swapped_in(path) as aside:
            aside.write_bytes(data)
    except OSError as error:
        raise explained(path.parent, error, len(data)) from error
