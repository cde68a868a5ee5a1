"""What a kind of model must be able to do. Shared code asks the family and never which family it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self

from torch import Tensor, nn

from mezzotint.diffusion.forms import Form
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import WeightsError
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.stages import Batch, Condition, Framing, Noised, TextEmbedding
from mezzotint.weights.files.tensor_files import Stored

Prediction = Literal["epsilon", "v", "x0", "edm", "v-edm", "epsilon-unscaled"]
Encodes = Literal["media", "text"]
"""What is asked of a family that is loaded to encode."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The latent grid. channels: of a latent. pixels: per latent, in height and width. frames: per latent, 1 for
    pictures. cell: latents in height and width that the denoiser takes as one, of which sides must be multiples."""

    channels: int
    pixels: int
    frames: int = 1
    cell: int = 1

    @property
    def side(self) -> int:
        """Pixels of which every side of a picture must be a multiple."""
        return self.pixels * self.cell


@dataclass(frozen=True, slots=True)
class Intake:
    """What a model takes of what another trainer has encoded. Latents of `channels`, which become (x − shift) · factor.
    Text of `length` tokens, `width` wide, and `pooled` numbers of its own."""

    channels: int
    factor: float
    shift: float
    length: int
    width: int
    pooled: int


class ModelFamily(ABC):
    """One kind of model: how to load, encode, predict, decode, export.

    Parts are named "denoiser", "text_encoder", "vae", …; a parameter's name is `part/parameter`, whatever the runtime.
    A part that was not loaded is absent from `parts()`, and what needs it raises AssertionError: that is a bug of the
    caller.
    """

    schedule: Schedule
    prediction: Prediction
    grid: Grid
    taught: Form | None = None
    """What training teaches the denoiser, for the export; None is what is usual for `prediction`."""
    trainable: ClassVar[tuple[str, ...]] = ("denoiser",)
    """Parts that can be trained."""
    text_parts: tuple[str, ...] = ("text_encoder",)
    """Parts that make text embeddings: of the class, all that its models may have; of a model, those it has."""
    learns_variance: bool = False
    """Whether the denoiser's output has a second half that says how uncertain the step back is."""
    file_styles: ClassVar[frozenset[str]] = frozenset()
    """How parts of a model are written as one file, by `export_parts`: "safetensors", "mindspore"."""
    zeros_for_empty: bool = False
    """Whether guidance moves away from zeros, and not from an empty caption, where there is no negative prompt."""
    notes: tuple[str, ...] = ()
    """Sentences for the reader about what was met in the model's files."""

    @classmethod
    @abstractmethod
    def load(cls, settings: ModelSettings, only: Collection[str] | None = None, *, seed: int = 0) -> Self:
        """Reads the model's files on the CPU in float32, eval mode; only the parts named, all by default. A part that
        models of the family may have and this one has not is passed over.

        settings.path must be resolved. seed: of random weights, where settings.weights asks for them.
        Raises WeightsError naming the file, what was found in it, and what to do.
        """

    @classmethod
    def stored_parts(
        cls, settings: ModelSettings, parts: Mapping[str, nn.Module]
    ) -> Mapping[str, Stored | None] | None:
        """The weights of each part under its network's names, opened by headers; of a part that has none, None.

        parts: as `described` makes them. None for models in diffusers' layout, or in one file of Stable Diffusion's,
        whose files are looked at as such. Raises WeightsError.
        """
        return None

    @classmethod
    def described(cls, settings: ModelSettings) -> Self:
        """A model of its configurations alone, with random weights, whatever files there are: to be counted, where
        memory is not given. An autoencoder from elsewhere is taken to be as large as the model's own."""
        config = settings.config if settings.path.is_file() else None
        update = {"weights": "random", "vae": None, "path": settings.described_by, "config": config}
        return cls.load(settings.model_copy(update=update))

    @classmethod
    @abstractmethod
    def tiny(cls, seed: int = 0) -> Self:
        """A random model of this structure with under a million parameters, for tests and measurements."""

    @abstractmethod
    def parts(self) -> Mapping[str, nn.Module]:
        """The loaded parts by name."""

    @classmethod
    @abstractmethod
    def fingerprint(cls, settings: ModelSettings, part: str, *, seed: int = 0) -> str:
        """64 hexadecimal digits that name a part's weights and configuration, from its files, without loading the
        part. "schedule" (noise schedule and prediction) and "tokenizer" are asked for like parts. A part that the
        model has not has a name, too."""

    @classmethod
    @abstractmethod
    def text_identity(cls, settings: ModelSettings, *, seed: int = 0) -> str:
        """What a text embedding depends on besides the caption: tokenizer, encoder weights, clip skip, token length.
        One line of text."""

    @classmethod
    @abstractmethod
    def media_identity(cls, settings: ModelSettings, *, seed: int = 0) -> str:
        """What latents depend on besides the placed pixels: VAE weights and configuration, scaling, tiling. One line
        of text."""

    @classmethod
    def text_shape(cls, settings: ModelSettings) -> tuple[int, int] | None:
        """Tokens and width of the text that the denoiser is told, from its configuration, where no encoder has to be
        asked; None otherwise. Embeddings that were made elsewhere are held to it."""
        return None

    @abstractmethod
    def encode_media(self, pixels: Tensor) -> Tensor:
        """Pixels (B, 3, H, W) in [−1, 1] → posterior moments (B, 2C, h, w) float32: scaled mean, then scaled standard
        deviation. No gradient."""

    @abstractmethod
    def decode_media(self, latents: Tensor) -> Tensor:
        """Scaled latents (B, C, h, w) → pixels (B, 3, H, W) float32 in [−1, 1], clamped. No gradient."""

    @abstractmethod
    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """Captions → embeddings, (B, L, D). Carries a gradient when the text encoder is trained and grad is enabled."""

    @classmethod
    def intake(cls, settings: ModelSettings) -> Intake | None:
        """What the model takes of latents and texts that another trainer has encoded; None where nothing is known that
        makes such. Loads nothing. Raises WeightsError."""
        return None

    def skip_layers(self, count: int) -> None:
        """Leaves out so many of the text encoder's last layers from now on, as `model.clip_skip` does. Raises
        WeightsError E1409 where that cannot be."""
        raise WeightsError("model.clip_skip has no meaning for this family of models; leave it out", code="E1409")

    def lost_tokens(self, captions: Sequence[str]) -> tuple[int, ...]:
        """How many tokens of each caption do not fit and are cut off; 0 where all fit."""
        return tuple(0 for _ in captions)

    @abstractmethod
    def condition(self, text: TextEmbedding, batch: Batch | None, framing: Framing | None = None) -> Condition:
        """What the denoiser is told. batch: of training, whose sizes it is told where it knows sizes; None while
        sampling, of pictures that `framing` describes: None is whole ones of the model's own size."""

    @abstractmethod
    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """The denoiser's output, in the shape of x_t."""

    @abstractmethod
    def blocks(self) -> Iterator[tuple[nn.Module, ...]]:
        """Units to shard, recompute and compile, from the input to the output; each tuple belongs together."""

    @abstractmethod
    def export(
        self,
        folder: Path,
        *,
        settings: ModelSettings,
        weights: Mapping[str, Tensor],
        dtype: Literal["fp32", "fp16", "bf16"],
        schedule: Schedule,
        prediction: Prediction,
    ) -> None:
        """Writes a complete model folder (which must not exist) that the model's usual reader opens offline.

        weights: trained tensors by `part/parameter`, which take the place of the base's; parts that are not among them
        are copied from settings.path as they are, or written from memory when they were random. Every file is synced.
        Nothing of this machine's paths enters the files.
        """

    def export_parts(
        self,
        file: Path,
        parts: Sequence[str],
        *,
        weights: Mapping[str, Tensor],
        dtype: Literal["fp32", "fp16", "bf16"],
    ) -> None:
        """Writes some parts of the model whole, as one file under the names that single files of its kind have; `.ckpt`
        is a checkpoint of MindSpore's. weights: as for `export`. Asked of families with `file_styles` alone."""
        raise AssertionError("this family writes whole folders")


def posterior_sample(moments: Tensor, eps: Tensor) -> Tensor:
    """Latents from posterior moments: mean + std · ε. moments: (B, 2C, …); eps: (B, C, …) standard normal. Returns (B,
    C, …)."""
    mean, std = moments.chunk(2, dim=1)
    return mean + std * eps
