"""Bucket sizes of kohya's sd-scripts, worked out from their published rule in plain Python. `python
tools/kohya_data_formulas.py` prints the numbers that tests/compat/kohya/test_buckets.py expects.

The rule: every width from the smallest to the largest side, in steps, has the greatest height, in steps, whose product
with the width is at most the area of the resolution, unless it is below the smallest side; each size also turned; and
the square.
"""

from __future__ import annotations

CASES = (
    ((512, 512), 256, 1024, 64),
    ((1024, 1024), 512, 2048, 64),
    ((768, 512), 256, 1024, 64),
    ((512, 512), 320, 704, 32),
)
"""Resolution, smallest and largest side, step."""


def sizes(resolution: tuple[int, int], least: int, most: int, step: int) -> set[tuple[int, int]]:
    area = resolution[0] * resolution[1]
    square = max(side for side in range(0, 8193, step) if side * side <= area)
    pairs = {(square, square)}
    for width in (side for side in range(step, most + 1, step) if side >= least):
        heights = [side for side in range(step, most + 1, step) if side * width <= area and side >= least]
        if heights:
            pairs |= {(width, max(heights)), (max(heights), width)}
    return pairs


def main() -> None:
    for resolution, least, most, step in CASES:
        pairs = sorted(sizes(resolution, least, most, step))
        print(resolution, least, most, step, len(pairs), sum(width * height for width, height in pairs), pairs[0])
        print("   ", " ".join(f"{width}x{height}" for width, height in pairs))


if __name__ == "__main__":
    main()
