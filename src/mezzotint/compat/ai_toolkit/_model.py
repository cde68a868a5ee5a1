"""The model of a job: its family, its trained parts, its adapter, its number types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mezzotint.compat.ai_toolkit._keys import Keys
from mezzotint.errors import did_you_mean

FULL_RANK = 100_000
"""The rank of a LoKr whose larger matrix is not decomposed: above half of any side."""
_DEFAULT_RANK = 4

ARCHS = {
    "sd1": "sd", "sd15": "sd", "sd2": "sd", "sdxl": "sdxl", "sd3": "sd3", "flux": "flux", "flux_kontext": "flux",
    "chroma": "chroma", "flux2": "flux2",
    "flux2_klein_4b": "flux2", "flux2_klein_9b": "flux2", "qwen_image": "qwen-image",
    "qwen_image_edit": "qwen-image", "qwen_image_edit_plus": "qwen-image", "zimage": "z-image", "krea2": "krea2",
    "wan21": "wan", "wan22_14b": "wan", "wan22_5b": "wan", "wan21_i2v": "wan", "wan22_14b_i2v": "wan",
}  # fmt: skip
"""Families by `model.arch`; a variant may follow a colon, such as `wan21:14b`."""

_OTHER_ARCHS = {
    "flex1": "Flex.1", "flex2": "Flex.2",
    "zeta_chroma": "Zeta-Chroma", "lumina2": "Lumina-Image 2", "hidream": "HiDream", "hidream_e1": "HiDream",
    "hidream_o1": "HiDream", "omnigen2": "OmniGen2",
    "ltx2": "LTX-2", "ltx2.3": "LTX-2", "ltx2.5": "LTX-2", "pixart": "PixArt", "pixart_sigma": "PixArt",
    "auraflow": "AuraFlow", "ssd": "SSD-1B", "vega": "Segmind Vega", "anima": "Anima", "ernie_image": "ERNIE-Image",
    "ace_step_15": "audio", "ace_step_15_xl": "audio", "minimax_h3": "MiniMax-H3",
}  # fmt: skip
"""Kinds of models that Mezzotint does not have yet, by `model.arch`."""
ANIMATING = ("wan21_i2v", "wan22_14b_i2v")
"""Kinds of models that continue the first frame of a clip."""
TWO_DENOISERS = ("wan22_14b", "wan22_14b_i2v")
"""Kinds of models with one denoiser for high noise and one for low noise."""


@dataclass(frozen=True, slots=True)
class Control:
    """The control images of a kind of model. most: how many it takes. align: see `data.conditions`."""

    most: int
    align: str
    is_required: bool = False


CONTROLS = {
    "flux_kontext": Control(1, "target", True),
    "qwen_image_edit": Control(1, "target", True),
    "qwen_image_edit_plus": Control(3, "own", True),
    **dict.fromkeys(("flux2", "flux2_klein_4b", "flux2_klein_9b"), Control(1000, "own")),
}
"""Control images by `model.arch`; other models take none."""

EXTRA_GUIDANCE = ("krea2",)
"""Families whose guidance scale in Mezzotint is one less: they add the guidance difference on top."""

_SWITCHES = {"is_xl": "sdxl", "is_v3": "sd3", "is_flux": "flux", "is_v2": "sd2"} | {
    f"is_{name}": name for name in ("pixart", "pixart_sigma", "auraflow", "lumina2", "ssd", "vega")
}
"""The arch that an older switch stands for."""

_BITS = {
    **dict.fromkeys(("qfloat8", "float8", "qint8", "int8", "uint8", "uint7", "uint6", "uint5"), "int8"),
    **dict.fromkeys(("qint4", "int4", "uint4", "qfloat4", "uint3", "uint2", "qint2"), "nf4"),
}
"""Mezzotint's quantization for a `qtype`, of as many bits or the next more."""
_SAME = ("int8", "qint8")

_UNET = ("all-linear", "*.proj_in", "*.proj_out", "*.conv_shortcut", "time_embedding.*")
"""Linear layers and convolutions of one pixel of a UNet."""


@dataclass(frozen=True, slots=True)
class Arch:
    """The kind of a job's model. name: `model.arch`, without variant. has_adapter: whether an adapter is trained."""

    name: str
    family: str
    has_adapter: bool

    @property
    def is_flow(self) -> bool:
        return self.family not in ("sd", "sdxl")


def find_name(model: Mapping[str, Any]) -> tuple[str, str]:
    """(kind, key) of a job's section `model`."""
    name = str(model.get("arch") or "").partition(":")[0]
    switch = next((switch for switch in _SWITCHES if model.get(switch) is True), "")
    if name or not switch:
        return name or "sd1", "arch"
    return _SWITCHES[switch], switch


def explain_missing(name: str) -> tuple[str, str]:
    """(problem, remedy) of a kind of model that Mezzotint lacks, ("", "") of others."""
    if name in _OTHER_ARCHS:
        return f"needs {_OTHER_ARCHS[name]}, which Mezzotint does not have yet", "choose another model"
    if name not in ARCHS:
        near = did_you_mean(name, (*ARCHS, *_OTHER_ARCHS), f"known: {', '.join(ARCHS)}")
        return f"{name} is not known", near
    return "", ""


def find_arch(process: Keys) -> Arch:
    """The kind of the model."""
    name, _ = find_name({key: process[f"model.{key}"] for key in ("arch", *_SWITCHES)})
    return Arch(name, ARCHS[name], process.has_section("network"))


def set_model(process: Keys, arch: Arch) -> None:
    """Sets the section `model` and the number types."""
    process.set("model.path", process.text("model.name_or_path"), "model.name_or_path")
    switch = next(
        (f"model.{one}" for one, name in _SWITCHES.items() if process[f"model.{one}"] and name == arch.name), ""
    )
    process.set("model.family", arch.family, *([switch] if switch else []), "model.arch")
    if arch.name == "flux_kontext":
        process.set("model.task", "edit", "model.arch")
    if process.text("model.vae_path"):
        process.set("model.vae", process.text("model.vae_path"), "model.vae_path")
    if arch.family in ("sd", "sdxl"):
        process.set("model.prediction", "v" if process["model.is_v_pred"] else "epsilon", "model.is_v_pred")
    if process["train.xformers"]:
        process.set("model.attention", "xformers", "train.xformers")
    elif process.text("train.attention_backend") == "flash":
        process.set("model.attention", "flash", "train.attention_backend")
    if process["train.bypass_guidance_embedding"] and arch.family == "flux":
        process.refuse_until("FLUX without its guidance embedding", "train.bypass_guidance_embedding")
    if process.text("model.assistant_lora_path"):
        process.set("model.under", [{"path": process.text("model.assistant_lora_path")}], "model.assistant_lora_path")
    parts = _set_parts(process, arch)
    if arch.has_adapter:
        _set_adapter(process, arch, parts)
    elif process.texts("model.only_if_contains"):
        patterns = [f"!denoiser/{_pattern(name)}" for name in process.texts("model.only_if_contains")]
        process.set("model.freeze", ["denoiser/*", *patterns], "model.only_if_contains")
    _set_types(process, arch)


def _set_parts(process: Keys, arch: Arch) -> list[str]:
    """Sets and returns the trained parts."""
    parts, keys = [], ["train.train_unet", "train.train_text_encoder"]
    if process["train.train_unet"]:
        parts.append("denoiser")
        if arch.name in TWO_DENOISERS:
            noise = {"denoiser": "train_high_noise", "denoiser_2": "train_low_noise"}
            parts = [part for part, key in noise.items() if process[f"model.model_kwargs.{key}"]]
            keys = [f"model.model_kwargs.{key}" for key in noise.values()]
    if process["train.train_text_encoder"] and arch.is_flow:
        process.refuse("train.train_text_encoder", "trains text encoders of SD and SDXL only", "leave it out")
    elif process["train.train_text_encoder"]:
        encoders = {"text_encoder": "model.use_text_encoder_1", "text_encoder_2": "model.use_text_encoder_2"}
        parts += [part for part, key in encoders.items() if process[key]][: 2 if arch.family == "sdxl" else 1]
    if not parts:
        process.refuse(keys[0], "is off, and nothing else is trained", "set it to true", "E1017")
    process.set("model.train", parts, *keys)
    return parts


def _pattern(name: str) -> str:
    """A pattern for layers whose name contains a text; ai-toolkit's names start with the network's."""
    return f"*{name.removeprefix('transformer.').removeprefix('unet.')}*"


def _set_adapter(process: Keys, arch: Arch, parts: list[str]) -> None:
    kind = process.text("network.type")
    if kind == "lorm":
        process.refuse_until("LoRM adapters", "network.type", "use lora or lokr")
        return
    path = process.text("network.pretrained_lora_path")
    if path:
        process.set("model.adapter.path", path, "network.pretrained_lora_path")
        process.note("network.pretrained_lora_path", "kind, layers and rank are those of the file")
        return
    is_lokr = kind == "lokr"
    process.set("model.adapter.kind", "lokr" if is_lokr else "lora", "network.type")
    rank = process.first("network.rank", "network.linear") or _DEFAULT_RANK
    assert isinstance(rank, int)
    if is_lokr and process["network.lokr_full_rank"]:
        process.set("model.adapter.rank", FULL_RANK, "network.lokr_full_rank")
    else:
        process.set("model.adapter.rank", rank, "network.linear", "network.rank")
        _set_alpha(process, arch, rank, is_lokr=is_lokr)
    if is_lokr:
        process.set("model.adapter.factor", process.integer("network.lokr_factor"), "network.lokr_factor")
        if process["network.dropout"]:
            process.refuse_until("dropout of LoKr", "network.dropout")
    elif process["network.dropout"]:
        process.set("model.adapter.dropout", process.number("network.dropout"), "network.dropout")
    _set_targets(process, arch, parts, rank)


def _set_alpha(process: Keys, arch: Arch, rank: int, *, is_lokr: bool) -> None:
    """LoRA of transformers has no alpha in ai-toolkit: its factor is 1, whatever linear_alpha says."""
    alpha = process.first("network.linear_alpha", "network.alpha")
    assert isinstance(alpha, float)
    keys = ("network.linear_alpha", "network.alpha")
    if arch.is_flow and not is_lokr:
        if alpha != rank and any(process.is_given(key) for key in keys):
            key = next(key for key in keys if process.is_given(key))
            process.note(key, f"{alpha:g} has no effect for this model, as in ai-toolkit: alpha is the rank, {rank}")
        alpha = float(rank)
    process.set("model.adapter.alpha", alpha, *keys)


def _set_targets(process: Keys, arch: Arch, parts: list[str], rank: int) -> None:
    conv = process["network.conv"]
    only = process.texts("network.network_kwargs.only_if_contains")
    denoisers = [part for part in parts if part.startswith("denoiser")]
    everywhere = "network.all_layers" if process["network.all_layers"] else "network.transformer_only"
    if only:
        targets = [f"{part}/{_pattern(name)}" for part in denoisers for name in only]
        key = "network.network_kwargs.only_if_contains"
    elif arch.is_flow:
        if process["network.all_layers"] or not process["network.transformer_only"]:
            process.refuse_until("adapters of all layers of a transformer", everywhere)
        layers = "layers.*" if arch.family == "z-image" else "all-linear"
        targets = [f"{part}/{layers}" for part in denoisers]
        key = "network.transformer_only"
    else:
        targets = ["denoiser/*"] if conv else [f"denoiser/{pattern}" for pattern in _UNET]
        targets += ["denoiser/add_embedding.*"] if arch.family == "sdxl" and not conv else []
        targets = targets if denoisers else []
        key = "network.conv"
        if conv and denoisers and isinstance(conv, int):
            _set_convolutions(process, conv, rank)
    if arch.is_flow and conv and "network.conv" in process.draft.named:
        process.note("network.conv", "the blocks of a transformer have no convolutions")
    targets += [f"{part}/attention+mlp" for part in parts if part.startswith("text_encoder")]
    process.set("model.adapter.targets", targets, key)


def _set_convolutions(process: Keys, conv: int, rank: int) -> None:
    """Convolutions of more than one pixel have a rank and an alpha of their own."""
    alpha = process.first("network.linear_alpha", "network.alpha")
    own = process["network.conv_alpha"] or float(conv)
    ranks = {"denoiser/*conv*": conv, "denoiser/*conv_shortcut": rank}
    process.set("model.adapter.rank_pattern", ranks, "network.conv")
    alphas = {"denoiser/*conv*": own, "denoiser/*conv_shortcut": alpha}
    process.set("model.adapter.alpha_pattern", alphas, "network.conv_alpha", "network.conv")


def _set_types(process: Keys, arch: Arch) -> None:
    """Sets precision, quantization, offloading and compilation."""
    process.apply("train.dtype", "train.gradient_checkpointing")
    precision = process.draft.settings["run"]["precision"]
    process.set("run.weight_dtype", "fp32" if arch.has_adapter or precision == "fp32" else "same", "train.dtype")
    if not arch.has_adapter and precision != "fp32":
        process.note("train.dtype", "weights keep a float32 copy in the optimizer; in ai-toolkit, they are rounded")
    process.set("run.frozen_dtype", _frozen_type(process, arch) or "same", "model.qtype", "model.quantize")
    vae = process.text("model.vae_dtype")
    if vae:
        kinds = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
        process.set("run.vae_dtype", kinds.get(vae, vae), "model.vae_dtype")
    offload = process.first("model.layer_offloading", "model.auto_memory") or process["network.layer_offloading"]
    if offload and process.number("model.layer_offloading_transformer_percent") > 0:
        process.set("run.offload.blocks", "auto", "model.layer_offloading", "model.auto_memory")
    if process["model.compile"] or process["model.block_compile"]:
        process.set("run.compile", True, "model.compile", "model.block_compile")


def _frozen_type(process: Keys, arch: Arch) -> str | None:
    """The quantization of frozen weights, None without one. Mezzotint has one for all frozen parts."""
    has_frozen = arch.has_adapter and bool(process["model.quantize"])
    has_texts = bool(process.first("model.quantize_te", "model.quantize"))
    if not has_frozen and process["model.quantize"]:
        process.note("model.quantize", "the whole model is trained, and trained weights are not quantized")
    if not has_frozen and not has_texts:
        return None
    if has_texts and not has_frozen and arch.has_adapter:
        message = "text encoders are not quantized where the model is not; data.cache.text=true loads them once"
        process.note("model.quantize_te", message)
        return None
    key = "model.qtype" if has_frozen else "model.qtype_te"
    written, _, recovery = process.text(key).partition("|")
    ours = _BITS.get(written)
    if ours is None:
        near = did_you_mean(written, _BITS, "write qfloat8")
        process.refuse(key, f"{written} is not supported; 8 bits and 4 bits are", near)
        return None
    if written not in _SAME:
        process.note(key, f"{written} is {ours} in Mezzotint{', without its recovery adapter' * bool(recovery)}")
    if has_frozen and not has_texts:
        process.note("model.quantize_te", "text encoders are quantized with the model")
    return ours
