"""Works out numbers of musubi-tuner's published formulas in plain Python, for tests/compat/musubi: bucket sizes, noise
levels, loss weights.

    python tools/musubi_formulas.py > tests/compat/musubi/formulas.json
"""

from __future__ import annotations

import json
import math

UNIFORMS = (0.0001, 0.1234, 0.5004, 0.7777, 0.9991)
NORMALS = (-2.5, -0.7, 0.1, 0.9, 2.2)
RESOLUTIONS = ((960, 544), (1024, 1024), (512, 512), (832, 480))


def shift(level: float, s: float) -> float:
    return s * level / (1 + (s - 1) * level)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def buckets(width: int, height: int) -> list[list[int]]:
    """Every width from half the side of a square up to that side, with the height that keeps the area."""
    area = width * height
    side = int(math.sqrt(area))
    half = side // 2
    sizes = []
    for wide in range(half - half % 16, side + 16, 16):
        high = area // wide
        high -= high % 16
        sizes += [[wide, high], [high, wide]]
    return sorted([list(size) for size in {tuple(size) for size in sizes}])


def table_level(u: float, s: float, low: int, high: int) -> float:
    """The level at a position of a table that falls from 1 to 1/1000, shifted."""
    index = int(u * (high - low) + low)
    return shift((1000 - index) / 1000, s)


def by_tokens(tokens: int, few: float, many: float, most: int) -> float:
    """e^μ, μ linear in the number of tokens: `few` at 256, `many` at `most`."""
    slope = (many - few) / (most - 256)
    return math.exp(slope * tokens + few - slope * 256)


def main() -> None:
    numbers = {
        "buckets": [[width, height, buckets(width, height)] for width, height in RESOLUTIONS],
        "uniforms": UNIFORMS,
        "normals": NORMALS,
        "sigma": [table_level(u, 1.0, 0, 1000) for u in UNIFORMS],
        "sigma_3": [table_level(u, 3.0, 0, 1000) for u in UNIFORMS],
        "sigma_3_range": [table_level(u, 3.0, 100, 600) for u in UNIFORMS],
        "shift": [shift(sigmoid(1.5 * n), 2.2) for n in NORMALS],
        "logsnr": [sigmoid(-(0.5 + 2.0 * n) / 2) for n in NORMALS],
        "uniform_range": [0.25 + (0.75 - 0.25) * u for u in UNIFORMS],
        "flux_shift": by_tokens(64 * 64, 0.5, 1.15, 4096),
        "flux2_shift": by_tokens(64 * 64, 0.5, 1.15, 4096),
        "qwen_shift": by_tokens(64 * 64, 0.5, 0.9, 8192),
        "sigma_sqrt": [u**-2 for u in UNIFORMS],
        "cosmap": [2 / (math.pi * (1 - 2 * u + 2 * u * u)) for u in UNIFORMS],
    }
    print(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
