"""LTX-Video of Lightricks (arXiv:2501.00103), text to video, read from diffusers folders, written as folders.

T5 attends to the padding of a caption, the denoiser does not. A clip of n frames has (n − 1)/8 + 1 latent frames; a
latent is 32 × 32 pixels and one token; an image is a clip of one frame.

From 0.9.5 on (the 13B model too) folders name another pipeline: T5 does not attend to the padding either, the time of a
latent frame is that of its first frame, and sampling starts with small steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from mezzotint.diffusion.flow import FlowSchedule, Tokens
from mezzotint.families.base import Grid, cast_like_parameters
from mezzotint.families.shared.flow_clips import ClipFamily, as_clips
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.families.shared.folder_family import without_autocast
from mezzotint.families.shared.folder_files import Configs, FolderFiles
from mezzotint.settings.families.ltx import SPEC, LTXSettings
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.weights.files import fingerprint
from mezzotint.weights.folder import t5
from mezzotint.weights.model_files import ConfigConstraint, ModelFiles
from mezzotint.weights.single_file.original import DENOISER, FilePart, Renames

_T5 = "text_encoder"
_LATER = "LTXConditionPipeline"

_ORIGINAL: Renames = (
    (r"^proj_in\.", "patchify_proj."),
    (r"^time_embed\.", "adaln_single."),
    (r"\.norm_([qk])\.", r".\1_norm."),
)
"""The denoiser's tensor names in Lightricks' files."""


class Files(FlowFiles):
    """The files of LTX-Video."""

    spec = SPEC
    pipelines = ("LTXPipeline", _LATER)
    renames = _ORIGINAL
    original: ClassVar = {"denoiser": FilePart(DENOISER), "vae": FilePart("vae.", keeps_start=True)}
    written_start = DENOISER

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """See FlowFiles."""
        denoiser, channels = configs["denoiser"], configs["vae"].get("latent_channels", 128)
        yield "the denoiser takes latents of channels", denoiser.get("in_channels", 128), channels
        yield "the denoiser takes text of width", denoiser.get("caption_channels"), configs[_T5].get("d_model")
        sides = denoiser.get("patch_size", 1), denoiser.get("patch_size_t", 1)
        yield "the denoiser takes tokens of latents in space and time", sides, (1, 1)

    @property
    def is_later(self) -> bool:
        """Whether the version is 0.9.5 or later, by its pipeline."""
        return self.folder.index.get("_class_name") == _LATER

    def length(self, part: str) -> int:
        """See FlowFiles."""
        return self.settings.get_section(LTXSettings).text_tokens

    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles."""
        return self.length(_T5), int(self.configs["denoiser"]["caption_channels"])

    def fingerprint(self, part: str) -> str:
        """See FlowFiles: the pipeline, which sets levels and positions, is part of the schedule's fingerprint."""
        base = super().fingerprint(part)
        return fingerprint.of_values({"own": base, "later": True}) if part == "schedule" and self.is_later else base

    def text_identity(self) -> str:
        """See FlowFiles, with whether padding is masked."""
        return super().text_identity() + (" masked" if self.is_later else "")


class Family(ClipFamily):
    """LTX-Video: one token per latent, with the clip's frame rate."""

    spec = SPEC
    files = Files
    tokens = Tokens(cell=1)
    takes_first_frame = True

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        super().__init__(files, parts)
        assert isinstance(files, Files)
        self._is_later = files.is_later
        schedule = cast(FlowSchedule, self.schedule)
        self.schedule = replace(schedule, tokens=replace(schedule.tokens, slow_start=self._is_later))
        settings = files.settings.get_section(LTXSettings)
        self._rate, self.first_frame_prob = settings.frame_rate, settings.first_frame_prob
        self._has_decoder_timestep = self._configs["vae"].get("timestep_conditioning") is True

    def grid_of(self, files: FolderFiles) -> Grid:
        """See FlowFamily."""
        vae = files.configs["vae"]
        halvings = 2 ** sum(vae.get("spatio_temporal_scaling", ()))
        pixels = vae.get("spatial_compression_ratio") or vae["patch_size"] * halvings
        frames = vae.get("temporal_compression_ratio") or vae["patch_size_t"] * halvings
        return Grid(int(vae.get("latent_channels", 128)), int(pixels), int(frames), exact=True)

    def scale_moments(self, mean: Tensor, std: Tensor) -> Tensor:
        """See FlowFamily: by the statistics in the VAE's weights."""
        center, spread = self._statistics(mean)
        return torch.cat(((mean - center) * self._scale / spread, std * self._scale / spread), dim=1)

    def unscale_latents(self, latents: Tensor) -> Tensor:
        """See FlowFamily."""
        center, spread = self._statistics(latents)
        return latents * spread / self._scale + center

    def _statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of each channel, float32, on the device of a tensor."""
        vae = self._part("vae")
        mean, std = (t.to(like.device).float().view(1, -1, 1, 1, 1) for t in (vae.latents_mean, vae.latents_std))
        return mean, std

    def _decode(self, vae: Any, latents: Tensor) -> Any:
        """Decoders from 0.9.1 on take a noise level: 0."""
        levels = latents.new_zeros(len(latents)) if self._has_decoder_timestep else None
        return vae.decode(latents, levels).sample

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: hidden states (B, 128, 4096) with a mask."""
        length, width = self._text_shape
        if not captions:
            empty = self._empty(_T5, length, width)
            return TextEmbedding(empty, torch.ones(0, length, dtype=torch.int64, device=empty.device), lengths=())
        ids, mask, lengths = self._tokens(_T5, captions)
        if not self._is_later:
            return TextEmbedding(self._t5(_T5, captions), mask, lengths=lengths)
        with without_autocast(encoder := self._part(_T5)):
            return TextEmbedding(t5.states(encoder, ids, mask), mask, lengths=lengths)

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily. The time input is 1000 σ in float32; token positions are in seconds and pixels."""
        net, x, text = self._part("denoiser"), noised.model_input, condition.text
        frames, height, width = as_clips(x).shape[2:]
        velocity = net(
            hidden_states=cast_like_parameters(x.flatten(2).transpose(1, 2), net),
            encoder_hidden_states=cast_like_parameters(text.states, net),
            timestep=noised.model_t if noised.has_first_frame is None else self.token_times(noised),
            encoder_attention_mask=text.mask,
            num_frames=frames,
            height=height,
            width=width,
            **self._positions(x),
            return_dict=False,
        )[0]
        return cast(Tensor, velocity.transpose(1, 2).reshape(x.shape))

    def _positions(self, x: Tensor) -> dict[str, Any]:
        """Token positions in seconds and pixels: their spacing, or each position, (B, 3, n)."""
        spacing = self.grid.frames / self._rate, self.grid.pixels, self.grid.pixels
        if not self._is_later:
            return {"rope_interpolation_scale": spacing}
        sides = [torch.arange(side, dtype=torch.float32, device=x.device) for side in as_clips(x).shape[2:]]
        starts = (self.grid.frames * sides[0] + 1 - self.grid.frames).clamp(min=0) / self._rate
        positions = torch.meshgrid(starts, sides[1] * spacing[1], sides[2] * spacing[2], indexing="ij")
        return {"video_coords": torch.stack(positions).flatten(1).expand(len(x), -1, -1)}
