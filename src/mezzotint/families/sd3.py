"""Stable Diffusion 3 and 3.5 (Esser et al. 2024, arXiv:2403.03206), read from diffusers folders, written as folders.

There are three text encoders: the hidden states before the last layer of CLIP ViT-L/14 and OpenCLIP ViT-bigG/14 are
concatenated along the width, padded with zeros to T5's width, and followed by T5's states along the sequence; the two
CLIPs' projected texts are the pooled text. There is no mask. A folder may lack T5: zeros replace its states, as in
diffusers' pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mezzotint.diffusion.flow import Tokens
from mezzotint.errors import WeightsError
from mezzotint.families.base import cast_like_parameters
from mezzotint.families.shared.flow import FlowFamily
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.families.shared.folder_family import keeping_second_to_last
from mezzotint.families.shared.folder_files import Configs
from mezzotint.settings.families.sd3 import SPEC, SD3Settings
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.weights.folder.model_folder import ModelFolder
from mezzotint.weights.model_files import ConfigConstraint, ModelFiles
from mezzotint.weights.single_file.original import DENOISER, FilePart, Renames

_CLIPS = ("text_encoder", "text_encoder_2")
_T5 = "text_encoder_3"

_ORIGINAL: Renames = (
    (r"^pos_embed\.pos_embed$", "pos_embed"),
    (r"^pos_embed\.proj\.", "x_embedder.proj."),
    (r"^time_text_embed\.timestep_embedder\.", "t_embedder."),
    (r"^time_text_embed\.text_embedder\.", "y_embedder."),
    (r"\.linear_1\.", ".mlp.0."),
    (r"\.linear_2\.", ".mlp.2."),
    (r"^proj_out\.", "final_layer.linear."),
    (r"^norm_out\.linear\.", "final_layer.adaLN_modulation.1."),
    (r"^transformer_blocks\.", "joint_blocks."),
    (r"\.norm1\.linear\.", ".x_block.adaLN_modulation.1."),
    (r"\.norm1_context\.linear\.", ".context_block.adaLN_modulation.1."),
    (r"\.ff\.net\.", ".x_block.mlp."),
    (r"\.ff_context\.net\.", ".context_block.mlp."),
    (r"_block\.mlp\.0\.proj\.", "_block.mlp.fc1."),
    (r"_block\.mlp\.2\.", "_block.mlp.fc2."),
    (r"\.attn\.add_[qkv]_proj\.", ".context_block.attn.qkv."),
    (r"\.attn\.norm_added_", ".context_block.attn.ln_"),
    (r"\.attn\.to_add_out\.", ".context_block.attn.proj."),
    (r"\.(attn2?)\.to_[qkv]\.", r".x_block.\1.qkv."),
    (r"\.(attn2?)\.norm_", r".x_block.\1.ln_"),
    (r"\.(attn2?)\.to_out\.0\.", r".x_block.\1.proj."),
)
"""The denoiser's tensor names in Stability AI's files."""


class Files(FlowFiles):
    """The files of SD3 or SD3.5."""

    spec = SPEC
    pipelines = ("StableDiffusion3Pipeline",)
    renames = _ORIGINAL
    has_split_names = True
    original: ClassVar = {
        "denoiser": FilePart(DENOISER),
        "vae": FilePart("first_stage_model.", keeps_start=True),
        "text_encoder": FilePart("text_encoders.clip_l.transformer.", converted=False),
        "text_encoder_2": FilePart("text_encoders.clip_g.transformer.", converted=False),
        "text_encoder_3": FilePart("text_encoders.t5xxl.transformer.", converted=False),
    }
    written_start = DENOISER

    @classmethod
    def swapped_layers(cls, names: Collection[str]) -> Collection[str]:
        """See ModelFiles: the last norm, and the text norm of the last block, which has no gates."""
        blocks = [int(name.split(".")[1]) for name in names if name.startswith("transformer_blocks.")]
        return ("norm_out.linear", f"transformer_blocks.{max(blocks, default=0)}.norm1_context.linear")

    @classmethod
    def find_absent_parts(cls, folder: ModelFolder) -> Collection[str]:
        """See FlowFiles: T5, if model_index.json or the folder has none."""
        named = folder.index.get(_T5)
        return () if isinstance(named, list) and any(named) and folder.has(_T5) else (_T5,)

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """See FlowFiles."""
        denoiser, clips = configs["denoiser"], [configs[part] for part in _CLIPS]
        pooled = sum(int(clip.get("projection_dim", 512)) for clip in clips)
        yield (
            "the denoiser takes latents of channels",
            denoiser.get("in_channels", 16),
            configs["vae"]["latent_channels"],
        )
        yield "the denoiser takes pooled text of width", denoiser.get("pooled_projection_dim"), pooled
        if _T5 in configs:
            yield "the denoiser takes text of width", denoiser.get("joint_attention_dim"), configs[_T5].get("d_model")

    def length(self, part: str) -> int:
        """See FlowFiles."""
        return self.settings.get_section(SD3Settings).t5_tokens if part == _T5 else super().length(part)

    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles."""
        length = self.length(_CLIPS[0]) + self.settings.get_section(SD3Settings).t5_tokens
        return length, int(self.configs["denoiser"]["joint_attention_dim"])

    def text_identity(self) -> str:
        """See FlowFiles, with the zeros that replace a missing T5."""
        tokens = self.settings.get_section(SD3Settings).t5_tokens
        return super().text_identity() + ("" if _T5 in self.configs else f" zeros={tokens}")

    def notes(self, parts: Collection[str]) -> Iterator[str]:
        """See FlowFiles."""
        yield from super().notes(parts)
        yield from self.absences()

    def absences(self) -> Iterator[str]:
        """See ModelFiles."""
        if _T5 not in self.configs:
            yield f"{_T5}: this folder has no T5; zeros replace its output, as in diffusers' pipeline"


class Family(FlowFamily):
    """SD3 or SD3.5: the transformer patchifies latents itself."""

    spec = SPEC
    files = Files
    tokens = Tokens(uniform_sigmas=False)

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        super().__init__(files, parts)
        self._text_length, self._text_width = self._text_shape
        self._max_side = int(self._configs["denoiser"].get("pos_embed_max_size", 96)) * self.tokens.cell

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: states (B, 77 + L, 4096) and pooled (B, 2048), without a mask."""
        if not captions:
            width = sum(int(self._configs[part].get("projection_dim", 512)) for part in _CLIPS)
            first = _CLIPS[0]
            return TextEmbedding(
                self._empty(first, self._text_length, self._text_width), pooled=self._empty(first, width)
            )
        outputs = [keeping_second_to_last(self._part(part), self._tokens(part, captions)[0]) for part in _CLIPS]
        states = torch.cat([states for _, states in outputs], dim=-1)
        states = pad(states, (0, self._text_width - states.shape[-1]))
        if _T5 in self.text_parts:
            below = self._t5(_T5, captions).to(states.dtype)
        else:
            below = states.new_zeros((len(states), self._text_length - states.shape[1], self._text_width))
        pooled = torch.cat([output.text_embeds for output, _ in outputs], dim=-1)
        return TextEmbedding(torch.cat([states, below], dim=1), pooled=pooled)

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily. Raises WeightsError E1222 for images larger than the position table."""
        net, pooled = self._part("denoiser"), condition.text.pooled
        assert pooled is not None, "a text embedding of another family"
        side = max(noised.model_input.shape[-2:])
        if side > self._max_side:
            raise WeightsError(
                f"images with a side of {side * self.grid.pixels} pixels are larger than this model's position table, "
                f"which ends at {self._max_side * self.grid.pixels}; set a smaller data.resolution or sample.size",
                code="E1222",
            )
        velocity = net(
            hidden_states=cast_like_parameters(noised.model_input, net),
            timestep=noised.model_t,
            encoder_hidden_states=cast_like_parameters(condition.text.states, net),
            pooled_projections=cast_like_parameters(pooled, net),
            return_dict=False,
        )[0]
        return cast(Tensor, velocity)
