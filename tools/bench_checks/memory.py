"""Marks of the update that are timings: the average in one pass."""

from __future__ import annotations

import time

import torch

from mezzotint.recipe.sections.optim import OptimSettings
from mezzotint.training.ema import Ema

ROUNDS = 7


def rows() -> list[tuple[str, str, str]]:
    """(mark, goal, measured): CPU seconds of an update of the average over 25 M numbers in 700 tensors, alternating;
    the median of the ratios."""
    masters = {f"denoiser/{number}": torch.randn(190, 190) for number in range(700)}
    averages = {
        passes: Ema(masters, OptimSettings.model_validate({"ema": {"rule": "constant", "passes": passes}}))
        for passes in (1, 3)
    }
    clean, ratios = torch.zeros(()), []
    for _ in range(ROUNDS):
        took = {}
        for passes, average in averages.items():
            began = time.process_time()
            average.follow(masters, clean)
            took[passes] = time.process_time() - began
        ratios.append(took[3] / took[1])
    return [("average in one pass, against three", "≥ 2 ×", f"{sorted(ratios)[ROUNDS // 2]:.2f} ×")]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(rows())
