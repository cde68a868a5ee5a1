"""Stable Diffusion 1.x and 2.x, epsilon and v, read from diffusers folders and single-file checkpoints, written as
folders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

from torch import Tensor

from mezzotint.families.base import cast_like_parameters
from mezzotint.families.shared import caption_pieces
from mezzotint.families.shared.folder_files import Configs
from mezzotint.families.shared.stable import StableFamily
from mezzotint.families.shared.stable_files import StableFiles
from mezzotint.settings.families.sd import SPEC
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.weights.layouts import sd
from mezzotint.weights.model_files import ConfigConstraint

_TINY: dict[str, dict[str, Any]] = {
    "denoiser": {
        "block_out_channels": [16, 32], "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"], "layers_per_block": 1, "cross_attention_dim": 32,
        "sample_size": 8,
    },
    "text_encoder": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "projection_dim": 32},
    "vae": {"block_out_channels": [16, 16, 16, 16], "sample_size": 64},
}  # fmt: skip


class Files(StableFiles):
    """The files of a Stable Diffusion 1.x or 2.x model."""

    spec = SPEC
    layout = sd.LAYOUT
    pipelines: ClassVar[Mapping[str, str]] = {
        "edit": "StableDiffusionInstructPix2PixPipeline", "inpaint": "StableDiffusionInpaintPipeline",
    }  # fmt: skip
    narrower = _TINY

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """See StableFiles."""
        unet, text = configs["denoiser"], configs["text_encoder"]
        yield "the denoiser takes text of width", unet.get("cross_attention_dim"), text.get("hidden_size")

    def text_identity(self) -> str:
        """See ModelFiles."""
        encoder, tokenizer = self.fingerprint("text_encoder"), self.tokenizer_fingerprint("text_encoder")
        skip, length = self.settings.clip_skip, self.length("text_encoder")
        return f"sd-text-1 encoder={encoder} tokenizer={tokenizer} clip_skip={skip} tokens={length}"


class Family(StableFamily):
    """Stable Diffusion 1.x or 2.x: one text encoder; the text is the only conditioning."""

    spec = SPEC
    files = Files

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: (B, 77, D), or more states with several pieces, without a mask, as these models are trained.
        Captions that are too long are truncated, see `lost_tokens`."""
        encoder = self._part("text_encoder")
        if not captions:
            width = int(self._configs["text_encoder"]["hidden_size"])
            return TextEmbedding(self._empty("text_encoder", self._lengths["text_encoder"], width))
        ids, pieces = self._pieces("text_encoder", captions), self._pieces_of_caption
        if self._clip_skip == 0:
            return TextEmbedding(caption_pieces.join(encoder(ids).last_hidden_state, pieces))
        states = encoder(ids, output_hidden_states=True).hidden_states[-(self._clip_skip + 1)]
        inner = getattr(encoder, "text_model", encoder)  # transformers 5 dropped this level
        return TextEmbedding(caption_pieces.join(inner.final_layer_norm(states), pieces))

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily."""
        unet = self._part("denoiser")
        states = cast_like_parameters(condition.text.states, unet)
        model_input = self._model_input(noised, condition)
        return cast(Tensor, unet(model_input, noised.model_t, encoder_hidden_states=states, return_dict=False)[0])
