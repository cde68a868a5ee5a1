"""LatteT2V of Open-Sora-Plan v1.1: clips, images, or images joined to clips, with captions encoded by T5.

A clip of n frames has (n − 1)/4 + 1 latent frames; an image is a clip of one frame, and its tensors have no frame axis.
Images that are joined to a clip follow the clip's frames in one tensor, each with its own caption.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from mezzotint.compat.open_sora_plan import _latte_export
from mezzotint.compat.open_sora_plan._latte_files import FRAMES, PIXELS, Files
from mezzotint.compat.open_sora_plan.latte_spec import SPEC, LatteSettings
from mezzotint.compat.open_sora_plan.nets.causal_vae import CausalVAE, Tiling, posterior
from mezzotint.compat.open_sora_plan.nets.latte import LatteConfig
from mezzotint.diffusion.parameterization import Parameterization
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.families.base import Grid, ModelFamily, cast_like_parameters, to_device
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.weights.folder import t5
from mezzotint.weights.folder.components import DTypeName
from mezzotint.weights.folder.tokenizer import tokenize, tokenize_padded
from mezzotint.weights.model_files import ModelFiles


class Family(ModelFamily):
    """LatteT2V, its causal autoencoder and T5's encoder."""

    spec = SPEC
    files = Files

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        assert isinstance(files, Files)
        config = files.config
        self.schedule = Schedule.from_config(files.scheduler)
        self.prediction = files.prediction
        self.grid = Grid(channels=config.in_channels, pixels=PIXELS, frames=FRAMES, cell=config.patch_size)
        self.learns_variance = _learns_variance(config, files.own.variance)
        self.notes = tuple(files.notes(parts))
        self._length = files.length
        self._images_are_clips = files.own.images == "clip"
        self._open_tokenizer = files.tokenizer if files.tokenizer_folder is not None else None
        self._parts = dict(parts)
        self._tokenizer: Any = None
        if "vae" in parts:
            _configure_vae(cast(CausalVAE, parts["vae"]), files.own)

    @torch.no_grad()
    def encode_media(self, pixels: Tensor) -> Tensor:
        """See ModelFamily: images (B, 3, H, W) → (B, 8, h, w); clips (B, 3, F, H, W) → (B, 8, f, h, w), one after the
        other. Runs in the dtype and on the device of the autoencoder's parameters."""
        vae = self._part("vae")
        clips = pixels if pixels.ndim == 5 else pixels[:, :, None]
        count, _, frames, height, width = clips.shape
        f, h, w = vae.latent_frames(frames), height // self.grid.pixels, width // self.grid.pixels
        moments = [pixels.new_empty((0, 2 * self.grid.channels, f, h, w), dtype=torch.float32)]
        for chunk in clips.split(1 if frames > 1 else max(count, 1)):
            if len(chunk):
                mean, log_variance = posterior(vae.encode(cast_like_parameters(chunk, vae)))
                moments.append(torch.cat((mean, (0.5 * log_variance).exp()), dim=1) * SPEC.latent_scale)
        whole = torch.cat([part.to(moments[-1].device) for part in moments])
        return whole if pixels.ndim == 5 else whole[:, :, 0]

    @torch.no_grad()
    def decode_media(self, latents: Tensor) -> Tensor:
        """See ModelFamily: (B, 4, h, w) → (B, 3, H, W); (B, 4, f, h, w) → (B, 3, 4(f − 1) + 1, H, W)."""
        vae = self._part("vae")
        scaled = latents.float() / SPEC.latent_scale
        clips = cast_like_parameters(scaled if latents.ndim == 5 else scaled[:, :, None], vae)
        decoded = [vae.decode(clip).float().clamp(-1.0, 1.0) for clip in clips.split(1)]
        pixels = torch.cat(decoded)
        return pixels if latents.ndim == 5 else pixels[:, :, 0]

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: (B, L, D) with a mask (B, L) int64. Never under autocast: T5's activations overflow
        float16."""
        encoder = self._part("text_encoder")
        device = encoder.shared.weight.device
        if not captions:
            empty = encoder.shared.weight.new_empty((0, self._length, encoder.shared.weight.shape[1]))
            return TextEmbedding(empty, torch.ones(0, self._length, dtype=torch.int64, device=device))
        tokens, counting = tokenize_padded(self._get_tokenizer(), captions, length=self._length)
        ids, mask = to_device(tokens, device), to_device(counting, device)
        with torch.autocast(device.type, enabled=False):
            return TextEmbedding(t5.states(encoder, ids, mask), mask)

    def lost_tokens(self, captions: Sequence[str]) -> tuple[int, ...]:
        """See ModelFamily. Zeros without a text encoder and tokenizer."""
        if not captions or self._open_tokenizer is None:
            return tuple(0 for _ in captions)
        return tuple(max(0, count - self._length) for count in self.token_counts(captions)[0])

    def token_counts(self, captions: Sequence[str]) -> tuple[tuple[int, ...], int]:
        """See ModelFamily."""
        if self._open_tokenizer is None:
            return (), 0
        return tuple(map(len, tokenize(self._get_tokenizer(), captions, verbose=False).input_ids)), self._length

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily: noise, followed in the channels by the interpolation of its variance between two bounds, (B,
        8, …); only noise, (B, 4, …), with `model.latte.variance=none`.

        Joined images have their texts in `condition.stills`, in the order of samples; `condition.masks["latents"]`, (B,
        F + I, h, w), is 1 for latents that count. An image (B, 4, h, w) is a clip of one frame, or a single image
        without temporal layers (`model.latte.images`).
        """
        network = self._part("denoiser")
        x, text = noised.model_input, condition.text
        states, mask, count = text.states[:, None], _add_row_axis(text.mask), 0
        if condition.joined_images is not None:
            more = condition.joined_images
            count = len(more.states) // len(x)
            states = torch.cat([states, more.states.unflatten(0, (len(x), count))], dim=1)
            if mask is not None and more.mask is not None:
                mask = torch.cat([mask, more.mask.unflatten(0, (len(x), count))], dim=1)
        predicted = network(
            cast_like_parameters(x if x.ndim == 5 else x[:, :, None], network),
            noised.model_t,
            cast_like_parameters(states, network),
            text_mask=mask,
            latent_mask=condition.masks.get("latents"),
            use_image_num=count,
            temporal=x.ndim == 5 or self._images_are_clips,
        )
        if not self.learns_variance:
            predicted = predicted[:, : self.grid.channels]
        return cast(Tensor, predicted if x.ndim == 5 else predicted[:, :, 0])

    def blocks(self) -> Iterator[tuple[nn.Module, ...]]:
        """See ModelFamily: pairs of a spatial and a temporal block."""
        yield from self._part("denoiser").pairs()

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
        """See ModelFamily, and `_latte_export.py` for the files.

        Raises WeightsError E1410 if the folder exists, E1403 if a weight is not finite, StorageError E1701.
        """
        assert isinstance(files, Files)
        zero, prediction = schedule.zero_terminal, trained_form.prediction
        _latte_export.write(folder, files, self._parts, weights, dtype, zero_terminal=zero, prediction=prediction)

    def _get_tokenizer(self) -> Any:
        if self._tokenizer is None:
            assert self._open_tokenizer is not None
            self._tokenizer = self._open_tokenizer()
        return self._tokenizer


def _learns_variance(config: LatteConfig, variance: str | None) -> bool:
    has_channels = config.out_channels == 2 * config.in_channels
    if variance == "learned-range" and not has_channels:
        raise RecipeError(
            f"model.latte.variance is learned-range, but this model's denoiser has {config.out_channels} channels, "
            "without any for a variance; set model.latte.variance=none, or leave it out",
            code="E1465",
        )
    return has_channels and variance != "none"


def _configure_vae(vae: CausalVAE, settings: LatteSettings) -> None:
    tiling = settings.tiling
    if tiling.enabled:
        vae.tiling = Tiling(
            side=tiling.side,
            frames=tiling.frames,
            overlap=tiling.overlap,
            pixels=vae.config.pixels,
            per_latent=vae.config.frames,
        )
    vae.keep_norms_in_float32(settings.vae_norms == "fp32")


def _add_row_axis(mask: Tensor | None) -> Tensor | None:
    """(B, L) → (B, 1, L)."""
    return None if mask is None else mask[:, None]
