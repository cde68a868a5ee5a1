"""FLUX.2 Klein of Black Forest Labs, read from diffusers folders, written as folders.

A caption is encoded by Qwen3 in its chat template; the hidden states of three layers are concatenated, padding
included; there is no mask. Latents are the autoencoder's, folded two by two and scaled to deviation 1 by the statistics
in its weights. Klein edits and combines: any number of reference images may be given, whose tokens follow the noisy
ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from mezzotint.diffusion.flow import Tokens
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.families.base import Grid, cast_like_parameters
from mezzotint.families.shared import qwen3
from mezzotint.families.shared.flow import FlowFamily, Standardized, pack_latents, unpack_latents
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.families.shared.flux_names import AROUND, ATTENTION
from mezzotint.families.shared.folder_family import without_autocast
from mezzotint.families.shared.folder_files import Configs, FolderFiles
from mezzotint.families.shared.reference_images import join_tokens
from mezzotint.settings.families.flux2 import SPEC, Flux2Settings
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.weights.model_files import ConfigConstraint, ModelFiles
from mezzotint.weights.single_file.original import Renames

_QWEN = "text_encoder"
_LAYERS = 3
"""The number of Qwen3's layers whose states are the text."""
_EPS = 1e-4
_TIME_STEP = 10
"""How far the noisy latents and each reference image are apart in time."""

_ORIGINAL: Renames = (
    (r"^time_guidance_embed\.timestep_embedder\.", "time_in."),
    (r"^time_guidance_embed\.guidance_embedder\.", "guidance_in."),
    *AROUND,
    (r"_modulation(_\w+)?\.linear\.", r"_modulation\1.lin."),
    (r"^single_transformer_blocks\.(\d+)\.attn\.to_qkv_mlp_proj\.", r"single_blocks.\1.linear1."),
    (r"^single_transformer_blocks\.(\d+)\.attn\.to_out\.", r"single_blocks.\1.linear2."),
    (r"^single_transformer_blocks\.(\d+)\.attn\.", r"single_blocks.\1."),
    (r"^transformer_blocks\.", "double_blocks."),
    (r"\.ff\.linear_in\.", ".img_mlp.0."),
    (r"\.ff\.linear_out\.", ".img_mlp.2."),
    (r"\.ff_context\.linear_in\.", ".txt_mlp.0."),
    (r"\.ff_context\.linear_out\.", ".txt_mlp.2."),
    *ATTENTION,
)
"""The denoiser's tensor names in Black Forest Labs' files."""


class Files(FlowFiles):
    """The files of FLUX.2 Klein."""

    spec = SPEC
    pipelines = ("Flux2KleinPipeline",)
    renames = _ORIGINAL
    swapped = ("norm_out.linear",)
    refused: ClassVar = {"Flux2Pipeline": "FLUX.2 dev, whose caption encoding has not been verified"}

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """See FlowFiles."""
        denoiser, text = configs["denoiser"], configs[_QWEN]
        channels = 4 * int(configs["vae"].get("latent_channels", 32))
        yield "the denoiser takes folded latents of channels", denoiser.get("in_channels", 128), channels
        width = _LAYERS * int(text.get("hidden_size", 0))
        yield "the denoiser takes text of width", denoiser.get("joint_attention_dim"), width

    @property
    def min_conditions(self) -> int:
        """See ModelFiles: references are optional."""
        return 0

    @property
    def is_distilled(self) -> bool:
        """Whether the folder is marked as distilled to few steps without guidance."""
        return self.folder.index.get("is_distilled") is True

    def require_trainable(self) -> None:
        """See ModelFiles: a distilled model needs `model.flux2.distilled`."""
        if self.is_distilled and not self.settings.get_section(Flux2Settings).distilled:
            raise WeightsError(
                f"{self.root}: this FLUX.2 Klein is a distilled model (is_distilled in model_index.json); training it "
                "destroys its 4-step sampling. Train the base model, or set model.flux2.distilled=true",
                code="E1221",
            )

    def tokenizer(self, part: str) -> Any:
        """See FlowFiles. Raises WeightsError E1409 for an unknown chat template."""
        tokenizer = super().tokenizer(part)
        if not self.settings.get_section(Flux2Settings).ignore_chat_template:
            folder, setting = self.root / self.spec.tokenizers[part], "model.flux2.ignore_chat_template"
            qwen3.require_known_template(tokenizer, folder, setting=setting)
        return tokenizer

    def length(self, part: str) -> int:
        """See FlowFiles."""
        return self.settings.get_section(Flux2Settings).text_tokens

    @property
    def text_layers(self) -> tuple[int, ...]:
        """Layers of Qwen3 whose states are the text. Raises WeightsError E1093 for a layer that it lacks."""
        chosen, count = (
            self.settings.get_section(Flux2Settings).text_layers,
            int(self.configs[_QWEN]["num_hidden_layers"]),
        )
        if max(chosen) > count:
            raise WeightsError(
                f"model.flux2.text_layers has layer {max(chosen)}, but this folder's Qwen3 has {count} layers; remove "
                "it to use the model's default layers",
                code="E1093",
            )
        return chosen

    def text_identity(self) -> str:
        """See FlowFiles, with the layers if they are not the default."""
        usual = Flux2Settings.model_fields["text_layers"].default
        return super().text_identity() + ("" if self.text_layers == usual else f" layers={self.text_layers}")

    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles."""
        return self.length(_QWEN), int(self.configs["denoiser"]["joint_attention_dim"])


class Family(Standardized, FlowFamily):
    """FLUX.2 Klein: one token per folded latent."""

    spec = SPEC
    files = Files
    tokens = Tokens(cell=1, by_steps=True)
    block_lists = ("transformer_blocks", "single_transformer_blocks")

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        super().__init__(files, parts)
        assert isinstance(files, Files)
        self._is_distilled = files.is_distilled
        self._layers = files.text_layers
        self._eps = float(self._configs["vae"].get("batch_norm_eps", _EPS))

    def grid_of(self, files: FolderFiles) -> Grid:
        """See FlowFamily: for folded latents."""
        vae = files.configs["vae"]
        return Grid(4 * int(vae.get("latent_channels", 32)), 2 ** len(vae["block_out_channels"]))

    def refuse_guidance(self, scale: float) -> None:
        """See ModelFamily: a distilled model takes no guidance."""
        if self._is_distilled and scale not in (0.0, 1.0):
            raise RecipeError(
                f"a distilled FLUX.2 Klein takes no guidance, got sample.guidance={scale:g}; set sample.guidance=1 "
                "and sample.steps=4, or remove both",
                code="E1220",
            )

    def scale_moments(self, mean: Tensor, std: Tensor) -> Tensor:
        """See FlowFamily: folded, then standardized per channel."""
        return super().scale_moments(fold_latents(mean), fold_latents(std))

    def unscale_latents(self, latents: Tensor) -> Tensor:
        """See FlowFamily."""
        return unfold_latents(super().unscale_latents(latents))

    def statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """See Standardized: of folded latents, (1, C, 1, 1) float32."""
        norm = self._part("vae").bn
        mean, variance = (t.to(like.device).float().view(1, -1, 1, 1) for t in (norm.running_mean, norm.running_var))
        return mean, (variance + self._eps).sqrt()

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: states (B, 512, 3 · 2560), without a mask."""
        encoder, (length, width) = self._part(_QWEN), self._text_shape
        if not captions:
            return TextEmbedding(self._empty(_QWEN, length, width))
        ids, mask, _ = self._tokens(_QWEN, captions)
        with without_autocast(encoder):
            layers = encoder(input_ids=ids, attention_mask=mask, output_hidden_states=list(self._layers)).hidden_states
        return TextEmbedding(torch.cat([layers[number] for number in self._layers], dim=-1))

    def _apply_template(self, part: str, captions: Sequence[str]) -> list[str]:
        return qwen3.write_chat(captions, thinking=False)

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily. The time input is σ in float32, which the network casts to the dtype of its input."""
        net, x, text = self._part("denoiser"), noised.model_input, condition.text
        tokens, positions, count = join_tokens(
            x, condition.images.values(), tokens_of=_tokens_of, positions_of=_positions_of
        )
        velocity = net(
            hidden_states=cast_like_parameters(tokens, net),
            timestep=noised.model_t / 1000,
            guidance=None,
            encoder_hidden_states=cast_like_parameters(text.states, net),
            txt_ids=token_positions((1, 1, 1, text.states.shape[1]), x.device).expand(len(x), -1, -1),
            img_ids=positions.expand(len(x), -1, -1),
            return_dict=False,
        )[0]
        return cast(Tensor, velocity[:, :count].transpose(1, 2).unflatten(2, x.shape[-2:]))


def token_positions(sides: tuple[int, ...], device: torch.device) -> Tensor:
    """(1, n, 4) int64: time, row, column and text position of each token, the last varying fastest."""
    axes = torch.meshgrid(*(torch.arange(side, device=device) for side in sides), indexing="ij")
    return torch.stack(axes, dim=-1).reshape(1, -1, len(sides))


def _positions_of(number: int, latents: Tensor) -> Tensor:
    """`token_positions` of latents: of the noisy ones at time 0, of the references at 10, 20 and so on."""
    positions = token_positions((1, *latents.shape[-2:], 1), latents.device)
    positions[..., 0] += _TIME_STEP * number
    return positions


def _tokens_of(latents: Tensor) -> Tensor:
    return latents.flatten(2).transpose(1, 2)


def fold_latents(x: Tensor) -> Tensor:
    """(B, C, h, w) → (B, 4C, h/2, w/2), within a token the channel varies slowest, then the row."""
    height, width = x.shape[-2:]
    return cast(Tensor, pack_latents(x).transpose(1, 2).unflatten(2, (height // 2, width // 2)))


def unfold_latents(x: Tensor) -> Tensor:
    """The inverse of `fold_latents`."""
    height, width = x.shape[-2:]
    return unpack_latents(x.flatten(2).transpose(1, 2), 2 * height, 2 * width)
