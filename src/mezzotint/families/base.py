"""What a kind of model must be able to do. Shared code asks the family and never which family it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from mezzotint.diffusion import noise
from mezzotint.diffusion.objective import StepDraws
from mezzotint.diffusion.parameterization import Parameterization
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import WeightsError
from mezzotint.settings.families.base import FamilySpec, is_denoiser
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.shapes import Size
from mezzotint.stages import Batch, Condition, Framing, Noised, TextEmbedding
from mezzotint.weights.folder.components import DTypeName
from mezzotint.weights.layers_in_turn import LayersInTurn
from mezzotint.weights.low_bit import FLOAT32, WeightForm
from mezzotint.weights.model_files import ModelFiles, Prediction, configured

Encodes = Literal["media", "text"]
"""What is asked of a family that is loaded to encode."""
FromMoments = Literal["sample", "mean"]
"""What becomes of an autoencoder's moments."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The latent grid. channels: of a latent. pixels: per latent, in height and width. frames: per latent, 1 for
    pictures. cell: latents in height and width that the denoiser takes as one, of which sides must be multiples. exact:
    whether clips must fill their latents, with n times `frames` and one more."""

    channels: int
    pixels: int
    frames: int = 1
    cell: int = 1
    exact: bool = False

    @property
    def side(self) -> int:
        """Pixels of which every side of a picture must be a multiple."""
        return self.pixels * self.cell

    def refusal(self, size: Size, *, clips: bool) -> str:
        """Why batches of a size cannot be trained, in words; "" where they can. clips: whether they have frames."""
        if clips and self.exact and (size.frames - 1) % self.frames:
            below = size.frames - (size.frames - 1) % self.frames
            return (
                f"clips of {size.frames} frames cannot be trained: this model's have {self.frames}n + 1; write "
                f"data.clips.frames={below} or {below + self.frames}"
            )
        if size.width % self.side or size.height % self.side:
            return (
                f"batches of {size.width}×{size.height} cannot be trained: the sides of this model's pictures are "
                f"multiples of {self.side}; write data.buckets.step={self.side} or a multiple of it, and such a "
                "data.resolution, or sides of data.clips.buckets that are"
            )
        return ""


class ModelFamily(ABC):
    """One kind of model: how to load, encode, predict, decode, export. Of its files `ModelFiles` is asked.

    Parts are named "denoiser", "text_encoder", "vae", …; a parameter's name is `part/parameter`, whatever the runtime.
    A part that was not loaded is absent from `parts()`, and what needs it raises AssertionError: that is a bug of the
    caller.
    """

    spec: ClassVar[FamilySpec]
    files: ClassVar[type[ModelFiles]]
    """How its models' files are opened."""
    schedule: Schedule
    prediction: Prediction
    grid: Grid
    _parts: Mapping[str, nn.Module]
    text_parts: tuple[str, ...] = ("text_encoder",)
    """Parts that make text embeddings, those that this model has."""
    learns_variance: bool = False
    """Whether `predict` gives a second half of channels that says how uncertain the step back is, which is trained."""
    zeros_for_empty: bool = False
    """Whether guidance moves away from zeros, and not from an empty caption, where there is no negative prompt."""
    tells_guidance: bool = False
    """Whether the denoiser is told the scale of guidance, so that nothing is drawn for the negative prompt."""
    no_guidance: float = 1.0
    """The scale at which guidance does nothing."""
    takes_first_frame: bool = False
    """Whether a clip's first frame can be told to the denoiser, which goes on from it."""
    in_turn: LayersInTurn | None = None
    """What reads the text encoders' layers when they are reached, where they are not there all the time."""
    notes: tuple[str, ...] = ()
    """Sentences for the reader about what was met in the model's files."""

    @abstractmethod
    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        """What computes, of the parts that were loaded. Nothing is remembered of the files."""

    @classmethod
    def load(
        cls, files: ModelFiles, only: Collection[str] | None = None, forms: Mapping[str, WeightForm] | None = None
    ) -> Self:
        """Reads the model's files on the CPU, eval mode; only the parts named, all by default. forms: in which parts
        are held, float32 those that are not named. A part that models of the family may have and this one has not is
        passed over. Raises WeightsError naming the file, what is in it, and what to do."""
        assert only is None or set(only) <= set(cls.spec.parts), only
        parts = [part for part in files.parts if only is None or part in only]
        networks = {part: files.network(part, (forms or {}).get(part, FLOAT32)) for part in parts}
        with configured(files.settings.described_by):
            return cls(files, networks)

    @classmethod
    def of(cls, settings: ModelSettings, only: Collection[str] | None = None, *, seed: int = 0) -> Self:
        """A model whose files nobody else asks for anything: opened and loaded."""
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
        """The loaded parts that denoise: one, or of some models one for much noise and one for little."""
        return tuple(module for name, module in self.parts().items() if is_denoiser(name))

    @property
    def own_size(self) -> Size | None:
        """The size of pictures or clips that the denoiser was made for; None where its configuration names none."""
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

    @abstractmethod
    def decode_media(self, latents: Tensor) -> Tensor:
        """Scaled latents (B, C, h, w) → pixels (B, 3, H, W) float32 in [−1, 1], clamped. No gradient."""

    @abstractmethod
    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """Captions → embeddings, (B, L, D). Carries a gradient when the text encoder is trained and grad is enabled."""

    def _part(self, name: str) -> Any:
        assert name in self._parts, f"{name} was not loaded"
        return self._parts[name]

    def skip_layers(self, count: int) -> None:
        """Leaves out so many of the text encoder's last layers from now on, as `model.clip_skip` does. Raises
        WeightsError E1409 where that cannot be."""
        raise WeightsError("model.clip_skip has no meaning for this family of models; leave it out", code="E1409")

    def add_words(self, words: Mapping[str, str], vectors: int, rows: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Makes the loaded text encoders know new words; `parts()` has their rows as "tokens" from now on. Of families
        that train "tokens".

        words: new words, and the words they begin as, with `vectors` tokens each. rows: of further words, (n, D) by
        text encoder. Raises WeightsError E1470 for a word that is a token already, E1472 for rows of other encoders.
        """
        raise AssertionError("this family has no new words")

    def rows_of_words(self, weights: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """The rows (n, D) of each new word by text encoder; none without. weights: trained tensors by
        `part/parameter`, which take the place of the loaded ones."""
        return {}

    def lost_tokens(self, captions: Sequence[str]) -> tuple[int, ...]:
        """How many tokens of each caption do not fit and are cut off; 0 where all fit."""
        return tuple(0 for _ in captions)

    def token_counts(self, captions: Sequence[str]) -> tuple[tuple[int, ...], int]:
        """How many tokens each caption has, those of begin and end among them, and how many the text encoder reads that
        `lost_tokens` goes by; ((), 0) where no tokenizer is there."""
        return (), 0

    def condition(self, text: TextEmbedding, batch: Batch | None, framing: Framing | None = None) -> Condition:
        """What the denoiser is told: the text, with its mask where it has one, unless a family knows more. batch: of
        training, whose sizes it is told where it knows sizes; None while sampling, of pictures that `framing`
        describes: None is whole ones of the model's own size."""
        return Condition(text)

    @abstractmethod
    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """The denoiser's output, in the shape of x_t."""

    def begun(self, noised: Noised, drawn: StepDraws) -> Noised:
        """What the denoiser is shown in training, where it is shown a part without noise."""
        return noised

    def guide(self, away: Tensor, towards: Tensor, scale: float) -> Tensor:
        """What is drawn along a straight path, of the outputs for the negative texts and for the texts."""
        return away + scale * (towards - away)

    def refuse_guidance(self, scale: float) -> None:
        """Raises RecipeError E1220 for a scale of guidance that the model cannot be drawn at."""
        return

    @abstractmethod
    def blocks(self) -> Iterator[tuple[nn.Module, ...]]:
        """Units to shard, recompute and compile, from the input to the output; each tuple belongs together."""

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

        files: those it was loaded from. weights: trained tensors by `part/parameter`, which take the place of the
        base's; parts that are not among them are copied as they lie, or written from memory when they were random.
        schedule, trained_form: as the denoiser was trained. Every file is synced. Nothing of this machine's paths
        enters the files.
        """

    def export_parts(
        self, file: Path, parts: Sequence[str], files: ModelFiles, *, weights: Mapping[str, Tensor], dtype: DTypeName
    ) -> None:
        """Writes some parts of the model whole, as one file under the names that single files of its kind have, in the
        format of its suffix. weights: as for `export`. Of families with a `spec.layout`."""
        raise AssertionError("this family writes whole folders")


def like_parameters(tensor: Tensor, module: nn.Module) -> Tensor:
    """The tensor on the device and in the type of a network's parameters."""
    like = next(module.parameters())
    return tensor.to(like.device, like.dtype)


def whole_state(
    files: ModelFiles, parts: Mapping[str, nn.Module], weights: Mapping[str, Tensor], part: str
) -> dict[str, Tensor]:
    """All tensors of a part, those among `weights`, by `part/parameter`, in the place of the loaded model's."""
    trained = {name.removeprefix(f"{part}/"): t for name, t in weights.items() if name.startswith(f"{part}/")}
    base = (parts.get(part) or files.network(part)).state_dict()
    if any(n not in trained and _is_not_the_files(t) for n, t in base.items()):
        base = files.network(part).state_dict()  # what is not trained keeps every bit of the file
    assert trained.keys() <= base.keys(), sorted(trained.keys() - base.keys())
    return {**base, **trained}


def _is_not_the_files(tensor: Tensor) -> bool:
    """Whether a tensor is rounded, or its values are not where it is, but on the host until they are needed."""
    is_away = tensor.numel() > 0 and tensor.untyped_storage().nbytes() == 0
    return is_away or (tensor.is_floating_point() and tensor.dtype.itemsize < 4)


def posterior_sample(moments: Tensor, eps: Tensor) -> Tensor:
    """Latents from posterior moments: mean + std · ε. moments: (B, 2C, …); eps: (B, C, …) standard normal. Returns (B,
    C, …)."""
    mean, std = moments.chunk(2, dim=1)
    return mean + std * eps


def drawn_latents(moments: Tensor, addresses: Tensor) -> Tensor:
    """Latents (B, C, …) from posterior moments (B, 2C, …), each with the ε of its address. addresses: (B,) int64, on
    any device."""
    shape = (moments.shape[1] // 2, *moments.shape[2:])
    return posterior_sample(moments, noise.normal(addresses.to(moments.device, non_blocking=True), shape))


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device: through page-locked memory, so that the host does not wait for what the device
    still has to do."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def latents_of(family: ModelFamily, batch: Batch, device: torch.device, posterior: FromMoments = "sample") -> Tensor:
    """x_0 of a batch (B, C, …), scaled: as cached, drawn from cached moments or their mean, or encoded from pixels. No
    gradient.

    With B·I stills, those of a sample one after the other, (B, C, f + I, h, w): the clip's frames, then its stills.
    """
    x_0 = _latents_of_one(family, batch, device, posterior)
    if batch.stills is None or not batch.size:
        return x_0
    stills = _latents_of_one(family, batch.stills, device, posterior)
    stills = stills if stills.ndim == x_0.ndim else stills[:, :, None]
    return torch.cat([x_0, stills.unflatten(0, (len(x_0), -1)).transpose(1, 2).flatten(2, 3)], dim=2)


def _latents_of_one(family: ModelFamily, batch: Batch, device: torch.device, posterior: FromMoments) -> Tensor:
    if batch.latents is not None:
        return batch.latents.to(device, non_blocking=True)
    if batch.moments is not None:
        moments = batch.moments.to(device, non_blocking=True)
    else:
        assert batch.pixels is not None
        moments = family.encode_media(batch.pixels.to(device, non_blocking=True))
    return moments.chunk(2, dim=1)[0] if posterior == "mean" else drawn_latents(moments, batch.posterior_keys)
