"""The optimizer, its schedule and clipping, as `optim`."""

from __future__ import annotations

from typing import Any

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kohya._arguments import read_optimizer_args
from mezzotint.compat.kohya._rows import has_option
from mezzotint.compat.kohya._scripts import Script
from mezzotint.errors import did_you_mean

_ADAM = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
_LION = {"betas": (0.9, 0.99), "weight_decay": 0.0}
_ADAPTED = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "d0": 1e-6, "growth_rate": None, "decouple": False}
_PRODIGY = {
    "betas": (0.9, 0.999), "beta3": None, "eps": 1e-8, "weight_decay": 0.0, "decouple": True,
    "use_bias_correction": False, "safeguard_warmup": False, "d0": 1e-6, "d_coef": 1.0, "growth_rate": None,
}  # fmt: skip
_ADAFACTOR = {
    "eps": (1e-30, 1e-3), "clip_threshold": 1.0, "decay_rate": -0.8, "beta1": None, "weight_decay": 0.0,
    "scale_parameter": True, "relative_step": True, "warmup_init": False,
}  # fmt: skip

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "AdamW": ("adamw", _ADAM),
    "AdamW8bit": ("adamw-8bit-or-adamw", _ADAM),
    "PagedAdamW": ("adamw", _ADAM),
    "PagedAdamW32bit": ("adamw", _ADAM),
    "PagedAdamW8bit": ("adamw-8bit-or-adamw", _ADAM),
    "Lion": ("lion", _LION),
    "Lion8bit": ("bitsandbytes.optim.Lion8bit", _LION),
    "PagedLion8bit": ("bitsandbytes.optim.Lion8bit", _LION),
    "SGDNesterov": ("torch.optim.SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.0}),
    "DAdaptAdam": ("pytorch_optimizer.DAdaptAdam", _ADAPTED),
    "DAdaptLion": ("pytorch_optimizer.DAdaptLion", {"betas": (0.9, 0.999), "weight_decay": 0.0, "d0": 1e-6}),
    "DAdaptSGD": ("pytorch_optimizer.DAdaptSGD",
                  {"momentum": 0.0, "weight_decay": 0.0, "d0": 1e-6, "growth_rate": None}),
    "Prodigy": ("prodigy", _PRODIGY),
    "Adafactor": ("pytorch_optimizer.AdaFactor", _ADAFACTOR),
}  # fmt: skip
"""Mezzotint's kind or class, and the arguments with their defaults, by sd-scripts' name."""
_AWAITED = {
    **dict.fromkeys(
        ("AdamWScheduleFree", "SGDScheduleFree", "RAdamScheduleFree", "ProdigyPlusScheduleFree"),
        "schedule-free optimizers",
    ),
    **dict.fromkeys(
        ("DAdaptation", "DAdaptAdamPreprint", "DAdaptAdaGrad", "DAdaptAdan", "DAdaptAdanIP"),
        "older variants of D-Adaptation",
    ),
    "SGDNesterov8bit": "SGD in 8 bits",
}
_OURS = {"decouple": "weight_decouple", "use_bias_correction": "bias_correction", "beta3": "d_beta"}
_ADAPTIVE = ("DAdaptAdam", "DAdaptLion", "DAdaptSGD", "Prodigy")
_NO_CAP = 0.9999999
"""A limit of Adafactor's second moment that is never reached."""
_POLYNOMIAL_END = 1e-7

SCHEDULES = {
    "constant": "constant", "constant_with_warmup": "constant", "linear": "linear", "cosine": "cosine",
    "cosine_with_restarts": "restarts", "polynomial": "polynomial", "cosine_with_min_lr": "cosine",
}  # fmt: skip
_AWAITED_SCHEDULES = {
    "inverse_sqrt": "inverse square root schedules",
    "warmup_stable_decay": "warm-up, stable, decay schedules",
}


def set_update(draft: Draft, script: Script) -> None:
    """Sets optimizer, schedule and clipping."""
    name = _set_optimizer(draft)
    _set_schedule(draft, name)
    norm = draft.number("max_grad_norm")
    if draft.check_bounds("max_grad_norm"):
        draft.set("optim.clip.norm", norm or None, "max_grad_norm")
    fused = ("fused_backward_pass", "blockwise_fused_optimizers", "fused_optimizer_groups")
    flags = [flag for flag in fused if draft.values[flag] and has_option(script, flag)]
    draft.set("optim.clip.scope", "tensor" if flags else "all", *flags or ["max_grad_norm"])
    for flag in flags:
        draft.note(flag, "gradients are clipped by tensor, as in the script; optim.in_backward saves their memory")


# --- optimizers -------------------------------------------------------------------------------------------------------


def _set_optimizer(draft: Draft) -> str:
    """Sets the optimizer, and returns sd-scripts' name of it, "" if it is not supported."""
    flag, name = _find_name(draft)
    if not name:
        return ""
    target, defaults = OPTIMIZERS[name]
    arguments = read_optimizer_args(draft, defaults)
    values = {**defaults, **arguments}
    if name == "Adafactor":
        _set_adafactor(draft, flag, values, arguments)
        return "adafactor:relative" if values["relative_step"] else name
    if name.startswith("Paged"):
        draft.note(flag, "optimizer states are not paged to host memory; results are the same")
    if name in _ADAPTIVE and draft.number("learning_rate") < 0.1:
        draft.note("learning_rate", f"{name} estimates the rate, and this is a factor of it; 1 is usual")
    values = {_OURS.get(key, key): list(value) if isinstance(value, tuple) else value for key, value in values.items()}
    if "." not in target:
        if name == "Prodigy" and values.pop("weight_decouple") is not True:
            draft.refuse("optimizer_args", "decouple=False is not supported", "leave it out")
        draft.set_all({f"optim.optimizer.{key}": value for key, value in values.items()}, "optimizer_args", flag)
        draft.set("optim.optimizer.kind", target, flag)
        return name
    decay = values.pop("weight_decay")
    options = {key: value for key, value in values.items() if value is not None}
    _set_library(draft, flag, target, decay, options)
    return name


def _find_name(draft: Draft) -> tuple[str, str]:
    """(flag, name) of the optimizer; the name is "" if it is not supported."""
    old = {"use_8bit_adam": "AdamW8bit", "use_lion_optimizer": "Lion"}
    written = draft.text("optimizer_type")
    old_flags = [flag for flag in old if draft.values[flag]]
    if old_flags and written:
        draft.refuse(old_flags[0], "--optimizer_type is given, too", "leave one of them out", "E1017")
    if not written:
        return (old_flags[0], old[old_flags[0]]) if old_flags else ("optimizer_type", "AdamW")
    lower = {name.lower(): name for name in (*OPTIMIZERS, *_AWAITED)}
    name = lower.get(written.lower(), "")
    if name in OPTIMIZERS:
        return "optimizer_type", name
    if name:
        message = f"{name} needs {_AWAITED[name]}, which Mezzotint does not have yet"
        draft.refuse("optimizer_type", message, "use another optimizer")
    elif "." in written:
        message = "optimizers of other packages are not read from a command line"
        draft.refuse("optimizer_type", message, "write optim.optimizer before the --, with kind=library")
    else:
        remedy = did_you_mean(written, OPTIMIZERS, f"write one of {', '.join(OPTIMIZERS)}")
        draft.refuse("optimizer_type", f"{written} is not supported", remedy)
    return "optimizer_type", ""


def _set_library(draft: Draft, flag: str, class_name: str, decay: float, options: dict[str, Any]) -> None:
    values = {"kind": "library", "class_name": class_name, "weight_decay": decay, "options": options}
    draft.set_all({f"optim.optimizer.{key}": value for key, value in values.items()}, flag, "optimizer_args")


def _set_adafactor(draft: Draft, flag: str, values: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Sets Adafactor as transformers has it: without a limit of the second moment's decay."""
    if values["beta1"] is not None:
        draft.refuse("optimizer_args", "beta1 needs first moments of Adafactor, which Mezzotint does not have yet")
    if values["warmup_init"] and not values["relative_step"]:
        draft.refuse("optimizer_args", "warmup_init=True needs relative_step=True", "leave it out", "E1017")
    first, second = values["eps"]
    options = {
        "betas": [None, _NO_CAP], "eps1": first, "eps2": second, "clip_threshold": values["clip_threshold"],
        "decay_rate": values["decay_rate"], "scale_parameter": values["scale_parameter"],
        "relative_step": values["relative_step"], "warmup_init": values["warmup_init"],
    }  # fmt: skip
    _set_library(draft, flag, "pytorch_optimizer.AdaFactor", values["weight_decay"], options)
    if values["relative_step"]:
        why = "is given" if "relative_step" in arguments else "is its default in the script"
        draft.note(flag, f"relative_step=True {why}: Adafactor chooses its own rate, without the learning rate")


# --- schedules --------------------------------------------------------------------------------------------------------


def _set_schedule(draft: Draft, optimizer: str) -> None:
    name = draft.text("lr_scheduler")
    if optimizer == "adafactor:relative":
        if draft.is_given("lr_scheduler") and not name.startswith("adafactor"):
            draft.note("lr_scheduler", "has no effect, since Adafactor chooses its own rate")
        draft.set("optim.schedule.kind", "constant", "optimizer_type")
        return
    kind = SCHEDULES.get(name)
    if kind is None:
        _refuse_schedule(draft, name)
        return
    draft.set("optim.schedule.kind", kind, "lr_scheduler")
    _set_warmup(draft, name)
    if kind == "restarts" and draft.check_bounds("lr_scheduler_num_cycles"):
        draft.set("optim.schedule.cycles", draft.integer("lr_scheduler_num_cycles"), "lr_scheduler_num_cycles")
    elif kind == "polynomial":
        _set_polynomial(draft)
    elif name == "cosine_with_min_lr":
        _set_floor(draft)


def _refuse_schedule(draft: Draft, name: str) -> None:
    if name in _AWAITED_SCHEDULES:
        message = f"{name} needs {_AWAITED_SCHEDULES[name]}, which Mezzotint does not have yet"
        draft.refuse("lr_scheduler", message, f"use {', '.join(SCHEDULES)}")
    elif name.startswith("adafactor"):
        draft.refuse("lr_scheduler", "is for Adafactor with relative_step=True", f"use {', '.join(SCHEDULES)}", "E1017")
    elif name == "piecewise_constant":
        message = "its steps are an argument of the schedule"
        draft.refuse("lr_scheduler", message, "write optim.schedule.kind=piecewise and its points before the --")
    else:
        remedy = did_you_mean(name, SCHEDULES, f"use {', '.join(SCHEDULES)}")
        draft.refuse("lr_scheduler", f"{name} is not supported", remedy)


def _set_warmup(draft: Draft, name: str) -> None:
    text = draft.text("lr_warmup_steps").strip()
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        message = f"must be a number of steps, a share below 1, or a percentage, got {text[:40]}"
        draft.refuse("lr_warmup_steps", message, code="E1017")
        return
    if not 0 <= value < 1e9:
        draft.refuse("lr_warmup_steps", f"must be 0 or more, got {text[:40]}", code="E1017")
        return
    if name == "constant" and value:
        remedy = "write --lr_scheduler=constant_with_warmup, or leave it out"
        draft.refuse("lr_warmup_steps", "constant has no warm-up, as in the script", remedy, "E1017")
        return
    is_share = value < 1 or text.endswith("%")
    draft.set("optim.schedule.warmup_steps", 0 if is_share else int(value), "lr_warmup_steps")
    draft.set("optim.schedule.warmup_ratio", value if is_share else 0.0, "lr_warmup_steps")
    processes = draft.launched.processes
    if not is_share and processes > 1:
        steps = -(-int(value) // processes)
        draft.set("optim.schedule.warmup_steps", steps, "lr_warmup_steps")
        draft.note("lr_warmup_steps", f"{int(value)} divided by {processes} processes, as in the script: {steps} steps")


def _set_polynomial(draft: Draft) -> None:
    rate = float(draft.settings.get("optim", {}).get("lr", 0.0))
    if draft.check_bounds("lr_scheduler_power"):
        draft.set("optim.schedule.power", draft.number("lr_scheduler_power"), "lr_scheduler_power")
    if rate <= _POLYNOMIAL_END:
        draft.refuse("learning_rate", f"must be above 1e-07, where polynomial ends, got {rate:g}", code="E1017")
        return
    draft.set("optim.schedule.floor", _POLYNOMIAL_END / rate, "lr_scheduler")


def _set_floor(draft: Draft) -> None:
    if draft.values["lr_scheduler_min_lr_ratio"] is None:
        draft.refuse("lr_scheduler_min_lr_ratio", "is missing; cosine_with_min_lr needs it", code="E1017")
    elif draft.integer("lr_scheduler_num_cycles") != 1:
        draft.refuse("lr_scheduler_num_cycles", "cosine_with_min_lr falls once in Mezzotint", "leave it out")
    elif draft.check_bounds("lr_scheduler_min_lr_ratio"):
        ratio = draft.number("lr_scheduler_min_lr_ratio")
        draft.set("optim.schedule.floor", ratio, "lr_scheduler_min_lr_ratio")
