"""The model, its trained parts and their rates, adapters and learned tokens, as `model`, `optim.lr` and
`optim.part_lr`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mezzotint.compat.kit.adapters import set_factors
from mezzotint.compat.kit.caption_templates import SENTENCES
from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.key_values import read_arguments
from mezzotint.compat.kit.reading import Value
from mezzotint.compat.kohya import _block_ranks, _block_rates
from mezzotint.compat.kohya._arguments import LYCORIS, NETWORK
from mezzotint.compat.kohya._layers import INDICES, KINDS, choose_layers
from mezzotint.compat.kohya._rows import has_option
from mezzotint.compat.kohya._scripts import Script
from mezzotint.errors import did_you_mean

ENCODERS = {
    "sd": ("text_encoder",),
    "sdxl": ("text_encoder", "text_encoder_2"),
    "sd3": ("text_encoder", "text_encoder_2"),
    "flux": ("text_encoder",),
    "chroma": (),
}
"""The text encoders that a family can train."""
CONVOLUTIONS = ("denoiser/*.conv[12]", "denoiser/*samplers*.conv")
"""The 3×3 convolutions of a U-Net's blocks."""
NETWORKS = {
    "sd": ("networks.lora",),
    "sdxl": ("networks.lora",),
    "sd3": ("networks.lora_sd3", "networks.lora"),
    "flux": ("networks.lora_flux",),
    "chroma": ("networks.lora_flux",),
}
_LYCORIS_MODULES = ("lycoris.kohya", "lycoris_kohya")
_AWAITED = {
    "networks.dylora": "DyLoRA",
    "networks.lora_fa": "LoRA-FA",
    "networks.oft": "OFT",
    "networks.oft_flux": "OFT",
    "networks.loha": "",
    "networks.lokr": "",
}
_KINDS = {"lora": "lora", "locon": "lora", "loha": "loha", "lokr": "lokr"}
_TIME = "time_embedding.linear_[12]"
PRESETS = {
    "full": ("all", "conv_in", "conv_out", _TIME),
    "full-lin": ("all-linear", "*.proj_in", "*.proj_out", "*.conv_shortcut", _TIME),
    "attn-mlp": ("attention", "*.ff.net.*"),
    "attn-only": ("attention",),
}
"""Layers of a U-Net by LyCORIS' presets."""


def set_model(draft: Draft, script: Script) -> None:
    """Sets the model's files, the trained parts and their rates, and the adapter or learned tokens."""
    _set_files(draft, script)
    rates = _trained_rates(draft, script)
    if not rates:
        draft.refuse(_first_given(draft, "network_train_unet_only", "learning_rate"), "nothing is left to train")
        return
    draft.set("model.train", list(rates), *_flags_of_parts(script))
    arguments: dict[str, Any] = {}
    if script.method == "adapter":
        arguments = _set_adapter(draft, script, list(rates))
    elif script.method == "embeddings":
        _set_tokens(draft)
    _set_rates(draft, script, rates)
    if has_option(script, "block_lr") and draft.text("block_lr"):
        _set_block_rates(draft, rates.get("denoiser"))
    weights = [name for name in _block_rates.ARGUMENTS if arguments.get(name) is not None]
    if weights:
        _set_block_weights(draft, script, rates, arguments, weights[0])
    if _block_ranks.is_given(arguments):
        _set_block_ranks(draft, script, rates, arguments)


def _set_files(draft: Draft, script: Script) -> None:
    model = draft.text("pretrained_model_name_or_path")
    if not model:
        draft.refuse("pretrained_model_name_or_path", "is missing; it names the model to start from", code="E1017")
    draft.set("model.family", script.family, "script")
    draft.set("model.path", model or "model", "pretrained_model_name_or_path")
    flag = "ae" if script.is_flux and draft.text("ae") else "vae"
    if draft.text(flag):
        draft.set("model.vae", draft.text(flag), flag)
    if not script.is_flow:
        draft.set("model.prediction", "v" if draft.values["v_parameterization"] else "epsilon", "v_parameterization")
        _set_clip_skip(draft, script)
        if draft.text("max_token_length"):
            draft.set("model.caption_tokens", int(draft.text("max_token_length")), "max_token_length")
        return
    flags = [flag for flag in ("clip_l", "clip_g", "t5xxl") if draft.text(flag) and has_option(script, flag)]
    if script.family == "chroma" and "clip_l" in flags:
        flags.remove("clip_l")
        draft.note("clip_l", "has no effect: Chroma has no CLIP, as in the script")
    if flags:
        draft.set("model.over", [draft.text(flag) for flag in flags], *flags)
    tokens = draft.values["t5xxl_max_token_length"]
    if script.family == "chroma":
        _set_chroma(draft, tokens)
        return
    if draft.values["apply_t5_attn_mask"]:
        draft.refuse_until("attention masks of text", "apply_t5_attn_mask")
    if script.family == "sd3":
        draft.set("model.sd3.t5_tokens", tokens or 256, "t5xxl_max_token_length")
        return
    draft.set("model.flux.t5_tokens", tokens, "t5xxl_max_token_length")
    if "schnell" not in model.lower():
        draft.set("model.flux.guidance", draft.number("guidance_scale"), "guidance_scale")
        if draft.number("guidance_scale") != 1:
            draft.note("guidance_scale", "1 is usual for training; the script's default is 3.5")


def _set_chroma(draft: Draft, tokens: Value) -> None:
    draft.set("model.chroma.text_tokens", tokens or 512, "t5xxl_max_token_length")
    if not draft.values["apply_t5_attn_mask"]:
        draft.refuse("apply_t5_attn_mask", "is missing; the script fails for Chroma without it", "write it", "E1017")
    if not draft.is_given("guidance_scale"):
        draft.note("guidance_scale", "not given, read as 0; Chroma is not trained with the script's default, 3.5")
    elif draft.number("guidance_scale"):
        message = f"{draft.number('guidance_scale'):g} is an input that Chroma is not trained with"
        draft.refuse("guidance_scale", message, "write --guidance_scale=0")


def _set_clip_skip(draft: Draft, script: Script) -> None:
    if draft.values["clip_skip"] is None or not draft.check_bounds("clip_skip"):
        return
    if script.family == "sdxl":
        draft.note("clip_skip", "has no effect for SDXL, as in the script")
    else:
        draft.set("model.clip_skip", draft.integer("clip_skip") - 1, "clip_skip")


def _first_given(draft: Draft, *flags: str) -> str:
    return next((flag for flag in flags if draft.is_given(flag)), flags[-1])


# --- trained parts and their rates ------------------------------------------------------------------------------------


def _flags_of_parts(script: Script) -> tuple[str, ...]:
    flags = {
        "adapter": ("network_train_unet_only", "network_train_text_encoder_only", "text_encoder_lr", "unet_lr"),
        "weights": ("stop_text_encoder_training",) if script.name == "train_db" else ("train_text_encoder",),
        "embeddings": ("token_string",),
    }[script.method]
    return tuple(flag for flag in flags if has_option(script, flag)) or ("script",)


def _trained_rates(draft: Draft, script: Script) -> dict[str, float]:
    """The trained parts and their rates. A rate of 0 does not train a part."""
    rate = draft.number("learning_rate")
    if script.method == "embeddings":
        return {"tokens": rate}
    if script.method == "adapter":
        rates = _adapter_rates(draft, script)
    else:
        trains_encoders = script.name == "train_db" or (
            has_option(script, "train_text_encoder") and _is_on(draft, script)
        )
        rates = {"denoiser": rate}
        if trains_encoders and _trains_encoder_of_train_db(draft, script):
            flags = ("learning_rate_te",) if has_option(script, "learning_rate_te") else _TE_FLAGS
            for part, flag in zip(ENCODERS[script.family], flags, strict=False):
                rates[part] = rate if draft.values[flag] is None else draft.number(flag)
    for part in [part for part, value in rates.items() if value == 0]:
        del rates[part]
    return rates


_TE_FLAGS = ("learning_rate_te1", "learning_rate_te2")


def _is_on(draft: Draft, script: Script) -> bool:
    return bool(draft.values["train_text_encoder"])


def _trains_encoder_of_train_db(draft: Draft, script: Script) -> bool:
    if script.name != "train_db" or draft.values["stop_text_encoder_training"] is None:
        return True
    steps = draft.integer("stop_text_encoder_training")
    if steps > 0:
        message = "needs freezing of parts during a run, which Mezzotint does not have yet"
        draft.refuse("stop_text_encoder_training", message, "leave it out, or write -1")
    return False


def _adapter_rates(draft: Draft, script: Script) -> dict[str, float]:
    rate, encoders = draft.number("learning_rate"), ENCODERS[script.family]
    only_denoiser, only_encoders = (
        bool(draft.values[f"network_train_{part}_only"]) for part in ("unet", "text_encoder")
    )
    if only_denoiser and only_encoders:
        draft.refuse("network_train_unet_only", "--network_train_text_encoder_only is given, too: nothing is left")
    rates: dict[str, float] = {}
    if not only_encoders:
        rates["denoiser"] = rate if draft.values["unet_lr"] is None else draft.number("unet_lr")
    if not only_denoiser:
        written = draft.values["text_encoder_lr"]
        values = [float(one) for one in written] if isinstance(written, tuple) and written else [rate]
        rates |= {part: values[min(index, len(values) - 1)] for index, part in enumerate(encoders)}
    return rates


def _set_rates(draft: Draft, script: Script, rates: dict[str, float]) -> None:
    """Sets the rate of the first part, and of others that differ."""
    first, *others = rates
    flags = {"denoiser": "unet_lr" if script.method == "adapter" else "learning_rate"}
    if script.method == "adapter":
        flags |= dict.fromkeys(ENCODERS[script.family], "text_encoder_lr")
    elif has_option(script, "learning_rate_te"):
        flags["text_encoder"] = "learning_rate_te"
    else:
        flags |= dict(zip(("text_encoder", "text_encoder_2"), _TE_FLAGS, strict=True))
    draft.set("optim.lr", rates[first], *_flags(draft, flags.get(first, "learning_rate")))
    for part in others:
        if rates[part] != rates[first]:
            draft.set(f"optim.part_lr.{part}", rates[part], *_flags(draft, flags[part]))


def _set_block_rates(draft: Draft, usual: float | None) -> None:
    """Sets the rates of `--block_lr`. usual: of the denoiser, None if it is not trained."""
    if usual is None:
        draft.note("block_lr", "has no effect with --learning_rate=0, which does not train the U-Net")
        return
    try:
        by_block = _block_rates.parse_rates(draft.text("block_lr"))
    except ValueError as error:
        draft.refuse("block_lr", str(error), code="E1017")
        return
    for key, rate in _block_rates.rates_by_pattern("sdxl", by_block, usual).items():
        draft.set_entry("optim.part_lr", key, rate, "block_lr")


def _set_block_weights(
    draft: Draft, script: Script, rates: dict[str, float], arguments: dict[str, Any], name: str
) -> None:
    """Sets the rates of the denoiser's blocks. name: of the first argument that is given."""
    if script.is_flow:
        draft.refuse("network_args", f"{name} is for another model than {script.name}.py trains", "leave it out")
        return
    if "denoiser" not in rates:
        draft.note("network_args", f"{name} has no effect without an adapter of the U-Net")
        return
    try:
        weights = _block_rates.weights_by_block(script.family, arguments)
    except ValueError as error:
        draft.refuse("network_args", str(error), code="E1017")
        return
    usual = rates["denoiser"]
    by_pattern = _block_rates.rates_by_pattern(
        script.family,
        [weight * usual for weight in weights],
        usual,
        only_attention=not _block_ranks.has_convolutions(arguments) and not draft.text("network_weights"),
    )
    for key, rate in by_pattern.items():
        draft.set_entry("optim.part_lr", key, rate, "network_args")


def _set_block_ranks(draft: Draft, script: Script, rates: dict[str, float], arguments: dict[str, Any]) -> None:
    """Sets the ranks and alphas of the denoiser's blocks. Blocks of rank 0 get no adapter."""
    name = next(name for name in _block_ranks.ARGUMENTS if arguments[name] is not None)
    if script.is_flow:
        draft.refuse("network_args", f"{name} is for another model than {script.name}.py trains", "leave it out")
    elif "denoiser" not in rates:
        draft.note("network_args", f"{name} has no effect without an adapter of the U-Net")
    elif not _block_ranks.is_active(arguments):
        draft.note("network_args", f"{name} has no effect without block_dims, as in the scripts")
    elif not draft.text("network_weights"):
        rank = draft.integer("network_dim") if draft.values["network_dim"] else 4
        try:
            patterns = _block_ranks.choose(script.family, arguments, rank, draft.number("network_alpha"))
        except ValueError as error:
            draft.refuse("network_args", str(error), code="E1017")
            return
        for setting, values in (("rank_pattern", patterns.ranks), ("alpha_pattern", patterns.alphas)):
            for pattern, value in values.items():
                draft.set_entry(f"model.adapter.{setting}", f"denoiser/{pattern}", value, "network_args")
        for pattern in patterns.without:
            draft.set_entry("optim.part_lr", f"~denoiser/{pattern}", 0.0, "network_args")


def _flags(draft: Draft, flag: str) -> tuple[str, ...]:
    return (flag, "learning_rate") if draft.is_given(flag) else ("learning_rate",)


# --- adapters ---------------------------------------------------------------------------------------------------------


def _set_adapter(draft: Draft, script: Script, parts: list[str]) -> dict[str, Any]:
    """Sets the adapter, and returns its arguments."""
    module = draft.text("network_module")
    is_lycoris = module in _LYCORIS_MODULES
    if not is_lycoris and not _check_module(draft, script, module):
        return {}
    arguments = read_arguments(draft, "network_args", LYCORIS if is_lycoris else NETWORK)
    if draft.text("network_weights"):
        draft.set("model.adapter.path", draft.text("network_weights"), "network_weights")
        for flag in ("network_dim", "network_alpha", "network_args"):
            if draft.is_given(flag):
                draft.note(flag, "ranks, alphas and layers are those of --network_weights")
    else:
        _set_size(draft, arguments)
        _set_layers(draft, script, parts, arguments, is_lycoris=is_lycoris)
    if draft.values["scale_weight_norms"] is not None:
        draft.apply("scale_weight_norms")
    _set_dropout(draft, arguments)
    kind = draft.settings.get("model", {}).get("adapter", {}).get("kind", "lora")
    set_factors(draft, arguments, kind, _choose_ratio(draft, arguments, parts))
    if draft.text("metadata_trigger_phrase"):
        draft.set("model.adapter.trigger", draft.text("metadata_trigger_phrase"), "metadata_trigger_phrase")
    return arguments


def _choose_ratio(draft: Draft, arguments: dict[str, Any], parts: list[str]) -> float:
    """The ratio of LoRA+ of the trained parts; refuses several."""
    usual = arguments.get("loraplus_lr_ratio") or 0.0
    ratios = {
        arguments.get(f"loraplus_{'unet' if part == 'denoiser' else 'text_encoder'}_lr_ratio") or usual
        for part in parts
    }  # fmt: skip
    if len(ratios) > 1:
        message = "LoRA+ has one ratio for all networks in Mezzotint"
        draft.refuse("network_args", message, "write loraplus_lr_ratio, or train one network")
    return max(ratios, default=0.0)


def _check_module(draft: Draft, script: Script, module: str) -> bool:
    """Whether a network of sd-scripts is supported; refuses it otherwise."""
    ours = NETWORKS[script.family]
    if module in ours:
        return True
    if not module:
        draft.refuse("network_module", "is missing; it names the kind of adapter", f"write {ours[0]}", "E1017")
    elif _AWAITED.get(module):
        draft.refuse("network_module", f"needs {_AWAITED[module]}, which Mezzotint does not have yet", f"use {ours[0]}")
    elif module in _AWAITED:
        kind = module.removeprefix("networks.")
        draft.refuse("network_module", f"{module} is not supported", f"use lycoris.kohya with algo={kind}")
    elif any(module in names for names in NETWORKS.values()):
        draft.refuse("network_module", f"{module} is for another model than {script.name}.py trains", f"use {ours[0]}")
    else:
        names = (*ours, *_LYCORIS_MODULES[:1])
        draft.refuse("network_module", f"{module} is not supported", did_you_mean(module, names, f"use {names[0]}"))
    return False


def _set_size(draft: Draft, arguments: dict[str, Any]) -> None:
    if not (draft.check_bounds("network_dim") and draft.check_bounds("network_alpha")):
        return
    kind = _KINDS.get(arguments.get("algo") or "lora")
    if kind is None:
        message = f"algo={arguments['algo']} needs LyCORIS variants, which Mezzotint does not have yet"
        draft.refuse("network_args", message, f"use {', '.join(_KINDS)}")
        return
    if arguments.get("dora_wd"):
        if kind != "lora":
            draft.refuse("network_args", f"dora_wd of {kind} needs LyCORIS variants, which Mezzotint does not have yet")
        kind = "dora"
    draft.set("model.adapter.kind", kind, "network_module", "network_args")
    draft.set("model.adapter.rank", draft.values["network_dim"] or 4, "network_dim")
    draft.set("model.adapter.alpha", draft.number("network_alpha") or None, "network_alpha")
    if kind == "lokr":
        for name in ("factor", "decompose_both"):
            draft.set(f"model.adapter.{name}", arguments[name], "network_args")


def _set_layers(draft: Draft, script: Script, parts: list[str], arguments: dict[str, Any], *, is_lycoris: bool) -> None:
    """Sets the layers that get an adapter, and ranks and alphas of convolutions."""
    preset = arguments["preset"] if is_lycoris else ""
    if preset and (preset not in PRESETS or (script.is_flow and preset != "full")):
        message = f"preset={preset} needs adapters of chosen blocks, which Mezzotint does not have yet"
        draft.refuse("network_args", message, "use full" if script.is_flow else f"use {', '.join(PRESETS)}")
        return
    has_convolutions = not script.is_flow and (
        preset == "full" or (not preset and _block_ranks.has_convolutions(arguments))
    )
    chosen = [] if is_lycoris or "denoiser" not in parts else _choose_layers(draft, script, arguments)
    targets = list_targets(script, parts, preset, has_convolutions=has_convolutions, chosen=chosen)
    draft.set("model.adapter.targets", targets, "network_args", *_flags_of_parts(script))
    if has_convolutions and "denoiser" in parts and not _block_ranks.is_active(arguments):
        _set_convolutions(draft, arguments, is_lycoris=is_lycoris)
    if script.is_flow and not arguments.get("split_qkv"):
        text = "queries, keys and values have an adapter each, as with split_qkv=True; in the script, they share one"
        draft.note("network_args", text)


def list_targets(
    script: Script, parts: Sequence[str], preset: str, *, has_convolutions: bool, chosen: Sequence[str] = ()
) -> list[str]:
    """`model.adapter.targets`. preset: of lycoris.kohya, "" for a network of sd-scripts. chosen: layers of the denoiser
    instead of the usual ones."""
    usual = "all-linear" if script.is_flow else "all" if has_convolutions else "attention+mlp"
    layers = PRESETS[preset] if preset and not script.is_flow else (usual,)
    encoder_layers = "attention" if preset == "attn-only" else "attention+mlp"
    of_denoiser = chosen or [f"denoiser/{layer}" for layer in layers if "denoiser" in parts]
    return [*of_denoiser, *(f"{part}/{encoder_layers}" for part in parts if part != "denoiser")]


def _choose_layers(draft: Draft, script: Script, arguments: dict[str, Any]) -> list[str]:
    """The denoiser's layers that arguments choose by kind or block, with their ranks; [] for all."""
    family = script.family if script.is_flow else ""
    for name in (*(name for kinds in KINDS.values() for name in kinds), *(n for one in INDICES.values() for n in one)):
        known = {**KINDS.get(family, {}), **INDICES.get(family, {})}
        if arguments[name] is not None and name not in known:
            draft.refuse("network_args", f"{name} is for another model than {script.name}.py trains", "leave it out")
    if not family:
        return []
    try:
        targets, ranks = choose_layers(family, arguments)
    except ValueError as error:
        draft.refuse("network_args", f"numbers of blocks {error}", code="E1017")
        return []
    if ranks:
        draft.set("model.adapter.rank_pattern", ranks, "network_args")
    return targets


def _set_convolutions(draft: Draft, arguments: dict[str, Any], *, is_lycoris: bool) -> None:
    rank, alpha = draft.integer("network_dim") if draft.values["network_dim"] else 4, draft.number("network_alpha")
    own_rank = arguments["conv_dim"] or rank
    usual = alpha if is_lycoris else 1.0
    patterns = (*CONVOLUTIONS, *(("denoiser/conv_in", "denoiser/conv_out") if is_lycoris else ()))
    own_alpha = (usual if arguments["conv_alpha"] is None else arguments["conv_alpha"]) or float(own_rank)
    if own_rank != rank:
        draft.set("model.adapter.rank_pattern", dict.fromkeys(patterns, own_rank), "network_args")
    if own_alpha != (alpha or float(rank)):
        draft.set("model.adapter.alpha_pattern", dict.fromkeys(patterns, own_alpha), "network_args")


def _set_dropout(draft: Draft, arguments: dict[str, Any]) -> None:
    share = draft.values["network_dropout"] or arguments.get("dropout") or 0.0
    if not share:
        return
    kind = draft.settings.get("model", {}).get("adapter", {}).get("kind", "lora")
    if kind in ("loha", "lokr"):
        draft.refuse("network_dropout", f"{kind} has no dropout in Mezzotint", "leave it out")
        return
    draft.set("model.adapter.dropout", share, "network_dropout", "network_args")
    draft.note("network_dropout", "of the adapter's inputs; in the script, of the numbers between its two factors")


# --- learned tokens ---------------------------------------------------------------------------------------------------


def _set_tokens(draft: Draft) -> None:
    word, begins = draft.text("token_string"), draft.text("init_word")
    for flag in ("token_string", "init_word"):
        if not draft.text(flag) and not (flag == "init_word" and draft.text("weights")):
            draft.refuse(flag, "is missing; textual inversion needs it", code="E1017")
    if draft.text("weights"):
        draft.set("model.tokens.files", {word: draft.text("weights")}, "weights", "token_string")
    else:
        draft.set("model.tokens.words", {word: begins}, "token_string", "init_word")
    if draft.check_bounds("num_vectors_per_token"):
        draft.set("model.tokens.vectors", draft.integer("num_vectors_per_token"), "num_vectors_per_token")
    kinds = [kind for kind in ("object", "style") if draft.values[f"use_{kind}_template"]]
    if len(kinds) == 2:
        draft.refuse("use_style_template", "--use_object_template is given, too", "leave one of them out", "E1017")
    for kind in kinds[:1]:
        flag = f"use_{kind}_template"
        template = "|".join(one.format("{trigger}") for one in SENTENCES[kind])
        draft.set_all({"data.captions.template": [f"{{{template}}}"], "data.captions.wildcards": True}, flag)
        draft.set("data.captions.trigger", [word], "token_string")
