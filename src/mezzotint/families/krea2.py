"""Krea 2 of Krea AI, read from diffusers folders, written as folders.

A caption is put into Qwen-Image's instruction to describe an image and encoded by the language model of Qwen3-VL; the
hidden states of twelve layers, without those of the instruction, are the text, with a mask. The denoiser fuses the
layers, and attends to text and image in one stream. The autoencoder is Qwen-Image's. Turbo is distilled to few steps
without guidance and has a fixed shift.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from mezzotint.diffusion.flow import FlowSchedule
from mezzotint.errors import WeightsError
from mezzotint.families.base import cast_like_parameters
from mezzotint.families.shared.flow import (
    ClipVaeFamily,
    pack_latents,
    token_lengths,
    token_positions,
    unpack_latents,
)
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.families.shared.folder_family import without_autocast
from mezzotint.families.shared.folder_files import Configs, FolderFiles
from mezzotint.settings.families.krea2 import SPEC, Krea2Settings
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.weights.folder.tokenizer import tokenize
from mezzotint.weights.model_files import ConfigConstraint, ModelFiles, converting_config_errors
from mezzotint.weights.single_file.original import Renames

_QWEN = "text_encoder"
_START = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n"
)
_END = "<|im_end|>\n<|im_start|>assistant\n"
_PREFIX = 34
"""Tokens of the instruction, whose states are dropped."""
_LAYERS = (2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 32, 35)
"""The text encoder's layers whose states are the text, if model_index.json does not name them."""
_TURBO_MU = 1.15
"""μ of Turbo's shift at every resolution."""
_ORIGINAL: Renames = (
    (r"^img_in\.", "first."),
    (r"^time_embed\.linear_1\.", "tmlp.0."),
    (r"^time_embed\.linear_2\.", "tmlp.2."),
    (r"^time_mod_proj\.", "tproj.1."),
    (r"^txt_in\.norm\.weight$", "txtmlp.0.scale"),
    (r"^txt_in\.linear_1\.", "txtmlp.1."),
    (r"^txt_in\.linear_2\.", "txtmlp.3."),
    (r"^text_fusion\.", "txtfusion."),
    (r"^transformer_blocks\.", "blocks."),
    (r"^final_layer\.linear\.", "last.linear."),
    (r"^final_layer\.norm\.weight$", "last.norm.scale"),
    (r"^final_layer\.scale_shift_table$", "last.modulation.lin"),
    (r"\.attn\.to_([qkv])\.", r".attn.w\1."),
    (r"\.attn\.to_out\.0\.", ".attn.wo."),
    (r"\.attn\.to_gate\.", ".attn.gate."),
    (r"\.attn\.norm_([qk])\.weight$", r".attn.qknorm.\1norm.scale"),
    (r"\.ff\.", ".mlp."),
    (r"\.norm1\.weight$", ".prenorm.scale"),
    (r"\.norm2\.weight$", ".postnorm.scale"),
    (r"\.scale_shift_table$", ".mod.lin"),
)
"""The denoiser's tensor names in Krea's files."""


class Files(FlowFiles):
    """The files of Krea 2."""

    spec = SPEC
    pipelines = ("Krea2Pipeline",)
    renames = _ORIGINAL
    flat = r"^transformer_blocks\.\d+\.scale_shift_table$"

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """See FlowFiles."""
        denoiser, text = configs["denoiser"], configs[_QWEN]
        channels = 4 * int(configs["vae"].get("z_dim", 16))
        yield "the denoiser takes packed latents of channels", denoiser.get("in_channels", 64), channels
        width = (text.get("text_config") or text).get("hidden_size")
        yield "the denoiser takes text of width", denoiser.get("text_hidden_dim", 2560), width

    @property
    def is_distilled(self) -> bool:
        """Whether the folder is marked as distilled to few steps without guidance."""
        return self.folder.index.get("is_distilled") is True

    def require_trainable(self) -> None:
        """See ModelFiles: Turbo needs `model.krea2.distilled`."""
        is_allowed = self.settings.under or self.settings.get_section(Krea2Settings).distilled
        if self.is_distilled and not is_allowed:
            raise WeightsError(
                f"{self.root}: Krea 2 Turbo is a distilled model (is_distilled in model_index.json); training it "
                "destroys its 8-step sampling. Train Krea 2 Raw, whose adapters also work with Turbo, put an "
                "adapter that undoes the distillation under the run (model.under), or set "
                "model.krea2.distilled=true",
                code="E1221",
            )

    def schedule_fingerprint(self) -> str:
        """See FlowFiles, also by whether the shift is Turbo's."""
        return super().schedule_fingerprint() + ("-turbo" if self.is_distilled else "")

    @property
    def text_layers(self) -> tuple[int, ...]:
        """The text encoder's layers whose states are the text. Raises WeightsError E1409 for others than it has, or
        another number of them than the denoiser takes."""
        chosen = self.folder.index.get("text_encoder_select_layers") or list(_LAYERS)
        text = self.configs[_QWEN]
        with converting_config_errors(self.root):
            taken = int(self.configs["denoiser"].get("num_text_layers", len(_LAYERS)))
            count = int((text.get("text_config") or text)["num_hidden_layers"])
        is_plain = isinstance(chosen, list) and all(isinstance(layer, int) and 0 <= layer <= count for layer in chosen)
        if not is_plain or len(chosen) != taken:
            raise WeightsError(
                f"{self.root / 'model_index.json'}: text_encoder_select_layers must be {taken} numbers of layers, each "
                f"at most {count}, got {chosen}; get another copy",
                code="E1409",
            )
        return tuple(chosen)

    def text_identity(self) -> str:
        """See FlowFiles, with the layers."""
        return f"{super().text_identity()} layers={self.text_layers}"

    def length(self, part: str) -> int:
        """See FlowFiles: with the instruction."""
        return _PREFIX + self.settings.get_section(Krea2Settings).text_tokens

    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles: the states of all layers side by side."""
        width = int(self.configs["denoiser"].get("text_hidden_dim", 2560))
        return self.length(_QWEN) - _PREFIX, len(self.text_layers) * width


class Family(ClipVaeFamily):
    """Krea 2: latents are packed two by two, texts have a mask."""

    spec = SPEC
    files = Files
    no_guidance = 0.0

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        super().__init__(files, parts)
        assert isinstance(files, Files)
        self._layers = files.text_layers

    def schedule_of(self, files: FolderFiles) -> FlowSchedule:
        """See FlowFamily: Turbo's shift is the same at every resolution."""
        assert isinstance(files, Files)
        fixed = {"use_dynamic_shifting": False, "shift": math.exp(_TURBO_MU)} if files.is_distilled else {}
        return FlowSchedule.of({**files.scheduler, **fixed}, self.tokens)

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: states of all layers side by side (B, 512, 12 · 2560), zeros after the text, with a mask of
        the text.

        The pipeline pads before the template's end, and leaves the padding out of the mask and the positions, so the
        states of tokens are the same as here, where padding comes last.
        """
        encoder, (length, width) = self._part(_QWEN), self._text_shape
        if not captions:
            empty = self._empty(_QWEN, length, width)
            return TextEmbedding(empty, torch.ones(0, length, dtype=torch.int64, device=empty.device), lengths=())
        ids, mask, lengths = self._tokens(_QWEN, captions, before=_PREFIX)
        with without_autocast(encoder):
            layers = encoder(input_ids=ids, attention_mask=mask, output_hidden_states=list(self._layers)).hidden_states
        states, mask = torch.cat([layers[number][:, _PREFIX:] for number in self._layers], dim=-1), mask[:, _PREFIX:]
        return TextEmbedding(states * mask[:, :, None].to(states.dtype), mask, lengths=lengths)

    def _tokenize(self, part: str, captions: Sequence[str], before: int) -> tuple[Tensor, Tensor]:
        """See FolderFamily. Also a truncated caption is followed by the template's end."""
        ids, mask = super()._tokenize(part, captions, before)
        end = torch.tensor(tokenize(self._tokenizer(part), [_END]).input_ids[0])
        ids[:, -len(end) :] = torch.where(mask[:, -1:].bool(), end, ids[:, -len(end) :])
        return ids, mask

    def _apply_template(self, part: str, captions: Sequence[str]) -> list[str]:
        return [_START + caption + _END for caption in captions]

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily. The time input is σ; texts are cut to the longest of the batch."""
        net, x, text = self._part("denoiser"), noised.model_input, condition.text
        lengths = token_lengths(text)
        longest, mask = max(lengths, default=1), cast(Tensor, text.mask)
        states = text.states[:, :longest].unflatten(2, (len(self._layers), -1))
        velocity = net(
            hidden_states=cast_like_parameters(pack_latents(x), net),
            encoder_hidden_states=cast_like_parameters(states, net),
            timestep=noised.model_t / 1000,
            position_ids=torch.cat([x.new_zeros((longest, 3)), token_positions(0, x)]),
            encoder_attention_mask=None if min(lengths, default=1) == longest else mask[:, :longest].bool(),
            return_dict=False,
        )[0]
        return unpack_latents(cast(Tensor, velocity), *x.shape[-2:])

    def guide(self, away: Tensor, towards: Tensor, scale: float) -> Tensor:
        """See ModelFamily: p + s (p − n); a scale of 4 is 5 in other models."""
        return towards + scale * (towards - away)
