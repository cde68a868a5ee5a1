"""Writes a LatteT2V in Open-Sora-Plan's released format, and in diffusers' format next to it.

    FOLDER/config.json, diffusion_pytorch_model.safetensors   LatteT2V, the released names
    FOLDER/transformer/                                       the same weights for LatteTransformer3DModel
    FOLDER/vae/                                               the autoencoder, unchanged
    FOLDER/scheduler/                                         the noise schedule, for diffusers' schedulers
    FOLDER/text_encoder/, tokenizer/                          if they are in the model's own folder
    FOLDER/model_index.json                                   the classes of the components

`transformer/` has a hard link to the same file, which takes no space. It is left out if diffusers' class would compute
something else: with rotary positions, compressed keys, scaled temporal positions, or a sample size that is not square.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mezzotint import fault_injection
from mezzotint.compat.open_sora_plan._latte_files import Files
from mezzotint.compat.open_sora_plan.nets.latte import LatteConfig
from mezzotint.families.base import full_state
from mezzotint.weights.folder import components, model_folder, scheduler_file, t5

WEIGHTS = "diffusion_pytorch_model.safetensors"

_PIPELINE = "LatteT2VPipeline"
_OF_DIFFUSERS = ("_class_name", "_diffusers_version")
_NOT_OF_DIFFUSERS = ("attention_mode", "compress_kv_factor", "model_max_length", "rope_scaling_type", "use_rope")


def write(
    target: Path,
    files: Files,
    parts: Mapping[str, nn.Module],
    weights: Mapping[str, Tensor],
    dtype: components.DTypeName,
    *,
    zero_terminal: bool,
    prediction: str,
) -> None:
    """Writes a temporary folder, syncs it, and renames it to `target`, which must not exist. weights: trained tensors
    by `part/parameter`."""
    fault_injection.reach("export.begin")
    scheduler = scheduler_file.correct_config(files.scheduler, prediction=prediction, zero_terminal=zero_terminal)
    with model_folder.new_folder(target) as folder:
        classes = {"scheduler": ["diffusers", scheduler["_class_name"]]}
        classes |= _write_denoiser(folder, files, full_state(files, parts, weights, "denoiser"), dtype)
        model_folder.write_json(folder / "scheduler" / "scheduler_config.json", scheduler)
        classes |= _write_other_parts(folder, files, parts, dtype)
        index = {"_class_name": _PIPELINE} | {name: classes[name] for name in sorted(classes)}
        model_folder.write_json(folder / "model_index.json", index)
    fault_injection.reach("export.renamed")


def _write_denoiser(
    folder: Path, files: Files, tensors: Mapping[str, Tensor], dtype: components.DTypeName
) -> dict[str, list[str]]:
    """Returns its entry in model_index.json."""
    config = _released_config(files.part("denoiser").config, files.config)
    components.write("latte", tensors, config, folder, dtype)
    if not diffusers_computes(files.config):
        return {}
    theirs = {k: v for k, v in config.items() if k not in (*_OF_DIFFUSERS, *_NOT_OF_DIFFUSERS)}
    theirs |= {"_class_name": "LatteTransformer3DModel", "sample_size": files.config.sample_size[0]}
    model_folder.write_json(folder / "transformer" / "config.json", theirs)
    _link_or_copy(folder / WEIGHTS, folder / "transformer" / WEIGHTS)
    return {"transformer": ["diffusers", "LatteTransformer3DModel"]}


def diffusers_computes(config: LatteConfig) -> bool:
    """Whether diffusers' class computes the same with these weights."""
    plain = not config.use_rope and config.compress_kv_factor == 1 and config.time_scale == 1
    return plain and config.sample_size[0] == config.sample_size[1]


def _released_config(config: Mapping[str, Any], used: LatteConfig) -> dict[str, Any]:
    """The released configuration, with the changes of the recipe."""
    released = {k: v for k, v in config.items() if k not in ("_name_or_path", "_class_name")}
    for name in LatteConfig.__slots__:
        value = getattr(used, name)
        if name in released or value != getattr(LatteConfig, name, value) or name in ("use_rope", "compress_kv_factor"):
            released[name] = list(value) if isinstance(value, tuple) else value
    return {"_class_name": "LatteT2V", **released}


def _write_other_parts(
    folder: Path, files: Files, parts: Mapping[str, nn.Module], dtype: components.DTypeName
) -> dict[str, list[str]]:
    """Writes autoencoder, text encoder and tokenizer, if they belong to the model. Returns their entries in
    model_index.json."""

    def write_part(part: str, network: str) -> None:
        if files.is_random(part):
            tensors = full_state(files, parts, {}, part)
            components.write(network, tensors, files.part(part).config, folder / part, dtype)
        else:
            model_folder.copy_component(files.part(part).where.parent, folder / part)

    classes = {}
    if "vae" in files.existing_parts:
        write_part("vae", "causal_vae")
        classes["vae"] = ["opensora", "CausalVAEModel"]
    if files.own_text:
        write_part("text_encoder", "t5_text")
        classes |= {"text_encoder": ["transformers", "T5EncoderModel"], "tokenizer": ["transformers", "T5Tokenizer"]}
        tokenizer_folder = files.tokenizer_folder
        if tokenizer_folder is not None and tokenizer_folder != files.part("text_encoder").where.parent:
            (folder / "tokenizer").mkdir()
            for name in t5.TOKENIZER_FILES:
                if (tokenizer_folder / name).is_file():
                    shutil.copyfile(tokenizer_folder / name, folder / "tokenizer" / name)
    return classes


def _link_or_copy(file: Path, name: Path) -> None:
    """Creates a hard link; a copy if the file system does not support it."""
    try:
        os.link(file, name)
    except OSError:
        shutil.copyfile(file, name)
