"""Facts of LatteT2V, and its settings: how its network looks around, how its autoencoder takes large clips apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from mezzotint.settings.base import ALLOW, FREE, NEVER, RECORDED, InputPath, Section
from mezzotint.settings.families.base import FamilySpec


class TilingSettings(Section):
    """Clips that are larger than a piece go through the autoencoder piece by piece: less memory, and latents that
    differ a little from those of the whole, because norms and attention see one piece only."""

    enabled: Annotated[bool, ALLOW] = False
    """Whether larger clips are parted. Smaller ones never are."""

    overlap: Annotated[float, Field(gt=0.0, lt=1.0), ALLOW] = 0.25
    """By which share of their side neighbouring tiles overlap; there they are blended. A whole number of latents: with
    tiles of 256 pixels multiples of 1/32."""

    side: Annotated[int, Field(ge=16, le=4096, multiple_of=8), ALLOW] = 256
    """The side of a tile in pixels."""

    frames: Annotated[int, Field(ge=5, le=1025), ALLOW] = 65
    """Frames of a piece, 4k + 1; neighbours share one."""

    def contradictions(self) -> Iterator[str]:
        if self.frames % 4 != 1:
            below = self.frames - (self.frames - 1) % 4
            yield f"model.latte.tiling.frames is 4k + 1, such as {below} or {below + 4}, got {self.frames}"
        cells = self.side // 8
        if not (self.overlap * cells).is_integer():
            near = min(max(round(self.overlap * cells), 1), cells - 1) / cells
            yield (
                f"model.latte.tiling.overlap must be a whole number of a tile's {cells} latents, got {self.overlap}; "
                f"write {near}"
            )


class LatteSettings(Section):
    """Of family `latte` alone, LatteT2V of Open-Sora-Plan v1.1: its text, what its network is to be beyond what its
    files say, and its autoencoder. `model.path` is a folder as it was released (config.json and weights; `vae` in it or
    beside it), one in diffusers' layout (transformer/), or a file (.safetensors, .pt, .ckpt of torch or MindSpore) with
    `model.config`, since its tensors do not tell the length of its clips: `latte-17f`, `latte-65f` or `latte-221f`, or
    a folder with config.json. With `model.weights=random`, `model.config` describes the denoiser."""

    text_encoder: Annotated[InputPath | None, FREE] = None
    """The folder of T5 v1.1 XXL's encoder with its tokenizer (DeepFloyd/t5-v1_1-xxl), or one with the folders
    text_encoder/ and tokenizer/. None takes those of the model's own folder. Exports do not repeat it."""

    max_tokens: Annotated[Annotated[int, Field(ge=2, le=4096)] | None, NEVER] = None
    """How many tokens of a caption the model is shown, the end among them; longer captions lose their end, shorter
    ones are filled up and masked. None takes what the model's configuration says: 300."""

    variance: Annotated[Literal["none", "learned-range"] | None, ALLOW] = None
    """Of a denoiser whose output has twice the channels of its latents: `learned-range` teaches the second half how the
    variance of a step back lies between its two bounds, by a variational term that is added to the loss (Nichol and
    Dhariwal 2021, arXiv:2102.09672; no weight of timesteps multiplies it); `none` leaves that half alone. None is
    learned-range where the model has the channels, as released ones have."""

    rope: Annotated[bool | None, NEVER] = None
    """Rotary positions in self-attention, besides the tables that are added (RoPE, Su et al. 2021, arXiv:2104.09864).
    Not together with `model.latte.compress_kv`. None is as the model's configuration says. The weights have the same
    names either way; a model that was trained without them has to learn to use them."""

    compress_kv: Annotated[PositiveInt | None, NEVER] = None
    """By how much the later half of the layers shrinks keys and values, in each direction; 1 is not at all. None is as
    the model's configuration says. Where the files have no shrinking layers, these begin as means."""

    video_length: Annotated[PositiveInt | None, NEVER] = None
    """Latent frames that positions in time are scaled for: (frames − 1)/4 + 1 of the clips that are trained. Up to 32
    they are not scaled at all, so that 17 and 65 frames share one scale. None is as the model's configuration says."""

    pictures: Annotated[Literal["clip", "still"], ALLOW] = "clip"
    """How a picture without a clip is seen, in training and when it is drawn: as a `clip` of one frame, or as a
    `still`, past all layers that look through time, which is how stills that are joined to clips are trained."""

    tiling: TilingSettings = TilingSettings()
    """Large clips in pieces."""

    vae_norms: Annotated[Literal["fp32", "same"], RECORDED] = "same"
    """The type of the autoencoder's group norms where it runs in half precision: the `same`, or `fp32`."""

    def contradictions(self) -> Iterator[str]:
        if self.rope and (self.compress_kv or 1) > 1:
            yield (
                "model.latte.rope and model.latte.compress_kv exclude each other: shrunk keys have no positions to "
                "turn by; leave one of them out"
            )


CLASSES = ("LatteT2V", "LatteTransformer3DModel")
"""What the configuration of a denoiser says it is: as released, and in diffusers' layout."""


def _holds(index: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return config.get("_class_name") in CLASSES


_ONE_LAYER = "its text encoder, T5, gives its last layer alone and is not trained"

SPEC = FamilySpec(
    name="latte",
    trains="LatteT2V of Open-Sora-Plan v1.1, text to video",
    called="a LatteT2V, text to video",
    networks={"denoiser": "latte", "text_encoder": "t5_text", "vae": "causal_vae"},
    folders={"denoiser": "transformer", "text_encoder": "text_encoder", "vae": "vae"},
    tokenizers={"text_encoder": "tokenizer"},
    latent_scale=0.18215,
    refuses={
        "over": "files are laid over models of Stable Diffusion's kind alone",
        "clip_skip": _ONE_LAYER,
        "last_layers": _ONE_LAYER,
        "ema_weights": "its files hold no averaged copy",
    },
    settings=LatteSettings,
    advice=("flips",),
    tensor_names=r"temporal_transformer_blocks\.|\.temp_block\.",
    holds=_holds,
)
