"""Works out numbers of ai-toolkit's published formulas in plain Python, for tests/compat/ai_toolkit: noise levels,
schedules, loss weights, lengths.

    python tools/ai_toolkit_formulas.py > tests/compat/ai_toolkit/formulas.json
"""

from __future__ import annotations

import json
import math

LEVELS = 1000


def linear_levels() -> list[float]:
    """σ of `timestep_type: linear`: 1000 numbers evenly from 1000 to 1, over 1000."""
    return [(LEVELS - index) / LEVELS for index in range(LEVELS)]


def sigmoid_quantile(share: float) -> float:
    """The σ of `sigmoid` below which a share of the levels lies: 1 − the sigmoid of a normal number, by bisection."""
    low, high = -20.0, 20.0
    for _ in range(200):
        middle = (low + high) / 2
        below = 0.5 * (1 + math.erf(middle / math.sqrt(2)))
        low, high = (middle, high) if below < share else (low, middle)
    return 1 / (1 + math.exp(-low))


def resolution_shift(tokens: int, base: float, most: float) -> float:
    """e^μ, μ on the line through (256, base) and (4096, most)."""
    return math.exp(base + (most - base) * (tokens - 256) / (4096 - 256))


def shifted(sigma: float, shift: float) -> float:
    return shift * sigma / (1 + (shift - 1) * sigma)


def timesteps(first: int, last: int) -> tuple[int, int]:
    """Lowest and highest timestep of ddpm: index i, drawn from first + 1 to last − 2, is the timestep 999 − i."""
    drawn = [999 - index for index in range(first + 1, last - 1)]
    return min(drawn), max(drawn)


def cosine(step: int, steps: int, rate: float, eta_min: float) -> float:
    """torch's CosineAnnealingLR."""
    return eta_min + (rate - eta_min) * (1 + math.cos(math.pi * step / steps)) / 2


def linear(step: int, steps: int, start: float, end: float) -> float:
    """torch's LinearLR: the factor of a step."""
    return start + (end - start) * min(step, steps) / steps


def warmup(step: int, warmup_steps: int) -> float:
    return min(1.0, step / warmup_steps)


def min_snr(snr: float, gamma: float) -> float:
    return min(gamma / snr, 1.0)


def bells() -> dict[str, list[float]]:
    """The weights of `linear_timesteps` and `linear_timesteps2` by index, from 1000 to 1: a normal curve, its least
    value 0, its mean 1; the second keeps its largest value in the second half."""
    curve = [math.exp(-2 * ((index - LEVELS / 2) / LEVELS) ** 2) for index in range(LEVELS)]
    above = [value - min(curve) for value in curve]
    bell = [value * LEVELS / sum(above) for value in above]
    half = [*bell[: LEVELS // 2], *[max(bell[LEVELS // 2 :])] * (LEVELS // 2)]
    return {"linear_timesteps": bell, "linear_timesteps2": half}


def updates(steps: int, accumulation_steps: int) -> int:
    """Updates of so many micro-batches."""
    return math.ceil(steps / accumulation_steps)


def square_side(resolution: int, tolerance: int) -> int:
    """The side of the square bucket."""
    side = int(1024 * (resolution / 1024))
    return side - side % tolerance


RESULTS = {
    "linear_levels": [linear_levels()[index] for index in (0, 1, 500, 999)],
    "sigmoid_quantiles": {str(share): sigmoid_quantile(share) for share in (0.1, 0.25, 0.5, 0.9)},
    "flux_shift": {str(tokens): resolution_shift(tokens, 0.5, 1.15) for tokens in (256, 1024, 4096)},
    "shifted": {str(sigma): shifted(sigma, resolution_shift(4096, 0.5, 1.15)) for sigma in (0.001, 0.25, 1.0)},
    "timesteps": {f"{first} {last}": timesteps(first, last) for first, last in ((0, 999), (100, 999), (0, 500))},
    "cosine": {str(step): cosine(step, 2000, 1e-4, 1e-5) for step in (0, 500, 1000, 1999)},
    "linear": {str(step): linear(step, 2000, 1 / 3, 1.0) for step in (0, 500, 1000, 1999)},
    "warmup": {str(step): warmup(step, 1000) for step in (0, 10, 999, 1000, 1500)},
    "min_snr": {str(snr): min_snr(snr, 5.0) for snr in (0.1, 5.0, 50.0)},
    "bells": {
        name: {str(index): weights[index] for index in (0, 1, 250, 499, 500, 501, 800, 999)}
        for name, weights in bells().items()
    },
    "updates": {"1000 3": updates(1000, 3), "250 4": updates(250, 4)},
    "square_side": {"632 64": square_side(632, 64), "1024 64": square_side(1024, 64), "768 32": square_side(768, 32)},
    "lora_scale": {"16 8": 8 / 16, "peft": 1.0},
}


if __name__ == "__main__":
    print(json.dumps(RESULTS, indent=1))
