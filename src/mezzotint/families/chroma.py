"""Chroma of Lodestone Rock, a FLUX.1 without CLIP, read from diffusers folders, written as folders.

T5 reads the caption without its padding; the denoiser attends to the caption's tokens and one padding token after them.
One network, `distilled_guidance_layer`, computes the modulation of all blocks from the noise level. There is no
guidance input: sampling needs a pass for the negative prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor

from mezzotint.families.base import cast_like_parameters
from mezzotint.families.shared.flow import FlowFamily, pack_latents, token_lengths, token_positions, unpack_latents
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.families.shared.flux_names import FLUX1
from mezzotint.families.shared.folder_family import without_autocast
from mezzotint.families.shared.folder_files import Configs
from mezzotint.settings.families.chroma import SPEC, ChromaSettings
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.weights.folder import t5
from mezzotint.weights.model_files import ConfigConstraint

_T5 = "text_encoder"


class Files(FlowFiles):
    """The files of Chroma."""

    spec = SPEC
    pipelines = ("ChromaPipeline",)
    renames = ((r"^(distilled_guidance_layer\.norms\.\d+)\.weight$", r"\1.scale"), *FLUX1)

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """See FlowFiles."""
        denoiser, channels = configs["denoiser"], 4 * int(configs["vae"]["latent_channels"])
        yield "the denoiser takes packed latents of channels", denoiser.get("in_channels", 64), channels
        yield "the denoiser gives packed latents of channels", denoiser.get("out_channels") or channels, channels
        yield "the denoiser takes text of width", denoiser.get("joint_attention_dim"), configs[_T5].get("d_model")

    def length(self, part: str) -> int:
        """See FlowFiles."""
        return self.settings.get_section(ChromaSettings).text_tokens

    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles."""
        return self.length(_T5), int(self.configs["denoiser"]["joint_attention_dim"])


class Family(FlowFamily):
    """Chroma: latents are packed two by two, texts have a mask."""

    spec = SPEC
    files = Files
    block_lists = ("transformer_blocks", "single_transformer_blocks")

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: T5's hidden states (B, 512, 4096), with a mask of the text and one padding token, and zeros
        after them. Never under autocast, see `_t5`."""
        encoder, (length, width) = self._part(_T5), self._text_shape
        if not captions:
            empty = self._empty(_T5, length, width)
            return TextEmbedding(empty, torch.ones(0, length, dtype=torch.int64, device=empty.device), lengths=())
        ids, mask, counts = self._tokens(_T5, captions)
        with without_autocast(encoder):
            states = t5.states(encoder, ids, mask)
        kept = (torch.arange(length, device=mask.device) <= mask.sum(1, keepdim=True)).to(mask.dtype)
        lengths = tuple(min(count + 1, length) for count in counts)
        return TextEmbedding(states * kept[:, :, None].to(states.dtype), kept, lengths=lengths)

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily. The time input is σ; texts are cut to the longest of the batch.

        The mask is boolean. ChromaPipeline of diffusers 0.42 makes one of floats from its prompts, which its attention
        adds to the logits instead; with `prompt_attention_mask` as booleans it computes the same as this.
        """
        net, x, text = self._part("denoiser"), noised.model_input, condition.text
        lengths, tokens = token_lengths(text), pack_latents(x)
        longest, mask = max(lengths, default=1), None
        if min(lengths, default=1) != longest:
            kept = cast(Tensor, text.mask)[:, :longest].bool()
            mask = torch.cat([kept, kept.new_ones(len(x), tokens.shape[1])], dim=1)
        velocity = net(
            hidden_states=cast_like_parameters(tokens, net),
            timestep=noised.model_t / 1000,
            encoder_hidden_states=cast_like_parameters(text.states[:, :longest], net),
            txt_ids=x.new_zeros((longest, 3)),
            img_ids=token_positions(0, x),
            attention_mask=mask,
            return_dict=False,
        )[0]
        return unpack_latents(cast(Tensor, velocity), *x.shape[-2:])
