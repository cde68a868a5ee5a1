"""Learning rates, optimizers, schedules, freezing and EMA of train.json, the command line and optimizer.json, as
`optim`, `run.scaler` and the frozen parts of `model`.

Schedules count batches in EveryDream2 and optimizer steps in Mezzotint: counts are divided by the accumulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mezzotint.compat.everydream2._rows import OPTIMIZERS, SCALING
from mezzotint.compat.kit.dialect import Draft
from mezzotint.errors import did_you_mean
from mezzotint.settings.counting import format_count

BASE, TEXT = "optimizer:base", "optimizer:text_encoder_overrides"
_FREEZING = "optimizer:text_encoder_freezing"

_LIBRARIES = {
    "lion": "pytorch_optimizer.Lion",
    "lion8bit": "bitsandbytes.optim.Lion8bit",
    "prodigy": "pytorch_optimizer.Prodigy",
    "dadapt_adam": "pytorch_optimizer.DAdaptAdam",
    "dadapt_lion": "pytorch_optimizer.DAdaptLion",
    "dadapt_sgd": "pytorch_optimizer.DAdaptSGD",
}
_SPECIFIC_KEYS = {
    "prodigy": ("d0", "growth_rate", "decouple", "safeguard_warmup"),
    "dadapt_adam": ("d0", "growth_rate", "decouple"),
    "dadapt_lion": ("d0",),
    "dadapt_sgd": ("d0", "growth_rate", "momentum"),
}
"""The specific keys of optimizers."""
_REFUSED = {
    **dict.fromkeys(("coordinate_dowg", "scalar_dowg"), "no maintained library has DoWG"),
    "dadapt_adan": "EveryDream2 never reaches this name and uses adamw8bit instead",
    "adamcm": "EveryDream2 has no name for it and uses adamw8bit instead",
}
_KEYS = {
    "eps": "epsilon", "weight_decouple": "decouple", "decay_steps": "lr_decay_steps", "decay_ratio": "lr_decay_steps",
    "warmup_steps": "lr_warmup_steps", "warmup_ratio": "lr_warmup_steps",
}  # fmt: skip
"""Keys of optimizer.json by Mezzotint's settings, where the names differ."""

_SCALE = 2.0**17.5
_PACES = ((500, 1.8, 100), (1000, 1.6, 200), (2000, 1.3, 500), (4000, 1.15, 2000))
"""(batches, growth, interval) of the loss scale."""

_POLYNOMIAL_END = 1e-7
"""The end of the polynomial schedule, independent of the peak rate."""


def update(draft: Draft, parts: tuple[str, ...]) -> None:
    """Sets rates, optimizers, schedules, clipping, scaler. parts: the trained parts."""
    _set_rates(draft, parts)
    draft.apply("scale_lr")
    norm = draft.values["clip_grad_norm"]
    if norm is not None and draft.number("clip_grad_norm") <= 0:
        draft.refuse("clip_grad_norm", f"must be above 0, got {norm:g}", "leave it out to clip nothing", "E1017")
    else:
        draft.set("optim.clip.norm", norm, "clip_grad_norm")
    draft.set("optim.clip.scope", "part", "clip_grad_norm")
    _set_scaler(draft)
    if "text_encoder" in parts:
        _set_frozen(draft)
    elif any(draft.values[key] not in (None, False) for key in draft.values if key.startswith(_FREEZING)):
        draft.note("disable_textenc_training", "the text encoder is not trained; options that freeze it have no effect")
    set_ema(draft)


# --- rates, rules, schedules ------------------------------------------------------------------------------------------


def _set_rates(draft: Draft, parts: tuple[str, ...]) -> None:
    """Sets `optim.lr`, `optim.optimizer` and `optim.schedule` of the denoiser, or of the text encoder if only that is
    trained; what differs for the text encoder goes to the settings by part."""
    first = TEXT if parts == ("text_encoder",) else BASE
    rate, rule, schedule = _rate(draft, first), _rule(draft, first), _schedule(draft, first)
    draft.set("optim.lr", rate, "lr", *_flags(first, "lr"))
    _set_section(draft, "optim.optimizer", rule, first)
    _set_section(draft, "optim.schedule", schedule, first)
    if len(parts) == 2:
        own_rate, own_rule, own_schedule = _rate(draft, TEXT), _rule(draft, TEXT), _schedule(draft, TEXT)
        if own_rate != rate:
            draft.set("optim.part_lr.text_encoder", own_rate, "lr", *_flags(TEXT, "lr"))
        if own_rule != rule:
            _set_section(draft, "optim.part_optimizer.text_encoder", own_rule, TEXT)
        if own_schedule != schedule:
            _set_section(draft, "optim.part_schedule.text_encoder", own_schedule, TEXT)
    _note_precedence(draft, parts)


def _note_precedence(draft: Draft, parts: tuple[str, ...]) -> None:
    """Adds notes about options that override others."""
    if draft.values["lr"] is not None:
        beaten = [key for key in (f"{BASE}.lr", f"{TEXT}.lr") if draft.values[key] and draft.is_given(key)]
        if beaten:
            draft.note("lr", f"counts before {' and '.join(draft.display_name(key) for key in beaten)}")
    base_kind, text_kind = _kind(draft, BASE), _kind(draft, TEXT)
    if draft.is_given("lr_scheduler") and base_kind != draft.values["lr_scheduler"]:
        draft.note("lr_scheduler", f"{draft.display_name(f'{BASE}.lr_scheduler')} is {base_kind} and counts before it")
    if len(parts) == 2 and text_kind != base_kind:
        draft.note(
            f"{TEXT}.lr_scheduler", f"the text encoder's rate is {text_kind}, while the other one is {base_kind}"
        )
    for key in ("lr_warmup_steps", "lr_decay_steps"):
        for name in (key, f"{BASE}.{key}", f"{TEXT}.{key}"):
            note_steps(draft, name)


def note_steps(draft: Draft, flag: str) -> None:
    """Adds a note about a count of batches in steps."""
    times = draft.integer("grad_accum")
    if draft.values[flag] and times > 1:
        count = draft.integer(flag)
        steps = draft.to_steps(count)
        draft.note(
            flag,
            f"{format_count(count, 'batch')}; in Mezzotint {format_count(steps, 'step')} "
            f"of {format_count(times, 'batch')}",
        )


def _pick(draft: Draft, level: str, key: str, *, last: Any) -> Any:
    """The value of a network's own key, or of base's key, or `last`. 0 of the text encoder means not set."""
    text_value = draft.values[f"{TEXT}.{key}"] if level == TEXT else None
    if text_value is not None and text_value != 0:
        return text_value
    base = draft.values[f"{BASE}.{key}"]
    return last if base is None else base


def _rate(draft: Draft, level: str) -> float:
    rate = draft.values["lr"] if draft.values["lr"] is not None else _pick(draft, level, "lr", last=1e-6)
    assert isinstance(rate, (int, float))
    scale = _pick(draft, TEXT, "text_encoder_lr_scale", last=1.0) if level == TEXT else 1.0
    return float(rate) * scale


def _rule(draft: Draft, level: str) -> dict[str, Any]:
    """The optimizer of a network, as a settings section."""
    name = str(_pick(draft, level, "optimizer", last="adamw8bit")).lower()
    where = f"{level}.optimizer" if draft.values[f"{level}.optimizer"] else f"{BASE}.optimizer"
    if name not in OPTIMIZERS:
        listed = f"write one of {', '.join(OPTIMIZERS)}"
        why = _REFUSED.get(name, f"{name!r} is not an optimizer; EveryDream2 silently uses adamw8bit for it")
        remedy = listed if name in _REFUSED else did_you_mean(name, OPTIMIZERS, listed)
        draft.refuse(where, why, remedy, "E1018")
        return {"kind": "adamw"}
    betas = list(_pick(draft, level, "betas", last=(0.9, 0.999)))
    eps = _pick(draft, level, "epsilon", last=1e-8)
    decay = _pick(draft, level, "weight_decay", last=0.01)
    _note_unused_keys(draft, level, name)
    if name == "adacoor":
        return {"kind": "adacoor", "eps": eps}
    kind = {"adamw": "adamw", "adamw8bit": "adamw-8bit-or-adamw"}.get(name)
    if kind is not None:
        return {"kind": kind, "betas": betas, "eps": eps, "weight_decay": decay}
    options = _options(draft, level, name, betas, eps)
    return {"kind": "library", "class_name": _LIBRARIES[name], "options": options, "weight_decay": decay}


def _options(draft: Draft, level: str, name: str, betas: list[float], eps: float) -> dict[str, Any]:
    """Options of a library's optimizer class. Its specific keys are not inherited from base."""
    options: dict[str, Any] = {} if name == "dadapt_sgd" else {"betas": betas}
    if name in ("prodigy", "dadapt_adam"):
        options["eps"] = eps
    if name == "prodigy":
        options |= {"bias_correction": True, "safeguard_warmup": True}
    specific_options = {key: draft.values[f"{level}.{key}"] for key in _SPECIFIC_KEYS.get(name, ())}
    library_names = {"decouple": "weight_decouple"}
    return options | {
        library_names.get(key, key): value for key, value in specific_options.items() if value is not None
    }


def _note_unused_keys(draft: Draft, level: str, name: str) -> None:
    taken = _SPECIFIC_KEYS.get(name, ())
    for key in ("d0", "growth_rate", "momentum", "decouple", "safeguard_warmup"):
        flag = f"{level}.{key}"
        if draft.values[flag] is not None and key not in taken and not any(note.flag == flag for note in draft.notes):
            draft.note(flag, f"{name} has no such option")


def _schedule(draft: Draft, level: str) -> dict[str, Any]:
    """The schedule of a network, as a settings section."""
    kind = _kind(draft, level)
    decay = _pick(draft, level, "lr_decay_steps", last=draft.values["lr_decay_steps"]) or 0
    warmup = _pick(draft, level, "lr_warmup_steps", last=draft.values["lr_warmup_steps"])
    schedule: dict[str, Any] = {
        "kind": kind,
        "warmup_steps": 0,
        "warmup_ratio": 0.0,
        "after_decay": "floor",
        "floor": 0.0,
    }
    if kind == "constant":
        return schedule
    schedule |= {"decay_ratio": 1.5} if decay < 1 else {"decay_steps": draft.to_steps(decay)}
    schedule |= {"warmup_ratio": 0.02} if warmup is None else {"warmup_steps": draft.to_steps(warmup)}
    if warmup is not None and warmup < 0:
        draft.refuse("lr_warmup_steps", f"must be 0 or more, got {warmup}", code="E1017")
    if decay >= 1 and schedule["warmup_steps"] >= schedule["decay_steps"]:
        draft.refuse("lr_decay_steps", f"{decay} must be above the warm-up of {warmup}", code="E1017")
    match kind:
        case "cosine":
            schedule["after_decay"] = "cosine"
        case "polynomial":
            schedule |= {"power": 1.0, "floor": _end_of_polynomial(draft, level)}
    return schedule


def _kind(draft: Draft, level: str) -> Any:
    """The kind of a network's schedule. optimizer.json overrides the command line, which overrides the shipped
    optimizer.json."""
    written = draft.values["lr_scheduler"]
    if draft.is_given("lr_scheduler") and not any(draft.is_given(f"{one}.lr_scheduler") for one in (BASE, TEXT)):
        return written
    return _pick(draft, level, "lr_scheduler", last=written)


def _end_of_polynomial(draft: Draft, level: str) -> float:
    batch = draft.integer("batch_size") * draft.integer("grad_accum")
    peak = _rate(draft, level) * (max(1, batch) ** SCALING if draft.values["scale_lr"] else 1.0)
    if peak <= _POLYNOMIAL_END:
        draft.refuse("lr", f"must be above 1e-07, where polynomial ends, got {peak:g}", code="E1017")
        return 0.0
    return _POLYNOMIAL_END / peak


def _set_section(draft: Draft, section_path: str, section: Mapping[str, Any], level: str) -> None:
    """Sets a section of a network, each value with the key that it comes from."""
    for key, value in section.items():
        if isinstance(value, Mapping) and value:
            _set_section(draft, f"{section_path}.{key}", value, level)
            continue
        name = _KEYS.get(key, key)
        if f"{BASE}.{name}" not in draft.values:
            name = "lr_scheduler" if "schedule" in section_path else "optimizer"
        line = (name,) if name.startswith("lr_") else ()
        draft.set(f"{section_path}.{key}", value, *_flags(level, name), *line)


def _flags(level: str, key: str) -> tuple[str, ...]:
    """A network's own key, and base's, which it inherits from."""
    return (f"{level}.{key}",) if level == BASE else (f"{level}.{key}", f"{BASE}.{key}")


def _set_scaler(draft: Draft) -> None:
    flag = "optimizer:apply_grad_scaler_step_tweaks"
    values = {"run.scaler.init": _SCALE, "run.scaler.growth": 2.0, "run.scaler.growth_interval": 25}
    draft.set_all(values, "disable_amp")
    by_step = {draft.to_steps(batches): [growth, interval] for batches, growth, interval in _PACES}
    stages = [[step, *pace] for step, pace in by_step.items()]
    draft.set("run.scaler.stages", stages if draft.values[flag] else [], flag)


# --- frozen parts -------------------------------------------------------------------------------------------------


def _set_frozen(draft: Draft) -> None:
    names = ("unfreeze_last_n_layers", "unfreeze_final_n_layers", "freeze_front_n_layers", "freeze_embeddings",
             "freeze_final_layer_norm")  # fmt: skip
    keys = [f"{_FREEZING}.{name}" for name in names]
    last, final, front, embeddings, norm = (draft.values[key] for key in keys)
    if final is not None:
        draft.note(keys[1], "is read as unfreeze_last_n_layers")
        last = final if last is None else last
    front = front or 0
    assert isinstance(front, int)
    if front < 0:
        last = -front if last is None else last
    if isinstance(last, int) and last < 1:
        draft.refuse(keys[0], f"must be 1 or more, got {last}", "null trains all", "E1017")
        return
    if last is not None:
        draft.set("model.last_layers", last, keys[0], keys[2])
    frozen = [f"~text_encoder/*layers.{number}.*" for number in range(front)]  # the encoder may have fewer layers
    if embeddings is True or (front > 0 and embeddings is None):
        frozen.append("text_encoder/*embeddings*")
    if embeddings is False and last is not None:
        frozen.append("!text_encoder/*embeddings*")
    if norm:
        frozen.append("text_encoder/*final_layer_norm*")
    if frozen:
        draft.set("model.freeze", frozen, *keys)


# --- EMA --------------------------------------------------------------------------------------------------------------


def set_ema(draft: Draft) -> None:
    """Sets EMA, and which weights generate samples."""
    rate, strength = draft.values["ema_decay_rate"], draft.values["ema_strength_target"]
    is_on = rate is not None or strength is not None
    draft.set("optim.ema.rule", "constant" if is_on else "none", "ema_decay_rate", "ema_strength_target")
    raw, average = bool(draft.values["ema_sample_nonema_model"]), bool(draft.values["ema_sample_ema_model"])
    weights = "both" if raw and average else "raw" if raw or not is_on else "ema"
    draft.set("run.preview.weights", weights, "ema_sample_nonema_model", "ema_sample_ema_model")
    if not is_on:
        usual = {"ema_update_interval": 500, "ema_device": "cpu"}
        for flag in (*usual, "ema_sample_nonema_model", "ema_sample_ema_model", "ema_resume_model"):
            if draft.values[flag] not in (usual.get(flag), None, False):
                draft.note(flag, "without ema_decay_rate or ema_strength_target there is no average")
        return
    if strength is None:
        draft.set("optim.ema.decay", rate, "ema_decay_rate")
    else:
        draft.set("optim.ema.strength", strength, "ema_strength_target")
        if rate is not None:
            draft.note("ema_decay_rate", "ema_strength_target is used; the resulting rate is printed at the start")
    draft.apply("ema_update_interval", "ema_device")
