"""The values of the training pipeline, in the order a sample meets them: file → Sample → Placement → Batch → Condition
→ Noised → Loss → StepReport.

Shapes: `(B, C, H, W)` images, `(B, C, F, H, W)` clips, `(B, L, D)` text; lower-case `h, w, f` in latent units. Pixels
are in [−1, 1]. torch is imported only for type checking, so that data planning does not import it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.shapes import Size

if TYPE_CHECKING:
    from torch import Tensor, device


@dataclass(frozen=True, slots=True)
class Sample:
    """One image or clip with its captions, as a dataset format yields it. Used only at the format's interface: a
    catalogue stores columns.

    key: unique and stable within the data set (a path relative to its root); every loader draw is addressed by it.
    captions: one or more; each visit draws one. size: None if it is only known after decoding. repeats: how often a
    sample is visited in an epoch, a fraction is a probability. weight: factor of its loss. group: samples with one name
    are batched together. overrides: settings of this sample ("caption_dropout": "0.1").
    """

    key: str
    media: Path
    captions: tuple[str, ...]
    size: Size | None = None
    repeats: float = 1.0
    weight: float = 1.0
    group: str = ""
    overrides: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Epoch:
    """The batches of one epoch: data, computed by a pure function of (catalogue, settings, seed, epoch).

    Batch b has the visits `order[starts[b]:starts[b + 1]]`, all of bucket `bucket[b]`; it belongs to the optimizer step
    `step_of[b]` of the epoch. order: int32 (n,), rows of the catalogue. visit: int32 (n,), how often the epoch has used
    that row before. starts: int64 (m+1,). step_of: int32 (m,). bucket: int16 (m,). factor: float32 (n,), weight of a
    visit's loss (0 < factor ≤ 1; below 1 for discounted repeats). left_out: visits that the remainder policy dropped.
    filled: visits that were repeated to fill a batch.
    """

    epoch: int
    order: NDArray[np.int32]
    visit: NDArray[np.int32]
    starts: NDArray[np.int64]
    step_of: NDArray[np.int32]
    bucket: NDArray[np.int16]
    factor: NDArray[np.float32]
    left_out: int = 0
    filled: int = 0

    @property
    def num_batches(self) -> int:
        return len(self.bucket)

    @property
    def num_steps(self) -> int:
        return int(self.step_of[-1]) + 1 if len(self.step_of) else 0


@dataclass(frozen=True, slots=True)
class Placement:
    """The position of an image in its bucket: resized to `resized`, cropped to `bucket` at `crop_top_left` (row,
    column), then flipped."""

    bucket: Size
    resized: Size
    crop_top_left: tuple[int, int]
    flipped: bool = False


@dataclass(frozen=True, slots=True)
class TextEmbedding:
    """The output of text encoders for captions. states: (B, L, D). mask: (B, L), 1 for tokens that count, or None.
    pooled: (B, P) or None. lengths: with a mask, the number of tokens that count for each text, B numbers on the host,
    which saves reading them back from a device; None if they were not counted."""

    states: Tensor
    mask: Tensor | None = None
    pooled: Tensor | None = None
    lengths: tuple[int, ...] | None = None

    def to(self, target: device | str) -> TextEmbedding:
        """A copy on a device."""
        mask, pooled = (None if t is None else t.to(target) for t in (self.mask, self.pooled))
        return replace(self, states=self.states.to(target), mask=mask, pooled=pooled)

    def zero_samples(self, dropped: Tensor | None) -> TextEmbedding:
        """Zeros for some samples, states and pooled. dropped: (B,) bool, or None for none of them."""
        if dropped is None:
            return self
        pooled = None if self.pooled is None else self.pooled.masked_fill(dropped[:, None], 0.0)
        return replace(self, states=self.states.masked_fill(dropped[:, None, None], 0.0), pooled=pooled)


@dataclass(frozen=True, slots=True)
class ConditionImages:
    """The images of one condition (`data.conditions`) for the samples of a batch. Exactly one of pixels (B, 3, H, W) in
    [−1, 1] and latents (B, C, h, w; the posterior's mean, scaled; or as cached of first frames, see
    `diffusion.first_frame`) is present. is_kept: (B,) bool; the model gets zeros
    for a sample whose image is missing or dropped. whole: the B images as a text encoder sees them, uint8 (3, H, W) of
    any size on the host, None for a missing or dropped one; empty if it sees none, or if embeddings are cached."""

    pixels: Tensor | None
    latents: Tensor | None
    is_kept: Tensor
    whole: tuple[Tensor | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples of one bucket, on their way to the device. B is the number of samples on this rank; all B may be 0 at the
    end of an epoch.

    keys, captions: B texts (the caption after selection and dropout). positions: (B,) int64 on the host, positions in
    the step's global batch, which address noise and timestep. Exactly one of pixels (B, 3, H, W) or (B, 3, F, H, W) in
    [−1, 1], moments (B, 2C, …; scaled mean and standard deviation of the latent posterior, one after the other) and
    latents (B, C, …; scaled) is present. posterior_keys: (B,) int64, address of the posterior sample. text: cached
    embeddings, or None. original_size, crop_top_left, target_size: (B, 2) int64, height (row) first. weight: (B,)
    float32. dropped: (B,) bool, samples whose text embedding is set to zeros; None for none. is_class: (B,) bool, class
    images (`data.prior`); None if the run has none. mask: the parts that count (`data.mask`), uint8 (B, H, W) of
    pixels, or float32 (B, h, w) in [0, 1] as cached; None if the run has no masks. is_filler: one sample of weight 0
    from another process (padding batch), for a process that has none when all must compute together; it is ignored in
    all sums. conditions: the condition images by name; empty if the run has none. region: of an inpainting model, the
    part that is to be filled (`data.inpaint`), uint8 (B, H, W), 255 inside; None for other models. preserved_captions:
    B captions for which the base's prediction is preserved (`objective.preserve`), equal to the caption of a sample for
    which nothing is; empty without preservation. is_preserved: bool (B,), whether they differ, or None.
    preserved_text: their cached embeddings, or None.

    stills: the images joined to clips, I of them for each, or None. They are B · I samples with their own keys and
    captions, those of clip b at b · I … b · I + I − 1; pixels (B·I, 3, H, W) with the clips' height and width;
    positions and weight are those of their clip, whose timestep they share.
    """

    keys: tuple[str, ...]
    captions: tuple[str, ...]
    positions: Tensor
    posterior_keys: Tensor
    original_size: Tensor
    crop_top_left: Tensor
    target_size: Tensor
    weight: Tensor
    pixels: Tensor | None = None
    moments: Tensor | None = None
    latents: Tensor | None = None
    text: TextEmbedding | None = None
    joined_images: Batch | None = None
    is_filler: bool = False
    dropped: Tensor | None = None
    is_class: Tensor | None = None
    mask: Tensor | None = None
    conditions: Mapping[str, ConditionImages] = field(default_factory=dict)
    region: Tensor | None = None
    preserved_captions: tuple[str, ...] = ()
    is_preserved: Tensor | None = None
    preserved_text: TextEmbedding | None = None

    @property
    def size(self) -> int:
        """B, the number of samples on this rank."""
        return len(self.keys)

    @property
    def num_elements(self) -> int:
        """Numbers in its images and condition images: how much there is to compute, to compare batches of a run."""
        images = [self, self.joined_images, *self.conditions.values()]
        tensors = [getattr(one, name, None) for one in images for name in ("pixels", "moments", "latents")]
        return sum(tensor.numel() for tensor in tensors if tensor is not None)

    def rows(self, start: int, stop: int) -> Batch:
        """A batch of some of its samples: views of its tensors."""

        def of(value: Any) -> Any:
            if value is None or isinstance(value, bool):
                return value
            if isinstance(value, Batch):  # the images joined to each clip
                each = value.size // self.size
                return value.rows(start * each, stop * each)
            if isinstance(value, Mapping):
                return {name: of(one) for name, one in value.items()}
            if isinstance(value, (TextEmbedding, ConditionImages)):
                return replace(value, **{field.name: of(getattr(value, field.name)) for field in fields(value)})
            return value[start:stop]

        return replace(self, **{field.name: of(getattr(self, field.name)) for field in fields(self)})


@dataclass(frozen=True, slots=True)
class StepBatches:
    """All batches of one optimizer step, this rank's share of each. count: samples of the step on all ranks, from the
    plan. ends_epoch: whether the step is the last of its epoch. has_classes: whether the run has class images. broken:
    keys of samples with weight 0, because their files turned out to be damaged.

    batches: iterated again when a step is repeated. Each is moved to the device when it is taken, so that only one
    micro-batch is there: release it before the next. sizes: samples of each.
    """

    step: int
    epoch: int
    count: int
    batches: Iterable[Batch]
    wait_seconds: float = 0.0
    sizes: tuple[int, ...] = ()
    ends_epoch: bool = False
    has_classes: bool = False
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Framing:
    """Size conditioning: which part of which image is generated, with the fields of `Batch`.

    original_size, crop_top_left, target_size: (B, 2) int64, height (row) first. negative: (B,) bool, the unconditional
    half of guidance; None for none of them. aesthetic_score: (B,) float32, for models with that input; None is the
    model's default. guidance: (B,) float32, the guidance scale for models with that input; None is that of training.
    """

    original_size: Tensor
    crop_top_left: Tensor
    target_size: Tensor
    negative: Tensor | None = None
    aesthetic_score: Tensor | None = None
    guidance: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """The denoiser's inputs in addition to the noisy latents. vector: (B, V) float32, numbers in addition to the text:
    for SDXL sizes in pixels, as the network embeds them. masks: by name, defined by the family. images: latents
    (B, C, h, w) of condition images by name, scaled, with zeros for missing ones; their order counts for models that
    take any number. Models that inpaint or animate have those of `diffusion.inpainting` and `diffusion.first_frame`."""

    text: TextEmbedding
    joined_images: TextEmbedding | None = None
    vector: Tensor | None = None
    masks: dict[str, Tensor] = field(default_factory=dict)
    images: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Noised:
    """Noisy latents. x_0, noise, x_t: (B, C, …). model_input: x_t after input scaling. model_t: (B,) the model's time
    input; level: (B,) t or sigma. has_first_frame: (B,) bool, clips with first-frame conditioning, whose first latent
    frame has no noise; None for none of them. host_level: (B,) the same as `level` on the host, if it was drawn there;
    None otherwise."""

    x_0: Tensor
    noise: Tensor
    x_t: Tensor
    model_input: Tensor
    model_t: Tensor
    level: Tensor
    has_first_frame: Tensor | None = None
    host_level: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """per_sample: (B,) float32, before weighting. weight: (B,) float32, timestep weight × sample weight. preserved:
    (B,) float32, the weighted distance to the base's prediction (`objective.preserve`) of each sample; None without."""

    per_sample: Tensor
    weight: Tensor
    preserved: Tensor | None = None

    @property
    def total(self) -> Tensor:
        """The weighted sum over the batch; the trainer divides by the step's sample count."""
        total = (self.per_sample * self.weight).sum()
        return total if self.preserved is None else total + self.preserved.sum()


@dataclass(frozen=True, slots=True)
class StepReport:
    """The results of one step, read by the host one step later, so that no step waits for its own numbers.

    loss: weighted mean over all samples of the step on all ranks. norm: gradient norm before clipping (all trained
    parts together). rates: learning rate by parameter group. applied: whether weights were updated. overflow: an fp16
    overflow (handled by the loss scaler). keys, timesteps, losses: of every sample on this rank, in order. seconds:
    wall time of the step; wait_seconds: of it, waiting for data. group_losses: "instance" and "class", if there are
    class images: the mean over those of the step on all ranks, weighted separately, so `data.prior.weight` is not
    included; "preserve", if the base's predictions are preserved: the mean of that part of the loss. num_elements: of
    the batches on this process, see `Batch.num_elements`.
    """

    step: int
    epoch: int = 0
    loss: float = math.nan
    norm: float = math.nan
    rates: dict[str, float] = field(default_factory=dict)
    samples: int = 0
    seconds: float = 0.0
    wait_seconds: float = 0.0
    applied: bool = True
    overflow: bool = False
    keys: tuple[str, ...] = ()
    timesteps: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    memory_bytes: int = 0
    loss_scale: float = 1.0
    group_losses: dict[str, float] = field(default_factory=dict)
    num_elements: int = 0

    @property
    def images_per_s(self) -> float:
        """Samples per second, on all processes."""
        return self.samples / max(self.seconds, 1e-9)

    @property
    def data_wait(self) -> float:
        """Fraction of the time spent waiting for data, 0 to 1."""
        return min(1.0, self.wait_seconds / max(self.seconds, 1e-9))
