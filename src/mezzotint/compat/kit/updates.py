"""Learning-rate schedules of the library `transformers` by the flags of kohya's trainers, Adafactor, and optimizers of
libraries."""

from __future__ import annotations

from typing import Any

from mezzotint.compat.kit.dialect import Draft
from mezzotint.errors import did_you_mean
from mezzotint.settings.optimizers.library import TRUSTED
from mezzotint.settings.reading.translation import Launched
from mezzotint.settings.sections.optim import ScheduleSettings

ADAFACTOR = {
    "eps": (1e-30, 1e-3), "clip_threshold": 1.0, "decay_rate": -0.8, "beta1": None, "weight_decay": 0.0,
    "scale_parameter": True, "relative_step": True, "warmup_init": False,
}  # fmt: skip
"""Arguments of transformers' Adafactor, with their defaults."""
_AVERAGED = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "r": 0.0, "weight_lr_power": 2.0}
SCHEDULE_FREE: dict[str, tuple[str, dict[str, Any]]] = {
    "AdamWScheduleFree": ("schedule-free-adamw", {**_AVERAGED, "warmup_steps": 0}),
    "RAdamScheduleFree": ("schedulefree.RAdamScheduleFree", {**_AVERAGED, "silent_sgd_phase": True}),
    "SGDScheduleFree": ("schedulefree.SGDScheduleFree",
                        {"momentum": 0.9, "weight_decay": 0.0, "r": 0.0, "weight_lr_power": 2.0, "warmup_steps": 0}),
    "ProdigyPlusScheduleFree": ("prodigyplus.ProdigyPlusScheduleFree", {
        "betas": (0.9, 0.99), "beta3": None, "weight_decay": 0.0, "weight_decay_by_lr": True, "d0": 1e-6, "d_coef": 1.0,
        "d_limiter": True, "prodigy_steps": 0, "schedulefree_c": 0.0, "eps": 1e-8, "split_groups": True,
        "split_groups_mean": False, "factored": True, "factored_fp32": True, "use_bias_correction": False,
        "use_stableadamw": True, "use_schedulefree": True, "use_speed": False, "stochastic_rounding": True,
        "use_cautious": False, "use_grams": False, "use_adopt": False, "use_orthograd": False, "use_focus": False,
    }),
}  # fmt: skip
"""Kind or class, and the arguments with their defaults, of optimizers of the packages `schedulefree` and
`prodigyplus`, by class name."""
ADAFACTOR_CLASS = "pytorch_optimizer.AdaFactor"
_NO_CAP = 0.9999999
"""A limit of Adafactor's second moment that is never reached."""
_POLYNOMIAL_END = 1e-7

SCHEDULES = {
    "constant": "constant", "constant_with_warmup": "constant", "linear": "linear", "cosine": "cosine",
    "cosine_with_restarts": "restarts", "polynomial": "polynomial", "cosine_with_min_lr": "cosine",
    "inverse_sqrt": "inverse-sqrt", "warmup_stable_decay": "cosine",
}  # fmt: skip
_OWN_FLAGS = {"lr_decay_steps": "warmup_stable_decay", "lr_scheduler_timescale": "inverse_sqrt"}
"""Flags of one schedule."""
_FLAGS = ("lr_scheduler", "lr_warmup_steps", *_OWN_FLAGS, "lr_scheduler_num_cycles", "lr_scheduler_power",
          "lr_scheduler_min_lr_ratio")  # fmt: skip
"""Flags of all schedules."""
_TIMESCALE = 10_000
"""Of inverse_sqrt without a warm-up."""


def note_package(draft: Draft, flag: str, class_name: str) -> None:
    """Notes which option a class of another package needs."""
    package = class_name.partition(".")[0]
    if package not in TRUSTED:
        draft.note(flag, f"write --allow-package {package} before the --, which lets Mezzotint import it")


def set_library(draft: Draft, flag: str, class_name: str, decay: float, options: dict[str, Any]) -> None:
    """Sets an optimizer of a library."""
    values = {"kind": "library", "class_name": class_name, "weight_decay": decay, "options": options}
    draft.set_all({f"optim.optimizer.{key}": value for key, value in values.items()}, flag, "optimizer_args")


def set_adafactor(draft: Draft, flag: str, values: dict[str, Any], arguments: dict[str, Any]) -> None:
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
    set_library(draft, flag, ADAFACTOR_CLASS, values["weight_decay"], options)
    if values["relative_step"]:
        why = "is given" if "relative_step" in arguments else "is its default in the script"
        draft.note(flag, f"relative_step=True {why}: Adafactor chooses its own rate, without the learning rate")


def set_schedule(draft: Draft, optimizer: str) -> None:
    """Sets `optim.schedule`. optimizer: its name, `adafactor:relative` for one that chooses its own rate."""
    name = draft.text("lr_scheduler")
    if optimizer == "adafactor:relative" or optimizer.lower().endswith("schedulefree"):
        _set_constant(draft, optimizer)
        return
    kind = SCHEDULES.get(name)
    if kind is None:
        _refuse_schedule(draft, name)
        return
    draft.set("optim.schedule.kind", kind, "lr_scheduler")
    for flag, owner in _OWN_FLAGS.items():
        if draft.is_given(flag) and name != owner:
            draft.note(flag, f"has no effect with --lr_scheduler={name}")
    _set_length(draft, name, "warmup", "lr_warmup_steps")
    if name == "inverse_sqrt":
        _set_timescale(draft)
    elif name == "warmup_stable_decay":
        _set_cooldown(draft)
    elif kind == "restarts" and draft.check_bounds("lr_scheduler_num_cycles"):
        draft.set("optim.schedule.cycles", draft.integer("lr_scheduler_num_cycles"), "lr_scheduler_num_cycles")
    elif kind == "polynomial":
        _set_polynomial(draft)
    elif name == "cosine_with_min_lr":
        _set_floor(draft)


def _set_constant(draft: Draft, optimizer: str) -> None:
    """The schedule of an optimizer that has its own."""
    is_adafactor = optimizer == "adafactor:relative"
    why = ", since Adafactor chooses its own rate" if is_adafactor else f" with {optimizer}, as in the script"
    for flag in _FLAGS:
        is_own = is_adafactor and flag == "lr_scheduler" and draft.text(flag).startswith("adafactor")
        if draft.is_given(flag) and not is_own:
            draft.note(flag, f"has no effect{why}")
    draft.set("optim.schedule.kind", "constant", "optimizer_type")


def write_schedule(schedule: ScheduleSettings, launched: Launched) -> dict[str, Any]:
    """The flags of a schedule, or of the most similar one."""
    names = {kind: name for name, kind in reversed(SCHEDULES.items())}
    warmup = schedule.warmup_ratio or schedule.warmup_steps * launched.processes
    name = names.get(schedule.kind, "constant")
    if name == "constant" and warmup:
        name = "constant_with_warmup"
    elif name == "cosine" and (schedule.cooldown_steps or schedule.cooldown_ratio):
        name = "warmup_stable_decay"
    elif name == "cosine" and schedule.floor:
        name = "cosine_with_min_lr"
    decay = schedule.cooldown_ratio or (schedule.cooldown_steps or 0) * launched.processes
    timescale = schedule.timescale_steps
    return {
        "lr_scheduler": name, "lr_warmup_steps": warmup or None, "lr_decay_steps": decay or None,
        "lr_scheduler_timescale": timescale and timescale * launched.processes,
    }  # fmt: skip


def _refuse_schedule(draft: Draft, name: str) -> None:
    if name.startswith("adafactor"):
        draft.refuse("lr_scheduler", "is for Adafactor with relative_step=True", f"use {', '.join(SCHEDULES)}", "E1017")
    elif name == "piecewise_constant":
        message = "its steps are an argument of the schedule"
        draft.refuse("lr_scheduler", message, "write optim.schedule.kind=piecewise and its points before the --")
    else:
        remedy = did_you_mean(name, SCHEDULES, f"use {', '.join(SCHEDULES)}")
        draft.refuse("lr_scheduler", f"{name} is not supported", remedy)


_LENGTHS = {
    "warmup": ("optim.schedule.warmup_steps", "optim.schedule.warmup_ratio"),
    "cooldown": ("optim.schedule.cooldown_steps", "optim.schedule.cooldown_ratio"),
}
"""The settings of a length in steps, and as a share of the run."""


def _set_length(draft: Draft, name: str, setting: str, flag: str) -> None:
    """Sets the steps, or the share of the run, of a warm-up or a decay. setting: of `_LENGTHS`."""
    text = draft.text(flag).strip()
    try:
        value = _parse_length(text)
    except ValueError:
        message = f"must be a number of steps, a share below 1, or a percentage, got {text[:40]}"
        draft.refuse(flag, message, code="E1017")
        return
    if not 0 <= value < 1e9:
        draft.refuse(flag, f"must be 0 or more, got {text[:40]}", code="E1017")
        return
    if name == "constant" and value:
        remedy = "write --lr_scheduler=constant_with_warmup, or leave it out"
        draft.refuse(flag, "constant has no warm-up, as in the script", remedy, "E1017")
        return
    is_share = value < 1 or text.endswith("%")
    numbers = (0 if is_share else _in_steps(draft, flag, int(value)), value if is_share else 0.0)
    for path, number in zip(_LENGTHS[setting], numbers, strict=True):
        if number or setting == "warmup":
            draft.set(path, number, flag)


def _parse_length(text: str) -> float:
    """A number of steps, or a percentage as a share. Raises ValueError."""
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def _is_zero(draft: Draft, flag: str) -> bool:
    """Whether a length is missing, or 0 in whatever form."""
    text = draft.text(flag).strip()
    try:
        return not text or _parse_length(text) == 0
    except ValueError:  # `_set_length` refuses it
        return False


def _in_steps(draft: Draft, flag: str, count: int) -> int:
    """A number of the scheduler's steps, which count processes, as steps."""
    processes = draft.launched.processes
    steps = -(-count // processes)
    if count and processes > 1:
        draft.note(flag, f"{count} divided by {processes} processes, as in the script: {steps} steps")
    return steps


def _set_timescale(draft: Draft) -> None:
    flag = "lr_scheduler_timescale"
    if draft.values[flag] is not None and draft.check_bounds(flag):
        draft.set("optim.schedule.timescale_steps", _in_steps(draft, flag, draft.integer(flag)), flag)
    elif _is_zero(draft, "lr_warmup_steps") and draft.launched.processes > 1:
        draft.set("optim.schedule.timescale_steps", _in_steps(draft, flag, _TIMESCALE), flag)


def _set_cooldown(draft: Draft) -> None:
    """Sets warm-up, stable, decay: also the warm-up starts at the least rate."""
    if _is_zero(draft, "lr_decay_steps"):
        draft.set("optim.schedule.kind", "constant", "lr_scheduler", "lr_decay_steps")
        draft.note("lr_scheduler", "without lr_decay_steps the rate does not fall, as in the script")
    else:
        _set_length(draft, "warmup_stable_decay", "cooldown", "lr_decay_steps")
    if draft.integer("lr_scheduler_num_cycles") != 1:
        draft.refuse("lr_scheduler_num_cycles", "warmup_stable_decay falls once in Mezzotint", "leave it out")
    ratio = draft.values["lr_scheduler_min_lr_ratio"]
    if ratio is not None and draft.check_bounds("lr_scheduler_min_lr_ratio"):
        for name in ("floor", "warmup_from"):
            draft.set(f"optim.schedule.{name}", ratio, "lr_scheduler_min_lr_ratio")


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
