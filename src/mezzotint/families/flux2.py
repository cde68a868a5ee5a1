"""FLUX.2 dev and Klein of Black Forest Labs, read from diffusers folders, written as folders.

A caption is encoded in a chat template by a language model, Qwen3 for Klein and Mistral Small 3 for dev; the hidden
states of three layers are concatenated, padding included; there is no mask. dev takes a guidance scale (guidance
distillation). Latents are the autoencoder's, folded two by two and scaled to deviation 1 by the statistics in its
weights. The models edit and combine: any number of reference images may be given, whose tokens follow the noisy ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from mezzotint.diffusion.flow import Tokens
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.families.base import Grid, cast_like_parameters
from mezzotint.families.shared import qwen3
from mezzotint.families.shared.flow import GuidedFamily, Standardized, pack_latents, unpack_latents
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.families.shared.flux_names import AROUND, ATTENTION
from mezzotint.families.shared.folder_family import without_autocast
from mezzotint.families.shared.folder_files import Configs, FolderFiles
from mezzotint.families.shared.reference_images import join_tokens
from mezzotint.settings.families.flux2 import SPEC, Flux2Settings
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.weights.folder.components import Network
from mezzotint.weights.folder.model_folder import require_plain
from mezzotint.weights.folder.tokenizer import require_fitting, tokenizer_errors
from mezzotint.weights.model_files import ConfigConstraint, ModelFiles, converting_config_errors
from mezzotint.weights.single_file.original import Renames

_TEXT = "text_encoder"
_MISTRAL = "transformers.models.mistral.modeling_mistral.MistralModel"
"""The language model of dev's Mistral 3, whose vision tower has no part in the encoding of captions."""
_KLEIN_LAYERS, _DEV_LAYERS = (9, 18, 27), (10, 20, 30)
"""The text encoder's layers whose states are the text."""
_SYSTEM_MESSAGE = (
    "You are an AI that reasons about image descriptions. You give structured responses focusing on object "
    "relationships, object\nattribution and actions without speculation."
)
"""The system message of dev's captions, as published with the model."""
_CHAT = f"<s>[SYSTEM_PROMPT]{_SYSTEM_MESSAGE}[/SYSTEM_PROMPT][INST]{{}}[/INST]"
"""A caption in the chat template of Mistral Small 3."""
_CHAT_MARKS = ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]")
_IMAGE_MARK = "[IMG]"
"""Stands for an image in Mistral's chats; dev's pipeline removes it from captions."""
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
    """The files of FLUX.2."""

    spec = SPEC
    pipelines = ("Flux2KleinPipeline", "Flux2Pipeline")
    renames = _ORIGINAL
    swapped = ("norm_out.linear",)

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """See FlowFiles."""
        denoiser, text = configs["denoiser"], configs[_TEXT]
        channels = 4 * int(configs["vae"].get("latent_channels", 32))
        yield "the denoiser takes folded latents of channels", denoiser.get("in_channels", 128), channels
        width = len(_DEV_LAYERS) * int((text.get("text_config") or text).get("hidden_size", 0))
        yield "the denoiser takes text of width", denoiser.get("joint_attention_dim"), width

    @property
    def min_conditions(self) -> int:
        """See ModelFiles: references are optional."""
        return 0

    @property
    def is_dev(self) -> bool:
        """Whether the text encoder is dev's, Mistral 3; Klein's is Qwen3."""
        return self.configs[_TEXT].get("model_type") == "mistral3"

    @property
    def takes_guidance(self) -> bool:
        """Whether the denoiser takes a guidance scale: dev's does, Klein's does not."""
        return self.is_dev and bool(self.configs["denoiser"].get("guidance_embeds", True))

    @property
    def networks(self) -> Mapping[str, Network]:
        """See ModelFiles: the text encoder by its configuration."""
        return {**self.spec.networks, _TEXT: _MISTRAL} if self.is_dev else self.spec.networks

    @property
    def is_distilled(self) -> bool:
        """Whether the folder is marked as distilled to few steps without guidance."""
        return self.folder.index.get("is_distilled") is True

    def require_trainable(self) -> None:
        """See ModelFiles: a distilled model needs `model.flux2.distilled`, and Klein takes no guidance."""
        flux2 = self.settings.get_section(Flux2Settings)
        if flux2.guidance is not None and not self.takes_guidance:
            raise WeightsError(
                f"{self.root}: FLUX.2 Klein takes no guidance in training, got model.flux2.guidance="
                f"{flux2.guidance:g}; set model.flux2.guidance=null",
                code="E1220",
            )
        if self.is_distilled and not (flux2.distilled or self.settings.under):
            raise WeightsError(
                f"{self.root}: this FLUX.2 Klein is a distilled model (is_distilled in model_index.json); training it "
                "destroys its 4-step sampling. Train the base model, put an "
                "adapter that undoes the distillation under the run (model.under), or set model.flux2.distilled=true",
                code="E1221",
            )

    def tokenizer(self, part: str) -> Any:
        """See FlowFiles. Raises WeightsError E1409 for an unknown chat template."""
        folder, setting = self.root / self.spec.tokenizers[part], "model.flux2.ignore_chat_template"
        if self.is_dev:
            vocabulary = int(self.configs[part]["text_config"].get("vocab_size", 1 << 30))
            tokenizer, check_template = _mistral_tokenizer(folder, vocabulary), _require_mistral_template
        else:
            tokenizer, check_template = super().tokenizer(part), qwen3.require_known_template
        if not self.settings.get_section(Flux2Settings).ignore_chat_template:
            check_template(tokenizer, folder, setting=setting)
        return tokenizer

    def length(self, part: str) -> int:
        """See FlowFiles."""
        return self.settings.get_section(Flux2Settings).text_tokens

    @property
    def text_layers(self) -> tuple[int, ...]:
        """The text encoder's layers whose states are the text. Raises WeightsError E1093 for a layer that it lacks."""
        chosen = self.settings.get_section(Flux2Settings).text_layers or self._usual_layers
        text = self.configs[_TEXT]
        with converting_config_errors(self.root):
            count = int((text.get("text_config") or text)["num_hidden_layers"])
        if max(chosen) > count:
            raise WeightsError(
                f"model.flux2.text_layers has layer {max(chosen)}, but this folder's text encoder has {count} layers; "
                "remove it to use the model's default layers",
                code="E1093",
            )
        return chosen

    def text_identity(self) -> str:
        """See FlowFiles, with the layers if they are not the default."""
        layers = "" if self.text_layers == self._usual_layers else f" layers={self.text_layers}"
        return super().text_identity() + layers

    @property
    def _usual_layers(self) -> tuple[int, ...]:
        return _DEV_LAYERS if self.is_dev else _KLEIN_LAYERS

    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles."""
        return self.length(_TEXT), int(self.configs["denoiser"]["joint_attention_dim"])


class Family(Standardized, GuidedFamily):
    """FLUX.2: one token per folded latent."""

    spec = SPEC
    files = Files
    tokens = Tokens(cell=1, by_steps=True)
    block_lists = ("transformer_blocks", "single_transformer_blocks")

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        super().__init__(files, parts)
        assert isinstance(files, Files)
        self._is_distilled = files.is_distilled
        self._is_dev = files.is_dev
        self._layers = files.text_layers
        self.takes_guidance = files.takes_guidance
        self.set_guidance(files.settings.get_section(Flux2Settings).guidance)
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
        """See ModelFamily: states (B, 512, 3 · D), without a mask; D: 2560 for Klein 4B, 5120 for dev."""
        encoder, (length, width) = self._part(_TEXT), self._text_shape
        if not captions:
            return TextEmbedding(self._empty(_TEXT, length, width))
        ids, mask, _ = self._tokens(_TEXT, captions)
        with without_autocast(encoder):
            layers = encoder(input_ids=ids, attention_mask=mask, output_hidden_states=list(self._layers)).hidden_states
        return TextEmbedding(torch.cat([layers[number] for number in self._layers], dim=-1))

    def _apply_template(self, part: str, captions: Sequence[str]) -> list[str]:
        if self._is_dev:
            return [_CHAT.format(caption.replace(_IMAGE_MARK, "")) for caption in captions]
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
            guidance=condition.vector,
            encoder_hidden_states=cast_like_parameters(text.states, net),
            txt_ids=token_positions((1, 1, 1, text.states.shape[1]), x.device).expand(len(x), -1, -1),
            img_ids=positions.expand(len(x), -1, -1),
            return_dict=False,
        )[0]
        return cast(Tensor, velocity[:, :count].transpose(1, 2).unflatten(2, x.shape[-2:]))


def _mistral_tokenizer(folder: Path, vocabulary: int) -> Any:
    """The tokenizer of Mistral 3, which adds no tokens to a chat. Raises WeightsError E1409."""
    from transformers import PreTrainedTokenizerFast

    require_plain(folder)
    with tokenizer_errors(folder):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
        tokenizer.add_bos_token = False  # the chat begins with it
    return require_fitting(tokenizer, folder, vocabulary)


def _require_mistral_template(tokenizer: Any, folder: Path, *, setting: str) -> None:
    """Raises WeightsError E1409 if a tokenizer's folder has a chat template without the marks of Mistral Small 3. A
    folder without a template is accepted. setting: the setting that ignores the template."""
    template = tokenizer.chat_template
    if template is None or (isinstance(template, str) and all(mark in template for mark in _CHAT_MARKS)):
        return
    raise WeightsError(
        f"{folder}: the chat template is not that of Mistral Small 3. A template is a program, and Mezzotint does not "
        "run it. Use the tokenizer folder that the model was published with, or set "
        f"{setting}=true to ignore the template and use Mistral's format",
        code="E1409",
    )


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
