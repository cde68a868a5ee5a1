"""Guesses what a folder or file contains from tensor names and shapes in headers, before anything is loaded."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mezzotint import outside
from mezzotint.errors import WeightsError
from mezzotint.settings.families.base import family_spec, specs
from mezzotint.weights.files import formats
from mezzotint.weights.files.tensor_files import TensorInfo, read_header
from mezzotint.weights.folder.model_folder import read_json

_CHANNELS = {
    5: "a depth-to-image model (its denoiser takes 5 channels)",
    7: "an upscaler (its denoiser takes 7 channels)",
}


WIDTHS = {768: "SD 1.x", 1024: "SD 2.x", 1280: "the SDXL refiner", 2048: "SDXL"}
"""Models by their cross-attention width."""
_DENOISER = "model.diffusion_model."
_FIRST_LAYERS = (f"{_DENOISER}input_blocks.0.0.weight", "conv_in.weight")
_BY_STARTS = (
    ((_DENOISER,), "a single-file checkpoint of {unet}"),
    (("first_stage_model.", "encoder.down."), "a standalone autoencoder (VAE) in the original format"),
    (("encoder.down_blocks.", "decoder.up_blocks."), "a standalone autoencoder (VAE)"),
    (("input_blocks.", "middle_block."), "a standalone denoiser in the original format"),
    (("down_blocks.",), "a standalone denoiser of {unet}"),
)
"""Kinds of files by the prefixes of their tensor names, the most specific first."""
_USES = (
    "to sample with it: mezzotint sample MODEL --adapter=FILE; to merge it into its model: mezzotint merge MODEL FILE "
    "NEW_FILE; to continue training it: model.adapter.path=FILE; to write it in another layout: mezzotint convert FILE "
    "NEW_FILE --base=MODEL --layout=kohya"
)
"""Commands and settings that take an adapter."""


class OtherKind(NamedTuple):
    """A kind of file that cannot be trained. name: a description for messages. remedy: what to do instead."""

    name: str
    remedy: str


def describe_path(path: Path) -> str | None:
    """Describes what a path that is not a model folder seems to be: a single file, a component, an adapter.

    None for a model folder. Raises WeightsError when a file cannot be read, E1406 for a pipe or device.
    """
    if kind := outside.describe_file_kind(path):
        raise WeightsError(f"{path}: {kind}; give a model's folder or file", code="E1406")
    if path.is_file():
        if path.suffix != ".safetensors" and formats.name_at(path) is None:
            return f"a single file ({path.suffix or 'no suffix'})"
        return describe_tensors(read_header(path))
    if (path / "model_index.json").exists():  # if it is not a regular file, reading it raises
        return None
    single = sorted(path.glob("*.safetensors"))
    if (path / "config.json").is_file() and single:
        return f"one component of a model, {describe_tensors(read_header(single[0]))}"
    if single:
        return f"a folder with a single file, {single[0].name}: {describe_tensors(read_header(single[0]))}"
    return "a folder without model_index.json"


def refuse_adapter(path: Path) -> None:
    """Raises WeightsError E1406 for an adapter where a model is expected: a file, or a folder in diffusers' layout."""
    file = path / "pytorch_lora_weights.safetensors" if path.is_dir() else path
    if file.is_file() and file.suffix == ".safetensors" and not (path / "model_index.json").is_file():
        other = _adapter(read_header(file).keys())
        if other is not None:
            raise WeightsError(f"{path}: is {other.name}, not a model; {other.remedy}", code="E1406")


def describe_tensors(header: Mapping[str, TensorInfo]) -> str:
    """Describes what a weights file seems to be, by the names and shapes of its tensors."""
    names = header.keys()
    other = _adapter(names) or _other_model(names)
    if other is not None:
        return other.name
    xl = _sdxl(names)
    if xl is not None:
        return f"a single-file checkpoint of {xl}"
    for starts, template in _BY_STARTS:
        if any(n.startswith(starts) for n in names):
            return template.format(unet=_unet(header))
    if any(("encoder.layers." in n or "transformer.resblocks." in n) for n in names):
        return "a standalone text encoder"
    return "an unknown kind of file"


def refusal(header: Mapping[str, TensorInfo], family: str | None) -> OtherKind | None:
    """Why a single file is not a complete text-to-image model of a family, and what to do; None when it is one.

    family: None accepts a model of any registered family.
    """
    names = header.keys()
    other = _adapter(names) or _other_model(names)
    if other is not None:
        return other if other.remedy else OtherKind(other.name, _trained_models(family))
    detected = family_of(names)
    if family is not None and detected is not None and detected != family:
        return OtherKind(describe_tensors(header), f"{_trained_models(family)}; set model.family={detected}")
    if not any(n.startswith(_DENOISER) for n in names):
        kind = describe_tensors(header)
        if kind.startswith("a standalone denoiser") and not kind.endswith("format"):
            return OtherKind(kind, "give the folder of the complete model, in which it is the component unet")
        return OtherKind(kind, "give the file of a complete model: denoiser, autoencoder and text encoder")
    return _other_task(header, family or detected) or _incomplete(names, family or detected)


def family_of(names: Collection[str]) -> str | None:
    """The family of a single file, by tensor names that only its files have; None if unknown. Where several families
    match, the one with most text encoders."""
    matches = [spec for spec in specs() if spec.names_tensors(names)]
    return max(matches, key=lambda spec: len(spec.text_parts)).name if matches else None


def family_at(path: Path) -> str | None:
    """The family of a model folder, by its configuration files; None if they do not identify it. Raises WeightsError
    where one cannot be read."""
    index = path / "model_index.json"
    configs = (path / "config.json", *(path / name / "config.json" for name in ("transformer", "unet")))
    config = next((read_json(file) for file in configs if file.is_file()), {})
    listed = read_json(index) if index.is_file() else {}
    if "transformer" in listed:  # its configuration identifies the model; without one, model_index.json names its class
        entry = listed["transformer"]
        config = config or ({"_class_name": entry[1]} if isinstance(entry, list) and len(entry) == 2 else {})
        listed = {}
    return next((spec.name for spec in specs() if spec.matches(listed, config)), None)


def _trained_models(family: str | None) -> str:
    trained = [family_spec(family)] if family is not None else [spec for spec in specs() if spec.layout]
    return "; ".join(f"family {spec.name} trains {spec.trains}" for spec in trained)


def _other_task(header: Mapping[str, TensorInfo], family: str | None) -> OtherKind | None:
    """A denoiser of a known family that is conditioned on more than text."""
    first = header.get(_FIRST_LAYERS[0])
    channels = first.shape[1] if first is not None and len(first.shape) == 4 else 4
    if channels in _CHANNELS:
        trained = f"family {family} trains" if family is not None else "trained here are"
        return OtherKind(
            _CHANNELS[channels], f"{trained} models of 4 channels; use the text-to-image model of its kind"
        )
    if f"{_DENOISER}label_emb.weight" in header:
        name = "an upscaler (its denoiser is conditioned on the noise level of the image)"
        return OtherKind(name, "use the text-to-image model")
    return None


def _incomplete(names: Collection[str], family: str | None) -> OtherKind | None:
    spec = family_spec(family) if family is not None else None
    lacking = [] if any(n.startswith("first_stage_model.") for n in names) else ["autoencoder (VAE)"]
    if spec is None or not spec.names_tensors(names):
        lacking.append("text encoders" if spec is not None and len(spec.text_parts) > 1 else "text encoder")
    if lacking:
        remedy = "give the file of the complete model, or merge this one into it: mezzotint merge MODEL FILE NEW_FILE"
        return OtherKind(f"a single-file checkpoint without {' and '.join(lacking)}", remedy)
    return None


def _sdxl(names: Collection[str]) -> str | None:
    """Which model of SDXL's family a single file is, by its text encoders; None for other families."""
    if any(n.startswith("conditioner.embedders.1.") for n in names):
        return "SDXL"
    return "the SDXL refiner" if any(n.startswith("conditioner.embedders.0.") for n in names) else None


def _adapter(names: Collection[str]) -> OtherKind | None:
    """A LoRA, LoHa, LoKr, textual inversion or ControlNet; None for anything else."""
    if any("lora" in n.lower() and ("up" in n or "down" in n or "_A" in n or "_B" in n) for n in names):
        return OtherKind("a LoRA adapter", _USES)
    if any(".hada_w1" in n or ".lokr_w" in n for n in names):
        return OtherKind("a LoHa or LoKr adapter", _USES)
    if "emb_params" in names or "string_to_param" in names or any(n.startswith("clip_l") for n in names):
        remedy = """give the model it belongs to, and model.tokens.files={"<word>": FILE}"""
        return OtherKind("a textual inversion embedding", remedy)
    if any(n.startswith(("control_model.", "controlnet_cond_embedding.")) for n in names):
        return OtherKind("a ControlNet", "give the model it belongs to")
    return None


def _other_model(names: Collection[str]) -> OtherKind | None:
    """A complete model of another architecture. An empty remedy: the caller's family fills it in."""
    match = next((spec for spec in specs() if not spec.layout and spec.names_tensors(names)), None)
    for blocks, name in (("joint_blocks.", "SD 3"), ("double_blocks.", "Flux")):
        if any(blocks in n for n in names):
            return OtherKind(f"a checkpoint of {name if match is None else match.label}", "")
    return None if match is None else OtherKind(match.label, f"set model.family={match.name}")


def describe_folder(index: Mapping[str, Any], unet: Mapping[str, Any], family: str | None) -> str | None:
    """Describes a model folder that is not a text-to-image model of a family; None when it is one.

    index: model_index.json. unet: its denoiser's configuration, or {}. family: None accepts any registered family.
    """
    channels = unet.get("in_channels", 4)
    xl = _sdxl_of_index(index, unet)
    is_other = family is not None and not family_spec(family).matches(index, unet)
    if is_other and xl is not None:
        return xl
    if is_other and "unet" in index:
        return f"{_sd_of_index(index, unet)} (one text encoder, no size conditioning)"
    if "transformer" in index:
        return f"a transformer model ({index.get('_class_name', 'unknown pipeline')})"
    if "prior" in index or "decoder" in index:
        return f"a multi-stage model ({index.get('_class_name', 'unknown pipeline')})"
    if channels in _CHANNELS:
        return _CHANNELS[channels]
    if unet.get("class_embed_type") or unet.get("num_class_embeds"):
        return "a model with class conditioning, such as an upscaler"
    return None


def other_family(index: Mapping[str, Any], unet: Mapping[str, Any], family: str) -> str | None:
    """The registered family, other than `family`, that trains the model in a folder; None if there is none."""
    others = [s.name for s in specs() if s.name != family and "unet" in index and s.matches(index, unet)]
    return next((name for name in others if describe_folder(index, unet, name) is None), None)


def _sd_of_index(index: Mapping[str, Any], unet: Mapping[str, Any]) -> str:
    is_stable_diffusion = str(index.get("_class_name")).startswith("StableDiffusion")
    by_pipeline = ("SD 2.x" if unet.get("use_linear_projection") else "SD 1.x") if is_stable_diffusion else "not SDXL"
    return WIDTHS.get(unet.get("cross_attention_dim", 0), by_pipeline)


def _sdxl_of_index(index: Mapping[str, Any], unet: Mapping[str, Any]) -> str | None:
    width = unet.get("cross_attention_dim")
    if "transformer" in index:
        return None
    if "text_encoder_2" not in index and not unet.get("addition_embed_type") and width != 2048:
        return None
    first = index.get("text_encoder")
    if width == 1280 or (isinstance(first, list) and not any(first)):
        return f"the SDXL refiner (cross-attention width {width}, one large text encoder)"
    return f"SDXL (cross-attention width {width}, two text encoders)"


def _unet(header: Mapping[str, TensorInfo]) -> str:
    shape = next((header[name].shape for name in _FIRST_LAYERS if name in header), ())
    if len(shape) == 4 and shape[1] == 9:
        return "an inpainting model (9 channels)"
    widths = {i.shape[1] for n, i in header.items() if n.endswith("attn2.to_k.weight") and len(i.shape) == 2}
    return ", ".join(WIDTHS.get(w, f"cross-attention width {w}") for w in sorted(widths)) or "unknown width"
