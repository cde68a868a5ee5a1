"""Which samples are seen, how they are placed, and in what order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from mezzotint.settings.base import ALLOW, FREE, DataPath, OutputPath, PublishedPath, Section, Share, as_list
from mezzotint.settings.counting import nearest_multiples
from mezzotint.settings.formats import base as formats
from mezzotint.settings.formats.base import FormatSpec, format_spec
from mezzotint.settings.sections.captions import CaptionSettings as CaptionSettings
from mezzotint.settings.sections.captions import ColumnSettings as ColumnSettings
from mezzotint.settings.sections.clips import ClipsSettings
from mezzotint.settings.sections.subjects import MaskSettings, Paths, PriorSettings, RatingSettings

TABLES = (256, 320, 384, 448, 512, 576, 640, 704, 768, 832, 896, 960, 1024, 1088, 1152, 1280, 1536)
"""The resolutions for which `data.buckets.shape=table` has a list of sizes."""

Factors = Annotated[tuple[Annotated[float, Field(gt=0.0, le=10**6)], ...], BeforeValidator(as_list)]


SDXL = (
    "512x2048 512x1984 512x1920 512x1856 576x1792 576x1728 576x1664 640x1600 640x1536 704x1472 704x1408 704x1344 "
    "768x1344 768x1280 832x1216 832x1152 896x1152 896x1088 960x1088 960x1024 1024x1024 1024x960 1088x960 1088x896 "
    "1152x896 1152x832 1216x832 1280x768 1344x768 1408x704 1472x704 1536x640 1600x640 1664x576 1728x576 1792x576 "
    "1856x512 1920x512 1984x512 2048x512"
)
"""Height by width, in the order of appendix I of Podell et al. 2023 (arXiv:2307.01952). 704x1344 alone has no mirror
there."""


def _of_name(value: Any) -> Any:
    """The list behind a name."""
    return [[int(side) for side in pair.split("x")] for pair in SDXL.split()] if value == "sdxl" else value


_Side = Annotated[int, Field(ge=16, le=8192, multiple_of=8)]
_SIZE_PAIRS = {"type": "array", "minItems": 1, "items": {"type": "array", "items": {"type": "integer"}, "minItems": 2}}

Sizes = Annotated[
    tuple[tuple[_Side, _Side], ...],
    Field(min_length=1),
    BeforeValidator(_of_name),
    WithJsonSchema({"anyOf": [{"const": "sdxl"}, _SIZE_PAIRS]}),
]
"""Sizes in pixels, height first, or the name of a list."""


class BucketSettings(Section):
    """Which picture sizes are trained; a batch holds pictures of one size."""

    shape: Annotated[Literal["aspect", "square", "table", "list"], ALLOW] = "aspect"
    """`aspect` trains each picture in the bucket nearest to its own shape, all of about `data.resolution`² pixels;
    `square` crops every picture to a square; `table` takes the sizes that EveryDream2 lists for the resolution, up to
    1:4, and its rule, the nearest in width / height; `list` takes those of `data.buckets.sizes`, whatever
    `data.resolution` is."""

    sizes: Annotated[Sizes | None, ALLOW] = None
    """With `list`, the sizes in pixels, each as [height, width], such as [[1024, 1024], [832, 1216]]; or `sdxl`, the
    forty that SDXL was trained on (Podell et al. 2023, arXiv:2307.01952, appendix I). A picture goes to the one nearest
    in log(width / height); of several of that shape to the largest that it fills, or else the smallest."""

    step: Annotated[PositiveInt, Field(multiple_of=8), ALLOW] = 64
    """With `aspect`, sides of buckets are multiples of this many pixels. 64 fits every UNet of the SD family; small
    models can take 8 or 16."""

    max_aspect: Annotated[float, Field(ge=1.0, le=8.0), ALLOW] = 2.0
    """With `aspect`, the most elongated bucket, longer side over shorter. What is longer still is cropped to it."""

    def contradictions(self) -> Iterator[str]:
        if self.shape == "list" and self.sizes is None:
            yield ("data.buckets.shape=list needs sizes; write data.buckets.sizes=sdxl, or a list of [height, width]")
        if self.shape != "list" and self.sizes is not None:
            yield (
                f"data.buckets.sizes has no effect with data.buckets.shape={self.shape}; "
                "write data.buckets.shape=list, or leave it out"
            )


class CacheSettings(Section):
    """Encode once, train many times: latents and text embeddings kept on disk under an address made of everything they
    depend on."""

    latents: Annotated[bool, ALLOW] = False
    """Encode pictures once and train from the stored latents; the run then loads no VAE. Any change of picture,
    placement, preprocessing or VAE makes the entry unfindable, so that it is made again."""

    text: Annotated[bool, ALLOW] = False
    """Encode captions once; the run then loads no text encoder. Refused when the text encoder is trained."""

    encoders: Annotated[Literal["auto", "whole", "layers"], FREE] = "auto"
    """How text encoders are read to fill the cache: `whole`; by `layers`, a group of them at a time, which all captions
    at hand go through before the next is read, so that an encoder of any size needs about a gigabyte; `auto` does so
    where the whole is more than the free memory. The embeddings are the same to the bit."""

    path: Annotated[OutputPath, FREE] = Path("~/.cache/mezzotint")
    """The folder of caches and data indexes. It may be shared by runs and processes; deleting it costs only time. An
    address of object storage (`s3://bucket/cache`; extra `object-storage`) is filled in a folder of this machine,
    carried there shard by shard, and read row by row."""

    fetched_gb: Annotated[PositiveFloat, FREE] = 50.0
    """With data or a cache on object storage (`s3://…`): at most so many gigabytes (10⁹ bytes) of what was fetched are
    kept on this machine; what was used longest ago goes first."""

    content: Annotated[Literal["moments", "sample"], ALLOW] = "moments"
    """`moments` stores mean and standard deviation of the latent posterior, so that each visit draws anew, as without
    a cache; `sample` stores one draw, at half the size."""

    dtype: Annotated[Literal["fp32", "fp16", "bf16"], ALLOW] = "fp32"
    """The type of stored numbers. fp16 halves the files; latents and embeddings are rounded once."""

    crops: Annotated[int, Field(gt=0, le=10**4), ALLOW] = 1
    """With random crops or flips, how many placements of each picture are drawn and kept; every visit takes one of
    them."""

    shuffles: Annotated[int, Field(gt=0, le=10**4), ALLOW] = 1
    """With cached text and captions that are drawn (`captions.shuffle_tags`, `tag_dropout`, `wildcards`), how many
    variants of each caption are drawn and kept; every visit takes one of them."""


def _called_val(value: Any) -> Any:
    """One folder is the set `val`."""
    return {"val": value} if isinstance(value, (str, Path)) else value


HeldOutFolders = Annotated[
    dict[str, DataPath],
    BeforeValidator(_called_val),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}]}),
]
"""Folders by name; one alone is called `val`."""

_TAKEN = frozenset({"loss", "all", "train"})


class HoldoutSettings(Section):
    """Pictures kept out of training to measure the loss on something the model has not seen."""

    fraction: Annotated[Annotated[float, Field(ge=0.0, lt=1.0)], ALLOW] = 0.0
    """The share of pictures held out: ⌈share · n⌉ of n pictures, those with the smallest draws by address, so that the
    same ones are held out on every start."""

    max_samples: Annotated[PositiveInt, ALLOW] = 64
    """At most so many pictures are held out, however large the share. Of each folder of `data.holdout.path`, and for
    `val/train`, at most so many are measured, drawn by address."""

    path: Annotated[HeldOutFolders, FREE] = Field(default_factory=dict)
    """Folders of pictures that are measured and never trained, in the format of the data set: one folder, which is then
    called `val`, or several by name, such as {faces: FOLDER, places: FOLDER}. Each is logged as `val/NAME`."""

    @field_validator("path")
    @classmethod
    def _names(cls, value: dict[str, Path]) -> dict[str, Path]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}", name):
                raise ValueError(f"a set's name is letters, digits, - and _, got {name!r}")
            if name in _TAKEN or name.endswith("_shadow"):
                raise ValueError(f"{name!r} has a meaning of its own in the logs; give the set another name")
        return value


class DataSettings(Section):
    """The samples of a run: files, captions, sizes, order, batches, cache."""

    path: Annotated[Paths, FREE] = ()
    """The folder of pictures, or a list of folders. Relative paths are looked up beside the recipe, then in the
    current folder. On resume the content counts, not the path."""

    format: Annotated[str, ALLOW] = "image-folder"
    """How the data set is written down: a file name in `data/formats/`. `image-folder` takes every picture below the
    folder, captions beside it; `kohya` takes folders `10_name`, whose names say how often an epoch visits their
    pictures; `webdataset` takes the pictures inside tar shards (`data.path` may name them: shards/{000..011}.tar);
    `metadata` takes those that metadata.jsonl, .csv or .parquet name or parquet or arrow files hold, or a data set of
    the Hugging Face hub (`data.path=OWNER/NAME`; extra `data`). Clips (extra `video`): `videofolder` takes a folder
    of clips, captions beside them or in metadata.jsonl or .csv. `mezzotint ls formats` lists these and those of other
    trainers, see `docs/guides/data-formats.md`."""

    prior: PriorSettings = PriorSettings()
    """Class pictures beside those of a subject."""

    mask: MaskSettings = MaskSettings()
    """Which parts of pictures are learnt."""

    clips: ClipsSettings = ClipsSettings()
    """With a format of clips, such as `data.format=videofolder`: frames, choice and sizes of clips, pictures beside
    them."""

    columns: ColumnSettings = ColumnSettings()
    """With `data.format=metadata`: which columns are read; with `webdataset`, which value of a .json is the caption."""

    split: Annotated[str, Field(pattern=r"^\w[\w.-]*$"), ALLOW] = "train"
    """With `data.format=metadata`: the part of the data set that is used, by the names of files and folders
    (`train/metadata.jsonl`, `data/test-00000-of-00001.parquet`). What names no part belongs to `train`."""

    hub_config: Annotated[str | None, ALLOW] = None
    """With a data set of the hub: which of its configurations is read. None takes the only one."""

    hub_cache: Annotated[PublishedPath | None, FREE] = None
    """With a data set of the hub: the folder where the library `datasets` keeps what it has fetched. None takes that
    library's own (`HF_DATASETS_CACHE`)."""

    repeats: Annotated[Factors, ALLOW] = (1.0,)
    """How often an epoch visits each picture: one number for all, or one for each folder of `data.path`. With 2.5
    every picture is seen twice and half of them, drawn anew each epoch, a third time."""

    batch_size: Annotated[int, Field(gt=0, le=10**6), ALLOW] = 4
    """Samples of one batch, over all devices together, all of one bucket. Their number is divided among devices; noise
    and timesteps do not depend on how."""

    remainder: Annotated[Literal["short", "fill", "drop", "repeat"], ALLOW] = "short"
    """What is left of a bucket when it does not fill a batch: `short` trains a smaller batch (each sample counts the
    same), `fill` repeats pictures of the bucket, `drop` leaves them out of this epoch, `repeat` fills up with the same
    pictures and lets the batch count less. The start of a run counts them."""

    remainder_power: Annotated[PositiveFloat, ALLOW] = 1.5
    """With `remainder=repeat`, a batch of k pictures that was filled up to `batch_size` counts (k / batch_size) to this
    power."""

    shuffle: Annotated[bool, ALLOW] = True
    """Another order in each epoch, drawn by address. `false` takes every epoch as files or rows stand there, batches of
    several sizes by their first picture. What is trained last is remembered best: leave it on but for comparisons."""

    resolution: Annotated[int, Field(ge=16, le=4096, multiple_of=8), ALLOW] = 512
    """The base size in pixels: buckets have about resolution² pixels. 512 for SD1.x and SD2-base, 768 for SD2.1-v,
    1024 for SDXL."""

    buckets: BucketSettings = BucketSettings()
    """Which sizes batches may have."""

    crop: Annotated[Literal["center", "random", "triangular", "stretch"], ALLOW] = "center"
    """Where a resized picture is cut to its bucket: the middle, or a place drawn at each visit, `random` anywhere,
    `triangular` likelier near the middle and after cutting a little from each edge (`jitter`), as EveryDream2 does.
    `stretch` cuts nothing and squeezes the whole picture into its bucket, whatever its shape, as diffusers' scripts of
    textual inversion do."""

    jitter: Annotated[Share, ALLOW] = 0.02
    """With `crop=triangular`, at most this share of a picture's shorter side is cut from each of its four edges, drawn
    at each visit, and never more than it is larger than its bucket."""

    flip: Annotated[Share, ALLOW] = 0.0
    """The chance that a picture is mirrored left to right at a visit. Not for faces, asymmetric clothes or captions
    that say left and right. A picture's own chance, where the format has one, takes its place."""

    resize: Annotated[
        Literal[
            "lanczos", "bicubic", "bilinear", "hamming", "box", "nearest", "area", "square-then-bilinear",
            "bicubic-then-square",
        ],
        ALLOW,
    ] = "lanczos"  # fmt: skip
    """The filter that resizes pictures: Pillow's, antialiased but for `nearest`; `area` is the mean of what a new pixel
    covers, as OpenCV has it. Of clips, with square buckets, also two whole rules, whose pixels differ:
    `square-then-bilinear`, as Open-Sora-Plan does, and `bicubic-then-square`, as its
    MindSpore port does (bicubic without antialiasing, then the middle square)."""

    antialias: Annotated[bool, ALLOW] = True
    """Whether `resize` looks at all pixels of a picture that shrinks. `false` takes OpenCV's `nearest`, `bilinear` or
    `bicubic`, whose few pixels lie far apart then: sharper, with jagged edges. For pixels as MindONE makes them."""

    decode: Annotated[Literal["full", "scaled"], ALLOW] = "scaled"
    """How a JPEG becomes pixels. `scaled` decodes one that is several times larger than what it becomes at a half, a
    quarter or an eighth of its size: at 12 megapixels in less than half the time, the same pixels to 50 dB and more.
    `full` decodes every picture whole, as other trainers do. Pictures that are no JPEG, clips, and resizing by
    `nearest`, `area` or without `antialias` are always `full`."""

    original_size: Annotated[Literal["oriented", "stored"], ALLOW] = "oriented"
    """The size that models which are told sizes (SDXL) hear of a picture: `oriented`, as it is seen, or `stored`,
    height and width as in the file, before its EXIF entry turns it, as MindONE does."""

    small_images: Annotated[Literal["upscale", "skip"], ALLOW] = "upscale"
    """A picture smaller than its bucket: `upscale` enlarges it (counted in the data report), `skip` leaves it out."""

    background: Annotated[str, ALLOW] = "#ffffff"
    """The colour behind transparent pictures, #rrggbb."""

    max_pixels: Annotated[PositiveInt, ALLOW] = 100_000_000
    """Pictures of more pixels are skipped before they are decoded: a defence against decompression bombs."""

    max_skipped: Annotated[Share, FREE] = 0.01
    """The share of unusable files above which a run does not start (at least 20 files are always let pass, unless
    nothing usable is left). The data report names each of them."""

    verify: Annotated[Literal["on_start", "on_first_use"], FREE] = "on_start"
    """When pictures are checked for damage. `on_start` decodes each one when the data set is listed and leaves out
    damaged ones. `on_first_use` hashes each file and reads only its size, orientation and colours, which is much
    faster; `on_corrupt` says what happens when a picture turns out to be damaged at its first use. Clips, and pictures
    other than 8-bit JPEG, PNG and WebP without transparency, are always decoded when the data set is listed."""

    on_corrupt: Annotated[Literal["stop", "zero_weight"], FREE] = "stop"
    """With `verify=use`, what becomes of a run when a picture proves damaged as it is first decoded: `stop` ends it
    with the picture's name; `zero_weight` lets its place count nothing. Order, draws and all other samples stay as they
    are, a step's mean counts its place as before, and the run's progress lists such pictures; more than `max_skipped`
    of them end the run. Held-out pictures, clips and stills beside them always end it."""

    decode_timeout: Annotated[PositiveFloat | None, FREE] = 120.0
    """Seconds that decoding a picture or a mask may take, and that a clip may come no further; null waits for ever.
    What takes longer is left out at the start, by name, and ends a run that has begun (E1233): a file that hangs once
    is no file that always does."""

    captions: CaptionSettings = CaptionSettings()
    """Captions: source, choice, dropout."""

    max_samples: Annotated[PositiveInt | None, ALLOW] = None
    """At most so many samples are used, drawn by (`run.seed`, sample); None uses all. Held-out pictures are among
    them."""

    holdout: HoldoutSettings = HoldoutSettings()
    """Pictures kept for measuring."""

    cache: CacheSettings = CacheSettings()
    """What is encoded once and kept."""

    rating: RatingSettings = RatingSettings()
    """Pictures that are rated."""

    workers: Annotated[int, Field(ge=0, le=256), FREE] = 2
    """Processes that decode pictures ahead of the training; 0 decodes in the training process. The draws do not depend
    on it."""

    prefetch: Annotated[int, Field(gt=0, le=1024), FREE] = 4
    """Batches that each worker keeps ready."""

    epoch_seed: Annotated[Literal["address", "add"], ALLOW] = "address"
    """How an epoch gets its own order: `address` draws it from (seed, epoch); `add` makes epoch e of seed s equal
    epoch 0 of seed s + e, as EveryDream2 does."""

    @model_validator(mode="before")
    @classmethod
    def _usual_of_format(cls, value: Any) -> Any:
        """Fills in what a format has by default and the recipe does not write."""
        if isinstance(value, dict) and isinstance(value.get("format"), str):
            for section, usual in format_spec(value["format"]).usual.items():
                written = value.get(section, {})
                if isinstance(written, dict):
                    value = {**value, section: {**usual, **written}}
        return value

    @field_validator("background")
    @classmethod
    def _is_colour(cls, value: str) -> str:
        if not re.fullmatch(r"#[0-9a-fA-F]{6}", value):
            raise ValueError(f"a colour is written #rrggbb, got {value!r}")
        return value.lower()

    def contradictions(self) -> Iterator[str]:
        if len(self.repeats) not in (1, len(self.path)):
            yield (
                f"data.repeats has {len(self.repeats)} numbers for {len(self.path)} folders; "
                "give one for all or one for each"
            )
        for name, texts in (("trigger", self.captions.trigger), ("template", self.captions.template)):
            if self.path and len(texts) not in (0, 1, len(self.path)):
                yield (
                    f"data.captions.{name} has {len(texts)} texts for {len(self.path)} folders; give one for all or "
                    "one for each"
                )
        spec = format_spec(self.format)
        if any(self.captions.template) and not any(self.captions.trigger) and not spec.has_folder_words:
            yield (
                "data.captions.template has a place for a word, and there is none; write data.captions.trigger, such "
                "as 'sks dog'"
            )
        for fixed in spec.fixed:
            if any(attrgetter(name)(self) != _default(name, spec) for name in fixed.settings):
                yield fixed.sentence.format(name=self.format)
        yield from spec.contradictions(self)
        yield from self._of_other_formats()
        yield from self._about_clips()
        yield from self._about_table()
        yield from self._about_prior()
        if not self.antialias and self.resize not in ("nearest", "bilinear", "bicubic"):
            yield (
                f"data.antialias=false is not for data.resize={self.resize}; set data.resize to bicubic, bilinear or "
                "nearest, or leave data.antialias out"
            )
        if self.cache.text and self.drawn_captions() and self.cache.shuffles == 1:
            yield (
                f"data.cache.text keeps data.cache.shuffles=1 variant of each caption, so that "
                f"{self.drawn_captions()[0]} "
                "would draw once and never again; set data.cache.shuffles above 1, or data.cache.text=false"
            )

    def _of_other_formats(self) -> Iterator[str]:
        for name, spec in formats.specs().items():
            kind, is_used = spec.settings, name in (self.format, self.clips.images_format)
            if kind is not None and not is_used and self.own(kind) != kind():
                yield f"data.{formats.section_of(name)} has no effect without data.format={name}; leave it out"

    def drawn_captions(self) -> list[str]:
        """The settings by which a caption is another one from visit to visit."""
        captions = self.captions
        drawn = {
            "shuffle_tags": captions.shuffle_tags,
            "tag_dropout": captions.tag_dropout > 0,
            "wildcards": captions.wildcards,
        }
        return [f"data.captions.{name}" for name, is_on in drawn.items() if is_on]

    @property
    def of_format(self) -> Section | None:
        """The section that its format alone has; None where it has none."""
        kind = format_spec(self.format).settings
        return None if kind is None else self.own(kind)

    @property
    def has_clips(self) -> bool:
        """Whether samples are clips, so that pixels have frames."""
        return format_spec(self.format).has_clips

    def _about_clips(self) -> Iterator[str]:
        """Settings of clips for pictures, and rules of whole squares for other buckets."""
        if not self.has_clips and self.clips != ClipsSettings():
            yield (
                f"data.clips has no effect with data.format={self.format}, whose samples are pictures; leave it out, "
                "or set data.format=videofolder"
            )
        if self.has_clips and self.clips.buckets and (self.buckets != BucketSettings() or self.resolution != 512):
            yield (
                "data.clips.buckets lists all sizes, so that data.resolution and data.buckets have no effect; leave "
                "them out, or leave out the list"
            )
        if self.resize in ("square-then-bilinear", "bicubic-then-square"):
            yield from self._about_squares()

    def _about_prior(self) -> Iterator[str]:
        if self.prior.balance == "pairs" and self.batch_size % 2:
            yield (
                f"data.prior.balance=pairs makes batches of two halves, and data.batch_size is {self.batch_size}; "
                "write an even number"
            )
        spec = format_spec(self.format)
        if self.prior.num_class_images and not spec.takes_drawn:
            yield f"data.prior.num_class_images needs data.format=image-folder, not {self.format}; use mezzotint sample"
        if self.prior.num_class_images and not (self.prior.class_prompt or self.prior.derived_prompt(self.captions)):
            yield "data.prior.num_class_images: nothing names the class; write data.prior.class_prompt='photo of a dog'"
        yield from self.mask.with_format(self.format, stills=self.clips.images)
        if self.path and len(self.mask.path) not in (0, 1, len(self.path)):
            yield (
                f"data.mask.path has {len(self.mask.path)} folders for {len(self.path)} of data.path; give one for all "
                "or one for each"
            )
        if self.prior.path and self.rating.fraction is not None:
            yield "data.rating.fraction chooses among all pictures, class pictures too; leave out it or data.prior"

    def _about_squares(self) -> Iterator[str]:
        is_square = all(height == width for _, height, width in self.clips.buckets)
        if not self.has_clips or not is_square or not (self.clips.buckets or self.buckets.shape == "square"):
            yield (
                f"data.resize={self.resize} makes squares of clips; set data.format=videofolder and "
                "data.buckets.shape=square, or another data.resize"
            )
        if self.crop != "center":
            yield (
                f"data.crop={self.crop} has no effect with data.resize={self.resize}, which takes the middle square; "
                "set data.crop=center, or another data.resize"
            )

    def _about_table(self) -> Iterator[str]:
        """A resolution that the bucket table cannot be made for."""
        if self.buckets.shape == "table" and self.resolution not in TABLES:
            yield (
                f"data.resolution is {self.resolution}, for which data.buckets.shape=table has no sizes; write one of "
                f"{', '.join(map(str, TABLES))}, or data.buckets.shape=aspect"
            )
        is_made = not (self.has_clips and self.clips.buckets) and self.buckets.shape in ("aspect", "square")
        if is_made and self.resolution % self.buckets.step:
            near, step = nearest_multiples(self.resolution, self.buckets.step), self.buckets.step
            yield f"data.resolution ({self.resolution}) must be a multiple of data.buckets.step ({step}); {near}"


def _default(name: str, spec: FormatSpec) -> object:
    """The value of a setting of `data` where a recipe of this format does not write it."""
    section, _, inside = name.partition(".")
    usual = spec.usual.get(section, {})
    return usual[inside] if inside in usual else attrgetter(name)(DataSettings.model_construct())


for _name, _spec in formats.specs().items():
    DataSettings.add_section(formats.section_of(_name), _spec.settings)
