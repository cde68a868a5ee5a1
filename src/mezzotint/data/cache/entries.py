"""Latents and text embeddings in the cache: addresses of entries, and reading them as tensors.

Between the stores, which handle only bytes, and the code that fills them (`tasks.cache`) and reads them (`loader.py`).
Entries with the same identity (a VAE with its settings, a text encoder with its settings) are in one folder,
`latents/…` or `text/…`, next to a small `layout.json` with their shape; a cached run therefore needs no encoder.

An address is a 32-byte hash of everything that an entry depends on: a changed image, VAE or setting gives another
address, where there is no entry.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint import draws
from mezzotint.data.buckets.clip_sampling import stills_of_clip
from mezzotint.data.cache.entry_folder import EntryFolder
from mezzotint.data.cache.store import Store
from mezzotint.data.cache.text_rows import TextLayout, TextRows
from mezzotint.data.formats.base import format_of
from mezzotint.data.media import clip_files, decoding
from mezzotint.data.media.colour import Conversion
from mezzotint.data.schedule import clip_visits, placement
from mezzotint.data.schedule.captions import Changes, DrawnCaptions
from mezzotint.data.schedule.plan import Visit
from mezzotint.data.schedule.preserved import PreservedCaptions
from mezzotint.diffusion.first_frame import FIRST_FRAME, VISION
from mezzotint.errors import CacheError
from mezzotint.settings.counting import format_names
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size, TextImages, latent_size
from mezzotint.stages import Placement, TextEmbedding

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue


ENCODING = 2
"""The version of the encoding rules (`tasks/cache/_encoding.py`), part of the addresses. Increment it when the shape of
an encoder's input changes."""

OF_FILES = "files"
"""The identity of text embeddings that come from files."""


@dataclass(frozen=True, slots=True)
class LatentLayout:
    """channels: of stored latents (twice those of the latent for moments). pixels: per latent, in height and width.
    frames: per latent, 0 if unknown, in a cache of images. first_frame: channels of the first frame's latents and
    vision: numbers of its image encoder, which follow in a row of a model that animates; 0 for others."""

    channels: int
    pixels: int
    frames: int = 0
    first_frame: int = 0
    vision: int = 0


class LatentCache(EntryFolder[LatentLayout]):
    """Latents of placed images by address. One store for each bucket size.

    folder: `data.cache.path`, resolved. identity: `family.media_identity(…)`: weights, configuration, scaling and
    tiling of the VAE. compute: the dtype in which it runs ("fp32", "fp16", "bf16"). seed: of the run. `views`: number
    of stored placements of each image; 1 unless crop, flip or the frames of a clip are drawn at random for at least
    some (`is_drawn`). `seeds`: the seeds of placements and stored draws; 0 if nothing is drawn. `is_imported`: whether
    entries are not encoded but read from another trainer's files.
    """

    def __init__(self, folder: Path, settings: DataSettings, *, identity: str, compute: str, seed: int) -> None:
        data_format = format_of(settings.format)
        super().__init__(
            folder,
            "latents",
            LatentLayout,
            media=identity,
            compute=compute,
            preprocessing=_preprocessing(settings, encodes=not data_format.is_encoded),
            resize=settings.resize if settings.antialias else f"{settings.resize}, not antialiased",
            background=settings.background,
            content=settings.cache.content,
            dtype=settings.cache.dtype,
            **({"clips": clip_files.PREPROCESSING} if settings.has_clips else {}),
            **_encoding(encodes=not data_format.is_encoded),
        )
        self.content = settings.cache.content
        self.is_imported = data_format.is_encoded
        self.is_drawn = data_format.own_flips or any(_is_drawn(one.settings) for one in settings.image_sets())
        self.is_drawn |= settings.has_clips and any(one.settings.clips.draws_start for one in settings.image_sets())
        self.views = settings.cache.crops if self.is_drawn else 1
        draws_sample = self.content == "sample" and not self.is_imported
        self.seeds = (seed if self.is_drawn else 0, seed if draws_sample else 0)
        self._settings = settings
        self._seed = seed
        self._stores: dict[tuple[Size, bool], Store] = {}
        self._masks: dict[Size, Store] = {}
        self._conditions: dict[Size, Store] = {}
        self.refresh()

    @property
    def stores(self) -> tuple[Store, ...]:
        return (*self._stores.values(), *self._masks.values(), *self._conditions.values())

    def cached_view(self, visit: Visit) -> int:
        """The view of a visit, in [0, views)."""
        return draws.below(visit.draw("variant"), self.views)

    def placement(self, catalogue: Catalogue, row: int, view: int, bucket: Size) -> Placement:
        """The placement of a row in its bucket for one of its views, in [0, views): the same in every epoch."""
        settings = catalogue.settings_of(row, self._settings)
        return placement.cached_view(catalogue, row, bucket, settings, seed=self._seed, view=view)

    def draw(self, key_hash: int, view: int, still: int = -1) -> int | None:
        """The address of the stored posterior draw; None if moments, or samples of another trainer, are stored. still:
        index among the frames of a clip that are also trained as images."""
        if self.is_imported or self.content != "sample":
            return None
        frame = () if still < 0 else (still,)
        return draws.key(self._seed, "posterior-sample", key_hash, view, *frame)

    def address(self, catalogue: Catalogue, row: int, placed: Placement, view: int, *, still: int = -1) -> bytes:
        """The address of a row's latents in a placement. still: for a frame of a clip that is also trained as an image,
        its index among those frames."""
        before, after = self._around_draw(catalogue, row, placed, view, still)
        draw = self.draw(int(catalogue.key_hash[row]), view, still)
        text = f"latents\0{catalogue.digest[row].tobytes().hex()}{before}{-1 if draw is None else draw}{after}"
        return hashlib.sha256(text.encode()).digest()

    def addresses(self, catalogue: Catalogue, rows: NDArray[np.int32], bucket: Size, view: int) -> list[bytes]:
        """`address` of many rows in their placements of one view, in order."""
        if self.is_drawn or not len(rows) or catalogue.rate.any():
            placed = ((row, self.placement(catalogue, row, view, bucket)) for row in rows.tolist())
            return [self.address(catalogue, row, placement, view) for row, placement in placed]
        # nothing is drawn, so images of the same size and set have the same placement
        size = catalogue.width[rows].astype(np.int64) << 24 | catalogue.height[rows].astype(np.int64)
        size = size << 16 | catalogue.set[rows]
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
        """The text of an address after the image's hash: the parts before and after the draw."""
        times = self.times(catalogue, row, placed.bucket.frames, view, still).tolist()
        p = placed if still < 0 else as_still(placed)
        numbers = (
            p.bucket.width, p.bucket.height, p.bucket.frames, p.resized.width, p.resized.height, p.resized.frames,
            *p.crop_top_left, int(p.flipped),
        )  # fmt: skip
        frame_times = f"\0{','.join(map(repr, times))}" if times else ""
        return f"\0{','.join(map(str, numbers))},", f"{frame_times}\0{self.identity}"

    def times(
        self, catalogue: Catalogue, row: int, frames: int, view: int, still: int = -1
    ) -> clip_visits.Instants:  # fmt: skip
        """The times of a row's frames in one of its views; empty for an image. still: for a frame that is also trained
        as an image, its index among those."""
        if catalogue.rate[row] == 0:
            return np.zeros(0)
        key = draws.key(self._seed, "clip-variant", int(catalogue.key_hash[row]), view)
        clips = catalogue.settings_of(row, self._settings).clips
        times = clip_visits.frame_times(catalogue, row, frames, clips, address=key)
        if still < 0:
            return times
        return times[stills_of_clip(frames, self._settings.clips.images)[still : still + 1]]

    def store(self, bucket: Size, *, is_joined_image: bool = False) -> Store | None:
        """The store of a bucket size; None before `define`. is_still: for images joined to video batches."""
        if self.layout is None:
            return None
        has_frames = self._settings.has_clips and not is_joined_image
        if (bucket, has_frames) not in self._stores:
            latent = latent_size(bucket, self.layout.pixels, max(self.layout.frames, 1))
            frames = (latent.frames,) if has_frames else ()
            shape: tuple[int, ...] = (self.layout.channels, *frames, latent.height, latent.width)
            if self.layout.first_frame:
                side = latent.frames * latent.height * latent.width
                shape = ((self.layout.channels + self.layout.first_frame) * side + self.layout.vision,)
            self._stores[bucket, has_frames] = Store(self.folder, shape=shape, dtype=self._settings.cache.dtype)
        return self._stores[bucket, has_frames]

    def read(
        self, addresses: Sequence[bytes], bucket: Size, names: Sequence[str], *, is_joined_image: bool = False
    ) -> Tensor:
        """Reads rows (B, C, h, w), or (B, C, f, h, w) of clips, in the stored dtype; with first frames (B, n), see
        `split`. names: of the samples. Raises CacheError E1303 for an entry that is missing or damaged."""
        store = self.store(bucket, is_joined_image=is_joined_image)
        if store is None:
            raise missing_entries_error(names, self.folder)
        return _fetch(store, addresses, names, self.folder)

    def split(self, rows: Tensor, bucket: Size) -> tuple[Tensor, dict[str, Tensor]]:
        """The latents in rows that were read, and what was encoded of the first frames, as
        `ModelFamily.encode_first_frames` returns it; empty for other models."""
        assert self.layout is not None
        if not self.layout.first_frame:
            return rows, {}
        latent = latent_size(bucket, self.layout.pixels, self.layout.frames)
        sides = (latent.frames, latent.height, latent.width)
        channels = self.layout.channels, self.layout.first_frame
        parts = rows.split([*(count * math.prod(sides) for count in channels), self.layout.vision], dim=1)
        latents, first = (part.unflatten(1, (-1, *sides)) for part in parts[:2])
        return latents, {FIRST_FRAME: first} | ({VISION: parts[2]} if self.layout.vision else {})

    def condition_store(self, bucket: Size) -> Store | None:
        """The store of condition images of a bucket size, their posterior's mean (C, h, w); None before `define`."""
        if self.layout is None:
            return None
        if bucket not in self._conditions:
            latent = latent_size(bucket, self.layout.pixels, 1)
            channels = self.layout.channels // (2 if self.content == "moments" else 1)
            shape = (channels, latent.height, latent.width)
            self._conditions[bucket] = Store(self.folder / "conditions", shape=shape, dtype=self._settings.cache.dtype)
        return self._conditions[bucket]

    def condition_address(self, images: Catalogue, row: int, placed: Placement) -> bytes:
        """The address of a condition image in the placement of its sample. images: its catalogue. row: in it."""
        digest, numbers = images.digest[row].tobytes().hex(), ",".join(map(str, _numbers_of(placed)))
        return hashlib.sha256(f"condition\0{digest}\0{numbers}\0{self.identity}".encode()).digest()

    def read_conditions(
        self, images: Catalogue, rows: Sequence[int], placed: Sequence[Placement], chosen: Sequence[int]
    ) -> Tensor:
        """Reads the latents (B, C, h, w) of condition images in placements of one bucket; zeros for others than
        `chosen`, indexes in `rows`. Raises as `read`."""
        store = self.condition_store(placed[0].bucket)
        names = [images.key(rows[i]) for i in chosen]
        if store is None:
            raise missing_entries_error(names, self.folder)
        latents = torch.zeros((len(rows), *store.shape), dtype=store.dtype)
        if chosen:
            addresses = [self.condition_address(images, rows[i], placed[i]) for i in chosen]
            latents[list(chosen)] = _fetch(store, addresses, names, self.folder)
        return latents

    def mask_store(self, bucket: Size) -> Store | None:
        """The store of masks of a bucket size, float32 in [0, 1], (1, h, w); None before `define`."""
        if self.layout is None:
            return None
        if bucket not in self._masks:
            latent = latent_size(bucket, self.layout.pixels, 1)
            self._masks[bucket] = Store(self.folder / "masks", shape=(1, latent.height, latent.width), dtype="fp32")
        return self._masks[bucket]

    def mask_address(self, catalogue: Catalogue, row: int, placed: Placement) -> bytes:
        """The address of a row's mask in a placement, for a row that `has_mask`."""
        digests = catalogue.overrides.mask_digest
        has_file = catalogue.overrides.mask_of(row) is not None
        digest = digests[row] if has_file and digests is not None else catalogue.digest[row]
        kind, numbers = "file" if has_file else "alpha", ",".join(map(str, _numbers_of(placed)))
        text = f"mask {decoding.PREPROCESSING}\0{kind}\0{digest.tobytes().hex()}\0{numbers}"
        if (region := catalogue.overrides.region_of(row)) is not None:
            text += f"\0{region.encoded}"
        return hashlib.sha256(text.encode("ascii")).digest()

    def read_masks(
        self, catalogue: Catalogue, rows: Sequence[int], placed: Sequence[Placement], names: Sequence[str],
        broken: Collection[int] = (),
    ) -> Tensor:  # fmt: skip
        """Reads masks (B, h, w) of rows in placements of one bucket; ones for a row without mask. broken: indexes in
        `rows` of corrupt images, which have none either. Raises as `read`."""
        store = self.mask_store(placed[0].bucket)
        if store is None:
            raise missing_entries_error(names, self.folder)
        masks = torch.ones((len(rows), *store.shape[1:]))
        masked = [i for i, row in enumerate(rows) if i not in broken and has_mask(catalogue, row, self._settings)]
        if masked:
            addresses = [self.mask_address(catalogue, rows[i], placed[i]) for i in masked]
            masks[masked] = _fetch(store, addresses, [names[i] for i in masked], self.folder)[:, 0]
        return masks


def _numbers_of(placed: Placement) -> tuple[int, ...]:
    """What distinguishes placements of one image."""
    return (
        placed.bucket.width, placed.bucket.height, placed.resized.width, placed.resized.height, *placed.crop_top_left,
        int(placed.flipped),
    )  # fmt: skip


def _is_drawn(settings: DataSettings) -> bool:
    """Whether crops or flips are drawn."""
    return settings.crop not in ("center", "stretch") or 0.0 < settings.flip < 1.0


def has_mask(catalogue: Catalogue, row: int, settings: DataSettings) -> bool:
    """Whether a row's image has a mask, by `data.mask.source`: a file, or pixels that are not opaque."""
    mask = catalogue.settings_of(row, settings).mask
    if mask.source == "alpha":
        return bool(int(catalogue.conversions[row]) & Conversion.ALPHA)
    return mask.is_on and catalogue.overrides.mask_of(row) is not None


def _fetch(store: Store, addresses: Sequence[bytes], names: Sequence[str], folder: Path) -> Tensor:
    """Reads rows of a store. Raises CacheError E1303 for an entry that is missing or damaged."""
    rows = store.fetch(addresses)
    if isinstance(rows, np.ndarray):
        store.refresh()  # another process may have added it
        rows = store.fetch(addresses)
    if isinstance(rows, np.ndarray):
        raise missing_entries_error([names[i] for i in rows.tolist()], folder)
    return rows


def as_still(placed: Placement) -> Placement:
    """The placement of a clip's frame as that of an image: the same crop without frames."""
    size, resized = placed.bucket, placed.resized
    return replace(placed, bucket=Size(size.width, size.height), resized=Size(resized.width, resized.height))


class TextCache(EntryFolder[TextLayout]):
    """Text embeddings of captions by address.

    folder: `data.cache.path`, resolved. identity: `family.text_identity(…)`: tokenizer, encoder weights, clip skip,
    token length. compute: the dtype in which the text encoder runs. `drops`: whether caption dropout is used.
    `expected_shape`: tokens and width of the model's text embeddings, if its files contain them; embeddings from files
    are checked against it. images: how the text encoder sees condition images, on which an embedding then depends.
    preserved: which further captions are needed for those of the data.
    """

    def __init__(
        self, folder: Path, settings: DataSettings, *, identity: str, compute: str, images: TextImages | None = None,
        preserved: PreservedCaptions | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            folder,
            "text",
            TextLayout,
            text=identity,
            compute=compute,
            dtype=settings.cache.dtype,
            **_encoding(encodes=not (identity == OF_FILES or format_of(settings.format).is_encoded)),
            **({"images": _seen_images(images, settings)} if images is not None else {}),
        )
        self.images = images
        self.preserved = preserved
        self._before = f"text\0{self.identity}\0".encode()
        self.drops = settings.drops_captions
        self.is_imported = format_of(settings.format).is_encoded
        self._settings = settings
        self._rows: TextRows | None = None
        self.expected_shape: tuple[int, int] | None = None
        self.refresh()

    @property
    def stores(self) -> tuple[Store, ...]:
        return self._rows.stores if self._rows is not None else ()

    def address(self, caption: str, mark: str = "", images: bytes = b"") -> bytes:
        """The address of the embedding of a caption, as passed to the tokenizer. mark: the file of the embedding if
        another trainer encoded it (`overrides.Marked.encoded`). images: see `images_of`."""
        if mark:
            text = f"text\0{self.identity}\0{mark}\0{caption}"
            return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        if images:
            return self.address_of(caption.encode("utf-8", "surrogatepass") + b"\0" + images)
        return self.address_of(caption.encode("utf-8", "surrogatepass"))

    def address_of(self, caption: bytes) -> bytes:
        """`address` of a caption in UTF-8."""
        return hashlib.sha256(self._before + caption).digest()

    def captions_of(self, catalogue: Catalogue, row: int) -> tuple[str, ...]:
        """All texts that a row's captions can become, whose embeddings are needed."""
        settings = catalogue.settings_of(row, self._settings)
        captions = DrawnCaptions.of(catalogue, row, settings).list_cached(catalogue.captions(row))
        if self.preserved is None:
            return captions
        of_base = (self.preserved.list_all(caption, settings.captions) for caption in captions)
        return tuple(dict.fromkeys((*captions, *chain.from_iterable(of_base))))

    def images_of(self, catalogue: Catalogue, row: int) -> bytes:
        """The hashes of a row's condition images if the text encoder sees them, zeros for a missing one; empty if it
        sees none."""
        if self.images is None:
            return b""
        pairs = [(paired.images, int(paired.rows[row])) for paired in catalogue.conditions.values()]
        if all(image < 0 for _, image in pairs):
            return b""
        return b"".join(images.digest[image].tobytes() if image >= 0 else bytes(32) for images, image in pairs)

    def texts_of(self, catalogue: Catalogue, row: int) -> tuple[tuple[str, bytes], ...]:
        """Captions and images (`images_of`) of a row whose embeddings are needed."""
        captions, images = self.captions_of(catalogue, row), self.images_of(catalogue, row)
        if not images:
            return tuple((caption, b"") for caption in captions)
        also_empty = ("",) if self.drops else ()
        without = (b"",) if self._settings.condition_dropout else ()
        return tuple(product(dict.fromkeys((*captions, *also_empty)), (images, *without)))

    def captions_as_written(
        self, catalogue: Catalogue, rows: NDArray[np.int32]
    ) -> tuple[list[bytes], NDArray[np.int32]] | None:
        """The captions of rows in UTF-8 and the row of each, in order; None if captions change before encoding."""
        if self.preserved is not None:
            return None
        every = [one.settings for one in catalogue.sets] or [self._settings]
        shuffles_own = bool(catalogue.overrides.shuffle_tags[rows].any())
        changes = (Changes.of(settings.captions, shuffles_own=shuffles_own) for settings in every)
        return None if any(change.are_any for change in changes) else catalogue.captions_in_utf8(rows)

    def rows(self) -> TextRows | None:
        """The stored rows; None before `define`."""
        if self._rows is None and self.layout is not None:
            self._rows = TextRows(self.folder, self.layout, self._settings.cache.dtype)
        return self._rows

    def read(
        self, captions: Sequence[str], marks: Sequence[str] | None = None, images: Sequence[bytes] | None = None
    ) -> TextEmbedding:
        """Reads the embeddings of captions, (B, L, D), in the stored dtype. marks, images: see `address`. Raises
        CacheError E1303 for an entry that is missing or damaged."""
        marks = marks if marks is not None else [""] * len(captions)
        images = images if images is not None else [b""] * len(captions)
        addresses = list(map(self.address, captions, marks, images))
        rows = self.rows()
        embedding = rows.read(addresses) if rows is not None else np.arange(len(addresses))
        if rows is not None and isinstance(embedding, np.ndarray):
            rows.refresh()  # another process may have added it
            embedding = rows.read(addresses)
        if isinstance(embedding, np.ndarray):
            raise missing_entries_error([f"the caption {captions[i]!r}" for i in embedding.tolist()], self.folder)
        return embedding


def _seen_images(images: TextImages, settings: DataSettings) -> str:
    """What embeddings depend on besides the bytes of the condition images."""
    version, filter_ = _preprocessing(settings, encodes=True), f"{settings.resize} {settings.antialias}"
    return f"{len(settings.condition_names)} of {images.pixels} pixels, {version} {filter_} {settings.background}"


def _preprocessing(settings: DataSettings, *, encodes: bool) -> int:
    """The version of the image decoding. Clips, and images joined to them, are decoded at full size."""
    is_scaled = settings.decode == "scaled" and encodes and not settings.has_clips
    return decoding.version(scaled=is_scaled, resize=settings.resize, antialias=settings.antialias)


def _encoding(*, encodes: bool) -> dict[str, int]:
    """The part of an identity for the encoding rules; empty if nothing is encoded."""
    return {"encoding": ENCODING} if encodes else {}


@dataclass(frozen=True, slots=True)
class Caches:
    """Filled caches; None for images or captions that are encoded on the fly. text_images: how the text encoder sees
    condition images; None if it sees only captions."""

    latents: LatentCache | None = None
    text: TextCache | None = None
    text_images: TextImages | None = None

    @property
    def in_use(self) -> tuple[LatentCache | TextCache, ...]:
        """Those that are not None."""
        return tuple(cache for cache in (self.latents, self.text) if cache is not None)

    @property
    def stores(self) -> tuple[Store, ...]:
        """Their stores that were opened so far."""
        return tuple(store for cache in self.in_use for store in cache.stores)


def is_cache(folder: Path) -> bool:
    """Whether a folder contains cached latents or text embeddings."""
    return any(next((folder / kind).glob("*/layout.json"), None) is not None for kind in ("latents", "text"))


def missing_entries_error(names: Sequence[str], folder: Path) -> CacheError:
    """The error for entries that are missing in a cache."""
    return CacheError(
        f"{format_names(names, 3)}: no valid entry in the cache {folder}; run the same command again, which "
        "encodes missing "
        "and damaged entries, or run `mezzotint cache` first",
        code="E1303",
    )
