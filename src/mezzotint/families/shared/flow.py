"""What models on straight paths share: parts by name, the autoencoder with its scaling, blocks, packing, export.

The networks are diffusers' and transformers'. What a family says to its denoiser is its own file's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from mezzotint import fault_injection
from mezzotint.diffusion.flow import FlowSchedule, Tokens
from mezzotint.diffusion.parameterization import Parameterization
from mezzotint.diffusion.schedule import Schedule
from mezzotint.families.base import Grid, ModelFamily, like_parameters, sent, whole_state
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.stages import TextEmbedding
from mezzotint.weights.folder import t5
from mezzotint.weights.folder.components import DTypeName
from mezzotint.weights.folder.export import Replaced, write_model
from mezzotint.weights.folder.tokenizer import tokenize, tokenize_padded
from mezzotint.weights.model_files import ModelFiles


class FlowFamily(ModelFamily):
    """A model on a straight path with a transformer and an autoencoder."""

    files: ClassVar[type[FlowFiles]]
    tokens: ClassVar[Tokens] = Tokens()
    """How its denoiser counts latents."""
    block_lists: ClassVar[tuple[str, ...]] = ("transformer_blocks",)
    """Lists of the denoiser's blocks, as they are run."""

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        assert isinstance(files, FlowFiles)
        self.schedule = FlowSchedule.of(files.scheduler, self.tokens)
        self.prediction = files.prediction
        self.grid = self.grid_of(files)
        self.notes = tuple(files.notes(parts))
        self.text_parts = files.text_parts
        self._configs = files.configs
        self._text_shape = files.text_shape()
        self._lengths = {part: files.length(part) for part in files.text_parts}
        self._open_tokenizer = files.tokenizer
        self._parts = dict(parts)
        self._scale, self._shift = files.scaling
        self._tokenizers: dict[str, Any] = {}

    def grid_of(self, files: FlowFiles) -> Grid:
        """The latents of an AutoencoderKL, of which the denoiser takes two by two."""
        vae = files.configs["vae"]
        pixels = 2 ** (len(vae["block_out_channels"]) - 1)
        return Grid(channels=int(vae.get("latent_channels", 4)), pixels=pixels, cell=self.tokens.cell)

    @torch.no_grad()
    def encode_media(self, pixels: Tensor) -> Tensor:
        """See ModelFamily. Runs in the type and on the device of the VAE's parameters."""
        vae = self._part("vae")
        if not len(pixels):
            height, width = (side // self.grid.pixels for side in pixels.shape[-2:])
            return pixels.new_empty((0, 2 * self.grid.channels, height, width), dtype=torch.float32)
        with as_it_is(vae):
            posterior = vae.encode(like_parameters(self.to_vae(pixels), vae)).latent_dist
        return self.scaled(self.from_vae(posterior.mean.float()), self.from_vae(posterior.std.float()))

    def scaled(self, mean: Tensor, std: Tensor) -> Tensor:
        """The VAE's posterior moments → the model's, one after the other in the channels."""
        return torch.cat(((mean - self._shift) * self._scale, std * self._scale), dim=1)

    @torch.no_grad()
    def decode_media(self, latents: Tensor) -> Tensor:
        """See ModelFamily. Runs in the type and on the device of the VAE's parameters."""
        vae = self._part("vae")
        with as_it_is(vae):
            decoded = vae.decode(like_parameters(self.to_vae(self.raw(latents.float())), vae)).sample
        return self.from_vae(cast(Tensor, decoded)).float().clamp(-1.0, 1.0)

    def to_vae(self, pixels: Tensor) -> Tensor:
        """Pictures, or their latents, as the VAE takes them."""
        return pixels

    def from_vae(self, values: Tensor) -> Tensor:
        """The reverse of `to_vae`."""
        return values

    def raw(self, latents: Tensor) -> Tensor:
        """The model's latents → the VAE's."""
        return latents / self._scale + self._shift

    def lost_tokens(self, captions: Sequence[str]) -> tuple[int, ...]:
        """See ModelFamily: of the text encoder that loses fewest, which is what no encoder hears."""
        if not captions or not self.text_parts:
            return tuple(0 for _ in captions)
        by_part = [[max(0, n - self._lengths[part]) for n in self._counts(part, captions)] for part in self.text_parts]
        return tuple(min(lost) for lost in zip(*by_part, strict=True))

    def token_counts(self, captions: Sequence[str]) -> tuple[tuple[int, ...], int]:
        """See ModelFamily: of the text encoder that reads most."""
        if not self.text_parts:
            return (), 0
        part = max(self.text_parts, key=self._lengths.__getitem__)
        return self._counts(part, captions), self._lengths[part]

    def _counts(self, part: str, captions: Sequence[str]) -> tuple[int, ...]:
        texts = self._templated(part, captions)
        return tuple(map(len, tokenize(self._tokenizer(part), texts, verbose=False).input_ids))

    def _templated(self, part: str, captions: Sequence[str]) -> list[str]:
        """Captions as a text encoder's tokenizer is given them."""
        return list(captions)

    def blocks(self) -> Iterator[tuple[nn.Module, ...]]:
        """See ModelFamily: each block of the denoiser's lists."""
        for denoiser in self.denoisers:
            for name in self.block_lists:
                yield from ((block,) for block in cast(nn.ModuleList, getattr(denoiser, name)))

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
        """See ModelFamily. Opens with the family's own pipeline of diffusers. The scheduler's file stays as it is: how
        levels were drawn in training changes no path.

        Raises WeightsError E1410 when the folder is there, E1403 when a weight is not finite, StorageError E1701.
        """
        assert isinstance(files, FlowFiles)
        fault_injection.reach("export.begin")
        replaced = {
            files.spec.folders[part]: Replaced(
                files.spec.networks[part], whole_state(files, self._parts, weights, part), files.configs[part]
            )
            for part in files.parts
            if files.is_drawn or part in files.in_file or any(name.startswith(f"{part}/") for name in weights)
        }
        write_model(folder, files.folder, replaced, scheduler=files.scheduler, dtype=dtype)
        fault_injection.reach("export.renamed")

    def _tokenizer(self, part: str) -> Any:
        if part not in self._tokenizers:
            self._tokenizers[part] = self._open_tokenizer(part)
        return self._tokenizers[part]

    def _tokens(self, part: str, captions: Sequence[str], before: int = 0) -> tuple[Tensor, Tensor, tuple[int, ...]]:
        """Tokens and their mask, (B, L) int64 on the device of a text encoder, and how many of each text count; what
        does not fit is cut off. before: tokens that are not among the counted ones, as they are not told. Raises
        WeightsError E1409."""
        ids, mask = tokenize_padded(
            self._tokenizer(part), self._templated(part, captions), length=self._lengths[part], start=before
        )
        device = next(self._part(part).parameters()).device
        return sent(ids, device), sent(mask, device), _counted(mask[:, before:])

    def _empty(self, part: str, *shape: int) -> Tensor:
        """Nothing, of the type and on the device of a text encoder."""
        return cast(Tensor, next(self._part(part).parameters()).new_empty((0, *shape)))

    def _t5(self, part: str, captions: Sequence[str]) -> Tensor:
        """T5's states (B, L, D), in which padding is attended to, as these models are trained. Never under autocast:
        its numbers are too large for float16."""
        encoder = self._part(part)
        ids, _, _ = self._tokens(part, captions)
        with as_it_is(encoder):
            return t5.states(encoder, ids, None)


def as_it_is(module: nn.Module) -> torch.autocast:
    """Within, a network computes in the type of its parameters, also where a denoiser beside it is under autocast."""
    return torch.autocast(next(module.parameters()).device.type, enabled=False)


def lengths_of(text: TextEmbedding) -> tuple[int, ...]:
    """How many tokens of each text count, on the host, for denoisers that have to know. A text that nobody has counted,
    as neither encoders nor caches make it, is counted here, for which the host waits. text: with a mask, 1 where a
    token counts, from the first on."""
    assert text.mask is not None, "a text of another family"
    return _counted(text.mask) if text.lengths is None else text.lengths


def _counted(mask: Tensor) -> tuple[int, ...]:
    """All tokens of each text, where nothing has values."""
    if isinstance(mask, FakeTensor):
        return (mask.shape[1],) * len(mask)
    return tuple(map(int, mask.sum(1).tolist()))


def packed(x: Tensor) -> Tensor:
    """Latents (B, C, h, w) as tokens of two by two, (B, h/2 · w/2, 4C), row by row; in a token the channel is slowest,
    then the row."""
    b, c, h, w = x.shape
    return x.reshape(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, h // 2 * (w // 2), 4 * c)


def unpacked(tokens: Tensor, height: int, width: int) -> Tensor:
    """The reverse of `packed`, to latents (B, C, h, w)."""
    b, _, c = tokens.shape
    parts = tokens.reshape(b, height // 2, width // 2, c // 4, 2, 2).permute(0, 3, 1, 4, 2, 5)
    return parts.reshape(b, c // 4, height, width)


class Standardized(ABC):
    """Of families whose latents are taken by a mean and a deviation of each channel; named before the base class."""

    @abstractmethod
    def statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of each channel, as latents lie, on the device of a tensor."""

    def scaled(self, mean: Tensor, std: Tensor) -> Tensor:
        """See FlowFamily."""
        center, spread = self.statistics(mean)
        return torch.cat(((mean - center) / spread, std / spread), dim=1)

    def raw(self, latents: Tensor) -> Tensor:
        """See FlowFamily."""
        center, spread = self.statistics(latents)
        return latents * spread + center


class ChannelStatistics:
    """Mean and deviation of each channel by the configuration of a VAE. They are sent to a device once, and not at each
    call."""

    def __init__(self, vae: Mapping[str, Any]) -> None:
        self._numbers = tuple(torch.tensor(vae[name]).view(1, -1, 1, 1) for name in ("latents_mean", "latents_std"))
        self._by_device: dict[torch.device, tuple[Tensor, ...]] = {}

    def like(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """As latents lie, of pictures or of clips, on their device."""
        if isinstance(latents, FakeTensor):  # nothing of it outlives the fakes
            numbers = tuple(one.to(latents.device) for one in self._numbers)
        else:
            if latents.device not in self._by_device:
                self._by_device[latents.device] = tuple(sent(one, latents.device) for one in self._numbers)
            numbers = self._by_device[latents.device]
        mean, std = (one[..., None] if latents.ndim == 5 else one for one in numbers)
        return mean, std
