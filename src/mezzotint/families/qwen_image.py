"""Qwen-Image (arXiv:2508.02324), read from diffusers folders, written as folders.

A caption is put into a fixed instruction to describe an image and encoded by the language model of Qwen2.5-VL; its last
hidden states, without those of the instruction, are the text, with a mask. The autoencoder is Wan's, for one frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from mezzotint.families.base import Grid, cast_like_parameters
from mezzotint.families.shared.flow import (
    ChannelStatistics,
    FlowFamily,
    Standardized,
    pack_latents,
    token_lengths,
    unpack_latents,
)
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.families.shared.folder_family import without_autocast
from mezzotint.families.shared.folder_files import Configs, FolderFiles
from mezzotint.settings.families.qwen_image import SPEC, QwenImageSettings
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.weights.model_files import ConfigConstraint, ModelFiles

_QWEN = "text_encoder"
_TEMPLATE = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
_PREFIX_TOKENS = 34
"""Tokens of the template before the caption, which are dropped."""


class Files(FlowFiles):
    """The files of Qwen-Image."""

    spec = SPEC
    pipelines = ("QwenImagePipeline",)

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """See FlowFiles."""
        denoiser, text = configs["denoiser"], configs[_QWEN]
        channels = 4 * int(configs["vae"].get("z_dim", 16))
        yield "the denoiser takes packed latents of channels", denoiser.get("in_channels", 64), channels
        width = (text.get("text_config") or text).get("hidden_size")
        yield "the denoiser takes text of width", denoiser.get("joint_attention_dim"), width

    def length(self, part: str) -> int:
        """See FlowFiles: with the template's prefix."""
        return _PREFIX_TOKENS + self.settings.get_section(QwenImageSettings).text_tokens

    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles."""
        return self.length(_QWEN) - _PREFIX_TOKENS, int(self.configs["denoiser"]["joint_attention_dim"])


class Family(Standardized, FlowFamily):
    """Qwen-Image: latents are packed two by two, texts have a mask."""

    spec = SPEC
    files = Files

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        super().__init__(files, parts)
        self._statistics = ChannelStatistics(self._configs["vae"])

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

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: hidden states (B, 512, 3584), zeros after the text, with a mask of the text."""
        encoder, (length, width) = self._part(_QWEN), self._text_shape
        if not captions:
            empty = self._empty(_QWEN, length, width)
            return TextEmbedding(empty, torch.ones(0, length, dtype=torch.int64, device=empty.device), lengths=())
        ids, mask, lengths = self._tokens(_QWEN, captions, before=_PREFIX_TOKENS)
        with without_autocast(encoder):
            states = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        states, mask = states[:, _PREFIX_TOKENS:], mask[:, _PREFIX_TOKENS:]
        return TextEmbedding(states * mask[:, :, None].to(states.dtype), mask, lengths=lengths)

    def _apply_template(self, part: str, captions: Sequence[str]) -> list[str]:
        return [_TEMPLATE.format(caption) for caption in captions]

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily. The time input is σ; texts are cut to the longest of the batch."""
        net, x, text = self._part("denoiser"), noised.model_input, condition.text
        height, width = x.shape[-2:]
        lengths = token_lengths(text)
        longest, mask = max(lengths, default=1), cast(Tensor, text.mask)
        velocity = net(
            hidden_states=cast_like_parameters(pack_latents(x), net),
            encoder_hidden_states=cast_like_parameters(text.states[:, :longest], net),
            encoder_hidden_states_mask=None if min(lengths, default=1) == longest else mask[:, :longest],
            timestep=noised.model_t / 1000,
            img_shapes=[[(1, height // 2, width // 2)]] * len(x),
            return_dict=False,
        )[0]
        return unpack_latents(cast(Tensor, velocity), height, width)

    def guide(self, away: Tensor, towards: Tensor, scale: float) -> Tensor:
        """See ModelFamily: each token is rescaled to its norm without guidance."""
        guided, plain = pack_latents(super().guide(away, towards, scale)), pack_latents(towards)
        ratio = plain.norm(dim=-1, keepdim=True) / guided.norm(dim=-1, keepdim=True)
        return unpack_latents(guided * ratio, *towards.shape[-2:])
