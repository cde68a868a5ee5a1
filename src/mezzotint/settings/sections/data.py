"""The samples of a run: files, captions, sizes, order, batches, caches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from mezzotint.settings.base import (
    ALLOW,
    FREE,
    PublishedPath,
    Section,
    Share,
    with_values,
)
from mezzotint.settings.counting import nearest_multiples
from mezzotint.settings.formats import base as formats
from mezzotint.settings.formats.base import FormatSpec, format_spec
from mezzotint.settings.sections import condition_sets, inpaint
from mezzotint.settings.sections.buckets import TABLES as TABLES
from mezzotint.settings.sections.buckets import BucketSettings as BucketSettings
from mezzotint.settings.sections.cache import CacheSettings as CacheSettings
from mezzotint.settings.sections.captions import CaptionSettings as CaptionSettings
from mezzotint.settings.sections.captions import ColumnSettings as ColumnSettings
from mezzotint.settings.sections.clips import ClipsSettings
from mezzotint.settings.sections.conditions import Conditions
from mezzotint.settings.sections.holdout import HoldoutSettings
from mezzotint.settings.sections.inpaint import InpaintSettings
from mezzotint.settings.sections.sets import BatchSize, Crop, Factor, Resolutions, SetSettings
from mezzotint.settings.sections.subjects import Folder, MaskSettings, PriorSettings, RatingSettings


@dataclass(frozen=True, slots=True)
class ImageSet:
    """A set of images as it is read. settings: the section with its own values, and no further sets. weight: factor of
    its loss."""

    settings: DataSettings
    weight: float = 1.0
    is_class: bool = False

    @property
    def sizes(self) -> tuple[DataSettings, ...]:
        """Its settings for each of its base sizes."""
        resolutions = self.settings.resolution
        return tuple(with_values(self.settings, {"resolution": (side,)}) for side in resolutions)


class DataSettings(Section):
    """The samples of a run: files, captions, sizes, order, batches, caches."""

    path: Annotated[Folder, FREE] = None
    """The folder of images; several are listed in `data.sets`. Relative paths are looked up next to the recipe, then in
    the current folder. On resume only the content is compared, not the path."""

    sets: Annotated[tuple[SetSettings, ...], ALLOW] = ()
    """Several sets of images instead of `data.path`, each with its `path` and what differs from the other settings of
    `data`: [{path: subject, repeats: 10}, {path: style, weight: 0.5, captions: {trigger: in my style}}]. A set may have
    `class_images`, `weight`, `repeats`, `batch_size`, `resolution`, `resolution_mode`, `buckets`, `crop`, `jitter`,
    `flip`, `small_images`, `captions` (every setting of `data.captions`), `clips` and `mask` (`source`, `path`). See
    `docs/guides/data-sets.md`."""

    format: Annotated[str, ALLOW] = "image-folder"
    """The format of the data set: a file name in `data/formats/`. `image-folder`: every image below the folder, with
    caption files next to the images. `kohya`: folders `10_name`, whose number is how often an epoch visits their
    images. `webdataset`: images in tar shards (`data.path` may name them: shards/{000..011}.tar). `metadata`: images
    named by metadata.jsonl, .csv or .parquet or stored in parquet or arrow files, or a data set of the Hugging Face hub
    (`data.path=OWNER/NAME`; extra `data`). `videofolder` (extra `video`): a folder of clips, captions next to them or
    in metadata.jsonl or .csv. `mezzotint ls formats` lists these and those of other trainers, see
    `docs/guides/data-formats.md`."""

    prior: PriorSettings = PriorSettings()
    """Class images for prior preservation (regularisation images)."""

    mask: MaskSettings = MaskSettings()
    """Which parts of images are trained."""

    conditions: Annotated[Conditions, ALLOW] = Field(default_factory=dict)
    """Images that the model is given beside the caption, by name: `{source: {folder: before}}`, or short
    `{source: before}`. Models that edit get the image before the edit as `source`; its samples are the images after it.
    FLUX.2 takes any number of references under any names, in the order in which they are written. A condition is
    resized, cropped and mirrored like its sample. See `docs/guides/editing.md`."""

    condition_dropout: Annotated[Annotated[float, Field(ge=0.0, le=1 / 3)], ALLOW] = 0.0
    """With this probability each, a visit has no caption, no condition images, or neither, so that both can be guided
    separately (Brooks et al. 2023, arXiv:2211.09800); 0.05 is usual. Missing images are zeros as the model gets
    them."""

    inpaint: InpaintSettings = InpaintSettings()
    """The regions that an inpainting model learns to fill."""

    clips: ClipsSettings = ClipsSettings()
    """With a clip format, such as `data.format=videofolder`: frames, selection and sizes of clips, and images trained
    with them."""

    columns: ColumnSettings = ColumnSettings()
    """With `data.format=metadata`: which columns are read; with `webdataset`: which value of a .json file is the
    caption."""

    split: Annotated[str, Field(pattern=r"^\w[\w.-]*$"), ALLOW] = "train"
    """With `data.format=metadata`: the split of the data set that is used, recognised by names of files and folders
    (`train/metadata.jsonl`, `data/test-00000-of-00001.parquet`). Files that name no split belong to `train`."""

    hub_config: Annotated[str | None, ALLOW] = None
    """With a data set of the hub: the configuration to read. None takes the only one."""

    hub_cache: Annotated[PublishedPath | None, FREE] = None
    """With a data set of the hub: the folder where the library `datasets` keeps its downloads. None uses the library's
    default (`HF_DATASETS_CACHE`)."""

    repeats: Annotated[Factor, ALLOW] = 1.0
    """How often an epoch visits each image. With 2.5 every image is visited twice and half of them, drawn again each
    epoch, a third time."""

    batch_size: Annotated[BatchSize, ALLOW] = 4
    """Samples of one batch over all devices together, all of one bucket. The batch is divided among devices; noise and
    timesteps do not depend on how."""

    remainder: Annotated[Literal["short", "fill", "drop", "repeat"], ALLOW] = "short"
    """What happens to images that do not fill a batch of their bucket. `short` trains a smaller batch (each sample
    counts the same); `fill` repeats images of the bucket; `drop` leaves them out of this epoch; `repeat` fills the
    batch by repeating the same images and lowers its weight. Their number is printed when the run starts."""

    remainder_power: Annotated[PositiveFloat, ALLOW] = 1.5
    """With `remainder=repeat`: a batch filled up from k images has the weight (k / batch_size) to this power."""

    shuffle: Annotated[bool, ALLOW] = True
    """Use a different order in each epoch, drawn by address. `false` visits every epoch in the order of the files or
    rows; batches of several sizes are ordered by their first image. What is trained last is remembered best, so switch
    this off only for comparisons."""

    resolution: Annotated[Resolutions, ALLOW] = (512,)
    """The base size in pixels: buckets have about resolution² pixels. 512 for SD1.x and SD2-base, 768 for SD2.1-v, 1024
    for SDXL. Several, such as [512, 768, 1024], train each image in several sizes (`data.resolution_mode`)."""

    resolution_mode: Annotated[Literal["each", "random"], ALLOW] = "each"
    """With several base sizes: `each` visits an image at every one of them as often as `repeats` says, so an epoch is
    as many times longer; `random` draws one for each visit."""

    buckets: BucketSettings = BucketSettings()
    """The sizes that batches may have."""

    crop: Annotated[Crop, ALLOW] = "center"
    """Where a resized image is cropped to its bucket. `center`: the middle. `random`: anywhere, drawn at each visit.
    `triangular`: more likely near the middle, after cutting a little from each edge (`jitter`), as EveryDream2 does.
    `stretch`: no crop, the whole image is distorted to its bucket, as diffusers' textual inversion scripts do."""

    jitter: Annotated[Share, ALLOW] = 0.02
    """With `crop=triangular`: the largest fraction of an image's shorter side that is cut from each of its four edges,
    drawn at each visit, and never more than the image exceeds its bucket."""

    flip: Annotated[Share, ALLOW] = 0.0
    """The probability that an image is mirrored left to right at a visit. Not for faces, asymmetric clothes or captions
    that mention left and right. A probability that the format gives for an image replaces it."""

    resize: Annotated[
        Literal[
            "lanczos", "bicubic", "bilinear", "hamming", "box", "nearest", "area", "square-then-bilinear",
            "bicubic-then-square",
        ],
        ALLOW,
    ] = "lanczos"  # fmt: skip
    """The filter that resizes images: Pillow's, antialiased except `nearest`. `area` averages the pixels that a new
    pixel covers, as in OpenCV. For clips with square buckets there are two complete rules with different pixels:
    `square-then-bilinear`, as in Open-Sora-Plan, and `bicubic-then-square`, as in its MindSpore port (bicubic without
    antialiasing, then the middle square)."""

    antialias: Annotated[bool, ALLOW] = True
    """Whether `resize` uses all pixels of an image that it shrinks. `false` uses OpenCV's `nearest`, `bilinear` or
    `bicubic`, which sample few pixels: sharper, with jagged edges. Use it to get the same pixels as MindONE."""

    decode: Annotated[Literal["full", "scaled"], ALLOW] = "scaled"
    """How JPEG files are decoded. `scaled` decodes a file several times larger than needed at a half, a quarter or an
    eighth of its size: less than half the time at 12 megapixels, the same pixels to 50 dB and more. `full` decodes
    every image at full size, as other trainers do. Files that are not JPEG, clips, and resizing by `nearest`, `area` or
    without `antialias` always use `full`."""

    original_size: Annotated[Literal["oriented", "stored"], ALLOW] = "oriented"
    """The original size given to models with size conditioning (SDXL): `oriented`, as the image is displayed, or
    `stored`, height and width as in the file, before its EXIF rotation, as in MindONE."""

    small_images: Annotated[Literal["upscale", "skip"], ALLOW] = "upscale"
    """An image smaller than its bucket: `upscale` enlarges it (counted in the data report), `skip` leaves it out. With
    `data.buckets.shape=own` there are none."""

    background: Annotated[str, ALLOW] = "#ffffff"
    """The background colour of transparent images, #rrggbb."""

    max_pixels: Annotated[PositiveInt, ALLOW] = 100_000_000
    """Images with more pixels are skipped before they are decoded: a defence against decompression bombs."""

    max_skipped: Annotated[Share, FREE] = 0.01
    """The fraction of unusable files above which a run does not start. At least 20 files are always tolerated, unless
    no usable file is left. The data report names each of them."""

    verify: Annotated[Literal["on_start", "on_first_use"], FREE] = "on_start"
    """When images are checked for damage. `on_start` decodes each one when the data set is listed and leaves out
    damaged ones. `on_first_use` hashes each file and reads only its size, orientation and colours, which is much
    faster; `on_corrupt` sets what happens when an image turns out to be damaged at its first use. Clips, and images
    other than 8-bit JPEG, PNG and WebP without transparency, are always decoded when the data set is listed."""

    on_corrupt: Annotated[Literal["stop", "zero_weight"], FREE] = "stop"
    """With `verify=on_first_use`: what happens when an image turns out to be damaged. `stop` ends the run with the
    image's name. `zero_weight` keeps it in the batch with weight 0: order, random draws and all other samples
    stay the same, the mean of the step still counts it, and the run's progress lists such images; more than
    `max_skipped` of them end the run. Held-out images, clips and images joined to clips always end it."""

    decode_timeout: Annotated[PositiveFloat | None, FREE] = 120.0
    """The most seconds that decoding an image or a mask may take, or a clip may make no progress; null waits for ever.
    At the start, files that take longer are left out and named. Later one ends the run (E1233), because a file that
    hangs once may not hang again."""

    captions: CaptionSettings = CaptionSettings()
    """Captions: source, selection, dropout."""

    max_samples: Annotated[PositiveInt | None, ALLOW] = None
    """The largest number of samples used, drawn by (`run.seed`, sample); None uses all. It includes held-out images."""

    holdout: HoldoutSettings = HoldoutSettings()
    """Images held out for validation."""

    cache: CacheSettings = CacheSettings()
    """Caches of latents and text embeddings."""

    rating: RatingSettings = RatingSettings()
    """Images with ratings."""

    workers: Annotated[int, Field(ge=0, le=256), FREE] = 2
    """Processes that decode images ahead of training; 0 decodes in the training process. Results do not depend on
    it."""

    prefetch: Annotated[int, Field(gt=0, le=1024), FREE] = 4
    """Batches that each worker prepares ahead."""

    epoch_seed: Annotated[Literal["address", "add"], ALLOW] = "address"
    """How an epoch gets its order: `address` draws it from (seed, epoch); `add` makes epoch e of seed s equal to epoch
    0 of seed s + e, as EveryDream2 does."""

    @model_validator(mode="before")
    @classmethod
    def _apply_format_defaults(cls, value: Any) -> Any:
        """Fills in the format's defaults for values that the recipe does not set."""
        if isinstance(value, dict) and isinstance(value.get("format"), str):
            for section, usual in format_spec(value["format"]).usual.items():
                written = value.get(section, {})
                if isinstance(written, dict):
                    value = {**value, section: {**usual, **written}}
        return value

    @field_validator("background")
    @classmethod
    def _check_colour(cls, value: str) -> str:
        if not re.fullmatch(r"#[0-9a-fA-F]{6}", value):
            raise ValueError(f"must be a colour like #rrggbb, got {value!r}")
        return value.lower()

    def contradictions(self) -> Iterator[str]:
        if self.sets:
            yield from self._about_sets()
        spec = format_spec(self.format)
        if self.captions.template and not self.captions.trigger and not spec.has_folder_words:
            yield (
                "data.captions.template contains {trigger}, and data.captions.trigger is empty; set it, such as "
                "data.captions.trigger='sks dog'"
            )
        for fixed in spec.fixed:
            if any(attrgetter(name)(self) != _default(name, spec) for name in fixed.settings):
                yield fixed.sentence.format(name=self.format)
        if self.captions.dropout_every and self.epoch_seed == "add":
            yield (
                "data.captions.dropout_every counts epochs, which data.epoch_seed=add makes equal to the first; leave "
                "out one of them"
            )
        yield from spec.contradictions(self)
        yield from self._other_format_sections()
        yield from self._clip_contradictions()
        yield from self._table_contradictions()
        yield from self.buckets.with_resolution(self.resolution)
        if self.buckets.shape == "own":
            yield from self.buckets.own_with_images(
                self.crop, self.small_images, clips=self.format if self.has_clips else ""
            )
        yield from self._prior_contradictions()
        yield from condition_sets.contradictions(self)
        yield from inpaint.contradictions(self)
        if not self.antialias and self.resize not in ("nearest", "bilinear", "bicubic"):
            yield (
                f"data.antialias=false does not work with data.resize={self.resize}; set data.resize to bicubic, "
                "bilinear or nearest, or leave data.antialias out"
            )
        if self.cache.text and self.random_caption_settings() and self.cache.shuffles == 1:
            yield (
                "data.cache.text stores data.cache.shuffles=1 variant of each caption, so "
                f"{self.random_caption_settings()[0]} "
                "would be drawn only once; set data.cache.shuffles above 1, or data.cache.text=false"
            )

    @property
    def has_class_images(self) -> bool:
        """Whether there are class images."""
        return bool(self.prior.path or self.prior.num_class_images) or any(one.class_images for one in self.sets)

    @property
    def has_masks(self) -> bool:
        """Whether images may have masks, in any set."""
        return any(one.settings.mask.is_on for one in self.image_sets())

    @property
    def condition_names(self) -> tuple[str, ...]:
        """The names of the condition images, the same for all sets."""
        return tuple(self.image_sets()[0].settings.conditions)

    @property
    def drops_captions(self) -> bool:
        """Whether captions may be dropped, in any set."""
        return self.condition_dropout > 0 or any(one.settings.captions.can_drop for one in self.image_sets())

    @property
    def paths(self) -> tuple[Path, ...]:
        """The folders of all sets but the class images of `prior.path`."""
        return tuple(one.path for one in self.sets) or ((self.path,) if self.path is not None else ())

    @property
    def smallest_batch(self) -> int:
        """The smallest batch size of all sets."""
        return min((one.batch_size or self.batch_size for one in self.sets), default=self.batch_size)

    @property
    def largest_batch(self) -> int:
        """The largest batch size of all sets."""
        return max((one.batch_size or self.batch_size for one in self.sets), default=self.batch_size)

    def image_sets(self) -> tuple[ImageSet, ...]:
        """Every set of images: the entries of `sets`, or the one of `path`; then the class images of `prior.path`."""
        if not self.sets and self.prior.path is None:
            return (ImageSet(self),)
        named = self.sets or (SetSettings(path=self.path or Path()),)
        if self.prior.path is not None:
            named = (*named, SetSettings(path=self.prior.path, class_images=True, repeats=1.0))
        return tuple(ImageSet(one.over(self), one.weight, one.class_images) for one in named)

    def _about_sets(self) -> Iterator[str]:
        if self.path is not None:
            yield "data.path and data.sets are both given; add the folder of data.path to data.sets, or leave it out"
        for number, one in enumerate(self.sets):
            try:
                DataSettings.model_validate(dict(one.over(with_values(self, {"prior": PriorSettings()}))))
            except ValidationError as error:
                first = error.errors()[0]
                yield f"data.sets.{number} ({one.path}): {first.get('ctx', {}).get('error', first['msg'])}"
        if all(one.class_images for one in self.sets):
            yield "all data.sets are class images; add a set of other images, or leave out class_images"

    def _other_format_sections(self) -> Iterator[str]:
        for name, spec in formats.specs().items():
            kind, is_used = spec.settings, name in (self.format, self.clips.images_format)
            if kind is not None and not is_used and self.get_section(kind) != kind():
                yield f"data.{formats.section_of(name)} has no effect without data.format={name}; leave it out"

    def random_caption_settings(self) -> list[str]:
        """Names of the settings of captions that change them at random in each epoch, in any set."""
        every = [one.settings.captions for one in self.image_sets()]
        random = {
            "shuffle_tags": any(captions.shuffle_tags for captions in every),
            "tag_dropout": any(captions.tag_dropout > 0 for captions in every),
            "wildcards": any(captions.wildcards for captions in every),
        }
        return [f"data.captions.{name}" for name, is_on in random.items() if is_on]

    @property
    def format_settings(self) -> Section | None:
        """The section of the selected format; None if it has none."""
        kind = format_spec(self.format).settings
        return None if kind is None else self.get_section(kind)

    @property
    def has_clips(self) -> bool:
        """Whether samples are clips, so pixels have frames."""
        return format_spec(self.format).has_clips

    def _clip_contradictions(self) -> Iterator[str]:
        """Clip settings for images, and square resize rules for other buckets."""
        if not self.has_clips and self.clips != ClipsSettings():
            yield (
                f"data.clips has no effect with data.format={self.format}, whose samples are images; leave it out, "
                "or set data.format=videofolder"
            )
        if self.has_clips and self.clips.buckets and (self.buckets != BucketSettings() or self.resolution != (512,)):
            yield (
                "data.clips.buckets lists all sizes, so data.resolution and data.buckets have no effect; leave "
                "them out, or leave out the list"
            )
        if self.resize in ("square-then-bilinear", "bicubic-then-square"):
            yield from self._square_contradictions()

    def _prior_contradictions(self) -> Iterator[str]:
        if self.prior.balance == "pairs" and self.batch_size % 2:
            yield (
                f"data.prior.balance=pairs needs an even data.batch_size, got {self.batch_size}; write an even number"
            )
        if self.prior.balance == "pairs" and any(one.batch_size not in (None, self.batch_size) for one in self.sets):
            yield "data.prior.balance=pairs needs one batch size for all sets; leave out batch_size in data.sets"
        spec = format_spec(self.format)
        if self.prior.num_class_images and not spec.takes_generated:
            yield (
                f"data.prior.num_class_images needs data.format=image-folder, got {self.format}; generate them with "
                "mezzotint sample"
            )
        if self.prior.num_class_images and not (self.prior.class_prompt or self.prior.derive_prompt(self.captions)):
            yield (
                "data.prior.num_class_images needs the name of the class; write "
                "data.prior.class_prompt='photo of a dog'"
            )
        yield from self.mask.with_format(self.format, joined_images=self.clips.images)
        if self.prior.is_changed and not self.has_class_images:
            yield (
                "data.prior has no effect without class images; write data.prior.path=FOLDER, "
                "data.prior.num_class_images=100, or data.prior={} for none"
            )
        if self.has_class_images and self.rating.fraction is not None:
            yield "data.rating.fraction selects among all images, class images too; leave out it or data.prior"

    def _square_contradictions(self) -> Iterator[str]:
        is_square = all(height == width for _, height, width in self.clips.buckets)
        if not self.has_clips or not is_square or not (self.clips.buckets or self.buckets.shape == "square"):
            yield (
                f"data.resize={self.resize} is for clips in square buckets; set data.format=videofolder and "
                "data.buckets.shape=square, or another data.resize"
            )
        if self.crop != "center":
            yield (
                f"data.crop={self.crop} has no effect with data.resize={self.resize}, which takes the middle square; "
                "set data.crop=center, or another data.resize"
            )

    def _table_contradictions(self) -> Iterator[str]:
        """A resolution without a bucket table."""
        is_computed = not (self.has_clips and self.clips.buckets) and self.buckets.shape in ("aspect", "square")
        for side in self.resolution:
            if self.buckets.shape == "table" and side not in TABLES:
                yield (
                    f"data.buckets.shape=table has no sizes for data.resolution={side}; write one of "
                    f"{', '.join(map(str, TABLES))}, or data.buckets.shape=aspect"
                )
            if is_computed and side % self.buckets.step:
                near, step = nearest_multiples(side, self.buckets.step), self.buckets.step
                yield f"data.resolution ({side}) must be a multiple of data.buckets.step ({step}); {near}"
        if len(self.resolution) > 1 and self.buckets.shape == "list":
            yield ("data.buckets.shape=list ignores data.resolution, of which there are several; leave out one of them")


def _default(name: str, spec: FormatSpec) -> object:
    """The value of a setting of `data` when a recipe of this format does not set it."""
    section, _, inside = name.partition(".")
    usual = spec.usual.get(section, {})
    return usual[inside] if inside in usual else attrgetter(name)(DataSettings.model_construct())


for _name, _spec in formats.specs().items():
    DataSettings.add_section(formats.section_of(_name), _spec.settings)
