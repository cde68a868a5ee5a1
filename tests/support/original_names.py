"""Autoencoders of flow-matching models under the tensor names of their original repositories."""

from __future__ import annotations

import re

from torch import Tensor

from mezzotint.weights.layouts import base

LTX_VAE = {
    "decoder.mid_block": "decoder.up_blocks.0", "decoder.up_blocks.0": "decoder.up_blocks.1",
    "decoder.up_blocks.1.upsamplers.0": "decoder.up_blocks.2", "decoder.up_blocks.1": "decoder.up_blocks.3",
    "decoder.up_blocks.2.upsamplers.0": "decoder.up_blocks.5", "decoder.up_blocks.2": "decoder.up_blocks.6",
    "decoder.up_blocks.3.upsamplers.0": "decoder.up_blocks.8", "decoder.up_blocks.3": "decoder.up_blocks.9",
    "encoder.down_blocks.0.downsamplers.0": "encoder.down_blocks.1",
    "encoder.down_blocks.1.downsamplers.0": "encoder.down_blocks.4", "encoder.down_blocks.1": "encoder.down_blocks.3",
    "encoder.down_blocks.2.downsamplers.0": "encoder.down_blocks.7", "encoder.down_blocks.2": "encoder.down_blocks.6",
    "encoder.down_blocks.3": "encoder.down_blocks.8", "encoder.mid_block": "encoder.down_blocks.9",
    "latents_mean": "per_channel_statistics.mean-of-means", "latents_std": "per_channel_statistics.std-of-means",
}  # fmt: skip
"""The autoencoder's names in Lightricks' files of version 0.9.0, the longer ones first."""


def ltx_name(name: str) -> str:
    start = next((ours for ours in LTX_VAE if name.startswith(ours)), "")
    return (LTX_VAE.get(start, "") + name.removeprefix(start)).replace("resnets", "res_blocks")


def in_ldm(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """An AutoencoderKL as FLUX.1's and SD3's makers name it, attention as convolutions of one pixel."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    file = {}
    for entry in base.vae(list(tensors)):
        shape = entry.foreign_shape({name: shapes[name] for name in entry.ours})
        if ".attn_1." in entry.foreign and "norm" not in entry.foreign and entry.foreign.endswith("weight"):
            shape = (*shape[:2], 1, 1)
        file[entry.foreign] = entry.to_foreign(tensors).reshape(shape)
    return file


WAN = (
    (r"^quant_conv\.", "conv1."), (r"^post_quant_conv\.", "conv2."), (r"coder\.conv_in\.", "coder.conv1."),
    (r"\.norm_out\.", ".head.0."), (r"\.conv_out\.", ".head.2."), (r"\.mid_block\.resnets\.0\.", ".middle.0."),
    (r"\.mid_block\.resnets\.1\.", ".middle.2."), (r"\.mid_block\.attentions\.0\.", ".middle.1."),
    (r"\.norm1\.", ".residual.0."), (r"\.conv1\.(?=.*(bias|weight)$)", ".residual.2."), (r"\.norm2\.", ".residual.3."),
    (r"\.conv2\.", ".residual.6."), (r"\.conv_shortcut\.", ".shortcut."), (r"\.down_blocks\.", ".downsamples."),
)  # fmt: skip


def wan_name(name: str) -> str:
    """A name of Wan 2.1's autoencoder as its makers have it: three residual blocks and what makes larger lie in one
    list, four by four."""
    name = re.sub(r"\.up_blocks\.(\d)\.resnets\.(\d)\.", lambda m: f".upsamples.{4 * int(m[1]) + int(m[2])}.", name)
    name = re.sub(r"\.up_blocks\.(\d)\.upsamplers\.0\.", lambda m: f".upsamples.{4 * int(m[1]) + 3}.", name)
    start = re.match(r"(en|de)coder\.conv_in\.", name)
    for pattern, words in WAN:
        name = name if start and "conv_in" not in pattern else re.sub(pattern, words, name)
    return name


def as_makers(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """An autoencoder as `models/vae` has it."""
    if name in ("wan", "qwen-image"):
        return {wan_name(key): tensor for key, tensor in tensors.items()}
    return in_ldm(tensors)
