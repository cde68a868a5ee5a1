"""The learning rate over the run: a factor of the peak rate, as a pure function of the optimizer step."""

from __future__ import annotations

import math

from mezzotint.recipe.optim import ScheduleSettings


def factor(settings: ScheduleSettings, step: int, total_steps: int) -> float:
    """The factor of the peak rate for one optimizer step.

    step: index of the step about to run, from 0. total_steps: length of the run; where the floor is reached unless
    `settings.decay_steps` says otherwise. Returns a number ≥ 0, in [0, 1] except for piecewise factors above 1.

    During the warm-up of W steps it is step / W: the first step has rate 0, as diffusers' `get_scheduler`. Of q = (step
    − W)/(T − W), and on the way from 1 to the floor: linear 1 − q; polynomial (1 − q)^power; cosine (1 + cos πq)/2;
    restarts the same of the fractional part of cycles · q. From step T on the rate stays at the floor; diffusers'
    cosine rises again there. Its polynomial has the floor 1e-7 / peak rate. A piecewise schedule is multiplied by its
    warm-up, and its points count from the start of the run.
    """
    if step < settings.warmup_steps:
        rising = step / settings.warmup_steps
        return rising * _piece(settings, step) if settings.kind == "piecewise" else rising
    match settings.kind:
        case "constant":
            return 1.0
        case "piecewise":
            return _piece(settings, step)
        case "linear" | "cosine" | "restarts" | "polynomial":
            return settings.floor + (1.0 - settings.floor) * _height(settings, _progress(settings, step, total_steps))
        case _:
            raise ValueError(f"no schedule is called {settings.kind!r}")


def _progress(settings: ScheduleSettings, step: int, total_steps: int) -> float:
    """q: 0 at the end of the warm-up, 1 from the end of the decay on."""
    end = total_steps if settings.decay_steps is None else settings.decay_steps
    if step >= end:
        return 1.0
    return (step - settings.warmup_steps) / (end - settings.warmup_steps)


def _height(settings: ScheduleSettings, q: float) -> float:
    """Between the peak (1) and the floor (0), at progress q."""
    if q >= 1.0:
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
