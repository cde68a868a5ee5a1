"""Creates an index, the columns that a catalogue reads: lists the samples, probes the images, writes the result.

The result is stored under an address computed from everything it depends on, where a second start finds it. Format and
settings determine the samples, `_probing.py` probes the images.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint import draws
from mezzotint.data.buckets import buckets, clip_buckets
from mezzotint.data.buckets.clip_sampling import starts_of_pieces
from mezzotint.data.catalogue import _masking, _probing
from mezzotint.data.files import caption_cleaning, columns, image_settings, masks, overrides, remote
from mezzotint.data.files.columns import TextBuilder, Texts
from mezzotint.data.files.extracted import Images
from mezzotint.data.files.listing import is_remote, without_folders
from mezzotint.data.files.overrides import OverridesBuilder
from mezzotint.data.files.remembered_texts import RememberedTexts
from mezzotint.data.files.remote import NearFiles
from mezzotint.data.files.tags import add_around, apply_template, choose_first_alternatives
from mezzotint.data.formats.base import Noted, Skipped, Source, format_of
from mezzotint.data.media import clip_files, decoding, timeouts
from mezzotint.errors import DatasetError
from mezzotint.settings.base import with_values
from mezzotint.settings.sections.conditions import condition_columns, in_folders
from mezzotint.settings.sections.data import DataSettings, ImageSet
from mezzotint.shapes import Size
from mezzotint.stages import Sample

VERSION = 7
"""The layout of an index; part of its address."""

LONG_CAPTION_WORDS = 60
"""Captions of more words count as long: about as many words as fit into CLIP's 75 tokens."""

JOURNALS = {"on_start": f"journal-{VERSION}.jsonl", "on_first_use": f"journal-{VERSION}-not-decoded.jsonl"}
"""Journals with the results of a killed start, by `data.verify`."""

IMAGES = "images"
"""Folder next to the indexes, for images extracted from other files."""

TEXTS = "texts"
"""File next to the indexes, with the content of caption files."""


def sources_of(settings: DataSettings, condition: str = "") -> tuple[Source, ...]:
    """Lists the folder of each set (`DataSettings.image_sets`). condition: the name of the condition whose images in
    the data set are read, see `Source.condition`. Raises DatasetError E1201 for a missing folder, and if there is
    none."""
    if settings.path is None and not settings.sets:
        raise DatasetError("data.path is empty; set it to the folder of images", code="E1201")
    data_format, sets = format_of(settings.format), settings.image_sets()
    is_listed = ".png" in data_format.suffixes
    mask_folders = {path for one in sets if (path := one.settings.mask.path) is not None}
    condition_folders = {path for one in sets for path in in_folders(one.settings.conditions)}
    sources = []
    for number, one in enumerate(sets):
        assert one.settings.path is not None, "a set has a folder"
        try:
            listing = data_format.files_at(one.settings.path, one.settings)
        except DatasetError as error:
            if number == 0 and not settings.sets:
                raise
            name = f"data.sets.{number}" if number < len(settings.sets) else "data.prior.path"
            raise DatasetError(f"{name}: {error.message}", code=error.code) from error
        listing = without_folders(listing, condition_folders)
        of_masks = None
        if one.settings.mask.source == "files":
            listing, of_masks = masks.split_masks(
                listing, one.settings.mask.path, mask_folders, decoding.SUFFIXES, is_listed=is_listed
            )
        prefix = f"{number}/" if len(sets) > 1 else ""
        source = Source(listing.root, _for_reading(one), listing, prefix, is_class=one.is_class, masks=of_masks)
        if not is_remote(listing.root):
            source = replace(source, image_settings=image_settings.read_below(listing.root, listing.names))
        column = one.settings.conditions[condition].column_of(condition) if condition else ""
        sources.append(replace(source, condition=column))
    return tuple(sources)


def _for_reading(one: ImageSet) -> DataSettings:
    """The section of a set: if all of its images have the same caption, they do not need caption files."""
    template = one.settings.captions.full_template
    has_one = bool(template) and "{caption}" not in template
    if one.is_class:
        has_one = bool(one.settings.prior.class_prompt)
    return with_values(one.settings, {"captions.missing": "empty"}) if has_one else one.settings


def lineage(sources: Sequence[Source], settings: DataSettings) -> str:
    """The name of the parent folder of all indexes of the same folders, of samples or of one condition."""
    columns_of = [f"condition {source.condition}" for source in sources if source.condition]
    return _hash(settings.format, *(os.fspath(source.root) for source in sources), *columns_of)[:16]


def _probe_within(prober: _probing.Prober, path: Path, max_pixels: int, seconds: float | None) -> decoding.Probe:
    return timeouts.run_with_timeout(seconds, os.fspath(path), lambda: prober(path, max_pixels))


def address(sources: Sequence[Source], settings: DataSettings) -> str:
    """The name of an index, a hash of everything it depends on: settings, names, sizes and times of the files, and the
    content of the format's manifests, which are given by name or extension."""
    depends_on: tuple[object, ...] = (
        *(_set_dependencies(source) for source in sources),
        settings.max_pixels,
        settings.columns.model_dump_json(),
        settings.split,
        settings.hub_config,
    )
    if settings.verify != "on_start":
        depends_on += (f"verified at {settings.verify}",)
    own = tuple(condition_columns(source.settings.conditions) for source in sources)
    if any(own):
        depends_on += (own, tuple(source.condition for source in sources))
    if settings.has_clips:
        beside = {name for name in type(settings.clips).model_fields if name.startswith("images")}
        of_sets = (source.settings.clips.model_dump_json(exclude=beside) for source in sources)
        depends_on += (clip_files.PREPROCESSING, *of_sets)
    if settings.format_settings is not None:
        depends_on += (settings.format_settings.model_dump_json(),)
    manifests = format_of(settings.format).manifests
    states = [text for source in sources for text in _state(source, manifests)]
    return _hash(str(VERSION), str(decoding.PREPROCESSING), settings.format, repr(depends_on), *states)[:32]


def _set_dependencies(source: Source) -> tuple[object, ...]:
    """What an index depends on of the settings of one set."""
    settings, captions = source.settings, source.settings.captions
    changed = {
        "dropout", "dropout_every", "dropped", "shuffle_tags", "keep_tags", "tag_dropout", "keep_separator",
        "second_separator",
    }  # at each visit  # fmt: skip
    of_images = source.image_settings.digest if source.image_settings else ""
    return (
        *((of_images,) if of_images else ()),
        captions.model_dump_json(exclude=changed),
        caption_cleaning.VERSION if captions.clean else 0,
        settings.repeats,
        (settings.small_images, settings.resolution, settings.buckets.model_dump_json()),
        settings.prior.class_prompt if source.is_class else None,
        source.masks.listing.digest().hex() if source.masks else "",
    )


def _state(source: Source, manifests: Collection[str]) -> Iterator[str]:
    yield source.listing.digest().hex()
    is_versioned = not manifests or is_remote(source.root)  # the storage gives the version of a file
    for name in () if is_versioned else source.listing.names:
        if name.rpartition("/")[2] in manifests or os.path.splitext(name)[1].lower() in manifests:
            yield (decoding.digest_of(source.root / name) or b"").hex()


def make(
    sources: Sequence[Source],
    settings: DataSettings,
    folder: Path,
    *,
    before: Mapping[str, NDArray[Any]],
    workers: int,
    progress: _probing.Progress | None,
) -> None:
    """Lists and decodes everything and writes the index `folder`. before: columns of an earlier index of the same
    folders, or an empty dict. Raises DatasetError if the data set as a whole is unusable (missing or contradictory
    captions), and StorageError. Unusable files are recorded in the index and raise nothing."""
    images = Images(folder.parent / IMAGES)
    texts = RememberedTexts(folder.parent / TEXTS)
    near = NearFiles(
        (source.listing for source in sources),
        folder.parent.parent / remote.FOLDER,
        most_bytes=int(settings.cache.fetched_gb * 1e9),
    )
    samples = _SampleColumns(images.folder, len(sources))
    read_samples = format_of(settings.format).read_samples
    for number, source in enumerate(sources):
        for item in read_samples(replace(source, images=images, texts=texts, near=near)):
            item = _with_image_settings(_with_mask(_with_trained_captions(item, source), source), source)
            samples.add(item, source.root, number)
    samples.notes += [*_masking.notes(sources), *_notes_of_image_settings(sources)]
    images.sync()
    texts.write()
    files = _probing.KnownFiles.at(samples.path.texts(), near)
    _probing.take_over(files, before, settings.max_pixels)
    journal = folder.parent / JOURNALS[settings.verify]
    prober = decoding.probe if settings.verify == "on_start" else decoding.probe_quickly
    decoded = _probing.probe_files(
        files,
        journal,
        max_pixels=settings.max_pixels,
        workers=workers,
        progress=progress,
        prober=lambda path, most: _probe_within(prober, near.at(path), most, settings.decode_timeout),
        patient=settings.decode_timeout,
    )
    shown = np.stack([files.facts["width"], files.facts["height"]], axis=1)
    _cut_regions(samples, files, settings)
    table, about = _assemble(samples, files, settings, sources, workers, shown)
    if settings.verify != "on_start":
        about["verified"] = settings.verify
    unknown: Counter[str] = Counter()
    for source in sources:
        unknown.update(source.listing.unknown)
    columns.write(folder, table, {**about, "decoded": decoded, "unknown": dict(unknown)})
    journal.unlink(missing_ok=True)


def _with_trained_captions(item: Sample | Skipped | Noted, source: Source) -> Sample | Skipped | Noted:
    """A sample with its captions as trained; a class image is marked as such."""
    settings = source.settings.captions
    if not isinstance(item, Sample):
        return item
    if template := settings.full_template:
        others = dict(item.overrides)
        of_folder = others.pop("trigger", "")
        item = replace(item, overrides=tuple(others.items()))
        if trigger := settings.trigger or of_folder:
            item = apply_template(item, template, trigger)
    if source.is_class:
        prompt, own = source.settings.prior.class_prompt, dict(item.overrides)
        if prompt:
            item, _ = replace(item, captions=(prompt,)), own.pop("tags", None)
        item = replace(item, overrides=(*own.items(), ("prior", "true")))
    if settings.prefix or settings.suffix:
        item = add_around(item, settings.prefix, settings.suffix)
    return caption_cleaning.clean_captions(item) if settings.clean else item


def _with_mask(item: Sample | Skipped | Noted, source: Source) -> Sample | Skipped | Noted:
    """A sample with its mask, if it has one."""
    if not isinstance(item, Sample) or source.masks is None or any(name == "mask" for name, _ in item.overrides):
        return item
    mask = source.masks.of(os.path.relpath(item.media, source.root))
    return item if mask is None else replace(item, overrides=(*item.overrides, ("mask", os.fspath(mask))))


def _with_image_settings(item: Sample | Skipped | Noted, source: Source) -> Sample | Skipped | Noted:
    """A sample with what the `mezzotint.jsonl` beside its image says."""
    if not isinstance(item, Sample) or source.image_settings is None or not source.image_settings.of_names:
        return item
    settings = source.image_settings.of(os.path.relpath(item.media, source.root))
    if settings.exclude:
        return Skipped(item.key, image_settings.EXCLUDED, is_wanted=True)
    if settings.region is None:
        return item
    return replace(item, overrides=(*item.overrides, ("region", settings.region.encoded)))


def _notes_of_image_settings(sources: Sequence[Source]) -> Iterator[Noted]:
    for source in sources:
        for name in source.image_settings.list_unused() if source.image_settings else ():
            yield Noted(source.prefix + name, f"named in {image_settings.FILE}, and is no image of this data set")


def _cut_regions(samples: _SampleColumns, files: _probing.KnownFiles, settings: DataSettings) -> None:
    """Gives files with a crop or rotation the size and hash of that region, as if they were other files. Raises
    DatasetError E1264 for a file that is no image."""
    for i, region in samples.overrides.regions().items():
        facts = files.facts[i]
        if facts["rate"] or format_of(settings.format).is_encoded:
            raise DatasetError(
                f"{files.paths[i]}: {image_settings.FILE} gives it a crop or rotation, which only images have; remove "
                "them from its line",
                code="E1264",
            )
        if facts["is_known"]:
            facts["width"], facts["height"] = region.size(int(facts["width"]), int(facts["height"]))
            facts["digest"] = np.frombuffer(region.address(facts["digest"].tobytes()), np.uint8)


@dataclass(slots=True)
class _SampleColumns:
    """Samples before their images are probed, in growing columns instead of one object per sample.

    images: the folder of images extracted from other files; its number among the roots is `images_root`."""

    images: Path
    images_root: int
    key: TextBuilder = field(default_factory=TextBuilder)
    path: TextBuilder = field(default_factory=TextBuilder)
    relative: TextBuilder = field(default_factory=TextBuilder)
    caption: TextBuilder = field(default_factory=TextBuilder)
    num_captions: array[int] = field(default_factory=lambda: array("q"))
    root: array[int] = field(default_factory=lambda: array("H"))
    set: array[int] = field(default_factory=lambda: array("H"))
    repeats: array[float] = field(default_factory=lambda: array("f"))
    weight: array[float] = field(default_factory=lambda: array("f"))
    overrides: OverridesBuilder = field(default_factory=OverridesBuilder)
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[Noted] = field(default_factory=list)

    def add(self, item: Sample | Skipped | Noted, root: Path, number: int) -> None:
        if isinstance(item, Skipped):
            self.skipped.append(item)
            return
        if isinstance(item, Noted):
            self.notes.append(item)
            return
        self.set.append(number)
        path = os.fspath(item.media)
        if path.startswith(os.fspath(self.images) + os.sep):
            root, number = self.images, self.images_root
        self.key.append(item.key)
        self.path.append(path)
        self.relative.append(path.removeprefix(os.fspath(root) + os.sep))
        for caption in item.captions:
            self.caption.append(caption)
        self.num_captions.append(len(item.captions))
        self.root.append(number)
        self.repeats.append(item.repeats)
        self.weight.append(item.weight)
        self.overrides.add(item)


def _assemble(
    samples: _SampleColumns, files: _probing.KnownFiles, settings: DataSettings, sources: Sequence[Source],
    workers: int, shown: NDArray[np.int32],
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:  # fmt: skip
    """The columns of the usable samples, and the data of the report. shown: (n, 2), width and height of the whole
    images."""
    keys = samples.key.texts()
    of_set = np.frombuffer(samples.set, np.uint16)
    is_small = _is_small(samples, files.facts, settings)
    skipped = [*samples.skipped, *(Skipped(keys[i], reason) for i, reason in files.reasons.items())]
    facts = files.facts
    is_used = facts["is_known"].copy()
    if settings.has_clips:
        for i, reason in _excluded_clips(samples, facts, settings):
            skipped.append(Skipped(keys[i], reason, is_wanted=True))
            is_used[i] = False
    width, height = (np.maximum(facts[side], 1) for side in ("width", "height"))
    has_bucket = buckets.has_bucket(width, height, of_set, settings)
    for i in np.flatnonzero(is_used & ~has_bucket).tolist():
        step = sources[int(of_set[i])].settings.buckets.step
        reason = f"{facts['width'][i]}×{facts['height'][i]} has less than one step (data.buckets.step={step}) on a side"
        skipped.append(Skipped(keys[i], reason, is_wanted=True))
    is_used &= has_bucket
    skips_small = np.array([source.settings.small_images == "skip" for source in sources])[of_set]
    for i in np.flatnonzero(is_small & is_used & skips_small).tolist():
        reason = f"{facts['width'][i]}×{facts['height'][i]} is smaller than its bucket (data.small_images=skip)"
        skipped.append(Skipped(keys[i], reason, is_wanted=True))
    is_used &= ~(is_small & skips_small)
    rows, key, first_frames = _cut_clips(np.flatnonzero(is_used), samples, facts, sources)
    captions, starts = _captions(samples, rows)
    table: dict[str, NDArray[Any]] = {
        **key.columns("key"),
        **columns.select_texts(samples.relative.texts(), rows).columns("path"),
        **captions.columns("caption"),
        "caption_starts": starts,
        "key_hash": np.fromiter((draws.text_key(key[i]) for i in range(len(key))), np.uint64, len(key)),
        "root": np.frombuffer(samples.root, np.uint16)[rows],
        "set": np.frombuffer(samples.set, np.uint16)[rows],
        "repeats": np.frombuffer(samples.repeats, np.float32)[rows],
        "weight": np.frombuffer(samples.weight, np.float32)[rows],
        **samples.overrides.columns(rows),
        "start": first_frames,
        "path_hash": files.path_hash[rows],
        "stats": files.stats[rows],
        **{name: facts[name][rows] for name in facts.dtype.names or () if name != "is_known"},
    }
    if any(source.masks for source in sources):
        table |= _masking.probe_masks(samples.overrides.masks(rows), shown[rows], settings.max_pixels, workers)
    is_empty, is_long = _caption_lengths(
        captions, has_wildcards=any(source.settings.captions.wildcards for source in sources)
    )
    about = {
        "version": VERSION,
        "skipped": sorted([s.path, s.reason, s.is_wanted] for s in skipped),
        "notes": sorted([note.path, note.reason] for note in samples.notes),
        "upscaled": int(is_small[rows].sum()),
        "empty_captions": is_empty,
        "long_captions": is_long,
        "fingerprint": _fingerprint(table),
    }
    return table, about


def _cut_clips(
    rows: NDArray[np.int64], samples: _SampleColumns, facts: NDArray[Any], sources: Sequence[Source]
) -> tuple[NDArray[np.int64], Texts, NDArray[np.int32]]:
    """The samples of clips that are cut into pieces, one for each piece: their numbers, keys and first frames. Others
    are as before."""
    keys, starts = samples.key.texts(), samples.overrides.starts()
    if not any(source.settings.clips.is_cut for source in sources):
        return rows, columns.select_texts(keys, rows), starts[rows]
    pieces: list[tuple[int, int]] = []
    key = TextBuilder()
    for i in rows.tolist():
        clips = sources[samples.set[i]].settings.clips
        firsts = [int(starts[i])]
        if clips.is_cut and firsts == [-1] and facts[i]["rate"]:
            firsts = starts_of_pieces(int(facts[i]["frames"]), float(facts[i]["rate"]), clips).tolist()
        for first in firsts:
            pieces.append((i, first))
            key.append(keys[i] if first == starts[i] else f"{keys[i]}#{first}")
    numbers, first_frames = np.array(pieces, np.int64).reshape(-1, 2).T
    return numbers, key.texts(), first_frames.astype(np.int32)


def _captions(samples: _SampleColumns, rows: NDArray[np.int64]) -> tuple[Texts, NDArray[np.int64]]:
    num = np.frombuffer(samples.num_captions, np.int64)
    first = np.cumsum(num) - num
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(num[rows])))
    numbers = np.arange(starts[-1]) + np.repeat(first[rows] - starts[:-1], num[rows])
    return columns.select_texts(samples.caption.texts(), numbers), starts


def _excluded_clips(samples: _SampleColumns, facts: NDArray[Any], settings: DataSettings) -> Iterator[tuple[int, str]]:
    """Valid clips that the recipe excludes, by number, and why: too short, too small, too large."""
    starts, every = samples.overrides.starts(), settings.image_sets()
    most = buckets.count_frames(facts["frames"], facts["rate"], starts, samples.set, settings)
    for i in np.flatnonzero(facts["is_known"]).tolist():
        clips = every[samples.set[i]].settings.clips
        width, height, frames, rate = (facts[i][name].item() for name in ("width", "height", "frames", "rate"))
        reason = clip_buckets.out_of_limits(Size(width, height), clips)
        if reason is None and not most[i]:
            reason = clip_buckets.too_short(frames, rate, int(starts[i]), clips)
        if reason is not None:
            yield i, reason


def _is_small(samples: _SampleColumns, facts: NDArray[Any], settings: DataSettings) -> NDArray[np.bool_]:
    """Which images are smaller than their bucket, in at least one of their base sizes."""
    width, height = np.maximum(facts["width"], 1), np.maximum(facts["height"], 1)
    sets, frames = np.frombuffer(samples.set, np.uint16), None
    if settings.has_clips:
        frames = buckets.count_frames(facts["frames"], facts["rate"], samples.overrides.starts(), sets, settings)
    placed = buckets.place(width, height, sets, settings, frames)
    sizes = buckets.table(settings)
    wide, high = (np.asarray([getattr(size, side) for size in sizes])[placed.bucket] for side in ("width", "height"))
    small = (facts["width"][placed.sample] < wide) | (facts["height"][placed.sample] < high)
    is_small = np.zeros(len(width), np.bool_)
    is_small[placed.sample[small]] = True
    return is_small


def _caption_lengths(captions: Texts, *, has_wildcards: bool) -> tuple[int, int]:
    texts = (choose_first_alternatives(captions[i]) if has_wildcards else captions[i] for i in range(len(captions)))
    counts = np.fromiter((len(text.split()) for text in texts), np.int64, len(captions))
    return int((counts == 0).sum()), int((counts > LONG_CAPTION_WORDS).sum())


def _fingerprint(table: Mapping[str, NDArray[Any]]) -> str:
    """A hash of the data set, independent of its location: keys, images, captions, repeats, weights and overrides of
    samples, in order."""
    state = hashlib.sha256()
    always = ("key", "key_offsets", "digest", "caption", "caption_offsets", "caption_starts", "repeats", "weight")
    for name in (*always, *overrides.overridden_columns(table)):
        column = np.ascontiguousarray(table[name])
        state.update(f"{name} {column.nbytes}\n".encode("ascii"))
        state.update(column.view(np.uint8).data if column.size else b"")
    return state.hexdigest()


def _hash(*parts: str) -> str:
    state = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()
