"""Latents and text embeddings in the cache: which entry belongs to a visit, and how it becomes tensors again.

This is the middle between the stores, which know only bytes, and those who fill them (`tasks.cache`) and read them
(`loader.py`). Entries of one identity (a VAE with its settings, a text encoder with its settings) lie in one folder,
`latents/…` or `text/…`, beside a small `layout.json` that says what they are, so that a cached run needs no encoder.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mezzotint import draws, durable
from mezzotint.data import addresses, plan
from mezzotint.data.cache import Store, explained
from mezzotint.data.captions import Tags, kept_address, shuffled
from mezzotint.errors import CacheError
from mezzotint.recipe.data import DataSettings
from mezzotint.registry import find
from mezzotint.shapes import Size
from mezzotint.stages import Placement, TextEmbedding

if TYPE_CHECKING:
    from mezzotint.data.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class LatentLayout:
    """channels: of a stored row (twice the latent's for moments). pixels: per latent, in height and width."""

    channels: int
    pixels: int


@dataclass(frozen=True, slots=True)
class TextLayout:
    """length, width: of the states (L, D). mask: whether a mask (L,) is kept. pooled: width P of the pooled vector, 0
    without one."""

    length: int
    width: int
    mask: bool
    pooled: int

    @property
    def numbers(self) -> int:
        """Numbers of one row."""
        return self.length * self.width + self.length * self.mask + self.pooled


class LatentCache:
    """Latents of placed pictures, found by address. One store for each bucket size.

    folder: `data.cache.path`, resolved. identity: `family.media_identity(…)`. compute: the type that the VAE runs in
    ("fp32", "fp16", "bf16"). seed: of the run. `variants`: how many placements of each picture are kept; 1 unless crop
    or flip is drawn, of some pictures at least. `seeds`: what placements and kept draws depend on; 0 where nothing is
    drawn. `is_taken_over`: entries are not encoded but read from another trainer's files.
    """

    def __init__(self, folder: Path, settings: DataSettings, *, identity: str, compute: str, seed: int) -> None:
        self.root = folder
        self.identity = addresses.latent_identity(settings, identity, compute)
        self.folder = folder / "latents" / addresses.short(self.identity)
        self.content = settings.cache.content
        chosen = find("data/formats", settings.format)
        own_flips: bool = getattr(chosen, "OWN_FLIPS", False)
        self.is_taken_over: bool = getattr(chosen, "IS_ENCODED", False)
        is_drawn = own_flips or settings.crop != "center" or 0.0 < settings.flip < 1.0
        self.variants = settings.cache.crops if is_drawn else 1
        draws_sample = self.content == "sample" and not self.is_taken_over
        self.seeds = (seed if is_drawn else 0, seed if draws_sample else 0)
        self._settings = settings
        self._seed = seed
        self._stores: dict[Size, Store] = {}
        self.layout: LatentLayout | None = None
        self.refresh()

    def refresh(self) -> None:
        """Looks for what other processes have made since."""
        if self.layout is None and (found := _read_layout(self.folder, LatentLayout.__slots__)):
            self.layout = LatentLayout(**found)
        for store in self.stores:
            store.refresh()

    def define(self, layout: LatentLayout) -> None:
        """Says, before the first entry, what entries look like. Raises CacheError E1305 when the folder's are
        different."""
        _write_layout(self.folder, self.identity, self.layout, layout)
        self.layout = layout

    def variant(self, key_hash: int, *, seed: int, epoch: int, visit: int) -> int:
        """The placement that a visit takes, in [0, variants)."""
        return draws.below(draws.key(seed, "variant", epoch, key_hash, visit), self.variants)

    def placement(self, catalogue: Catalogue, row: int, variant: int, bucket: Size) -> Placement:
        """Where the picture of a row lies in its bucket, in one of its variants: what `plan.placement` gives, for a
        bucket that is known."""
        key_hash = int(catalogue.key_hash[row])
        return plan.place(
            Size(int(catalogue.width[row]), int(catalogue.height[row])),
            bucket,
            self._settings,
            crop_key=draws.key(self._seed, "crop-variant", key_hash, variant),
            flip_key=draws.key(self._seed, "flip-variant", key_hash, variant),
            flip=catalogue.own.flip_of(row),
        )

    def draw(self, key_hash: int, variant: int) -> int | None:
        """The address of the one posterior draw that is kept; None when moments are, or what others have drawn."""
        if self.is_taken_over:
            return None
        return draws.key(self._seed, "posterior-sample", key_hash, variant) if self.content == "sample" else None

    def address(self, catalogue: Catalogue, row: int, placed: Placement, variant: int) -> bytes:
        """The address of a row's latents in a placement."""
        draw = self.draw(int(catalogue.key_hash[row]), variant)
        return addresses.latent_address(catalogue.digest[row].tobytes(), placed, self.identity, draw=draw)

    def store(self, bucket: Size) -> Store | None:
        """The rows of a bucket's size; None before `define`."""
        if self.layout is None:
            return None
        if bucket not in self._stores:
            n = self.layout.pixels
            shape = (self.layout.channels, bucket.height // n, bucket.width // n)
            self._stores[bucket] = Store(self.folder, kind="rows", shape=shape, dtype=self._settings.cache.dtype)
        return self._stores[bucket]

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores that were opened so far."""
        return tuple(self._stores.values())

    def read(self, wanted: Sequence[bytes], bucket: Size, names: Sequence[str]) -> Tensor:
        """Rows (B, C, h, w) in the stored type. names: of the samples. Raises CacheError E1303 for an entry that is
        absent or damaged."""
        return _read(self.store(bucket), wanted, names, self.folder)


class TextCache:
    """Text embeddings of captions, found by address.

    folder: `data.cache.path`, resolved. identity: `family.text_identity(…)`. compute: the type that the text encoder
    runs in.
    """

    def __init__(self, folder: Path, settings: DataSettings, *, identity: str, compute: str) -> None:
        self.root = folder
        self.identity = addresses.text_identity(settings, identity, compute)
        self.folder = folder / "text" / addresses.short(self.identity)
        self.is_taken_over: bool = getattr(find("data/formats", settings.format), "IS_ENCODED", False)
        self._dtype = settings.cache.dtype
        self._settings = settings
        self._store: Store | None = None
        self.layout: TextLayout | None = None
        self.refresh()

    def refresh(self) -> None:
        """Looks for what other processes have made since."""
        if self.layout is None and (found := _read_layout(self.folder, TextLayout.__slots__)):
            self.layout = TextLayout(**found)
        for store in self.stores:
            store.refresh()

    def define(self, layout: TextLayout) -> None:
        """Says, before the first entry, what entries look like. Raises CacheError E1305 when the folder's are
        different."""
        _write_layout(self.folder, self.identity, self.layout, layout)
        self.layout = layout

    def address(self, caption: str) -> bytes:
        """The address of a caption's embedding."""
        return addresses.text_address(caption, self.identity)

    def orders(self, catalogue: Catalogue, row: int) -> tuple[str, ...]:
        """The captions that a row whose tags are shuffled has besides those that were written."""
        settings = self._settings
        if not (settings.captions.shuffle_tags or catalogue.own.shuffle_tags[row]):
            return ()
        line = catalogue.own.tags_of(row)
        written = [Tags.decoded(line)] if line else [Tags.of(caption) for caption in catalogue.captions(row)]
        addresses_of = [kept_address(int(catalogue.key_hash[row]), n) for n in range(settings.cache.shuffles)]
        keep = settings.captions.keep_tags
        return tuple(shuffled(tags, address=address, keep=keep) for tags in written for address in addresses_of)

    def store(self) -> Store | None:
        """The rows; None before `define`."""
        if self._store is None and self.layout is not None:
            self._store = Store(self.folder, kind="rows", shape=(self.layout.numbers,), dtype=self._dtype)
        return self._store

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores that were opened so far."""
        return (self._store,) if self._store is not None else ()

    def read(self, captions: Sequence[str]) -> TextEmbedding:
        """The embeddings of captions, (B, L, D), in the stored type. Raises CacheError E1303 for an entry that is
        absent or damaged."""
        names = [f"the caption {caption!r}" for caption in captions]
        rows = _read(self.store(), [self.address(caption) for caption in captions], names, self.folder)
        assert self.layout is not None
        return unpack(rows, self.layout)


def layout_of(text: TextEmbedding) -> TextLayout:
    """What rows of such embeddings look like."""
    pooled = 0 if text.pooled is None else text.pooled.shape[1]
    return TextLayout(text.states.shape[1], text.states.shape[2], text.mask is not None, pooled)


def pack(text: TextEmbedding) -> Tensor:
    """Embeddings of B captions as rows (B, numbers): states, then mask, then pooled."""
    fields = [text.states, text.mask, text.pooled]
    return torch.cat([field.float().flatten(1) for field in fields if field is not None], dim=1)


def unpack(rows: Tensor, layout: TextLayout) -> TextEmbedding:
    """The reverse of `pack`, in the type of `rows`; the mask becomes int64."""
    widths = [layout.length * layout.width, layout.length * layout.mask, layout.pooled]
    states, mask, pooled = rows.split(widths, dim=1)
    return TextEmbedding(
        states.reshape(len(rows), layout.length, layout.width),
        mask.to(torch.int64) if layout.mask else None,
        pooled if layout.pooled else None,
    )


def _read(store: Store | None, wanted: Sequence[bytes], names: Sequence[str], folder: Path) -> Tensor:
    entries = np.full(len(wanted), -1, dtype=np.int64) if store is None else store.sound(wanted)
    if store is not None and (entries < 0).any():
        store.refresh()  # another process may have made it since
        entries = store.sound(wanted)
    if store is None or (entries < 0).any():
        lost = [names[i] for i in np.flatnonzero(entries < 0).tolist()]
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        raise CacheError(
            f"{', '.join(lost[:3])}{more}: no sound entry in the cache {folder}; start the same command again, which "
            "makes what is missing or damaged, or run `mezzotint cache` first",
            code="E1303",
        )
    return store.read(entries)


def _read_layout(folder: Path, names: Collection[str]) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / "layout.json").read_text("utf-8"))["layout"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_known = (
        isinstance(found, dict) and found.keys() == set(names) and all(isinstance(v, int) for v in found.values())
    )
    return found if is_known else None


def _write_layout(folder: Path, identity: str, old: object, new: LatentLayout | TextLayout) -> None:
    if old == new:
        return
    if old is not None:
        raise CacheError(
            f"{folder}: its entries have another shape ({old}) than the model makes ({new}) though both claim to be "
            "the same encoder; delete this folder",
            code="E1305",
        )
    fields = {name: getattr(new, name) for name in new.__slots__}
    text = json.dumps({"identity": identity, "layout": fields}, indent=1, sort_keys=True)
    write_durably(folder / "layout.json", text.encode())


def write_durably(path: Path, data: bytes) -> None:
    """Writes a small file so that it is there in full or not at all. Raises CacheError E1301 or
    StorageError E1708 when it cannot."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        durable.sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            aside.unlink()
        raise explained(path.parent, error, len(data)) from error
