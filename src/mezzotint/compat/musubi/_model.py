"""The model, its trained part and its adapter, as `model`."""

from __future__ import annotations

from pathlib import Path

from mezzotint.compat.kit.adapters import set_factors
from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.key_values import read_arguments
from mezzotint.compat.musubi._rows import has_option
from mezzotint.compat.musubi._rows_model import (
    FUN_CONTROL,
    LAST_FRAME,
    LAYERED,
    NETWORK,
)
from mezzotint.compat.musubi._scripts import SCRIPTS, TrainingScript
from mezzotint.errors import did_you_mean

LAYERS = {
    "wan": ("blocks.*",),
    "qwen-image": ("transformer_blocks.*",),
    "z-image": ("layers.*.attention.*", "layers.*.feed_forward.*"),
    "flux": (
        "transformer_blocks.*.attn.*", "transformer_blocks.*.ff*", "single_transformer_blocks.*.attn.*",
        "single_transformer_blocks.*.proj_*",
    ),
    "flux2": ("transformer_blocks.*", "single_transformer_blocks.*"),
}  # fmt: skip
"""The layers of the transformer that get an adapter, by family."""
_KINDS = {"networks.loha": "loha", "networks.lokr": "lokr"}
_TASKS = ("t2v-14B", "t2v-1.3B", "t2i-14B", "i2v-14B", "t2v-A14B", "i2v-A14B")
_VERSIONS = {
    "qwen-image": {"original": "", "layered": LAYERED, "edit": "", "edit-2509": "", "edit-2511": ""},
    "flux2": {"dev": "", "klein-4b": "", "klein-base-4b": "", "klein-9b": "", "klein-base-9b": ""},
}
"""The feature that each version waits for, "" for those that are supported, by family."""
_CONFIGURATIONS = {
    "wan": {
        "t2v-14B": "Wan-AI/Wan2.1-T2V-14B-Diffusers", "t2i-14B": "Wan-AI/Wan2.1-T2V-14B-Diffusers",
        "t2v-1.3B": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "t2v-A14B": "Wan-AI/Wan2.2-T2V-A14B-Diffusers",
        "i2v-14B": "Wan-AI/Wan2.1-I2V-14B-480P-Diffusers", "i2v-A14B": "Wan-AI/Wan2.2-I2V-A14B-Diffusers",
    },
    "qwen-image": {
        "original": "Qwen/Qwen-Image", "edit": "Qwen/Qwen-Image-Edit", "edit-2509": "Qwen/Qwen-Image-Edit-2509",
        "edit-2511": "Qwen/Qwen-Image-Edit-2511",
    },
    "z-image": {"base": "Tongyi-MAI/Z-Image", "turbo": "Tongyi-MAI/Z-Image-Turbo"},
    "flux2": {
        "dev": "black-forest-labs/FLUX.2-dev",
        "klein-4b": "black-forest-labs/FLUX.2-klein-4B", "klein-base-4b": "black-forest-labs/FLUX.2-klein-base-4B",
        "klein-9b": "black-forest-labs/FLUX.2-klein-9B", "klein-base-9b": "black-forest-labs/FLUX.2-klein-base-9B",
    },
}  # fmt: skip
"""Hub ids of models in diffusers' layout, by family and version."""
_OLD = {"edit_plus": "edit-2509", "edit": "edit"}
"""Versions by older options."""
_ANY = 1000
_ENCODERS = {"wan": ("t5", "clip"), "flux": ("text_encoder1", "text_encoder2")}
"""Options of the files of encoders, by family; `text_encoder` of others."""
_SAFE = {"clip": ("image encoder", "clip_vision_h.safetensors")}
"""What other options of encoders name, and the file that is read; a text encoder without an entry."""
_DISTILLED = ("klein-4b", "klein-9b")
BOUNDARIES = {"t2v-A14B": 875, "i2v-A14B": 900}
"""The timestep between the two denoisers of Wan 2.2 A14B, by task."""


def set_model(draft: Draft, script: TrainingScript) -> None:
    """Sets the model's files, the trained part, and the adapter."""
    draft.set("model.family", script.family, "script")
    model = draft.text("dit")
    if not model:
        draft.refuse("dit", "is missing; it names the model to start from", code="E1017")
    draft.set("model.path", model or "model", "dit")
    if script.family == "flux":
        draft.set("model.task", "edit", "script")
    elif Path(model).suffix in (".safetensors", ".sft", ".pth"):
        _set_configurations(draft, script, model)
    _set_other_files(draft, script)
    if has_option(script, "model_version"):
        _check_version(draft, script)
    if draft.is_given("guidance_scale") and "model.flux2.guidance" not in draft.origin:
        draft.note("guidance_scale", "only FLUX.2 dev takes guidance in training")
    if script.family == "z-image" and _is_turbo(model):
        draft.set("model.z_image.distilled", True, "dit")
        draft.note("dit", "Turbo is a distilled model; training destroys its sampling in 8 steps")
    part = _find_part(draft, model) if script.family == "wan" else "denoiser"
    draft.set("model.train", [part], "task" if script.family == "wan" else "script")
    if script.method == "adapter":
        _set_adapter(draft, script, part)


def _set_configurations(draft: Draft, script: TrainingScript, model: str) -> None:
    """Sets the folder with the configurations and tokenizers of a single file: the published model's, by its hub id."""
    flag = {"wan": "task", "z-image": "dit"}.get(script.family, "model_version")
    versions = _CONFIGURATIONS[script.family]
    version = find_version(draft, script) if flag == "model_version" else draft.text(flag)
    if script.family == "z-image":
        version = "turbo" if _is_turbo(model) else "base"
    if (name := versions.get(version)) is not None:
        draft.set("model.config", name, *[old for old in _OLD if draft.values.get(old)] or [flag])
        text = f"a single file has no configurations and tokenizers: those of {name} in the local hub cache are used"
        draft.note("dit", f"{text}; model.config=FOLDER before the -- names another folder")


def find_version(draft: Draft, script: TrainingScript) -> str:
    """The version of Qwen-Image or FLUX.2, without one the script's usual."""
    old = next((version for name, version in _OLD.items() if draft.values.get(name)), "")
    return draft.text("model_version") or old or next(iter(_VERSIONS[script.family]))


def count_images(draft: Draft, script: TrainingScript) -> tuple[int, int]:
    """The fewest and the most control images of a sample that the model takes."""
    if script.family != "qwen-image":
        return {"flux": (1, 1), "flux2": (0, _ANY)}.get(script.family, (0, 0))
    version = find_version(draft, script)
    return (1, 1) if version == "edit" else (1, _ANY) if version.startswith("edit-") else (0, 0)


def animates(draft: Draft, script: TrainingScript) -> bool:
    """Whether the model continues an image."""
    return script.family == "wan" and draft.text("task") in ("i2v-14B", "i2v-A14B")


def _is_turbo(model: str) -> bool:
    name = Path(model).name.lower().replace("-", "").replace("_", "")
    return "turbo" in name and "deturbo" not in name


def _set_other_files(draft: Draft, script: TrainingScript) -> None:
    """Sets the autoencoder and the encoders."""
    if draft.text("vae"):
        if script.family == "flux2" and Path(draft.text("vae")).suffix:
            draft.note("vae", "the autoencoder of the model's folder is used; the names in FLUX.2's file are not read")
        else:
            draft.set("model.vae", draft.text("vae"), "vae")
    flags = [flag for flag in _ENCODERS.get(script.family, ("text_encoder",)) if draft.text(flag)]
    if "clip" in flags and draft.text("task") != "i2v-14B":
        flags.remove("clip")
        draft.note("clip", "only i2v-14B has an image encoder")
    for flag in [flag for flag in flags if Path(draft.text(flag)).suffix == ".pth"]:
        flags.remove(flag)
        encoder, file = _SAFE.get(flag, ("text encoder", "umt5_xxl_fp16.safetensors"))
        text = f"the {encoder} of the model's folder is used; a .pth file has other names of tensors"
        draft.note(flag, f"{text}, and {file} is read")
    if flags:
        draft.set("model.over", [draft.text(flag) for flag in flags], *flags)


def _check_version(draft: Draft, script: TrainingScript) -> None:
    versions = _VERSIONS[script.family]
    version = find_version(draft, script)
    if version not in versions:
        message = f"{version} is for another model than {script.name}.py trains"
        draft.refuse("model_version", message, f"write one of {', '.join(versions)}", "E1017")
    elif versions[version]:
        supported = [name for name, feature in versions.items() if not feature]
        message = f"{version} needs {versions[version]}, which Mezzotint does not have yet"
        draft.refuse("model_version", message, f"write one of {', '.join(supported)}")
    elif version in _DISTILLED:
        draft.set("model.flux2.distilled", True, "model_version")
        draft.note("model_version", f"{version} is a distilled model; training destroys its sampling in 4 steps")
    elif version == "dev":
        draft.apply("guidance_scale")


def _find_part(draft: Draft, model: str) -> str:
    """The denoiser of Wan that is trained."""
    task = draft.text("task")
    if task not in _TASKS:
        feature = FUN_CONTROL if task.endswith("-FC") else LAST_FRAME
        remedy = "train text or image to video"
        draft.refuse("task", f"{task} needs {feature}, which Mezzotint does not have yet", remedy)
        return "denoiser"
    if (boundary := BOUNDARIES.get(task)) is None:
        return "denoiser"
    name = Path(model).name.lower()
    low, high = draft.values["min_timestep"] or 0, draft.values["max_timestep"] or 1000
    assert isinstance(low, int)
    assert isinstance(high, int)
    is_high = "high" in name or low >= boundary
    is_low = "low" in name or high <= boundary
    if is_high == is_low:
        message = f"{task} has two transformers, and neither the file's name nor the timesteps tell which this is"
        remedy = f"write --min_timestep={boundary} for the one for high noise, --max_timestep={boundary} for the other"
        draft.refuse("task", message, remedy, "E1017")
    elif (low, high) == (0, 1000):
        draft.note("task", f"each transformer is trained at its own noise levels, with the limit {boundary}")
    return "denoiser" if is_high else "denoiser_2"


# --- adapters -------------------------------------------------------------------------------------------------------


def _set_adapter(draft: Draft, script: TrainingScript, part: str) -> None:
    module = draft.text("network_module")
    if not _check_module(draft, script, module):
        return
    arguments = read_arguments(draft, "network_args", NETWORK)
    kind = _KINDS.get(module, "lora")
    if draft.values["scale_weight_norms"] is not None:
        draft.apply("scale_weight_norms")
    if draft.values["network_dropout"]:
        _set_dropout(draft, kind)
    set_factors(draft, arguments, kind, arguments["loraplus_lr_ratio"])
    if draft.text("network_weights"):
        draft.set("model.adapter.path", draft.text("network_weights"), "network_weights")
        for flag in ("network_dim", "network_alpha", "network_args"):
            if draft.is_given(flag):
                draft.note(flag, "ranks, alphas and layers are those of --network_weights")
        return
    if not (draft.check_bounds("network_dim") and draft.check_bounds("network_alpha")):
        return
    draft.set("model.adapter.kind", kind, "network_module")
    draft.set("model.adapter.rank", draft.values["network_dim"] or 4, "network_dim")
    draft.set("model.adapter.alpha", draft.number("network_alpha") or None, "network_alpha")
    if kind == "lokr":
        draft.set("model.adapter.factor", arguments["factor"], "network_args", "network_module")
    targets = [f"{part}/{layer}" for layer in LAYERS[script.family]]
    draft.set("model.adapter.targets", targets, "network_module")
    if script.family == "flux2":
        text = "queries, keys and values of a double block have an adapter each; in the script, they share one"
        draft.note("network_module", text)


def _check_module(draft: Draft, script: TrainingScript, module: str) -> bool:
    """Whether a network is supported; refuses it otherwise."""
    names = (script.network, *_KINDS)
    if module in names:
        return True
    if not module:
        draft.refuse("network_module", "is missing; it names the kind of adapter", f"write {script.network}", "E1017")
    elif module in {one.network for one in SCRIPTS.values()} | {"networks.lora"}:
        message = f"{module} is for another model than {script.name}.py trains"
        draft.refuse("network_module", message, f"write {script.network}", "E1017")
    elif module.startswith("lycoris"):
        message = f"{module} needs LyCORIS for transformers, which Mezzotint does not have yet"
        draft.refuse("network_module", message, f"use {', '.join(names)}")
    else:
        draft.refuse("network_module", f"{module} is not supported", did_you_mean(module, names, f"use {names[0]}"))
    return False


def _set_dropout(draft: Draft, kind: str) -> None:
    if kind != "lora":
        draft.refuse("network_dropout", f"{kind} has no dropout in Mezzotint", "leave it out")
        return
    draft.set("model.adapter.dropout", draft.number("network_dropout"), "network_dropout")
    draft.note("network_dropout", "of the adapter's inputs; in the script, of the numbers between its two factors")
