"""The way back: the options of sd-scripts for a recipe, where the rows of the tables do not have them already.

Data sets and previews are in `_writing_data.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mezzotint.compat.kit.caption_templates import SENTENCES
from mezzotint.compat.kit.run_files import PRECISIONS
from mezzotint.compat.kit.updates import write_schedule
from mezzotint.compat.kit.writing import Writing
from mezzotint.compat.kohya import _block_rates
from mezzotint.compat.kohya._layers import find_arguments
from mezzotint.compat.kohya._model import CONVOLUTIONS, ENCODERS, NETWORKS, PRESETS, list_targets
from mezzotint.compat.kohya._objective import write_objective
from mezzotint.compat.kohya._optim import write_optimizer
from mezzotint.compat.kohya._run import write_run
from mezzotint.compat.kohya._scripts import CHROMA, SCRIPTS, Script
from mezzotint.compat.kohya._writing_data import has_metadata_files, write_data, write_files, write_prompts
from mezzotint.errors import RecipeError
from mezzotint.settings.families.chroma import ChromaSettings
from mezzotint.settings.families.flux import FluxSettings
from mezzotint.settings.families.sd3 import SD3Settings
from mezzotint.settings.reading.translation import Launched
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.adapter import AdapterSettings

Values = dict[str, Any]

_SWAPPED = {"flux": 18, "chroma": 18, "sd3": 10}
"""Blocks that the scripts' guides swap."""
_ENCODER_FLAGS = {"sd3": ["clip_l", "clip_g", "t5xxl"], "flux": ["clip_l", "t5xxl"], "chroma": ["t5xxl"]}
_STABLE_DIFFUSION_2 = re.compile(r"stable-diffusion-2|sd-?2|v2-|768-v", re.IGNORECASE)


def find_script(recipe: Recipe) -> Script:
    """The script that trains a recipe. Raises RecipeError for a family that sd-scripts lacks."""
    model = recipe.model
    method = "adapter" if model.adapter.is_trained else "embeddings" if "tokens" in model.train else "weights"
    known = [one for one in (*SCRIPTS.values(), CHROMA) if one.method == method]
    scripts = [one for one in known if one.family == model.family]
    if not scripts:
        families = ", ".join(dict.fromkeys(one.family for one in known))
        words = {"adapter": "adapters of ", "weights": "all weights of ", "embeddings": "tokens of "}
        message = f"kohya cannot train {words[method]}{model.family}; it has {families}"
        raise RecipeError(message, code="E1026")
    return SCRIPTS["fine_tune"] if scripts[0].name == "train_db" and has_metadata_files(recipe) else scripts[0]


def build_command(recipe: Recipe, launched: Launched) -> list[str]:
    """The launcher with its options, and the script."""
    device = ["--cpu"] if recipe.run.device == "cpu" else []
    return ["accelerate", "launch", f"--num_processes={launched.processes}", *device, f"{find_script(recipe).name}.py"]


def propose(recipe: Recipe, launched: Launched) -> Values:
    """The values of all options that are not simply inverted."""
    script = find_script(recipe)
    return {
        **_write_model(recipe, script), **_write_network(recipe, script), **_write_tokens(recipe, script),
        **_write_rates(recipe, script), **_write_update(recipe, launched),
        **write_objective(recipe.objective, script), **write_run(recipe, script),
        **write_data(recipe, script, launched), **write_prompts(recipe, script),
    }  # fmt: skip


# --- the model, adapters and tokens -----------------------------------------------------------------------------------


def _write_model(recipe: Recipe, script: Script) -> Values:
    model, run = recipe.model, recipe.run
    vae = None if model.vae is None else str(model.vae)
    tokens = {
        "flux": model.get_section(FluxSettings).t5_tokens,
        "sd3": model.get_section(SD3Settings).t5_tokens,
        "chroma": model.get_section(ChromaSettings).text_tokens,
    }
    guidance = model.get_section(FluxSettings).guidance
    is_chroma = script.family == "chroma"
    is_old = script.family == "sd" and _STABLE_DIFFUSION_2.search(str(model.path))
    return {
        "vae": vae if not script.is_flux else None,
        "ae": vae if script.is_flux else None,
        "model_type": "chroma" if is_chroma else None,
        "apply_t5_attn_mask": is_chroma or None,
        **_name_encoders(model.over, script),
        "v2": bool(is_old) or None,
        "v_parameterization": model.prediction == "v" or None,
        "clip_skip": model.clip_skip + 1 if model.clip_skip else None,
        "max_token_length": model.caption_tokens if model.caption_tokens in (150, 225) else None,
        "t5xxl_max_token_length": tokens.get(script.family),
        "guidance_scale": 0.0 if is_chroma else 1.0 if guidance is None else guidance,
        "fp8_base": run.frozen_dtype in ("int8", "nf4") or None,
        "fp8_base_unet": None,
        "full_bf16": (run.weight_dtype == "pure" and run.precision == "bf16") or None,
        "full_fp16": (run.weight_dtype == "pure" and run.precision == "fp16") or None,
        "no_half_vae": run.vae_dtype == "fp32" or None,
        "mixed_precision": {ours: word for word, ours in PRECISIONS.items()}[run.precision],
        "blocks_to_swap": _SWAPPED.get(script.family) if run.offload.blocks == "auto" else run.offload.blocks,
    }


def _name_encoders(paths: Sequence[Path], script: Script) -> Values:
    """The options of the files of text encoders: by their names, otherwise in order."""
    flags = _ENCODER_FLAGS.get(script.family, ["clip_l"])
    patterns = {"t5xxl": "t5", "clip_g": "clip_?g|bigg", "clip_l": "clip_?l|vit-l"}
    named: Values = dict.fromkeys(("clip_l", "clip_g", "t5xxl"))
    for path in paths:
        free = [flag for flag in flags if named[flag] is None] or flags
        flag = next((flag for flag in free if re.search(patterns[flag], path.name, re.IGNORECASE)), free[0])
        named[flag] = str(path)
    return named


def _write_network(recipe: Recipe, script: Script) -> Values:
    adapter = recipe.model.adapter
    network: Values = dict.fromkeys(("network_module", "network_dim", "network_alpha", "network_args"))
    if not adapter.is_trained:
        return network
    ours, weights = NETWORKS[script.family][0], _find_block_weights(recipe, script)
    if adapter.path is not None:
        return network | {"network_module": ours, "network_args": _format_pairs(weights)}
    is_lycoris, arguments = _find_layers(recipe, script)
    arguments |= {} if is_lycoris else weights
    arguments |= {
        "module_dropout": adapter.module_dropout or None,
        **({} if is_lycoris else {
            "rank_dropout": adapter.rank_dropout or None,
            "loraplus_lr_ratio": adapter.b_lr_ratio if adapter.b_lr_ratio != 1 else None,
        }),
    }  # fmt: skip
    algo = {"loha": "loha", "lokr": "lokr"}.get(adapter.kind)
    if is_lycoris:
        arguments = {"algo": algo, "dora_wd": adapter.kind == "dora" or None, **arguments}
    if adapter.kind == "lokr":
        arguments |= {"factor": adapter.factor, "decompose_both": adapter.decompose_both or None}
    alpha = adapter.alpha or (0.0 if adapter.rank_pattern else float(adapter.rank))
    return {
        "network_module": "lycoris.kohya" if is_lycoris else ours,
        "network_dim": adapter.rank,
        "network_alpha": alpha,
        "network_args": _format_pairs(arguments),
    }


def _format_pairs(arguments: Values) -> list[str] | None:
    return [f"{name}={value}" for name, value in arguments.items() if value is not None] or None


def _find_block_weights(recipe: Recipe, script: Script) -> Values:
    """The arguments for rates by block of a U-Net's adapter."""
    optim = recipe.optim
    usual = optim.part_lr.get("denoiser", optim.lr)
    rates = [] if script.is_flow else _block_rates.find_rates(script.family, optim.part_lr, usual)
    return dict(_block_rates.write_weights(script.family, rates, usual)) if rates and usual else {}


def _find_layers(recipe: Recipe, script: Script) -> tuple[bool, Values]:
    """Whether the network is LyCORIS', and the arguments that choose an adapter's layers, or the most similar ones."""
    adapter, parts = recipe.model.adapter, recipe.model.train
    targets = dict.fromkeys(one if "/" in one else f"{part}/{one}" for one in adapter.targets for part in parts)
    needs_lycoris = adapter.kind in ("dora", "loha", "lokr")
    if script.is_flow:
        chosen = [one for one in targets if one.startswith("denoiser/")]
        of_blocks = find_arguments(script.family, chosen, adapter.rank_pattern) if "denoiser" in parts else {}
        return needs_lycoris, {} if needs_lycoris else {**of_blocks, "split_qkv": True}
    usual = ("attn-mlp" if set(adapter.targets) <= {"attention+mlp"} else "full") if needs_lycoris else ""
    for preset in (usual, *PRESETS) if needs_lycoris else ("", *PRESETS):
        for has_convolutions in (preset == "full",) if preset else (False, True):
            if {*list_targets(script, parts, preset, has_convolutions=has_convolutions)} == {*targets}:
                kept = _find_convolutions(adapter) if has_convolutions else {}
                return bool(preset), {"preset": preset, **kept} if preset else kept
    return needs_lycoris, {"preset": usual} if needs_lycoris else {}


def _find_convolutions(adapter: AdapterSettings) -> Values:
    rank = adapter.rank_pattern.get(CONVOLUTIONS[0], adapter.rank)
    return {"conv_dim": rank, "conv_alpha": adapter.alpha_pattern.get(CONVOLUTIONS[0], adapter.alpha or float(rank))}


def _write_tokens(recipe: Recipe, script: Script) -> Values:
    tokens, captions = recipe.model.tokens, recipe.data.captions
    if script.method != "embeddings":
        return {"num_vectors_per_token": None}
    words = [*tokens.words.items(), *((word, None) for word in tokens.files)]
    if len(words) != 1:
        raise RecipeError(f"kohya trains one token, and the recipe has {len(words)}", code="E1026")
    [(word, begins)] = words
    kinds = {"|".join(one.format("{trigger}") for one in SENTENCES[kind]): kind for kind in SENTENCES}
    kind = kinds.get(captions.template[1:-1])
    return {
        "token_string": word, "init_word": begins, "weights": None if begins else str(tokens.files[word]),
        **({f"use_{kind}_template": True} if kind else {}),
    }  # fmt: skip


def _write_rates(recipe: Recipe, script: Script) -> Values:
    """The rates of trained parts; 0 for those that are not trained."""
    optim, trained = recipe.optim, recipe.model.train
    rates = {part: optim.part_lr.get(part, optim.lr) for part in trained}
    encoders = ENCODERS[script.family]
    own = [rates.get(part, 0.0) for part in encoders]
    has_encoders = any(part in trained for part in encoders)
    values: Values = {"learning_rate": rates.get("denoiser", optim.lr), "unet_lr": None, "text_encoder_lr": None}
    match script.method:
        case "embeddings":
            values["learning_rate"] = next(iter(rates.values()))
        case "adapter":
            values["network_train_unet_only"] = not has_encoders or None
            values["network_train_text_encoder_only"] = "denoiser" not in trained or None
            is_common = set(own) <= {values["learning_rate"]}
            values["text_encoder_lr"] = own if has_encoders and not is_common else None
        case _:
            values["learning_rate"] = rates.get("denoiser", 0.0)
            values["stop_text_encoder_training"] = None if has_encoders else -1
            values["train_text_encoder"] = has_encoders or None
            flags = ("learning_rate_te",) if len(encoders) == 1 else ("learning_rate_te1", "learning_rate_te2")
            values |= dict(zip(flags, own if has_encoders else [None] * len(flags), strict=True))
            by_block = _block_rates.find_rates("sdxl", optim.part_lr, values["learning_rate"])
            values["block_lr"] = ",".join(map(str, by_block)) or None
    return values


# --- the update -------------------------------------------------------------------------------------------------------


def _write_update(recipe: Recipe, launched: Launched) -> Values:
    optim, (name, arguments) = recipe.optim, write_optimizer(recipe.optim.optimizer)
    return {
        "optimizer_type": name, "optimizer_args": arguments or None,
        **write_schedule(optim.schedule, launched),
        "max_grad_norm": optim.clip.norm or 0.0,
        "fused_backward_pass": optim.clip.scope == "tensor" or None,
        "blockwise_fused_optimizers": None, "fused_optimizer_groups": None,
        "use_8bit_adam": None, "use_lion_optimizer": None,
    }  # fmt: skip


def _remarks(recipe: Recipe) -> Iterator[str]:
    script = find_script(recipe)
    if recipe.run.resume not in ("auto", "never"):
        yield f"run.resume={recipe.run.resume} is lost: kohya continues from its own states only"
    if script.family == "sd":
        yield "v2 is for Stable Diffusion 2.x, which a recipe does not tell from 1.x; write it, or leave it out"
    if script.is_flow and not recipe.model.over:
        flags = [*_ENCODER_FLAGS[script.family], *(["ae"] if script.is_flux else [])]
        yield f"the scripts of {script.family} read single files; name them in {', '.join(flags[:-1])} and {flags[-1]}"
    if recipe.run.offload.blocks == "auto" and script.is_flow:
        yield f"blocks_to_swap is {_SWAPPED[script.family]}, a guess; a recipe's auto finds the number that fits"


WRITING = Writing(
    propose=(propose,),
    command=build_command,
    files=write_files,
    keep=frozenset(
        ("pretrained_model_name_or_path", "output_dir", "output_name", "mixed_precision", "save_model_as", "v2",
         "network_module", "network_dim", "network_alpha", "network_args", "model_prediction_type", "guidance_scale",
         "timestep_sampling", "learning_rate", "optimizer_type", "lr_scheduler", "max_train_steps", "max_train_epochs",
         "sample_at_first")
    ),
    lost={
        "data.flip": "flip_aug is on or off",
        "model.prediction": "kohya reads it from v_parameterization, not from the model; write true if it predicts v",
        "data.captions.extension": "caption_extension is one of .txt and .caption",
        "data.captions.trigger": "caption_prefix and caption_suffix have its words",
        "data.captions.template": "caption_prefix and caption_suffix have its words",
        "data.captions.prefix": "", "data.captions.suffix": "", "data.buckets.max_aspect": "", "data.buckets.sizes": "",
        "model.flux.guidance": "", "run.resume": "", "model.weights": "kohya starts from a model's files; name one",
        "optim.optimizer.kind": "optimizer_type names the most similar one",
        "data.prior.num_class_images": "generate them before, and name their folder in data.prior.path",
        "run.micro_batch": "a smaller train_batch_size with more gradient_accumulation_steps needs as little memory",
        "data.cache.text": "SDXL, SD3 and FLUX.1 have a cache of captions that are neither dropped nor shuffled",
        "data.format": "the scripts read the images directly in a folder",
        "run.export.every": "a model is saved with each state",
        "run.save.every": "save_state is for every saved model, or none",
        "run.preview.every": "sample_prompts needs sample.prompts",
        "optim.ema.rule": "kohya has no EMA",
    },
    quiet=frozenset(
        ("run.tf32", "run.vae_dtype", "data.decode",
         *(f"run.export.{name}" for name in ("name", "folder", "adapter", "single_file_folder")),
         *(f"sample.{name}" for name in ("size", "seed", "steps", "guidance", "solver", "negative_prompt")))
    ),
    remarks=_remarks,
)  # fmt: skip
