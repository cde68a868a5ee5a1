"""The update and the objective of a job: optimizer, schedule, noise levels, loss."""

from __future__ import annotations

from typing import Any

from mezzotint.compat.ai_toolkit._keys import Keys
from mezzotint.compat.ai_toolkit._model import Arch
from mezzotint.compat.ai_toolkit._rows import CONTENT, DENSITY, LOSSES, OPTIMIZERS
from mezzotint.errors import did_you_mean

_EPS = 1e-6
_LEAST_RATE = 0.1
"""Below it, the learning rate of Prodigy and D-Adaptation is 1."""

KINDS: dict[str, tuple[str, float]] = {
    "adam": ("adamw", 0.0),
    "adamw": ("adamw", 0.01),
    **dict.fromkeys(("adam8bit", "adam8"), ("adamw-8bit-or-adamw", 0.0)),
    "adamw8bit": ("adamw-8bit-or-adamw", 0.01),
    "adamw8": ("adamw-8bit-or-adamw", 0.0),
    "prodigy": ("prodigy", 0.0),
    "lion": ("lion", 0.0),
}
"""Kind and default weight decay."""
LIBRARIES = {
    "adafactor": "pytorch_optimizer.AdaFactor",
    "adagrad": "torch.optim.Adagrad",
    "ademamix8bit": "bitsandbytes.optim.AdEMAMix8bit",
    "dadaptation": "pytorch_optimizer.DAdaptAdam",
    "dadaptationadam": "pytorch_optimizer.DAdaptLion",
    "dadaptationlion": "pytorch_optimizer.DAdaptLion",
    "lion8bit": "bitsandbytes.optim.Lion8bit",
}
"""DAdaptationAdam is Lion in ai-toolkit, too."""
_WAITING = ("automagic", "automagic2", "automagic3", "prodigy8bit")
OWN_KEYS = {
    "adafactor": ("relative_step", "scale_parameter", "warmup_init", "clip_threshold", "decay_rate"),
    "prodigy": ("d0", "d_coef", "beta3", "use_bias_correction", "safeguard_warmup", "decouple"),
}
"""Keys of `optimizer_params` that only one optimizer has."""
_PRODIGY = {
    "d0": "d0", "d_coef": "d_coef", "beta3": "d_beta", "use_bias_correction": "bias_correction",
    "safeguard_warmup": "safeguard_warmup",
}  # fmt: skip
"""Mezzotint's names of keys of Prodigy."""
_WARMUP = 1000

DENSITIES: dict[str, dict[str, Any]] = {
    "linear": {"density": "uniform", "shift": 1.0, "grid": "table"},
    "sigmoid": {"density": "sigmoid", "shift": 1.0, "grid": "continuous"},
    **{
        name: {"density": "uniform", "shift": "auto", "grid": "table"}
        for name in ("shift", "flux_shift", "lumina2_shift")
    },
}
DENSITIES["weighted"] = DENSITIES["linear"]
_WAITING_DENSITIES = ("lognorm_blend", "next_sample", "one_step")
TABLE = "flex.1-alpha"
BELLS = {"train.linear_timesteps2": "half-bell", "train.linear_timesteps": "bell"}
"""Keys that weight the loss, the first before the second."""
PRESERVED = {"diff_output_preservation": "output", "blank_prompt_preservation": "blank"}
"""Kinds of `objective.preserve`."""
LOSS_TYPES = {"mse": "mse", "mae": "l1"}


def set_update(process: Keys, arch: Arch) -> None:
    """Sets the section `optim`."""
    name = process.text("train.optimizer").lower()
    rate = process.number("train.unet_lr" if process.is_given("train.unet_lr") else "train.lr")
    if name.startswith(("prodigy", "dadaptation")) and rate < _LEAST_RATE:
        process.note("train.lr", f"{rate:g} is below {_LEAST_RATE:g}, so {name} uses 1, as in ai-toolkit")
        rate = 1.0
    process.set("optim.lr", rate, "train.unet_lr", "train.lr")
    encoders = [part for part in process.draft.settings["model"]["train"] if part.startswith("text_encoder")]
    own = process["train.text_encoder_lr"] if process.is_given("train.text_encoder_lr") else process["train.lr"]
    for part in encoders if own != rate and rate != 1.0 else ():
        process.set(f"optim.part_lr.{part}", own, "train.text_encoder_lr", "train.lr")
    _set_optimizer(process, name)
    _set_schedule(process, rate)
    _set_accumulation(process)
    norm = process.number("train.max_grad_norm")
    if name == "adafactor":
        norm = 0.0
        if process.is_given("train.max_grad_norm"):
            process.note("train.max_grad_norm", "with Adafactor gradients are not clipped, as in ai-toolkit")
    process.set("optim.clip.norm", norm or None, "train.max_grad_norm")
    if process["train.ema_config.use_ema"]:
        process.set("optim.ema.rule", "constant", "train.ema_config.use_ema")
        process.set("optim.ema.decay", process.number("train.ema_config.ema_decay"), "train.ema_config.ema_decay")
        process.set("run.preview.weights", "ema", "train.ema_config.use_ema")


def _set_optimizer(process: Keys, name: str) -> None:
    key, section = "train.optimizer", "train.optimizer_params"
    if name in _WAITING:
        process.refuse_until(OPTIMIZERS, key, "use adamw8bit or prodigy")
        return
    if name not in KINDS and name not in LIBRARIES:
        known = (*KINDS, *LIBRARIES)
        process.refuse(key, f"{name} is not known", did_you_mean(name, known, f"known: {', '.join(known)}"), "E1017")
        return
    for owner, keys in OWN_KEYS.items():
        for one in keys if owner != name else ():
            if process.is_given(f"{section}.{one}"):
                process.refuse(
                    f"{section}.{one}", f"is of {owner}, and the optimizer is {name}", "leave it out", "E1017"
                )
    decay, betas = process[f"{section}.weight_decay"], process[f"{section}.betas"]
    kind, usual = KINDS.get(name, ("library", 0.0))
    process.set("optim.optimizer.kind", kind, key)
    process.set("optim.optimizer.weight_decay", usual if decay is None else decay, f"{section}.weight_decay", key)
    if name in ("adam", "adam8bit", "adam8") and decay:
        process.refuse(f"{section}.weight_decay", "of Adam is part of its gradient, which is not supported",
                       "use adamw, or leave it out")  # fmt: skip
    if kind == "library":
        process.set("optim.optimizer.class_name", LIBRARIES[name], key)
        process.set("optim.optimizer.options", _options(process, name, betas), key)
        return
    if betas is not None:
        process.set("optim.optimizer.betas", list(betas) if isinstance(betas, tuple) else betas, f"{section}.betas")
    if kind != "lion":
        process.set("optim.optimizer.eps", _EPS, key)
    if name == "prodigy":
        for theirs, ours in _PRODIGY.items():
            process.set(f"optim.optimizer.{ours}", process[f"{section}.{theirs}"], f"{section}.{theirs}")
        if not process[f"{section}.decouple"] and decay:
            process.refuse(f"{section}.decouple", "false is not supported with weight decay", "leave it out")


def _options(process: Keys, name: str, betas: Any) -> dict[str, Any]:
    """Arguments of a library's optimizer."""
    section = "train.optimizer_params"
    if name == "adafactor":
        return {"betas": [None, 0.999], **{key: process[f"{section}.{key}"] for key in OWN_KEYS[name]}}
    options: dict[str, Any] = {"betas": list(betas)} if betas else {}
    return options | ({"eps": _EPS} if name.startswith(("dadaptation", "ademamix")) and "lion" not in name else {})


def _set_schedule(process: Keys, rate: float) -> None:
    """Sets the learning rate schedule over the whole run."""
    key, section = "train.lr_scheduler", "train.lr_scheduler_params"
    kind = process.text(key)
    fitting = {
        "constant": ("factor",),
        "constant_with_warmup": ("num_warmup_steps",),
        "cosine": ("eta_min",),
        "cosine_with_restarts": ("eta_min",),
        "linear": ("start_factor", "end_factor"),
    }.get(kind, ())
    for one in ("num_warmup_steps", "eta_min", "factor", "start_factor", "end_factor"):
        if process.is_given(f"{section}.{one}") and one not in fitting:
            process.refuse(f"{section}.{one}", f"is not of {kind}", "leave it out", "E1017")
    match kind:
        case "step":
            process.refuse(key, "fails in ai-toolkit", "write optim.schedule.kind=piecewise before the double dash")
        case "constant":
            process.set("optim.schedule.kind", "constant", key)
            if process.number(f"{section}.factor") != 1.0:
                process.refuse(f"{section}.factor", "other than 1 is not supported", "multiply lr by it")
        case "constant_with_warmup":
            process.set("optim.schedule.kind", "constant", key)
            steps = process[f"{section}.num_warmup_steps"]
            process.set(
                "optim.schedule.warmup_steps", _WARMUP if steps is None else steps, f"{section}.num_warmup_steps"
            )
        case "linear":
            _set_linear(process, process.number(f"{section}.start_factor"), process.number(f"{section}.end_factor"))
        case _:
            process.set("optim.schedule.kind", "cosine", key)
            last = process.number(f"{section}.eta_min")
            process.set("optim.schedule.floor", last / rate if rate else 0.0, f"{section}.eta_min")
            if kind == "cosine_with_restarts":
                process.note(key, "its first period is the whole run, as in ai-toolkit, so it does not restart")


def _set_linear(process: Keys, start: float, end: float) -> None:
    """Sets torch's LinearLR, from a factor of the rate to another over the run."""
    key = "train.lr_scheduler"
    if end == 1.0:
        process.set("optim.schedule.kind", "constant", key)
        process.set("optim.schedule.warmup_steps", to_updates(process, process.integer("train.steps")), key)
        process.set("optim.schedule.warmup_from", start, f"{key}_params.start_factor")
        if not process.is_given(f"{key}_params.start_factor"):
            process.note(key, "rises from a third of the rate to the rate over the run, as in ai-toolkit")
    elif start == 1.0:
        process.set("optim.schedule.kind", "linear", key)
        process.set("optim.schedule.floor", end, f"{key}_params.end_factor")
    else:
        process.refuse(f"{key}_params.start_factor", "and end_factor are both below 1, which is not supported",
                       "set one of them to 1")  # fmt: skip


def to_updates(process: Keys, steps: int) -> int:
    """ai-toolkit's steps as updates, rounded up: with the older accumulation a step is a micro-batch."""
    return -(-steps // process.integer("train.gradient_accumulation_steps"))


def _set_accumulation(process: Keys) -> None:
    new, old = "train.gradient_accumulation", "train.gradient_accumulation_steps"
    times = process.integer(new), process.integer(old)
    if min(times) > 1:
        process.refuse(old, "and gradient_accumulation are both above 1", "write gradient_accumulation only", "E1017")
    process.set("optim.accumulation", max(times), *((old, new) if times[1] > 1 else (new, old)))
    if times[1] > 1:
        process.note(old, f"with this name steps count micro-batches: {times[1]} of them are one update in Mezzotint")
    if max(times) > 1:
        process.note(new, "gradients of micro-batches are averaged; ai-toolkit adds them up before it clips")


def _set_preservation(process: Keys) -> None:
    chosen = [name for name in PRESERVED if process[f"train.{name}"]]
    if len(chosen) > 1:
        process.refuse(f"train.{chosen[1]}", f"and {chosen[0]} are both on", "leave out one of them", "E1017")
    if not chosen:
        return
    key = f"train.{chosen[0]}"
    process.set("objective.preserve.kind", PRESERVED[chosen[0]], key)
    process.set("objective.preserve.weight", process.number(f"{key}_multiplier"), f"{key}_multiplier")
    if PRESERVED[chosen[0]] == "output":
        word = process.text(f"{key}_class")
        if not word:
            process.refuse(f"{key}_class", "is empty, so nothing replaces the trigger word", "write person", "E1017")
        process.set("data.captions.class_word", word, f"{key}_class")


def set_objective(process: Keys, arch: Arch) -> None:
    """Sets the section `objective`."""
    loss = process.text("train.loss_type")
    if loss in LOSS_TYPES:
        process.set("objective.loss", LOSS_TYPES[loss], "train.loss_type")
    else:
        process.refuse_until(LOSSES, "train.loss_type", "write mse or mae")
    bias = process.text("train.content_or_style")
    if bias != "balanced":
        process.refuse_until(CONTENT, "train.content_or_style", "write balanced")
    _set_preservation(process)
    scheduler = process.text("train.noise_scheduler")
    if arch.is_flow and scheduler != "flowmatch":
        message = f"is {scheduler}, and {arch.family} is a flow-matching model"
        process.refuse("train.noise_scheduler", message, "write noise_scheduler: flowmatch", "E1017")
    elif not arch.is_flow and scheduler != "ddpm":
        message = f"{scheduler} is not supported for {arch.family}"
        process.refuse("train.noise_scheduler", message, "write noise_scheduler: ddpm")
    elif arch.is_flow:
        _set_noise_levels(process)
    else:
        _set_timesteps(process)
        for key in BELLS:
            if process[key]:
                process.note(key, "has no effect with ddpm, as in ai-toolkit")


def _set_timesteps(process: Keys) -> None:
    """Timesteps of SD and SDXL: ai-toolkit draws from the levels after the first and before the last one."""
    first, last = process.integer("train.min_denoising_steps"), process.integer("train.max_denoising_steps")
    low, high = 1001 - last, 999 - first
    keys = ("train.max_denoising_steps", "train.min_denoising_steps")
    if low >= high:
        process.refuse(keys[0], f"must be above min_denoising_steps by 3, got {last} and {first}", code="E1017")
        return
    process.set("objective.timesteps", [low, high], *keys)
    gamma = process["train.min_snr_gamma"]
    if gamma is not None:
        process.set("objective.min_snr_gamma", gamma, "train.min_snr_gamma")
        process.set("objective.min_snr_form", "ratio", "train.min_snr_gamma")


def _set_weighting(process: Keys, kind: str) -> str:
    """Sets the loss weights of noise levels; returns the kind of density that is used with them."""
    bell = next((key for key in BELLS if process[key]), None)
    if kind == "weighted":
        process.set("objective.weighting", "table", "train.timestep_type")
        process.set("objective.weight_table", TABLE, "train.timestep_type")
        process.note("train.timestep_type", "versions before its weights were fixed use those of linear_timesteps; for "
                     "these write objective.weighting=bell before the double dash")  # fmt: skip
        if bell:
            process.note(bell, "has no effect with timestep_type: weighted, as in ai-toolkit")
    elif bell:
        process.set("objective.weighting", BELLS[bell], bell)
        if kind != "linear" and process.is_given("train.timestep_type"):
            process.note("train.timestep_type", f"is linear with {bell.removeprefix('train.')}, as in ai-toolkit")
        return "linear"
    return kind


def _set_noise_levels(process: Keys) -> None:
    """σ of flow-matching models."""
    kind = process.text("train.timestep_type")
    if kind in _WAITING_DENSITIES:
        process.refuse_until(DENSITY, "train.timestep_type", "write sigmoid, linear, weighted or shift")
        return
    if kind not in DENSITIES:
        known = (*DENSITIES, *_WAITING_DENSITIES)
        process.refuse("train.timestep_type", f"{kind} is not known", did_you_mean(kind, known), "E1017")
        return
    kind = _set_weighting(process, kind)
    values = {f"objective.flow.{name}": value for name, value in DENSITIES[kind].items()}
    for path, value in values.items():
        process.set(path, value, "train.timestep_type")
    first, last = process.integer("train.min_denoising_steps"), process.integer("train.max_denoising_steps")
    keys = ("train.max_denoising_steps", "train.min_denoising_steps")
    if (first, last) == (0, 999):
        pass
    elif DENSITIES[kind] != DENSITIES["linear"]:
        key = next(key for key in keys if process.is_given(key))
        process.refuse_until("a range of noise levels with a density", key, "write timestep_type: linear")
    elif last <= first:
        process.refuse(keys[0], f"must be above min_denoising_steps, got {last} and {first}", code="E1017")
    else:
        process.set("objective.flow.sigmas", [(1000 - last) / 1000, (1000 - first) / 1000], *keys)
    if process["train.min_snr_gamma"] is not None:
        process.note("train.min_snr_gamma", "has no effect with flowmatch, as in ai-toolkit")
