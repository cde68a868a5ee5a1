"""The optimizer, its schedule and clipping, as `optim`."""

from __future__ import annotations

from typing import Any

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.key_values import read_literals
from mezzotint.compat.kit.updates import (
    ADAFACTOR,
    ADAFACTOR_CLASS,
    SCHEDULE_FREE,
    note_package,
    set_adafactor,
    set_library,
    set_schedule,
)
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
    "Adafactor": (ADAFACTOR_CLASS, ADAFACTOR),
    **SCHEDULE_FREE,
}  # fmt: skip
"""Mezzotint's kind or class, and the arguments with their defaults, by sd-scripts' name."""
_AWAITED = {
    **dict.fromkeys(
        ("DAdaptation", "DAdaptAdamPreprint", "DAdaptAdaGrad", "DAdaptAdan", "DAdaptAdanIP"),
        "older variants of D-Adaptation",
    ),
    "SGDNesterov8bit": "SGD in 8 bits",
}
_OURS = {"decouple": "weight_decouple", "use_bias_correction": "bias_correction", "beta3": "d_beta"}
_SIMILAR = {"adamw-8bit": "adamw-8bit-or-adamw", "adafactor": ADAFACTOR_CLASS}
"""Kinds that are written as a similar one."""
_ADAPTIVE = ("DAdaptAdam", "DAdaptLion", "DAdaptSGD", "Prodigy")


def set_update(draft: Draft, script: Script) -> None:
    """Sets optimizer, schedule and clipping."""
    name = _set_optimizer(draft)
    set_schedule(draft, name)
    norm = draft.number("max_grad_norm")
    if draft.check_bounds("max_grad_norm"):
        draft.set("optim.clip.norm", norm or None, "max_grad_norm")
    fused = ("fused_backward_pass", "blockwise_fused_optimizers", "fused_optimizer_groups")
    flags = [flag for flag in fused if draft.values[flag] and has_option(script, flag)]
    draft.set("optim.clip.scope", "tensor" if flags else "all", *flags or ["max_grad_norm"])
    if "fused_backward_pass" in flags and draft.values.get("full_bf16"):
        text = (
            "the script rounds weights in bf16 at random, and here they are rounded to the nearest; for that, write "
            "optim.optimizer={kind: adafactor} and optim.stochastic_rounding=true before the --"
        )
        draft.note("fused_backward_pass", text)
    for flag in flags:
        draft.note(flag, "gradients are clipped by tensor, as in the script; optim.in_backward saves their memory")


# --- optimizers -------------------------------------------------------------------------------------------------------


def _set_optimizer(draft: Draft) -> str:
    """Sets the optimizer, and returns sd-scripts' name of it, "" if it is not supported."""
    flag, name = _find_name(draft)
    if not name:
        return ""
    target, defaults = OPTIMIZERS[name]
    arguments = read_literals(draft, "optimizer_args", defaults)
    values = {**defaults, **arguments}
    if name == "Adafactor":
        set_adafactor(draft, flag, values, arguments)
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
    set_library(draft, flag, target, decay, options)
    note_package(draft, flag, target)
    return name


def write_optimizer(rule: Any) -> tuple[str, list[str]]:
    """The name of an optimizer in sd-scripts, or of the most similar one, and its arguments that are not defaults."""
    ours: dict[str, Any] = rule.model_dump() | getattr(rule, "options", {})
    kind = ours.get("class_name") or _SIMILAR.get(rule.kind, rule.kind)
    name = next((name for name, (target, _) in OPTIMIZERS.items() if target == kind), "AdamW")
    if rule.kind == "adafactor":
        ours |= {"eps2": rule.eps, "decay_rate": rule.beta2_decay, "clip_threshold": rule.clip_update}
        ours["relative_step"] = False
    if name == "Adafactor":
        ours["eps"] = (ours.get("eps1", 1e-30), ours.get("eps2", 1e-3))
    arguments = []
    for key, default in OPTIMIZERS[name][1].items():
        value = ours.get(_OURS.get(key, key), default)
        value = tuple(value) if isinstance(default, tuple) else value
        arguments += [f"{key}={value}"] if value != default else []
    return name, arguments


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
    package, _, last = written.rpartition(".")
    is_known = last in SCHEDULE_FREE and package.partition(".")[0] in ("schedulefree", "prodigyplus")
    name = lower.get((last if is_known else written).lower(), "")
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
