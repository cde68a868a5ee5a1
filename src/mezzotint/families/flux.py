"""FLUX.1 dev, schnell, Kontext and Fill of Black Forest Labs, read from diffusers folders, written as folders.

T5's hidden states are the text, CLIP ViT-L/14 gives only its pooled text. Padding is attended to; there is no mask. dev
takes a guidance scale (guidance distillation); schnell, distilled to four steps, takes none. Kontext is dev trained to
edit: the tokens of the image before the edit follow the noisy ones (Labs et al. 2025, arXiv:2506.15742). Fill
inpaints: its tokens have further channels, with the image without the region to fill, and the region's pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Self, cast

import torch
from torch import Tensor, nn

from mezzotint.diffusion import inpainting
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.families.base import cast_like_parameters
from mezzotint.families.shared.flow import GuidedFamily, pack_latents, token_positions, unpack_latents
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.families.shared.flux_names import FLUX1
from mezzotint.families.shared.folder_files import Configs
from mezzotint.families.shared.reference_images import join_tokens
from mezzotint.settings.families.flux import SPEC, FluxSettings
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.weights.model_files import ConfigConstraint, ModelFiles
from mezzotint.weights.single_file.original import Renames

_CLIP, _T5 = "text_encoder", "text_encoder_2"
_TOKENS, _SCHNELL_TOKENS = 512, 256
_PIPELINES = {"text": "FluxPipeline", "edit": "FluxKontextPipeline", "inpaint": "FluxFillPipeline"}
"""The pipelines of diffusers, by `model.task`."""
_PIXELS = 64
"""Pixels of a latent."""

_ORIGINAL: Renames = (
    (r"^time_text_embed\.timestep_embedder\.", "time_in."),
    (r"^time_text_embed\.text_embedder\.", "vector_in."),
    (r"^time_text_embed\.guidance_embedder\.", "guidance_in."),
    *FLUX1,
)
"""The denoiser's tensor names in Black Forest Labs' files."""


class Files(FlowFiles):
    """The files of FLUX.1."""

    spec = SPEC
    pipelines = tuple(_PIPELINES.values())
    renames = _ORIGINAL
    has_split_names = True
    swapped = ("norm_out.linear",)

    @classmethod
    def of(cls, settings: ModelSettings, seed: int = 0) -> Self:
        """See FlowFiles. `model.task` decides between dev and Kontext, whose networks are the same. Raises WeightsError
        E1296 where it is `inpaint` and the model is not Fill, or the reverse."""
        files = super().of(settings, seed)
        task = files.task if settings.task == "auto" else settings.task
        if "inpaint" in {task, files.task} and task != files.task:
            remedy = "give data.inpaint.masks" if files.inpaints else "use FLUX.1 Fill, Stable Diffusion or SDXL"
            raise WeightsError(
                f"{files.root}: {'inpaints' if files.inpaints else 'does not inpaint'} (its denoiser takes "
                f"{files.configs['denoiser'].get('in_channels')} channels), but model.task={task}; leave it out, and "
                f"{remedy}",
                code="E1296",
            )
        index = {**files.folder.index, "_class_name": _PIPELINES[task]}
        return replace(files, folder=replace(files.folder, index=index))

    @property
    def task(self) -> str:
        """What the denoiser is given, as in `model.task`."""
        if self.configs["denoiser"].get("in_channels") == _input_channels(self.configs, "inpaint"):
            return "inpaint"
        return "edit" if self.folder.index.get("_class_name") == _PIPELINES["edit"] else "text"

    @property
    def condition_names(self) -> tuple[str, ...]:
        """See ModelFiles: Kontext takes the image before the edit."""
        return ("source",) if self.task == "edit" else ()

    @property
    def inpaints(self) -> bool:
        """See ModelFiles: Fill does."""
        return self.task == "inpaint"

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """See FlowFiles."""
        denoiser, channels = configs["denoiser"], _input_channels(configs)
        if denoiser.get("in_channels") != _input_channels(configs, "inpaint"):
            yield "the denoiser takes packed latents of channels", denoiser.get("in_channels", 64), channels
        yield "the denoiser gives packed latents of channels", denoiser.get("out_channels") or channels, channels
        yield "the denoiser takes text of width", denoiser.get("joint_attention_dim"), configs[_T5].get("d_model")
        pooled = configs[_CLIP].get("hidden_size", 512)
        yield "the denoiser takes pooled text of width", denoiser.get("pooled_projection_dim"), pooled

    def require_trainable(self) -> None:
        """See ModelFiles: schnell needs `model.flux.distilled`, and takes no guidance."""
        flux = self.settings.get_section(FluxSettings)
        if self.is_dev:
            return
        no_guidance = "model.flux.guidance=null"
        if not (flux.distilled or self.settings.under):
            also = f" and {no_guidance}" if flux.guidance is not None else ""
            raise WeightsError(
                f"{self.root}: FLUX.1-schnell is a distilled model (guidance_embeds is false in its configuration); "
                "training it destroys its 4-step sampling. Train FLUX.1-dev, whose adapters also work with schnell, "
                "put an "
                "adapter that undoes the distillation under the run (model.under), or set "
                f"model.flux.distilled=true{also}",
                code="E1221",
            )
        if flux.guidance is not None:
            raise WeightsError(
                f"{self.root}: FLUX.1-schnell takes no guidance, got model.flux.guidance={flux.guidance:g}; "
                f"set {no_guidance}",
                code="E1220",
            )

    @property
    def is_dev(self) -> bool:
        """Whether the denoiser takes a guidance scale; schnell's does not."""
        return bool(self.configs["denoiser"].get("guidance_embeds"))

    def length(self, part: str) -> int:
        """See FlowFiles."""
        if part != _T5:
            return super().length(part)
        usual = _TOKENS if self.is_dev else _SCHNELL_TOKENS
        return self.settings.get_section(FluxSettings).t5_tokens or usual

    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles."""
        return self.length(_T5), int(self.configs["denoiser"]["joint_attention_dim"])


class Family(GuidedFamily):
    """FLUX.1: latents are pack_latents two by two, with token positions."""

    spec = SPEC
    files = Files
    block_lists = ("transformer_blocks", "single_transformer_blocks")

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        super().__init__(files, parts)
        assert isinstance(files, Files)
        self.takes_guidance = files.is_dev
        self.inpaints = files.inpaints
        self.set_guidance(files.settings.get_section(FluxSettings).guidance)

    def refuse_guidance(self, scale: float) -> None:
        """See ModelFamily: schnell was distilled without guidance."""
        if not self.takes_guidance and scale not in (0.0, 1.0):
            raise RecipeError(
                f"FLUX.1-schnell takes no guidance, got sample.guidance={scale:g}; set sample.guidance=1 and "
                "sample.steps=4, or remove both",
                code="E1220",
            )

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: T5's hidden states (B, 512, 4096) and CLIP's pooled text (B, 768), without a mask."""
        if not captions:
            widths = int(self._configs[_T5]["d_model"]), int(self._configs[_CLIP]["hidden_size"])
            states = self._empty(_T5, self._lengths[_T5], widths[0])
            return TextEmbedding(states, pooled=self._empty(_CLIP, widths[1]))
        pooled = self._part(_CLIP)(self._tokens(_CLIP, captions)[0]).pooler_output
        return TextEmbedding(self._t5(_T5, captions), pooled=pooled)

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily. The time input is σ in float32, which the network casts to the dtype of its input."""
        net, x, text = self._part("denoiser"), noised.model_input, condition.text
        assert text.pooled is not None, "a text embedding of another family"
        references = () if self.inpaints else condition.images.values()
        tokens, positions, count = join_tokens(x, references, tokens_of=pack_latents, positions_of=token_positions)
        if self.inpaints:
            tokens = torch.cat([tokens, pack_latents(_inpainting_channels(x, condition.images))], dim=-1)
        velocity = net(
            hidden_states=cast_like_parameters(tokens, net),
            timestep=noised.model_t / 1000,
            guidance=condition.vector,
            pooled_projections=cast_like_parameters(text.pooled, net),
            encoder_hidden_states=cast_like_parameters(text.states, net),
            txt_ids=x.new_zeros((text.states.shape[1], 3)),
            img_ids=positions,
            return_dict=False,
        )[0]
        return unpack_latents(cast(Tensor, velocity)[:, :count], *x.shape[-2:])


def _input_channels(configs: Configs, task: str = "text") -> int:
    """How many channels a token of the denoiser has."""
    channels = int(configs["vae"]["latent_channels"])
    return 4 * (2 * channels + _PIXELS if task == "inpaint" else channels)


def _inpainting_channels(x: Tensor, images: Mapping[str, Tensor]) -> Tensor:
    """What Fill is given beside noisy latents x (B, C, h, w): the image without the region to fill, and the region's
    pixels, (B, C + 64, h, w); without them all is to be filled."""
    mask, masked_image = images.get(inpainting.MASK), images.get(inpainting.MASKED_IMAGE)
    region = x.new_ones(len(x), _PIXELS, *x.shape[2:]) if mask is None else inpainting.pack_pixels(mask, x).to(x)
    return torch.cat([torch.zeros_like(x) if masked_image is None else masked_image.to(x), region], dim=1)
