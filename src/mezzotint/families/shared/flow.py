"""What flow-matching families share: the schedule, blocks, packing of latents into tokens, T5, standardized latents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from mezzotint.diffusion.flow import FlowSchedule, Tokens
from mezzotint.families.base import Grid, to_device
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.families.shared.folder_family import FolderFamily, count_tokens, without_autocast
from mezzotint.families.shared.folder_files import FolderFiles
from mezzotint.stages import Batch, Condition, Framing, TextEmbedding
from mezzotint.weights.folder import t5
from mezzotint.weights.model_files import ModelFiles


class FlowFamily(FolderFamily):
    """A flow-matching model with a transformer. An export keeps the scheduler's file: the density of levels in training
    does not change the path."""

    files: ClassVar[type[FlowFiles]]
    tokens: ClassVar[Tokens] = Tokens()
    """How the denoiser turns latents into tokens."""
    block_lists: ClassVar[tuple[str, ...]] = ("transformer_blocks",)
    """Lists of the denoiser's blocks, in the order in which they run."""

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        super().__init__(files, parts)
        assert isinstance(files, FlowFiles)
        self._text_shape = files.text_shape()

    def schedule_of(self, files: FolderFiles) -> FlowSchedule:
        """See FolderFamily."""
        return FlowSchedule.of(files.scheduler, self.tokens)

    def grid_of(self, files: FolderFiles) -> Grid:
        """The latents of an AutoencoderKL, patchified by the denoiser."""
        return replace(super().grid_of(files), cell=self.tokens.cell)

    def blocks(self) -> Iterator[tuple[nn.Module, ...]]:
        """See ModelFamily: each block of the denoiser's lists."""
        for denoiser in self.denoisers:
            for name in self.block_lists:
                yield from ((block,) for block in cast(nn.ModuleList, getattr(denoiser, name)))

    def _t5(self, part: str, captions: Sequence[str]) -> Tensor:
        """T5's hidden states (B, L, D), with attention to padding, as these models are trained. Never under autocast:
        activations overflow float16."""
        encoder = self._part(part)
        ids, _, _ = self._tokens(part, captions)
        with without_autocast(encoder):
            return t5.states(encoder, ids, None)


class GuidedFamily(FlowFamily):
    """A flow-matching model whose denoiser may take a guidance scale (guidance distillation), see `takes_guidance`."""

    _guidance: float

    def set_guidance(self, scale: float | None) -> None:
        """Sets the guidance scale in training; None is 1."""
        self._guidance = 1.0 if scale is None else scale

    def condition(self, text: TextEmbedding, batch: Batch | None, framing: Framing | None = None) -> Condition:
        """See ModelFamily: the text, and the guidance scale (B,) if the denoiser takes one."""
        if not self.takes_guidance:
            return Condition(text)
        if framing is not None and framing.guidance is not None:
            return Condition(text, vector=framing.guidance)
        return Condition(text, vector=text.states.new_full((len(text.states),), self._guidance, dtype=torch.float32))


def token_lengths(text: TextEmbedding) -> tuple[int, ...]:
    """The number of tokens of each text, on the host, for denoisers that need it. Encoders and caches store it;
    otherwise the mask is summed, which synchronizes. text: with a mask, 1 for tokens, which come first."""
    assert text.mask is not None, "a text embedding of another family"
    return count_tokens(text.mask) if text.lengths is None else text.lengths


def pack_latents(x: Tensor) -> Tensor:
    """Latents (B, C, h, w) as tokens of two by two, (B, h/2 · w/2, 4C), in row-major order; within a token the channel
    varies slowest, then the row."""
    b, c, h, w = x.shape
    return x.reshape(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, h // 2 * (w // 2), 4 * c)


def unpack_latents(tokens: Tensor, height: int, width: int) -> Tensor:
    """The inverse of `pack_latents`, to latents (B, C, h, w)."""
    b, _, c = tokens.shape
    parts = tokens.reshape(b, height // 2, width // 2, c // 4, 2, 2).permute(0, 3, 1, 4, 2, 5)
    return parts.reshape(b, c // 4, height, width)


def token_positions(number: int, latents: Tensor) -> Tensor:
    """Positions of FLUX.1's image tokens, (n, 3) float32: number of the image, row and column of each token, in
    row-major order. number: 0 for the noisy latents, 1 for the image before the edit."""
    rows, columns = (side // 2 for side in latents.shape[-2:])
    grid = torch.full((rows, columns, 3), float(number), device=latents.device)
    grid[..., 1] = torch.arange(rows, device=latents.device)[:, None]
    grid[..., 2] = torch.arange(columns, device=latents.device)[None, :]
    return grid.reshape(-1, 3)


class Standardized(ABC):
    """Mixin for families whose latents are standardized by a mean and a deviation per channel; comes before the base
    class."""

    @abstractmethod
    def statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation per channel, broadcastable to latents, on the device of a tensor."""

    def scale_moments(self, mean: Tensor, std: Tensor) -> Tensor:
        """See FolderFamily."""
        center, spread = self.statistics(mean)
        return torch.cat(((mean - center) / spread, std / spread), dim=1)

    def unscale_latents(self, latents: Tensor) -> Tensor:
        """See FolderFamily."""
        center, spread = self.statistics(latents)
        return latents * spread + center


class ChannelStatistics:
    """Mean and deviation per channel from a VAE's configuration, copied to each device once."""

    def __init__(self, vae: Mapping[str, Any]) -> None:
        self._numbers = tuple(torch.tensor(vae[name]).view(1, -1, 1, 1) for name in ("latents_mean", "latents_std"))
        self._by_device: dict[torch.device, tuple[Tensor, ...]] = {}

    def like(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation, broadcastable to latents of images or clips, on their device."""
        if isinstance(latents, FakeTensor):  # fake tensors are not cached
            numbers = tuple(number.to(latents.device) for number in self._numbers)
        else:
            if latents.device not in self._by_device:
                self._by_device[latents.device] = tuple(to_device(number, latents.device) for number in self._numbers)
            numbers = self._by_device[latents.device]
        mean, std = (number[..., None] if latents.ndim == 5 else number for number in numbers)
        return mean, std


class ClipVaeFamily(Standardized, FlowFamily):
    """An image family with the VAE of Qwen-Image, which is one of clips: an image is a clip of one frame."""

    @cached_property
    def _statistics(self) -> ChannelStatistics:
        return ChannelStatistics(self._configs["vae"])

    def grid_of(self, files: FolderFiles) -> Grid:
        """See FlowFamily."""
        vae = files.configs["vae"]
        return Grid(int(vae.get("z_dim", 16)), 2 ** len(vae["temperal_downsample"]), cell=self.tokens.cell)

    def to_vae(self, pixels: Tensor) -> Tensor:
        """See FlowFamily: a clip of one frame."""
        return pixels[:, :, None]

    def from_vae(self, values: Tensor) -> Tensor:
        """See FlowFamily."""
        return values[:, :, 0]

    def statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """See Standardized: those of the VAE's configuration."""
        return self._statistics.like(like)
