"""Works out numbers of sd-scripts' published formulas in plain Python, for tests/compat/kohya: loss weights, noise
levels of SD3 and FLUX.1, learning-rate schedules, warm-up.

    python tools/kohya_formulas.py > tests/compat/kohya/formulas.json
"""

from __future__ import annotations

import json
import math

SNRS = (0.001, 0.5, 4.0, 5.0, 40.0, 900.0)
WIDE_SNRS = (*SNRS, 5000.0)
UNIFORMS = (0.0001, 0.1234, 0.5004, 0.7777, 0.9991)
NORMALS = (-2.5, -0.7, 0.1, 0.9, 2.2)
TIMESTEPS = (0, 250, 999)
ERRORS = (0.0, 0.01, -0.3, 2.0)
CURVES = ("sine", "cosine", "linear", "reverse_linear", "zeros")
STEPS = (0, 3, 10, 37, 55, 99)


def shift(sigma: float, s: float) -> float:
    return s * sigma / (1 + (s - 1) * sigma)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def mode(u: float, scale: float) -> float:
    return 1 - u - scale * (math.cos(math.pi * u / 2) ** 2 - 1 + u)


def table_level(u: float, s: float) -> float:
    """The level of an index into a table that falls from 1 to 1/1000, shifted."""
    return shift(1 - int(u * 1000) / 1000, s)


def flux_shift(height: int, width: int) -> float:
    """e^μ, μ linear in the number of 2×2 patches of latents: 0.5 at 256, 1.15 at 4096."""
    tokens = (height // 16) * (width // 16)
    slope = (1.15 - 0.5) / (4096 - 256)
    return math.exp(slope * tokens + 0.5 - slope * 256)


def schedule(name: str, step: int, total: int, warmup: int, rate: float) -> float:
    """The factor of the rate, as in the library's schedules that the scripts use."""
    if name == "warmup_stable_decay":
        return stable_decay(step, total, warmup, decay=0.3, least=0.1)
    if step < warmup:
        return step / warmup
    q = (step - warmup) / (total - warmup)
    match name:
        case "constant_with_warmup":
            return 1.0
        case "linear":
            return (total - step) / (total - warmup)
        case "cosine":
            return 0.5 * (1 + math.cos(math.pi * q))
        case "cosine_with_restarts":
            return 0.5 * (1 + math.cos(math.pi * ((3 * q) % 1)))
        case "polynomial":
            return (1e-7 + (rate - 1e-7) * (1 - q) ** 2) / rate
        case "inverse_sqrt":
            return 1 / math.sqrt((step + 20 - warmup) / 20)
        case _:  # cosine_with_min_lr
            return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * q))


def stable_decay(step: int, total: int, warmup: int, *, decay: float, least: float) -> float:
    """The factor of warmup_stable_decay: from the least factor to 1, constant, and half a cosine back in the last share
    of the run."""
    start = total - int(decay * total)
    rise = step / warmup if step < warmup else 1.0
    fall = 0.5 * (1 + math.cos(math.pi * (step - start) / (total - start))) if step >= start else 1.0
    return least + (1 - least) * rise * fall


def huber_c(schedule: str, t: int, alpha_bar: float) -> float:
    """The parameter of the pseudo-Huber losses at a timestep of 1000, for --huber_c=0.2 and --huber_scale=0.5, which
    the schedule snr ignores."""
    match schedule:
        case "exponential":
            return math.exp(t / 1000 * math.log(0.2)) * 0.5
        case "snr":
            sigma = math.sqrt((1 - alpha_bar) / alpha_bar)
            return (1 - 0.2) / (1 + sigma) ** 2 + 0.2
        case _:  # constant
            return 0.2 * 0.5


def huber_losses(schedule: str) -> list[list[float]]:
    """For each timestep the loss of each error."""
    cs = [huber_c(schedule, t, alpha_bar(t)) for t in TIMESTEPS]
    return [[2 * c * (math.sqrt(error * error + c * c) - c) for error in ERRORS] for c in cs]


def smooth_l1_losses(schedule: str) -> list[list[float]]:
    cs = [huber_c(schedule, t, alpha_bar(t)) for t in TIMESTEPS]
    return [[2 * (math.sqrt(error * error + c * c) - c) for error in ERRORS] for c in cs]


def alpha_bar(t: int) -> float:
    """ᾱ of Stable Diffusion's schedule: √β rises evenly from √0.00085 to √0.012."""
    first, last = math.sqrt(0.00085), math.sqrt(0.012)
    return math.prod(1 - (first + (last - first) * i / 999) ** 2 for i in range(t + 1))


def block_weights(curve: str, count: int) -> list[float]:
    """The factors of the rates of input or output blocks, from the first to the last, plus 0.25."""
    rising = [i / (count - 1) for i in range(count)]
    falling = [1 - i / (count - 1) for i in range(count)]
    values = {
        "sine": [math.sin(x * math.pi / 2) for x in rising],
        "cosine": [math.sin(x * math.pi / 2) for x in falling],
        "linear": rising,
        "reverse_linear": falling,
        "zeros": [0.0] * count,
    }[curve]
    return [value + 0.25 for value in values]


def main() -> None:
    names = ("constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "polynomial", "cosine_with_min_lr",
             "inverse_sqrt", "warmup_stable_decay")  # fmt: skip
    numbers = {
        "snr": SNRS,
        "min_snr_epsilon": [min(snr, 5) / snr for snr in SNRS],
        "min_snr_v": [min(snr, 5) / (snr + 1) for snr in SNRS],
        "scaled_v": [min(snr, 1000) / (min(snr, 1000) + 1) for snr in SNRS],
        "wide_snr": WIDE_SNRS,
        "debiased_epsilon": [1 / math.sqrt(min(snr, 1000)) for snr in WIDE_SNRS],
        "debiased_v": [1 / (min(snr, 1000) + 1) for snr in WIDE_SNRS],
        "timesteps": TIMESTEPS,
        "errors": ERRORS,
        "huber": {schedule: huber_losses(schedule) for schedule in ("constant", "exponential", "snr")},
        "smooth_l1": {schedule: smooth_l1_losses(schedule) for schedule in ("constant", "exponential", "snr")},
        "uniform": UNIFORMS,
        "normal": NORMALS,
        "flux_sigma": [table_level(u, 3.0) for u in UNIFORMS],
        "flux_sigma_mode": [table_level(mode(u, 1.29), 3.0) for u in UNIFORMS],
        "flux_sigma_logit_normal": [table_level(sigmoid(0.5 + 0.8 * n), 3.0) for n in NORMALS],
        "flux_sigmoid": [sigmoid(2 * n) for n in NORMALS],
        "flux_shift": [shift(sigmoid(n), 3.1) for n in NORMALS],
        "flux_flux_shift": [shift(sigmoid(n), flux_shift(768, 1024)) for n in NORMALS],
        "sd3_logit_normal": [shift(sigmoid(0.5 + 0.8 * n), 2.0) for n in NORMALS],
        "sd3_mode": [shift(mode(u, 1.29), 2.0) for u in UNIFORMS],
        "block_weights": {
            family: {curve: block_weights(curve, count) for curve in CURVES}
            for family, count in (("sd", 12), ("sdxl", 9))
        },
        "steps": STEPS,
        "schedules": {name: [schedule(name, step, 100, 10, 1e-4) for step in STEPS] for name in names},
        "warmup": {"250": 250, "0.05": 80, "10%": 160},
    }
    print(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
