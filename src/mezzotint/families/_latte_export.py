"""A LatteT2V as it is written: as Open-Sora-Plan releases it, and beside that so that diffusers opens it.

    FOLDER/config.json, diffusion_pytorch_model.safetensors   LatteT2V, the released names
    FOLDER/transformer/                                       the same weights for LatteTransformer3DModel
    FOLDER/vae/                                               the autoencoder, as it was
    FOLDER/scheduler/                                         the noise schedule, for diffusers' schedulers
    FOLDER/text_encoder/, tokenizer/                          where they lay in the model's own folder
    FOLDER/model_index.json                                   what lies where

`transformer/` is a second name of one file, which takes no room. It is left out where diffusers' class would compute
something else: with rotary positions, shrunk keys, scaled positions in time, or a plane that is not square.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mezzotint import durable, fault_injection
from mezzotint.errors import StorageError
from mezzotint.families._latte_files import Files
from mezzotint.families.base import whole_state
from mezzotint.nets.latte import LatteConfig
from mezzotint.weights.files import tensor_files
from mezzotint.weights.folder import components, model_folder, scheduler_file, t5

WEIGHTS = "diffusion_pytorch_model.safetensors"

_PIPELINE = "LatteT2VPipeline"
_INDEX: Mapping[str, list[str]] = {
    "scheduler": ["diffusers", "DDIMScheduler"],
    "text_encoder": ["transformers", "T5EncoderModel"],
    "tokenizer": ["transformers", "T5Tokenizer"],
    "transformer": ["diffusers", "LatteTransformer3DModel"],
    "vae": ["opensora", "CausalVAEModel"],
}
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
    """Writes `target`, which must not exist, aside; syncs and renames it. weights: trained tensors by
    `part/parameter`."""
    fault_injection.reach("export.begin")
    scheduler = scheduler_file.corrected(files.scheduler, prediction=prediction, zero_terminal=zero_terminal)
    aside: Path | None = None
    try:
        aside = model_folder.begin(target)
        there = {"scheduler": _INDEX["scheduler"]}
        _write_denoiser(aside, files, whole_state(files, parts, weights, "denoiser"), dtype, there)
        model_folder.write_json(aside / "scheduler" / "scheduler_config.json", scheduler)
        _write_besides(aside, files, parts, dtype, there)
        index: dict[str, Any] = {"_class_name": _PIPELINE, **{k: there[k] for k in sorted(there)}}
        index["scheduler"] = ["diffusers", scheduler["_class_name"]]
        model_folder.write_json(aside / "model_index.json", index)
        model_folder.finish(aside, target)
    except OSError as error:
        full = error.errno in durable.FULL
        remedy = "make room on the disk" if full else "check the folder and its permissions"
        raise StorageError(f"{target}: the export could not be written ({error}); {remedy}", code="E1701") from error
    finally:
        if aside is not None:
            model_folder.discard(aside)
    fault_injection.reach("export.renamed")


def _write_denoiser(
    aside: Path, files: Files, tensors: Mapping[str, Tensor], dtype: components.DTypeName, there: dict[str, list[str]]
) -> None:
    config = _released(files.part("denoiser").config, files.config)
    components.write("latte", tensors, config, aside, dtype)
    if not diffusers_computes(files.config):
        return
    theirs = {k: v for k, v in config.items() if k not in (*_OF_DIFFUSERS, *_NOT_OF_DIFFUSERS)}
    theirs |= {"_class_name": "LatteTransformer3DModel", "sample_size": files.config.sample_size[0]}
    model_folder.write_json(aside / "transformer" / "config.json", theirs)
    _second_name(aside / WEIGHTS, aside / "transformer" / WEIGHTS)
    there["transformer"] = _INDEX["transformer"]


def diffusers_computes(config: LatteConfig) -> bool:
    """Whether diffusers' class computes the same with these weights."""
    plain = not config.use_rope and config.compress_kv_factor == 1 and config.time_scale == 1
    return plain and config.sample_size[0] == config.sample_size[1]


def _released(config: Mapping[str, Any], used: LatteConfig) -> dict[str, Any]:
    """The configuration as released, made true where the recipe says otherwise."""
    released = {k: v for k, v in config.items() if k not in ("_name_or_path", "_class_name")}
    for name in LatteConfig.__slots__:
        value = getattr(used, name)
        if name in released or value != getattr(LatteConfig, name, value) or name in ("use_rope", "compress_kv_factor"):
            released[name] = list(value) if isinstance(value, tuple) else value
    return {"_class_name": "LatteT2V", **released}


def _write_besides(
    aside: Path,
    files: Files,
    parts: Mapping[str, nn.Module],
    dtype: components.DTypeName,
    there: dict[str, list[str]],
) -> None:
    if "vae" in files.there:
        there["vae"] = _INDEX["vae"]
        if files.is_drawn("vae"):
            config = files.part("vae").config
            components.write("causal_vae", whole_state(files, parts, {}, "vae"), config, aside / "vae", dtype)
        else:
            model_folder.copy_component(files.part("vae").where.parent, aside / "vae")
    if not files.own_text:
        return
    there |= {"text_encoder": _INDEX["text_encoder"], "tokenizer": _INDEX["tokenizer"]}
    text = files.part("text_encoder")
    if files.is_drawn("text_encoder"):
        tensors = whole_state(files, parts, {}, "text_encoder")
        components.write("t5_text", tensors, text.config, aside / "text_encoder", dtype)
    else:
        model_folder.copy_component(text.where.parent, aside / "text_encoder")
    if files.tokenizer_folder is not None and files.tokenizer_folder != text.where.parent:
        _copy_words(files.tokenizer_folder, aside / "tokenizer")


def _copy_words(words: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for name in t5.TOKENIZER_FILES:
        if (words / name).is_file():
            shutil.copyfile(words / name, target / name)
            tensor_files.sync(target / name)


def _second_name(file: Path, name: Path) -> None:
    """Another name for a file; a copy where the file system knows no such thing."""
    try:
        os.link(file, name)
    except OSError:
        shutil.copyfile(file, name)
        tensor_files.sync(name)
