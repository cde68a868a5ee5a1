"""LatteT2V of Open-Sora-Plan v1.1: clips, stills, or both joined, told by T5's captions.

A clip of n frames has (n − 1)/4 + 1 latent frames; a still is a clip of one, and its tensors have no axis of frames.
Stills that are joined to clips lie behind the clip's frames in one tensor, each with a caption of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor, nn

from mezzotint.diffusion.schedule import Schedule
from mezzotint.families import _latte_export
from mezzotint.families._latte_files import FRAMES, PIXELS, SCALE, Source, open_source
from mezzotint.families.base import Grid, ModelFamily, Prediction
from mezzotint.nets.causal_vae import CausalVAE, Tiling, posterior
from mezzotint.recipe.families.latte import LatteSettings
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.stages import Batch, Condition, Framing, Noised, TextEmbedding
from mezzotint.weights.files.tensor_files import Stored
from mezzotint.weights.folder import t5
from mezzotint.weights.folder.model_folder import shipped

_PARTS = ("denoiser", "text_encoder", "vae")


class Family(ModelFamily):
    """LatteT2V, its causal autoencoder and T5's encoder."""

    text_parts: tuple[str, ...] = ("text_encoder",)

    def __init__(self, source: Source, parts: Mapping[str, nn.Module], settings: ModelSettings) -> None:
        self.schedule = Schedule.from_config(source.scheduler)
        self.prediction = source.prediction(settings)
        self.grid = Grid(
            channels=source.config.in_channels, pixels=PIXELS, frames=FRAMES, cell=source.config.patch_size
        )
        self.learns_variance = source.config.out_channels == 2 * source.config.in_channels
        self.notes = tuple(source.notes(parts))
        self._source = source
        self._parts = dict(parts)
        self._tokenizer: Any = None
        if "vae" in parts:
            _prepare(cast(CausalVAE, parts["vae"]), source.latte)

    @classmethod
    def load(cls, settings: ModelSettings, only: Collection[str] | None = None, *, seed: int = 0) -> Self:
        """See ModelFamily. Raises WeightsError E1401 to E1411, E1460 to E1463."""
        return cls._opened(open_source(settings, seed), settings, only)

    @classmethod
    def stored_parts(
        cls, settings: ModelSettings, parts: Mapping[str, nn.Module]
    ) -> Mapping[str, Stored | None] | None:
        """See ModelFamily."""
        source = open_source(settings, 0)
        return {
            name: None if source.is_drawn(name) else source.under_our_names(name, parts[name])
            for name in source.parts
            if name in parts
        }

    @classmethod
    def described(cls, settings: ModelSettings) -> Self:
        """See ModelFamily. Without a text encoder where none is to be found: embeddings may come from files."""
        source = replace(open_source(settings, 0), weights="random", hollow=True)
        return cls._opened(
            source, settings, [part for part in _PARTS if part != "text_encoder" or part in source.parts]
        )

    @classmethod
    def tiny(cls, seed: int = 0) -> Self:
        """The shipped tiny-latte with random weights."""
        return cls.load(ModelSettings(family="latte", path=shipped("tiny-latte"), weights="random"), seed=seed)

    @classmethod
    def _opened(cls, source: Source, settings: ModelSettings, only: Collection[str] | None) -> Self:
        assert only is None or set(only) <= set(_PARTS), only
        wanted = [part for part in _PARTS if only is None or part in only]
        return cls(source, {part: source.network(part) for part in wanted}, settings)

    def parts(self) -> Mapping[str, nn.Module]:
        """See ModelFamily."""
        return self._parts

    @classmethod
    def fingerprint(cls, settings: ModelSettings, part: str, *, seed: int = 0) -> str:
        """See ModelFamily."""
        source = open_source(settings, seed)
        match part:
            case "schedule":
                return _latte_export.schedule_name(source.scheduler, source.prediction(settings))
            case "tokenizer":
                return source.tokenizer_fingerprint()
            case _:
                return source.fingerprint(part)

    @classmethod
    def text_identity(cls, settings: ModelSettings, *, seed: int = 0) -> str:
        """See ModelFamily."""
        source = open_source(settings, seed)
        encoder, tokenizer = source.fingerprint("text_encoder"), source.tokenizer_fingerprint()
        return f"latte-text-1 encoder={encoder} tokenizer={tokenizer} tokens={source.length}"

    @classmethod
    def text_shape(cls, settings: ModelSettings) -> tuple[int, int] | None:
        """See ModelFamily."""
        source = open_source(settings, 0)
        return source.length, source.config.caption_channels

    @classmethod
    def media_identity(cls, settings: ModelSettings, *, seed: int = 0) -> str:
        """See ModelFamily."""
        source = open_source(settings, seed)
        tiling = source.latte.tiling
        pieces = f"{tiling.side}x{tiling.frames}@{tiling.overlap!r}" if tiling.enabled else "whole"
        vae = source.fingerprint("vae")
        return f"latte-media-1 vae={vae} scale={SCALE!r} pieces={pieces} norms={source.latte.vae_norms}"

    @torch.no_grad()
    def encode_media(self, pixels: Tensor) -> Tensor:
        """See ModelFamily: stills (B, 3, H, W) → (B, 8, h, w); clips (B, 3, F, H, W) → (B, 8, f, h, w), one after the
        other. Runs in the type and on the device of the autoencoder's parameters."""
        vae = self._part("vae")
        clips = pixels if pixels.ndim == 5 else pixels[:, :, None]
        count, _, frames, height, width = clips.shape
        f, h, w = vae.latent_frames(frames), height // self.grid.pixels, width // self.grid.pixels
        made = [pixels.new_empty((0, 2 * self.grid.channels, f, h, w), dtype=torch.float32)]
        for some in clips.split(1 if frames > 1 else max(count, 1)):
            if len(some):
                mean, log_variance = posterior(vae.encode(_like(some, vae)))
                made.append(torch.cat((mean, (0.5 * log_variance).exp()), dim=1) * SCALE)
        moments = torch.cat([part.to(made[-1].device) for part in made])
        return moments if pixels.ndim == 5 else moments[:, :, 0]

    @torch.no_grad()
    def decode_media(self, latents: Tensor) -> Tensor:
        """See ModelFamily: (B, 4, h, w) → (B, 3, H, W); (B, 4, f, h, w) → (B, 3, 4(f − 1) + 1, H, W)."""
        vae = self._part("vae")
        clips = latents if latents.ndim == 5 else latents[:, :, None]
        made = [vae.decode(_like(some.float() / SCALE, vae)).float().clamp(-1.0, 1.0) for some in clips.split(1)]
        pixels = torch.cat(made)
        return pixels if latents.ndim == 5 else pixels[:, :, 0]

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: (B, L, D) with a mask (B, L) int64. Never under autocast: T5's numbers are too large for
        float16."""
        encoder = self._part("text_encoder")
        device = encoder.shared.weight.device
        if not captions:
            empty = encoder.shared.weight.new_empty((0, self._source.length, encoder.shared.weight.shape[1]))
            return TextEmbedding(empty, torch.ones(0, self._source.length, dtype=torch.int64, device=device))
        told = self._words()(
            list(captions), padding="max_length", max_length=self._source.length, truncation=True, return_tensors="pt"
        )
        ids, mask = told.input_ids.to(device), told.attention_mask.to(device)
        with torch.autocast(device.type, enabled=False):
            return TextEmbedding(t5.states(encoder, ids, mask), mask)

    def lost_tokens(self, captions: Sequence[str]) -> tuple[int, ...]:
        """See ModelFamily. Nothing is told where the text encoder and its tokenizer are nowhere."""
        if not captions or self._source.tokenizer is None:
            return tuple(0 for _ in captions)
        ids = self._words()(list(captions), verbose=False).input_ids
        return tuple(max(0, len(i) - self._source.length) for i in ids)

    def condition(self, text: TextEmbedding, batch: Batch | None, framing: Framing | None = None) -> Condition:
        """See ModelFamily: the text and its mask."""
        return Condition(text)

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily: noise, and behind it in the channels how its variance lies between two bounds, (B, 8, …).

        Stills are told by `condition.stills`, one text for each in the order of samples; `condition.masks["latents"]`,
        (B, F + I, h, w), is 1 where latents count. A picture (B, 4, h, w) is a clip of one frame, or a still of no clip
        (`model.latte.pictures`).
        """
        network = self._part("denoiser")
        x, text = noised.model_input, condition.text
        states, mask, count = text.states[:, None], _rows(text.mask), 0
        if condition.stills is not None:
            more = condition.stills
            count = len(more.states) // len(x)
            states = torch.cat([states, more.states.unflatten(0, (len(x), count))], dim=1)
            if mask is not None and more.mask is not None:
                mask = torch.cat([mask, more.mask.unflatten(0, (len(x), count))], dim=1)
        told = network(
            _like(x if x.ndim == 5 else x[:, :, None], network),
            noised.model_t,
            _like(states, network),
            text_mask=mask,
            latent_mask=condition.masks.get("latents"),
            use_image_num=count,
            temporal=x.ndim == 5 or self._source.latte.pictures == "clip",
        )
        return cast(Tensor, told if x.ndim == 5 else told[:, :, 0])

    def blocks(self) -> Iterator[tuple[nn.Module, ...]]:
        """See ModelFamily: pairs of a spatial and a temporal block."""
        yield from self._part("denoiser").pairs()

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
        """See ModelFamily: see `families/_latte_export.py` for what lies where.

        Raises WeightsError E1410 when the folder is there, E1403 when a weight is not finite, StorageError E1701.
        """
        _latte_export.write(
            folder,
            self._source,
            self._parts,
            weights,
            dtype,
            zero_terminal=schedule.zero_terminal,
            prediction=prediction,
        )

    def _words(self) -> Any:
        if self._tokenizer is None:
            known = int(self._source.part("text_encoder").config["vocab_size"])
            assert self._source.tokenizer is not None
            self._tokenizer = t5.tokenizer_in(self._source.tokenizer, known)
        return self._tokenizer

    def _part(self, name: str) -> Any:
        assert name in self._parts, f"{name} was not loaded"
        return self._parts[name]


def _prepare(vae: CausalVAE, settings: LatteSettings) -> None:
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


def _rows(mask: Tensor | None) -> Tensor | None:
    """(B, L) → (B, 1, L)."""
    return None if mask is None else mask[:, None]


def _like(tensor: Tensor, module: nn.Module) -> Tensor:
    """The tensor on the device and in the type of a network's parameters."""
    like = next(module.parameters())
    return tensor.to(like.device, like.dtype)
