"""What a folder or file seems to be, told from names and shapes in headers, before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mezzotint.weights.files import TensorInfo, read_header


def of_path(path: Path) -> str | None:
    """A guess, in words, at a path that is no model folder of its own: a single file, a component, an adapter.

    None when it looks like a model folder. Raises WeightsError when a file cannot be read.
    """
    if path.is_file():
        if path.suffix != ".safetensors":
            return f"a single file ({path.suffix or 'no ending'})"
        return of_tensors(read_header(path))
    if (path / "model_index.json").is_file():
        return None
    if (path / "pytorch_lora_weights.safetensors").is_file():
        return "a LoRA, to be laid over a model"
    single = sorted(path.glob("*.safetensors"))
    if (path / "config.json").is_file() and single:
        return f"one component of a model, {of_tensors(read_header(single[0]))}"
    if single:
        return f"a folder with a single file, {single[0].name}: {of_tensors(read_header(single[0]))}"
    return "a folder without model_index.json"


def of_tensors(header: Mapping[str, TensorInfo]) -> str:
    """A guess, in words, at a weights file by its tensors' names and shapes."""
    names = header.keys()
    if any("lora" in n.lower() and ("up" in n or "down" in n or "_A" in n or "_B" in n) for n in names):
        return "a LoRA, to be laid over a model"
    if any(n.startswith("conditioner.embedders.1.") for n in names):
        return "a single-file checkpoint of SDXL"
    if any(n.startswith("model.diffusion_model.") for n in names):
        return f"a single-file checkpoint of {_unet(header, 'model.diffusion_model.input_blocks.0.0.weight')}"
    if any(n.startswith(("first_stage_model.", "encoder.down.")) for n in names):
        return "an autoencoder (VAE) alone, in its original layout"
    if any(n.startswith(("encoder.down_blocks.", "decoder.up_blocks.")) for n in names):
        return "an autoencoder (VAE) alone"
    if any(n.startswith("down_blocks.") for n in names):
        return f"a denoiser alone, of {_unet(header, 'conv_in.weight')}"
    if any("encoder.layers." in n for n in names):
        return "a text encoder alone"
    return "no kind that is known here"


def of_index(index: Mapping[str, Any], unet: Mapping[str, Any]) -> str | None:
    """What a model folder is, when it is not a text-to-image model of SD 1.x or 2.x; None when it is.

    index: model_index.json. unet: its denoiser's configuration, or {}.
    """
    channels, width = unet.get("in_channels", 4), unet.get("cross_attention_dim")
    if "text_encoder_2" in index or unet.get("addition_embed_type") or width == 2048:
        return f"SDXL (cross-attention width {width}, two text encoders)"
    if "transformer" in index:
        return f"a transformer model ({index.get('_class_name', 'unknown pipeline')})"
    if "prior" in index or "decoder" in index:
        return f"a model of several stages ({index.get('_class_name', 'unknown pipeline')})"
    if channels == 9:
        return "an inpainting model (its denoiser takes 9 channels)"
    if channels == 8:
        return "a model that edits pictures (its denoiser takes 8 channels)"
    if channels == 5:
        return "a depth-to-image model (its denoiser takes 5 channels)"
    if unet.get("class_embed_type") or unet.get("num_class_embeds"):
        return "a model with class conditioning, such as an upscaler"
    return None


def _unet(header: Mapping[str, TensorInfo], first: str) -> str:
    shape = header[first].shape if first in header else ()
    if len(shape) == 4 and shape[1] == 9:
        return "an inpainting model (9 channels)"
    widths = {i.shape[1] for n, i in header.items() if n.endswith("attn2.to_k.weight") and len(i.shape) == 2}
    names = {768: "SD 1.x", 1024: "SD 2.x", 2048: "SDXL"}
    return ", ".join(names.get(w, f"cross-attention width {w}") for w in sorted(widths)) or "unknown width"
