"""Facts of LatteT2V, and its settings: attention of the network, tiling of the autoencoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from mezzotint.settings.base import ALLOW, FREE, NEVER, RECORDED, InputPath, Section
from mezzotint.settings.families.base import FamilySpec


class TilingSettings(Section):
    """The autoencoder processes clips that are larger than a tile in tiles. That needs less memory; the latents differ
    a little, because norms and attention see only one tile."""

    enabled: Annotated[bool, ALLOW] = False
    """Whether larger clips are split into tiles."""

    overlap: Annotated[float, Field(gt=0.0, lt=1.0), ALLOW] = 0.25
    """Share of their side by which neighbouring tiles overlap and are blended. It must be an integer number of latents:
    with tiles of 256 pixels, a multiple of 1/32."""

    side: Annotated[int, Field(ge=16, le=4096, multiple_of=8), ALLOW] = 256
    """The side of a tile in pixels."""

    frames: Annotated[int, Field(ge=5, le=1025), ALLOW] = 65
    """Frames of a tile, 4k + 1; neighbouring tiles share one frame."""

    def contradictions(self) -> Iterator[str]:
        if self.frames % 4 != 1:
            below = self.frames - (self.frames - 1) % 4
            yield f"model.latte.tiling.frames must be 4k + 1, such as {below} or {below + 4}, got {self.frames}"
        cells = self.side // 8
        if not (self.overlap * cells).is_integer():
            near = min(max(round(self.overlap * cells), 1), cells - 1) / cells
            yield (
                f"model.latte.tiling.overlap must be an integer number of a tile's {cells} latents, got "
                f"{self.overlap}; write {near}"
            )


class LatteSettings(Section):
    """Only for family `latte`, LatteT2V of Open-Sora-Plan v1.1: text, changes of the network's configuration, and
    autoencoder. `model.path` is a released folder (config.json and weights; `vae` in it or next to it), one in
    diffusers' layout (transformer/), or a file (.safetensors, .pt, .ckpt of torch or MindSpore) with `model.config`,
    since a file does not contain the length of its clips: `latte-17f`, `latte-65f` or `latte-221f`, or a folder with
    config.json. With `model.weights=random`, `model.config` describes the denoiser."""

    text_encoder: Annotated[InputPath | None, FREE] = None
    """The folder of T5 v1.1 XXL's encoder with its tokenizer (DeepFloyd/t5-v1_1-xxl), or one with the folders
    text_encoder/ and tokenizer/. None uses those of the model's own folder. Exports do not include it."""

    max_tokens: Annotated[Annotated[int, Field(ge=2, le=4096)] | None, NEVER] = None
    """Number of tokens of a caption, including the end token; longer captions are truncated, shorter ones are padded
    and masked. None uses the model's configuration: 300."""

    variance: Annotated[Literal["none", "learned-range"] | None, ALLOW] = None
    """For a denoiser whose output has twice the channels of its latents: `learned-range` trains the second half to
    interpolate the variance of a reverse step between its two bounds, with a variational term that is added to the loss
    (Nichol and Dhariwal 2021, arXiv:2102.09672; timestep weights do not apply to it); `none` does not train that half.
    None is learned-range if the model has the channels, as released models do."""

    rope: Annotated[bool | None, NEVER] = None
    """Rotary positions in self-attention, in addition to the position tables (RoPE, Su et al. 2021, arXiv:2104.09864).
    Not together with `model.latte.compress_kv`. None uses the model's configuration. The weights have the same names
    either way; a model that was trained without them must learn to use them."""

    compress_kv: Annotated[PositiveInt | None, NEVER] = None
    """Factor by which the later half of the layers compresses keys and values, in each direction; 1 is no compression.
    None uses the model's configuration. Compression layers that are not in the files are initialised as means."""

    video_length: Annotated[PositiveInt | None, NEVER] = None
    """Number of latent frames that temporal positions are scaled for: (frames − 1)/4 + 1 of the trained clips. Up to 32
    they are not scaled, so that 17 and 65 frames have the same scale. None uses the model's configuration."""

    images: Annotated[Literal["clip", "still"], ALLOW] = "clip"
    """How the model processes an image without a clip, in training and sampling: as a `clip` of one frame, or as a
    `still`, without the temporal layers, like images that are joined to clips in training."""

    tiling: TilingSettings = TilingSettings()
    """Tiling of large clips in the autoencoder."""

    vae_norms: Annotated[Literal["fp32", "same"], RECORDED] = "same"
    """The dtype of the autoencoder's group norms if it runs in half precision: the `same`, or `fp32`."""

    def contradictions(self) -> Iterator[str]:
        if self.rope and (self.compress_kv or 1) > 1:
            yield (
                "model.latte.rope and model.latte.compress_kv exclude each other: compressed keys have no rotary "
                "positions; leave one of them out"
            )


CLASSES = ("LatteT2V", "LatteTransformer3DModel")
"""Class names in a denoiser's configuration: as released, and in diffusers' layout."""


def _matches(index: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return config.get("_class_name") in CLASSES


_ONE_LAYER = "its text encoder, T5, is not trained, and only its last layer is used"

SPEC = FamilySpec(
    name="latte",
    trains="LatteT2V of Open-Sora-Plan v1.1, text to video",
    label="a LatteT2V, text to video",
    networks={"denoiser": "latte", "text_encoder": "t5_text", "vae": "causal_vae"},
    folders={"denoiser": "transformer", "text_encoder": "text_encoder", "vae": "vae"},
    tokenizers={"text_encoder": "tokenizer"},
    latent_scale=0.18215,
    refuses={
        "over": "only models like Stable Diffusion support files that replace tensors",
        "clip_skip": _ONE_LAYER,
        "caption_tokens": _ONE_LAYER,
        "last_layers": _ONE_LAYER,
        "ema_weights": "its files have no averaged copy",
    },
    settings=LatteSettings,
    advice=("flips",),
    tensor_names=r"temporal_transformer_blocks\.|\.temp_block\.",
    matches=_matches,
)
