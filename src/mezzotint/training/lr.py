"""The learning rate schedule: a factor of the peak rate, as a pure function of the optimizer step."""

from __future__ import annotations

import math

from mezzotint.settings.sections.optim import RoundSettings, ScheduleSettings

_TIMESCALE = 10_000
"""Timescale of inverse-sqrt without a warm-up, as in transformers."""


def factor(settings: ScheduleSettings, step: int, total_steps: int) -> float:
    """The factor of the peak rate for one optimizer step.

    step: index of the step about to run, from 0. total_steps: length of the run. Returns a number ≥ 0, in [0, 1]
    except for piecewise factors above 1.

    With W and T of `resolve_span`: during the warm-up it is step / W, so the first step has rate 0, as in diffusers'
    `get_scheduler`; with `warmup_from` it rises from that factor. With q = (step − W)/(T − W), between 1 and the floor:
    linear 1 − q; polynomial (1 − q)^power; cosine (1 + cos πq)/2; restarts the same with the fractional part of
    cycles · q. With a cooldown of D steps, q = (step − T + D)/D from step T − D, and 1 before. inverse-sqrt is
    √(n/(n + step − W)), transformers' get_inverse_sqrt_schedule. From step T the rate stays at the floor, or
    continues as a wave (1 + cos πq)/2 with q above 1, as diffusers' cosine does. diffusers' polynomial has the floor
    1e-7 / peak rate. A piecewise schedule is multiplied by its warm-up, and its points count from the start of the run.
    """
    if settings.kind == "rounds":
        return _rounds_factor(settings.rounds, step)
    warmup, end = resolve_span(settings, total_steps)
    if step < warmup:
        ramp = settings.warmup_from + (1.0 - settings.warmup_from) * (step / warmup)
        return ramp * _piecewise_factor(settings, step) if settings.kind == "piecewise" else ramp
    match settings.kind:
        case "constant":
            return 1.0
        case "piecewise":
            return _piecewise_factor(settings, step)
        case "inverse-sqrt":
            scale = settings.timescale_steps or warmup or _TIMESCALE
            return math.sqrt(scale / (scale + step - warmup))
        case "linear" | "cosine" | "restarts" | "polynomial":
            start = _resolve_decay_start(settings, warmup, end)
            if step < start:
                return 1.0
            is_past = step >= end and settings.after_decay == "floor"
            q = 1.0 if is_past else (step - start) / max(1, end - start)
            return settings.floor + (1.0 - settings.floor) * _decay_factor(settings, q)
        case _:
            raise ValueError(f"unknown schedule {settings.kind!r}")


def resolve_span(settings: ScheduleSettings, total_steps: int) -> tuple[int, int]:
    """(W, T): the number of warm-up steps, and the step at which the decay ends.

    T is `decay_steps`, or `decay_ratio` times the run's length, rounded down, at least 1. W is `warmup_steps`, or
    `warmup_ratio` times T, rounded down.
    """
    # tolerance of 1e-6 steps: 0.07 · 100 is slightly more than 7 in floating point, 0.29 · 100 slightly less than 29
    end = settings.decay_steps or max(1, math.floor(total_steps * settings.decay_ratio + 1e-6))
    return settings.warmup_steps or math.floor(end * settings.warmup_ratio + 1e-6), end


def _resolve_decay_start(settings: ScheduleSettings, warmup: int, end: int) -> int:
    """The step at which the decay starts: the end of the warm-up, or the start of the cooldown."""
    cooldown = settings.cooldown_steps or math.floor(end * (settings.cooldown_ratio or 0.0) + 1e-6)
    return max(warmup, end - cooldown) if cooldown else warmup


def _decay_factor(settings: ScheduleSettings, q: float) -> float:
    """Between the peak (1) and the floor (0), at progress q: 0 at the end of the warm-up, 1 at the end of the
    decay."""
    if q >= 1.0 and settings.after_decay == "floor":
        return 0.0
    match settings.kind:
        case "linear":
            return 1.0 - q
        case "polynomial":
            return math.pow(1.0 - q, settings.power)
        case "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * q))
        case "restarts":
            return 0.5 * (1.0 + math.cos(math.pi * ((settings.cycles * q) % 1.0)))
        case _:
            raise ValueError(f"schedule {settings.kind!r} has no decay")


def _piecewise_factor(settings: ScheduleSettings, step: int) -> float:
    """The factor of the last point at or before the step."""
    factor = 1.0
    for start, value in settings.points:
        if step < start:
            break
        factor = value
    return factor


def _rounds_factor(rounds: tuple[RoundSettings, ...], step: int) -> float:
    """The factor of the round that contains a step. The last step of a round is also step 0 of the next one; after the
    last round its end value stays."""
    start = 0
    for settings in rounds:
        if step <= start + settings.steps:
            return _round_factor(settings, step - start)
        start += settings.steps
    return rounds[-1].end


def _round_factor(settings: RoundSettings, step: int) -> float:
    start, peak, end = settings.start, settings.peak, settings.end
    if step < settings.warmup_steps:
        return start + (peak - start) * step / settings.warmup_steps
    if settings.curve == "linear":
        return end + (peak - end) * (settings.steps - step) / settings.steps
    q = (step - settings.warmup_steps) / (settings.steps - settings.warmup_steps)
    return end + (peak - end) * 0.5 * (1.0 + math.cos(math.pi * q))
