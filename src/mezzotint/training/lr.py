"""The learning rate over the run: a factor of the peak rate, as a pure function of the optimizer step."""

from __future__ import annotations

import math

from mezzotint.settings.sections.optim import RoundSettings, ScheduleSettings


def factor(settings: ScheduleSettings, step: int, total_steps: int) -> float:
    """The factor of the peak rate for one optimizer step.

    step: index of the step about to run, from 0. total_steps: length of the run. Returns a number ≥ 0, in [0, 1]
    except for piecewise factors above 1.

    With W and T of `span`: during the warm-up it is step / W, so that the first step has rate 0, as diffusers'
    `get_scheduler`; with `warmup_from` it rises from there. Of q = (step − W)/(T − W), and on the way from 1 to the
    floor: linear 1 − q; polynomial (1 − q)^power; cosine (1 + cos πq)/2; restarts the same of the fractional part of
    cycles · q. From step T on the rate stays at the floor, or goes on as a wave (1 + cos πq)/2 with q above 1, as
    diffusers' cosine does. diffusers' polynomial has the floor 1e-7 / peak rate. A piecewise schedule is multiplied by
    its warm-up, and its points count from the start of the run.
    """
    if settings.kind == "rounds":
        return _of_rounds(settings.rounds, step)
    warmup, end = span(settings, total_steps)
    if step < warmup:
        ramp = settings.warmup_from + (1.0 - settings.warmup_from) * (step / warmup)
        return ramp * _piece(settings, step) if settings.kind == "piecewise" else ramp
    match settings.kind:
        case "constant":
            return 1.0
        case "piecewise":
            return _piece(settings, step)
        case "linear" | "cosine" | "restarts" | "polynomial":
            is_past = step >= end and settings.after_decay == "floor"
            q = 1.0 if is_past else (step - warmup) / max(1, end - warmup)
            return settings.floor + (1.0 - settings.floor) * _height(settings, q)
        case _:
            raise ValueError(f"no schedule is called {settings.kind!r}")


def span(settings: ScheduleSettings, total_steps: int) -> tuple[int, int]:
    """(W, T): the steps of the warm-up, and the step at which the decay ends.

    T is `decay_steps`, or `decay_ratio` times the run's length, rounded down, at least 1. W is `warmup_steps`, or
    `warmup_ratio` of T, rounded down.
    """
    # a millionth of a step: 0.07 · 100 is a little more than 7 in floating point, 0.29 · 100 a little less than 29
    end = settings.decay_steps or max(1, math.floor(total_steps * settings.decay_ratio + 1e-6))
    return settings.warmup_steps or math.floor(end * settings.warmup_ratio + 1e-6), end


def _height(settings: ScheduleSettings, q: float) -> float:
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


def _piece(settings: ScheduleSettings, step: int) -> float:
    """The factor of the last point at or before the step."""
    reached = 1.0
    for start, value in settings.points:
        if step < start:
            break
        reached = value
    return reached


def _of_rounds(rounds: tuple[RoundSettings, ...], step: int) -> float:
    """The factor of the round that a step lies in. The last step of a round is also where the next one begins to be
    counted; after the last round its end stays."""
    begin = 0
    for one in rounds:
        if step <= begin + one.steps:
            return _in_round(one, step - begin)
        begin += one.steps
    return rounds[-1].end


def _in_round(one: RoundSettings, step: int) -> float:
    if step < one.warmup_steps:
        return one.start + (one.peak - one.start) * step / one.warmup_steps
    if one.curve == "linear":
        return one.end + (one.peak - one.end) * (one.steps - step) / one.steps
    q = (step - one.warmup_steps) / (one.steps - one.warmup_steps)
    return one.end + (one.peak - one.end) * 0.5 * (1.0 + math.cos(math.pi * q))
