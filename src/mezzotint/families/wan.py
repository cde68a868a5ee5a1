"""Wan 2.1 and Wan 2.2 TI2V 5B (arXiv:2503.20314), text to video, from folders in diffusers' layout, to folders.

A caption goes through UMT5 with its mask, and zeros take the place of padding; the denoiser is told no mask. A clip of
n frames has (n − 1)/4 + 1 latent frames; a picture is a clip of one.
"""

from __future__ import annotations

import html
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from mezzotint.errors import WeightsError
from mezzotint.families.base import Grid, like_parameters
from mezzotint.families.shared.flow import Standardized, as_it_is
from mezzotint.families.shared.flow_clips import ClipFamily, as_clips
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.families.shared.stable_files import Configs
from mezzotint.recipe.families.wan import SPEC, WanSettings
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.stages import Batch, Condition, Framing, Noised, TextEmbedding
from mezzotint.weights.folder import t5
from mezzotint.weights.model_files import ConfigConstraint, ModelFiles
from mezzotint.weights.single_file.original import Renames

_UMT5 = "text_encoder"

_ORIGINAL: Renames = (
    (r"^condition_embedder\.time_embedder\.linear_1\.", "time_embedding.0."),
    (r"^condition_embedder\.time_embedder\.linear_2\.", "time_embedding.2."),
    (r"^condition_embedder\.text_embedder\.linear_1\.", "text_embedding.0."),
    (r"^condition_embedder\.text_embedder\.linear_2\.", "text_embedding.2."),
    (r"^condition_embedder\.time_proj\.", "time_projection.1."),
    (r"^scale_shift_table$", "head.modulation"),
    (r"\.scale_shift_table$", ".modulation"),
    (r"^proj_out\.", "head.head."),
    (r"\.attn1\.", ".self_attn."),
    (r"\.attn2\.", ".cross_attn."),
    (r"\.to_([qkv])\.", r".\1."),
    (r"\.to_out\.0\.", ".o."),
    (r"\.ffn\.net\.0\.proj\.", ".ffn.0."),
    (r"\.ffn\.net\.2\.", ".ffn.2."),
    (r"\.norm2\.", ".norm3."),
)
"""The denoiser's names in the files of Wan's makers."""


class Files(FlowFiles):
    """Wan as it lies on disk."""

    spec = SPEC
    pipelines = ("WanPipeline",)
    renames = _ORIGINAL
    refused: ClassVar = {"WanImageToVideoPipeline": "a model that goes on from a picture"}

    @classmethod
    def of(cls, settings: ModelSettings, seed: int = 0) -> Files:
        """See FlowFiles. Raises WeightsError E1222 for a model of two experts."""
        files = super().of(settings, seed)
        second = files.folder.index.get("transformer_2")
        if isinstance(second, list) and any(second):
            raise WeightsError(
                f"{files.root}: has two denoisers, one for much noise and one for little (transformer_2 in "
                "model_index.json), as Wan 2.2 A14B; family wan trains models with one: Wan 2.1, or Wan 2.2 TI2V 5B",
                code="E1222",
            )
        return files

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """See FlowFiles."""
        denoiser = configs["denoiser"]
        yield "the denoiser takes latents of channels", denoiser.get("in_channels", 16), configs["vae"].get("z_dim", 16)
        yield "the denoiser takes text of width", denoiser.get("text_dim"), configs[_UMT5].get("d_model")

    @property
    def by_token(self) -> bool:
        """Whether the denoiser is told the level of each token, so that a frame can be given."""
        return self.folder.index.get("expand_timesteps") is True

    def require_trainable(self) -> None:
        """See ModelFiles: first frames are given to the model that takes them."""
        if self.settings.own(WanSettings).first_frame and not self.by_token:
            raise WeightsError(
                f"{self.root}: is told one level of noise for a whole clip (expand_timesteps is not in "
                "model_index.json), so that no first frame can be given; leave out model.wan.first_frame, or take Wan "
                "2.2 TI2V 5B",
                code="E1480",
            )

    def length(self, part: str) -> int:
        """See FlowFiles."""
        return self.settings.own(WanSettings).text_tokens

    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles."""
        return self.length(_UMT5), int(self.configs["denoiser"]["text_dim"])

    def text_identity(self) -> str:
        """See FlowFiles, with what mends captions."""
        mended = importlib.metadata.version("ftfy") if importlib.util.find_spec("ftfy") else "no"
        return f"{super().text_identity()} ftfy={mended}"


class Family(Standardized, ClipFamily):
    """Wan: latents go in as they are, and the denoiser cuts them two by two."""

    spec = SPEC
    files = Files
    block_lists = ("blocks",)

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        super().__init__(files, parts)
        assert isinstance(files, Files)
        vae = files.configs["vae"]
        shape = (1, -1, 1, 1, 1)
        self._mean, self._std = (torch.tensor(vae[name]).view(shape) for name in ("latents_mean", "latents_std"))
        self.takes_first_frame = files.by_token
        self.begun_share = files.settings.own(WanSettings).first_frame

    def grid_of(self, files: FlowFiles) -> Grid:
        """See FlowFamily."""
        vae = files.configs["vae"]
        pixels, frames = int(vae.get("scale_factor_spatial") or 8), int(vae.get("scale_factor_temporal") or 4)
        return Grid(int(vae.get("z_dim", 16)), pixels, frames, self.tokens.cell, exact=True)

    def statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """See Standardized: those of the VAE's configuration."""
        return self._mean.to(like.device), self._std.to(like.device)

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: states (B, 512, 4096), zeros behind the text, without a mask."""
        encoder, (length, width) = self._part(_UMT5), self._text_shape
        if not captions:
            return TextEmbedding(self._empty(_UMT5, length, width))
        ids, mask = self._tokens(_UMT5, captions)
        with as_it_is(encoder):
            states = t5.states(encoder, ids, mask)
        return TextEmbedding(states * mask[:, :, None].to(states.dtype))

    def _templated(self, part: str, captions: Sequence[str]) -> list[str]:
        return [mended(caption) for caption in captions]

    def condition(self, text: TextEmbedding, batch: Batch | None, framing: Framing | None = None) -> Condition:
        """See ModelFamily: the text and nothing else."""
        return Condition(text)

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily. Told is 1000 σ in float32; of the 5B model each token's."""
        net, x = self._part("denoiser"), noised.model_input
        velocity = net(
            hidden_states=like_parameters(as_clips(x), net),
            timestep=self.token_times(noised) if self.takes_first_frame else noised.model_t,
            encoder_hidden_states=like_parameters(condition.text.states, net),
            return_dict=False,
        )[0]
        return cast(Tensor, velocity if x.ndim == 5 else velocity[:, :, 0])


def mended(caption: str) -> str:
    """A caption as Wan's pipeline cleans it: characters that were decoded wrongly mended, where the package ftfy is
    there, HTML's names of characters written out, runs of white space as one space."""
    if importlib.util.find_spec("ftfy") is not None:
        import ftfy

        caption = ftfy.fix_text(caption)
    return re.sub(r"\s+", " ", html.unescape(html.unescape(caption)).strip()).strip()
