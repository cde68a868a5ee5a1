"""Z-Image of Tongyi-MAI (arXiv:2511.22699), read from diffusers folders, written as folders.

A caption is encoded by Qwen3 in its chat template; the hidden states before the last layer are the text, without
padding. The denoiser takes a list of images and a list of texts and the time input 1 − σ, and predicts the negated
velocity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from mezzotint.errors import WeightsError
from mezzotint.families.base import cast_like_parameters
from mezzotint.families.shared import qwen3
from mezzotint.families.shared.flow import FlowFamily, token_lengths
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.families.shared.folder_family import keeping_second_to_last, without_autocast
from mezzotint.families.shared.folder_files import Configs
from mezzotint.settings.families.z_image import SPEC, ZImageSettings
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.weights.model_files import ConfigConstraint
from mezzotint.weights.single_file.original import Renames

_QWEN = "text_encoder"
_TURBO_SHIFT = 3.0
"""The shift of Turbo's scheduler; the base model has 6."""
_ORIGINAL: Renames = (
    (r"^all_(final_layer|x_embedder)\.2-1\.", r"\1."),
    (r"\.attention\.to_[qkv]\.", ".attention.qkv."),
    (r"\.attention\.to_out\.0\.", ".attention.out."),
    (r"\.attention\.norm_([qk])\.", r".attention.\1_norm."),
)
"""The denoiser's tensor names in original Z-Image checkpoints, as used by ComfyUI."""


class Files(FlowFiles):
    """The files of Z-Image."""

    spec = SPEC
    pipelines = ("ZImagePipeline",)
    renames = _ORIGINAL

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """See FlowFiles."""
        denoiser = configs["denoiser"]
        yield (
            "the denoiser takes latents of channels",
            denoiser.get("in_channels", 16),
            configs["vae"]["latent_channels"],
        )
        yield "the denoiser takes text of width", denoiser.get("cap_feat_dim"), configs[_QWEN].get("hidden_size")

    def require_trainable(self) -> None:
        """See ModelFiles: Turbo needs `model.z_image.distilled`."""
        is_allowed = self.settings.under or self.settings.get_section(ZImageSettings).distilled
        if self.scheduler.get("shift") == _TURBO_SHIFT and not is_allowed:
            raise WeightsError(
                f"{self.root}: Z-Image-Turbo is a distilled model (its scheduler has shift 3, the base model's 6); "
                "training it destroys its 8-step sampling. Train Z-Image, put an "
                "adapter that undoes the distillation under the run (model.under), or set model.z_image.distilled=true",
                code="E1221",
            )

    def tokenizer(self, part: str) -> Any:
        """See FlowFiles. Raises WeightsError E1409 for an unknown chat template."""
        tokenizer = super().tokenizer(part)
        if not self.settings.get_section(ZImageSettings).ignore_chat_template:
            folder, setting = self.root / self.spec.tokenizers[part], "model.z_image.ignore_chat_template"
            qwen3.require_known_template(tokenizer, folder, setting=setting)
        return tokenizer

    def length(self, part: str) -> int:
        """See FlowFiles."""
        return self.settings.get_section(ZImageSettings).text_tokens

    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles."""
        return self.length(_QWEN), int(self.configs["denoiser"]["cap_feat_dim"])


class Family(FlowFamily):
    """Z-Image: image and text in one stream of tokens."""

    spec = SPEC
    files = Files
    block_lists = ("noise_refiner", "context_refiner", "layers")
    no_guidance = 0.0

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: hidden states (B, 512, 2560), zeros after the text, with a mask of the text."""
        encoder, config = self._part(_QWEN), self._configs[_QWEN]
        length = self._lengths[_QWEN]
        if not captions:
            empty = self._empty(_QWEN, length, int(config["hidden_size"]))
            return TextEmbedding(empty, torch.ones(0, length, dtype=torch.int64, device=empty.device), lengths=())
        ids, mask, lengths = self._tokens(_QWEN, captions)
        with without_autocast(encoder):
            _, states = keeping_second_to_last(encoder, ids, attention_mask=mask.bool())
        return TextEmbedding(states * mask[:, :, None].to(states.dtype), mask, lengths=lengths)

    def _apply_template(self, part: str, captions: Sequence[str]) -> list[str]:
        return qwen3.write_chat(captions, thinking=True)

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily."""
        net, text = self._part("denoiser"), condition.text
        lengths, states = token_lengths(text), cast_like_parameters(text.states, net)
        output = net(
            [x[:, None] for x in cast_like_parameters(noised.model_input, net)],
            (1000 - noised.model_t) / 1000,
            [each[:length] for each, length in zip(states, lengths, strict=True)],
            return_dict=False,
        )[0]
        return -torch.stack(list(output))[:, :, 0]

    def guide(self, away: Tensor, towards: Tensor, scale: float) -> Tensor:
        """See ModelFamily: p + s (p − n); a scale of 4 is 5 in other models."""
        return towards + scale * (towards - away)
