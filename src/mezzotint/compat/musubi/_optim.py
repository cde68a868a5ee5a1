"""The optimizer, its schedule and clipping, as `optim`."""

from __future__ import annotations

from typing import Any

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.key_values import HUGE, parse_literal, read_literals
from mezzotint.compat.kit.updates import (
    ADAFACTOR,
    SCHEDULE_FREE,
    note_package,
    set_adafactor,
    set_library,
    set_schedule,
)
from mezzotint.compat.musubi._rows import has_option
from mezzotint.compat.musubi._scripts import TrainingScript
from mezzotint.errors import did_you_mean

_ADAM = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
OPTIMIZERS = {"AdamW": "adamw", "AdamW8bit": "adamw-8bit-or-adamw"}
"""Mezzotint's kind by the scripts' name."""
_DECAYS = {"AdamW": 0.01, "NAdam": 0.0, "RAdam": 0.0, "Adam": 0.0, "SGD": 0.0, "Adamax": 0.0, "RMSprop": 0.0,
           "Adagrad": 0.0, "Adadelta": 0.0, "ASGD": 0.0}  # fmt: skip
"""Weight decays of classes of torch.optim that have none in their arguments."""


def set_update(draft: Draft, script: TrainingScript) -> None:
    """Sets the rate, the optimizer, its schedule and clipping."""
    if draft.check_bounds("learning_rate"):
        draft.set("optim.lr", draft.number("learning_rate"), "learning_rate")
    set_schedule(draft, _set_optimizer(draft))
    if draft.check_bounds("max_grad_norm"):
        draft.set("optim.clip.norm", draft.number("max_grad_norm") or None, "max_grad_norm")
    is_fused = bool(draft.values["fused_backward_pass"]) and has_option(script, "fused_backward_pass")
    draft.set(
        "optim.clip.scope", "tensor" if is_fused else "all", "fused_backward_pass" if is_fused else "max_grad_norm"
    )
    if is_fused:
        text = "gradients are clipped by tensor, as in the script; optim.in_backward saves their memory"
        draft.note("fused_backward_pass", text)


def _set_optimizer(draft: Draft) -> str:
    """Sets the optimizer, and returns its name for its schedule."""
    flag, written = "optimizer_type", draft.text("optimizer_type")
    lower = {name.lower(): name for name in OPTIMIZERS}
    if not written:
        draft.refuse(flag, "is missing; the scripts have no default", "write AdamW", "E1017")
    elif written.lower() == "adafactor":
        arguments = read_literals(draft, "optimizer_args", ADAFACTOR)
        values = {**ADAFACTOR, **arguments}
        set_adafactor(draft, flag, values, arguments)
        return "adafactor:relative" if values["relative_step"] else "Adafactor"
    elif written.lower() in lower:
        values = {**_ADAM, **read_literals(draft, "optimizer_args", _ADAM)}
        shown = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        draft.set_all({f"optim.optimizer.{key}": value for key, value in shown.items()}, "optimizer_args", flag)
        draft.set("optim.optimizer.kind", OPTIMIZERS[lower[written.lower()]], flag)
    elif written == "schedulefree.AdamWScheduleFree":
        kind, defaults = SCHEDULE_FREE["AdamWScheduleFree"]
        values = {**defaults, **read_literals(draft, "optimizer_args", defaults)}
        shown = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        draft.set_all({f"optim.optimizer.{key}": value for key, value in shown.items()}, "optimizer_args", flag)
        draft.set("optim.optimizer.kind", kind, flag)
    elif "." in written or written in _DECAYS:
        _set_class(draft, flag, written)
    else:
        names = ("AdamW", "AdamW8bit", "Adafactor")
        remedy = did_you_mean(written, names, f"write one of {', '.join(names)}, or a class such as torch.optim.NAdam")
        draft.refuse(flag, f"{written} is not supported", remedy)
    return written


def _set_class(draft: Draft, flag: str, written: str) -> None:
    """Sets an optimizer that is named by its class."""
    name = written if "." in written else f"torch.optim.{written}"
    options: dict[str, Any] = {}
    words = draft.values["optimizer_args"]
    for word in words if isinstance(words, tuple) else ():
        key, sign, text = str(word).partition("=")
        try:
            options[key.strip()] = parse_literal(text.strip())
        except ValueError:
            shown = text[:40] if sign else "no value"
            message = f"{key[:40]} must be a number, a text in quotes, a list, True or False, got {shown}"
            draft.refuse("optimizer_args", message, code="E1017")
    options = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    decay = options.pop("weight_decay", None)
    if decay is None:
        decay = _DECAYS.get(name.removeprefix("torch.optim."))
    if decay is None and name.rpartition(".")[2] in SCHEDULE_FREE:
        decay = 0.0
    if decay is None:
        message = f"the weight decay of {name} is not known here"
        draft.refuse("optimizer_args", message, "write it, as in weight_decay=0.01", "E1017")
    elif not isinstance(decay, (int, float)) or not 0 <= decay < HUGE:
        draft.refuse("optimizer_args", f"weight_decay must be a number of 0 or more, got {decay!r:.40}", code="E1017")
    else:
        set_library(draft, flag, name, float(decay), options)
    note_package(draft, flag, name)
