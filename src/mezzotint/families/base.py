"""The interface of a model family. Shared code asks the family for what it needs, never which family it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from mezzotint.diffusion import inpainting, noise
from mezzotint.diffusion.first_frame import FIRST_FRAME
from mezzotint.diffusion.objective import StepDraws
from mezzotint.diffusion.parameterization import Parameterization
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import WeightsError
from mezzotint.settings.families.base import FamilySpec, is_denoiser
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.shapes import Size, TextImages
from mezzotint.stages import Batch, Condition, Framing, Noised, TextEmbedding
from mezzotint.weights.folder.components import DTypeName
from mezzotint.weights.layer_streaming import LayerStreamer
from mezzotint.weights.low_bit import FLOAT32, WeightForm
from mezzotint.weights.model_files import ModelFiles, Prediction, converting_config_errors

Encodes = Literal["media", "text"]
"""What a family is loaded to encode."""
FromMoments = Literal["sample", "mean"]
"""How latents are taken from an autoencoder's moments."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The latent grid. channels: of a latent. pixels: per latent, in height and width. frames: per latent, 1 for
    images. cell: height and width of a token in latents; sides must be multiples of it. exact: whether clips must have
    n · `frames` + 1 frames. least_frames: of a clip; above 1 for models that are not trained with images."""

    channels: int
    pixels: int
    frames: int = 1
    cell: int = 1
    exact: bool = False
    least_frames: int = 1

    @property
    def side(self) -> int:
        """Pixels of which every side of an image must be a multiple."""
        return self.pixels * self.cell

    def refusal(self, size: Size, *, clips: bool) -> str:
        """The reason why batches of a size cannot be trained; "" if they can. clips: whether they have frames."""
        if size.frames < self.least_frames:
            what = f"clips of {size.frames} frame{'s' * (size.frames > 1)}" if clips else "images"
            write = "" if clips else "data.format=videofolder and "
            return (
                f"{what} cannot be trained: this model continues the first frame of a clip; write "
                f"{write}data.clips.frames={self.least_frames} or more"
            )
        if clips and self.exact and (size.frames - 1) % self.frames:
            below = size.frames - (size.frames - 1) % self.frames
            return (
                f"clips of {size.frames} frames cannot be trained: this model needs {self.frames}n + 1 frames; write "
                f"data.clips.frames={below} or {below + self.frames}"
            )
        if size.width % self.side or size.height % self.side:
            return (
                f"batches of {size.width}×{size.height} cannot be trained: this model needs sides that are multiples "
                f"of {self.side}; write data.buckets.step={self.side} or a multiple of it, and a data.resolution or "
                "sides of data.clips.buckets that are multiples of it"
            )
        return ""


class ModelFamily(ABC):
    """A kind of model: how to load, encode, predict, decode and export it. Its files are read by `ModelFiles`.

    Parts are named "denoiser", "text_encoder", "vae", …; a parameter's name is `part/parameter` in every runtime. A
    part that was not loaded is absent from `parts()`; methods that need it raise AssertionError, which is a bug in the
    caller.
    """

    spec: ClassVar[FamilySpec]
    files: ClassVar[type[ModelFiles]]
    """Opens the files of the family's models."""
    schedule: Schedule
    prediction: Prediction
    grid: Grid
    _parts: Mapping[str, nn.Module]
    text_parts: tuple[str, ...] = ("text_encoder",)
    """The text encoders that this model has."""
    learns_variance: bool = False
    """Whether `predict` gives a second half of channels that says how uncertain the step back is, which is trained."""
    zeros_for_empty: bool = False
    """Whether zeros, not an empty caption, are the unconditional embedding where there is no negative prompt."""
    takes_guidance: bool = False
    """Whether the guidance scale is an input of the denoiser (guidance distillation); the negative prompt is then not
    used."""
    no_guidance: float = 1.0
    """The guidance scale that has no effect."""
    takes_first_frame: bool = False
    """Whether the denoiser supports first-frame conditioning."""
    layer_streamer: LayerStreamer | None = None
    """Streams the text encoders' layers when they are not kept in memory; otherwise None."""
    notes: tuple[str, ...] = ()
    """Notes for the user about the model's files."""

    @abstractmethod
    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        """parts: the loaded networks. The files are not kept."""

    @classmethod
    def load(
        cls, files: ModelFiles, only: Collection[str] | None = None, forms: Mapping[str, WeightForm] | None = None
    ) -> Self:
        """Reads the model's files on the CPU, eval mode; only the named parts, all by default. forms: in which form
        parts are stored; float32 for the others. A part that this model of the family lacks is skipped. Raises
        WeightsError naming the file, what is in it, and what to do."""
        assert only is None or set(only) <= set(cls.spec.parts), only
        parts = [part for part in files.parts if only is None or part in only]
        networks = {part: files.network(part, (forms or {}).get(part, FLOAT32)) for part in parts}
        with converting_config_errors(files.settings.config_source):
            return cls(files, networks)

    @classmethod
    def of(cls, settings: ModelSettings, only: Collection[str] | None = None, *, seed: int = 0) -> Self:
        """Opens the files of a model and loads it."""
        return cls.load(cls.files.of(settings, seed), only)

    @classmethod
    def tiny(cls, seed: int = 0) -> Self:
        """A random model of this structure with under a million parameters, for tests and measurements."""
        return cls.load(cls.files.tiny(seed))

    def parts(self) -> Mapping[str, nn.Module]:
        """The loaded parts by name."""
        return self._parts

    @property
    def denoisers(self) -> tuple[nn.Module, ...]:
        """The loaded denoisers: one, or in some models one for high noise and one for low noise."""
        return tuple(module for name, module in self.parts().items() if is_denoiser(name))

    @property
    def native_size(self) -> Size | None:
        """The native size of the denoiser's images or clips; None if its configuration has none."""
        config = getattr(self.denoisers[0], "config", None)
        side = getattr(config, "sample_size", None)
        sides = side if isinstance(side, (list, tuple)) else (side, side)
        if len(sides) != 2 or not all(isinstance(side, int) for side in sides):
            return None
        frames = (int(getattr(config, "video_length", 1)) - 1) * self.grid.frames + 1
        height, width = (int(side) * self.grid.pixels for side in sides)
        return Size(width, height, frames)

    @abstractmethod
    def encode_media(self, pixels: Tensor) -> Tensor:
        """Pixels (B, 3, H, W) in [−1, 1] → posterior moments (B, 2C, h, w) float32: scaled mean, then scaled standard
        deviation. No gradient."""

    condition_names: tuple[str, ...] = ()
    """The condition images that the denoiser takes, see `ModelFiles.condition_names`."""
    min_conditions: int | None = None
    """See `ModelFiles.min_conditions`."""
    text_images: TextImages | None = None
    """How the text encoder sees condition images, see `ModelFiles.text_images`."""
    inpaints: bool = False
    """Whether the denoiser fills a region of an image, see `ModelFiles.inpaints`."""
    animates: bool = False
    """Whether the denoiser continues a clip's first frame, see `ModelFiles.animates`."""
    vision_numbers: int = 0
    """How many numbers `encode_first_frames` returns of each frame as `VISION`; 0 without an image encoder."""
    guides_images: bool = False
    """Whether condition images have a guidance scale of their own."""

    def encode_first_frames(self, images: Tensor, frames: int) -> dict[str, Tensor]:
        """What a denoiser that `animates` is given of the first frames (B, 3, H, W) in [−1, 1] of clips of `frames`
        frames: `diffusion.first_frame.FIRST_FRAME`, and of some models `VISION`; float32. No gradient."""
        raise AssertionError("this model does not continue a first frame")

    @abstractmethod
    def decode_media(self, latents: Tensor) -> Tensor:
        """Scaled latents (B, C, h, w) → pixels (B, 3, H, W) float32 in [−1, 1], clamped. No gradient."""

    @abstractmethod
    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """Captions → embeddings, (B, L, D). Differentiable when the text encoder is trained and grad is enabled."""

    def encode_text_with_images(
        self, captions: Sequence[str], images: Sequence[Sequence[Tensor | None]]
    ) -> TextEmbedding:
        """`encode_text` with the condition images of each caption, for a text encoder that sees them (`text_images`);
        others ignore them. images: for each caption uint8 (3, H, W), None for a missing one; each has as many. An
        embedding does not depend on the others."""
        return self.encode_text(captions)

    def _part(self, name: str) -> Any:
        assert name in self._parts, f"{name} was not loaded"
        return self._parts[name]

    def skip_layers(self, count: int) -> None:
        """Skips the text encoder's last `count` layers from now on, as `model.clip_skip` does. Raises WeightsError
        E1409 if that is impossible."""
        raise WeightsError("model.clip_skip does not apply to this model family; remove it", code="E1409")

    def add_learned_tokens(
        self, initial_words: Mapping[str, str], vectors: int, rows: Mapping[str, Mapping[str, Tensor]]
    ) -> None:
        """Adds learned tokens (textual inversion) to the loaded text encoders; `parts()` then has their embeddings as
        "tokens". Only for families that train "tokens".

        initial_words: of each new token, which has `vectors` embeddings. rows: embeddings of further tokens, (n, D) by
        text encoder. Raises WeightsError E1470 for a name that is a token already, E1472 for embeddings of other
        encoders.
        """
        raise AssertionError("this family has no learned tokens")

    def learned_embeddings(self, weights: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """The embeddings (n, D) of each learned word by text encoder; empty if there are no learned tokens. weights:
        trained tensors by `part/parameter`, which replace the loaded ones."""
        return {}

    def lost_tokens(self, captions: Sequence[str]) -> tuple[int, ...]:
        """The number of tokens of each caption that are truncated; 0 if all fit."""
        return tuple(0 for _ in captions)

    def token_counts(self, captions: Sequence[str]) -> tuple[tuple[int, ...], int]:
        """The number of tokens of each caption, with start and end tokens, and the limit of the text encoder that
        `lost_tokens` uses; ((), 0) without a tokenizer."""
        return (), 0

    def condition(self, text: TextEmbedding, batch: Batch | None, framing: Framing | None = None) -> Condition:
        """The denoiser's conditioning: the text with its mask, if any; some families add more. batch: of training,
        whose sizes condition denoisers that take sizes; None while sampling. framing: the images to sample; None for
        uncropped images in the model's native size."""
        return Condition(text)

    @abstractmethod
    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """The denoiser's output, in the shape of x_t."""

    def training_input(self, noised: Noised, drawn: StepDraws) -> Noised:
        """The denoiser's input in training, with first-frame conditioning where the family uses it."""
        return noised

    def guide(self, away: Tensor, towards: Tensor, scale: float) -> Tensor:
        """Classifier-free guidance, of the outputs for the negative texts and for the texts."""
        return away + scale * (towards - away)

    def refuse_guidance(self, scale: float) -> None:
        """Raises RecipeError E1220 for a guidance scale that the model does not support."""
        return

    @abstractmethod
    def blocks(self) -> Iterator[tuple[nn.Module, ...]]:
        """Units for sharding, activation checkpointing and compilation, from input to output; the modules of a tuple
        form a unit."""

    @abstractmethod
    def export(
        self,
        folder: Path,
        files: ModelFiles,
        *,
        weights: Mapping[str, Tensor],
        dtype: DTypeName,
        schedule: Schedule,
        trained_form: Parameterization,
    ) -> None:
        """Writes a complete model folder (which must not exist) that the model's usual reader opens offline.

        files: those it was loaded from. weights: trained tensors by `part/parameter`, which replace those of the base
        model; other parts are copied as files, or written from memory if they were random. schedule, trained_form: as
        the denoiser was trained. Every file is synced. The files contain no paths of this machine.
        """

    def export_parts(
        self, file: Path, parts: Sequence[str], files: ModelFiles, *, weights: Mapping[str, Tensor], dtype: DTypeName
    ) -> None:
        """Writes some parts of the model to one file, with the tensor names of its single-file checkpoints, in the
        format of the file's suffix. weights: as for `export`. Only for families with a `spec.layout`."""
        raise AssertionError("this family writes only folders")


def cast_like_parameters(tensor: Tensor, module: nn.Module) -> Tensor:
    """The tensor on the device and in the dtype of a network's parameters."""
    like = next(module.parameters())
    return tensor.to(like.device, like.dtype)


def full_state(
    files: ModelFiles, parts: Mapping[str, nn.Module], weights: Mapping[str, Tensor], part: str
) -> dict[str, Tensor]:
    """All tensors of a part; those in `weights`, by `part/parameter`, replace the loaded model's."""
    trained = {name.removeprefix(f"{part}/"): t for name, t in weights.items() if name.startswith(f"{part}/")}
    base = (parts.get(part) or files.network(part)).state_dict()
    if any(n not in trained and _differs_from_file(t) for n, t in base.items()):
        base = files.network(part).state_dict()  # tensors that are not trained stay bitwise identical to the file
    assert trained.keys() <= base.keys(), sorted(trained.keys() - base.keys())
    return {**base, **trained}


def _differs_from_file(tensor: Tensor) -> bool:
    """Whether a tensor differs from the file: this process has only a shard of it, its values are offloaded to the
    host, or it is rounded."""
    is_shard = type(tensor) is not Tensor  # a DTensor, whose module takes long to import
    is_offloaded = not is_shard and tensor.numel() > 0 and tensor.untyped_storage().nbytes() == 0
    return is_shard or is_offloaded or (tensor.is_floating_point() and tensor.dtype.itemsize < 4)


def posterior_sample(moments: Tensor, eps: Tensor) -> Tensor:
    """Latents from posterior moments: mean + std · ε. moments: (B, 2C, …); eps: (B, C, …) standard normal. Returns (B,
    C, …)."""
    mean, std = moments.chunk(2, dim=1)
    return mean + std * eps


def sample_latents(moments: Tensor, addresses: Tensor) -> Tensor:
    """Latents (B, C, …) from posterior moments (B, 2C, …), each with the ε at its address. addresses: (B,) int64, on
    any device."""
    shape = (moments.shape[1] // 2, *moments.shape[2:])
    return posterior_sample(moments, noise.normal(addresses.to(moments.device, non_blocking=True), shape))


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copies a host tensor to a device through page-locked memory, so the host does not wait for the device's queue."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def batch_latents(family: ModelFamily, batch: Batch, device: torch.device, posterior: FromMoments = "sample") -> Tensor:
    """x_0 of a batch (B, C, …), scaled: cached latents, a sample or the mean of cached moments, or encoded pixels. No
    gradient.

    With B·I images joined to the clips, in the order of the samples, (B, C, f + I, h, w): the clip's frames, then its
    images.
    """
    x_0 = _latents_of_batch(family, batch, device, posterior)
    if batch.joined_images is None or not batch.size:
        return x_0
    joined_images = _latents_of_batch(family, batch.joined_images, device, posterior)
    joined_images = joined_images if joined_images.ndim == x_0.ndim else joined_images[:, :, None]
    return torch.cat([x_0, joined_images.unflatten(0, (len(x_0), -1)).transpose(1, 2).flatten(2, 3)], dim=2)


def condition_latents(family: ModelFamily, batch: Batch, device: torch.device) -> dict[str, Tensor]:
    """The latents (B, C, h, w) of a batch's condition images by name: the posterior's mean, scaled; zeros for missing
    ones. With a region to fill also those of `diffusion.inpainting`, for a model that animates those of
    `diffusion.first_frame`, of each clip's own first frame. No gradient."""
    latents: dict[str, Tensor] = {}
    for name, images in batch.conditions.items():
        mean = images.latents
        if mean is None:
            assert images.pixels is not None
            mean = family.encode_media(images.pixels.to(device, non_blocking=True)).chunk(2, dim=1)[0]
        kept = images.is_kept.to(device, non_blocking=True)
        latents[name] = mean.to(device, non_blocking=True) * kept.view(-1, *[1] * (mean.ndim - 1))
    if batch.region is not None:
        assert batch.pixels is not None, "latents of images with regions to fill are not cached"
        pixels = batch.pixels.to(device, non_blocking=True)
        latents |= encode_inpainting(family, pixels, batch.region.to(device, non_blocking=True))
    if family.animates and FIRST_FRAME not in latents:
        assert batch.pixels is not None, "the cache of a model that animates has its first frames"
        first = batch.pixels[:, :, 0].to(device, non_blocking=True)
        latents |= family.encode_first_frames(first, batch.pixels.shape[2])
    return latents


def batch_text(family: ModelFamily, batch: Batch) -> TextEmbedding:
    """The embeddings of a batch's captions by the text encoder, with the condition images that it sees."""
    whole = [images.whole for images in batch.conditions.values() if images.whole]
    each = list(zip(*whole, strict=True)) if whole else [()] * batch.size
    return family.encode_text_with_images(batch.captions, each)


def encode_inpainting(family: ModelFamily, pixels: Tensor, region: Tensor) -> dict[str, Tensor]:
    """What an inpainting model is given of images (B, 3, H, W) in [−1, 1] with regions to fill (B, H, W) in [0, 255]:
    see `inpainting.MASK`; of the posterior the mean."""
    filled = inpainting.binarize(region)
    masked = inpainting.remove_region(pixels, filled)
    mean = family.encode_media(masked).chunk(2, dim=1)[0]
    return {inpainting.MASK: filled, inpainting.MASKED_IMAGE: mean}


def _latents_of_batch(family: ModelFamily, batch: Batch, device: torch.device, posterior: FromMoments) -> Tensor:
    if batch.latents is not None:
        return batch.latents.to(device, non_blocking=True)
    if batch.moments is not None:
        moments = batch.moments.to(device, non_blocking=True)
    else:
        assert batch.pixels is not None
        moments = family.encode_media(batch.pixels.to(device, non_blocking=True))
    return moments.chunk(2, dim=1)[0] if posterior == "mean" else sample_latents(moments, batch.posterior_keys)
