"""What a start costs: importing what trains, the way to the first step, and `--help`."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

LIBRARIES = """
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from transformers.models.clip.modeling_clip import CLIPTextModel
from transformers.models.clip.tokenization_clip import CLIPTokenizer
"""
IMPORT = "import mezzotint.tasks.train.train" + LIBRARIES
TO_THE_STEP = """
import os
from mezzotint import cli
from mezzotint.training.recovery import Recovery
Recovery.run_step_or_retry = lambda *_: os._exit(0)
cli.main(["train", "tiny_cpu", "run.steps=1", "run.folder=run"])
os._exit(1)
"""


def rows() -> list[tuple[str, str, str]]:
    """(mark, goal, measured) for each mark, in CPU seconds of a process; medians."""
    bare, helped = _alternating((["-c", ""], ["-m", "mezzotint", "--help"]), 15)
    libraries, training, step = _alternating((["-c", LIBRARIES], ["-c", IMPORT], ["-c", TO_THE_STEP]), 3)
    return [
        ("import of the training path / its libraries", "<= 1.8", f"{training / libraries:.2f} ({training:.2f} CPU s)"),
        ("tiny_cpu until its first step", "", f"{step:.2f} CPU s"),
        ("--help / a bare Python", "<= 4", f"{helped / bare:.1f}"),
    ]


def _alternating(lines: Sequence[list[str]], rounds: int) -> list[float]:
    for line in lines:  # files come into memory, and what is compiled is kept
        _cpu(line)
    taken = [[_cpu(line) for line in lines] for _ in range(rounds)]
    return [statistics.median(times) for times in zip(*taken, strict=True)]


def _cpu(words: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    for row in rows():
        print(*row, sep="  ")
