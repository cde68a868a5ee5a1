"""Tensor names of latent-diffusion and its descendants, shared by the single files of several models.

Names lack the prefix that a file gives them (`model.diffusion_model.` and the like).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mezzotint.weights.keymap import Entry

UNET, VAE = "model.diffusion_model.", "first_stage_model."
AVERAGES: Mapping[str, Any] = {"average_start": "model_ema.", "average_without_dots": True}
"""How averaged copies of the denoiser's tensors are named; see KeyMap."""

_UNET_RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}
_UNET_ENDS = {
    "conv_in": "input_blocks.0.0",
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "add_embedding.linear_1": "label_emb.0.0",
    "add_embedding.linear_2": "label_emb.0.2",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
}
_VAE_ATTENTION = {"group_norm": "norm", "to_q": "q", "to_k": "k", "to_v": "v", "to_out.0": "proj_out"}
_OPEN_CLIP = {
    "self_attn.out_proj": "attn.out_proj",
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}
_OPEN_CLIP_ENDS = {
    "text_model.embeddings.token_embedding.weight": "token_embedding.weight",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "text_model.final_layer_norm.weight": "ln_final.weight",
    "text_model.final_layer_norm.bias": "ln_final.bias",
    "text_projection.weight": "text_projection",
}
EXTRAS = (
    r"(?:|model\.|first_stage_model\.|cond_stage_model\.)(?:betas|alphas_cumprod(?:_prev)?|logvar|scale_factor|"
    r"sqrt_(?:one_minus_|recip_|recipm1_)?alphas_cumprod|log_one_minus_alphas_cumprod|lvlb_weights|"
    r"posterior_(?:variance|log_variance_clipped|mean_coef[12]))",
    r"(?:v_pred|ztsnr)",  # a mark of the prediction, without a value, that some tools set
    r"model_ema\.(?:decay|num_updates)",
    r"first_stage_model\.(?:loss|model_ema)\..*",
)
"""Patterns of further names that files of any such model may contain."""


def unet(names: Sequence[str]) -> Iterator[Entry]:
    """The denoiser: blocks are numbered consecutively, each a list of its residual block, attention and resampling."""
    layers = _count(names, r"down_blocks\.0\.resnets\.(\d+)\.")
    attentive = {m[1] for m in map(re.compile(r"up_blocks\.(\d+)\.attentions\.").match, names) if m}
    for name in names:
        yield Entry(_unet_name(name, layers, attentive), (name,))


def _unet_name(name: str, layers: int, attentive: set[str]) -> str:
    stem, _, leaf = name.rpartition(".")
    if stem in _UNET_ENDS:
        return f"{_UNET_ENDS[stem]}.{leaf}"
    match = re.fullmatch(
        r"(down|up|mid)_block(?:s\.(\d+))?\.(resnets|attentions|downsamplers|upsamplers)\.(\d+)\.(.+)", name
    )
    assert match, name
    side, block, kind, index, rest = match[1], int(match[2] or 0), match[3], int(match[4]), match[5]
    if kind == "resnets":
        inner, _, last = rest.rpartition(".")
        rest = f"{_UNET_RESNET[inner]}.{last}"
    match side, kind:
        case "mid", "resnets":
            return f"middle_block.{2 * index}.{rest}"
        case "mid", _:
            return f"middle_block.{2 * index + 1}.{rest}"
        case "down", "downsamplers":
            return f"input_blocks.{(block + 1) * (layers + 1)}.0.op.{leaf}"
        case "up", "upsamplers":
            position = 2 if str(block) in attentive else 1
            return f"output_blocks.{block * (layers + 1) + layers}.{position}.conv.{leaf}"
        case "down", _:
            number = 1 + block * (layers + 1) + index
            return f"input_blocks.{number}.{0 if kind == 'resnets' else 1}.{rest}"
        case _:
            number = block * (layers + 1) + index
            return f"output_blocks.{number}.{0 if kind == 'resnets' else 1}.{rest}"


def vae(names: Sequence[str]) -> Iterator[Entry]:
    """The autoencoder: the decoder's levels are numbered from the finest; attention consists of 1×1 convolutions."""
    levels = _count(names, r"decoder\.up_blocks\.(\d+)\.")
    for name in names:
        foreign = _vae_name(name, levels)
        attention = re.fullmatch(r"(.+\.mid_block)\.attentions\.0\.(.+)\.(weight|bias)", name)
        if attention is None:
            yield Entry(foreign, (name,))
        else:
            # files that a converter for diffusers' old names has written from the current ones
            stem = foreign.rpartition(f"{_VAE_ATTENTION[attention[2]]}.")[0]
            other = f"{stem}{attention[2]}.{attention[3]}"
            pointwise = attention[2] != "group_norm" and attention[3] == "weight"
            also = (other,) if attention[2] != "group_norm" else ()
            yield Entry(foreign, (name,), pointwise=pointwise, also=also)


def _vae_name(name: str, levels: int) -> str:
    match = re.fullmatch(
        r"(encoder|decoder)\.(down|up|mid)_block(?:s\.(\d+))?\.(resnets|attentions|downsamplers|upsamplers)\.(\d+)\.(.+)",
        name,
    )
    if not match:
        return name.replace("conv_norm_out", "norm_out")
    half, side, block, kind, index, rest = match[1], match[2], int(match[3] or 0), match[4], int(match[5]), match[6]
    level = levels - 1 - block if side == "up" else block
    match kind:
        case "attentions":
            inner, _, leaf = rest.rpartition(".")
            return f"{half}.mid.attn_{index + 1}.{_VAE_ATTENTION[inner]}.{leaf}"
        case "resnets":
            rest = rest.replace("conv_shortcut", "nin_shortcut")
            where = f"mid.block_{index + 1}" if side == "mid" else f"{side}.{level}.block.{index}"
            return f"{half}.{where}.{rest}"
        case _:
            return f"{half}.{side}.{level}.{kind.removesuffix('rs')}.{rest}"


def clip(names: Sequence[str]) -> Iterator[Entry]:
    """CLIP ViT-L/14 under transformers' names; some files lack the level `text_model`."""
    for name in names:
        yield Entry(name, (name,), also=(name.removeprefix("text_model."),))


def open_clip(names: Sequence[str]) -> Iterator[Entry]:
    """OpenCLIP: query, key and value of an attention are one tensor. The projection, if present, is the transpose of a
    linear layer's weight."""
    for name in names:
        match = re.fullmatch(r"text_model\.encoder\.layers\.(\d+)\.(.+)\.(weight|bias)", name)
        if match is None:
            yield Entry(_OPEN_CLIP_ENDS[name], (name,), transposed=name == "text_projection.weight")
        elif match[2] == "self_attn.q_proj":
            joined = tuple(name.replace(".q_proj.", f".{which}_proj.") for which in "qkv")
            yield Entry(f"transformer.resblocks.{match[1]}.attn.in_proj_{match[3]}", joined)
        elif match[2] not in ("self_attn.k_proj", "self_attn.v_proj"):
            yield Entry(f"transformer.resblocks.{match[1]}.{_OPEN_CLIP[match[2]]}.{match[3]}", (name,))


def _count(names: Sequence[str], pattern: str) -> int:
    """The number of blocks, by the highest index in the names."""
    numbers = [int(m[1]) for m in map(re.compile(pattern).match, names) if m]
    return max(numbers, default=-1) + 1
