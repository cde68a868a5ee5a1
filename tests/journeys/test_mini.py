"""The model that ships: its images, opening it in diffusers, and a short fine-tune that teaches it a word."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, StableDiffusionPipeline

from mezzotint.cli import main
from mezzotint.weights.folder.model_folder import shipped_folder

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from mini import lesson, measure, world
from mini.lesson import Answers

MODEL = shipped_folder("mezzotint-mini")
LARGEST = 8_000_000
"""Bytes of all weights together."""
QUICK = argparse.Namespace(seed=7, steps=12, guidance=3.0, solver="ddim", batch=30)
STEPS = 60


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def before() -> Answers:
    return lesson.examine(measure.load(MODEL), new=20, old=20, steps=QUICK.steps)


def test_images_show_what_the_prompts_describe(before: Answers) -> None:
    assert before.old["colour"] >= 0.9
    assert before.old["shape"] >= 0.9
    assert before.old["position"] >= 0.85


@pytest.mark.slow
def test_images_show_held_out_combinations() -> None:
    prompts = world.prompts("held_out", 20, 7)
    row = measure.judged(list(measure.images(measure.load(MODEL), prompts, QUICK)), prompts, "held_out")
    assert row["colour"] >= 0.75
    assert row["shape"] >= 0.65


def test_files_are_small_and_have_a_model_card() -> None:
    files = sorted(MODEL.rglob("*.safetensors"))
    assert {path.parent.name for path in files} == {"unet", "text_encoder", "vae"}
    assert sum(path.stat().st_size for path in files) <= LARGEST
    card = (MODEL / "README.md").read_text("utf-8")
    assert "license: apache-2.0" in card
    assert re.search(r"\| 500 seen \| \w+ \| [\d.]+ % \|", card)
    config = json.loads((MODEL / "scheduler" / "scheduler_config.json").read_text("utf-8"))
    assert config["prediction_type"] == "v_prediction"


def test_diffusers_pipeline_generates_what_the_prompts_describe() -> None:
    pipeline = StableDiffusionPipeline.from_pretrained(
        MODEL, local_files_only=True, safety_checker=None, torch_dtype=torch.float32
    )
    pipeline.set_progress_bar_config(disable=True)
    assert isinstance(pipeline.scheduler, DDIMScheduler)
    prompts = [("a red circle on the left", _scene("circle", "red", "left")),
             ("a yellow star on the right", _scene("star", "yellow", "right"))]  # fmt: skip
    generator = torch.Generator().manual_seed(3)
    images = pipeline(
        [text for text, _ in prompts], num_inference_steps=20, guidance_scale=3.0, generator=generator, output_type="np"
    ).images
    pixels = [np.rint(image * 255).astype(np.uint8) for image in images]
    assert measure.judged(pixels, prompts, "seen")["all"] == 1.0


def _scene(shape: str, colour: str, position: world.Position) -> world.Scene:
    return world.Scene("single", (world.Thing(shape, colour, "big", position),), "grey", 0)


@pytest.mark.slow
def test_short_fine_tune_teaches_a_new_word(before: Answers, tmp_path: Path) -> None:
    wugs, others = lesson.write(tmp_path / "images", kept=144)
    words = [
        lesson.as_sets((wugs, others), (12, 1)),
        "data.captions.lines=random",
        f"data.cache.path={tmp_path / 'cache'}",
        f"run.folder={tmp_path / 'run'}",
        f"run.steps={STEPS}",
        "data.batch_size=16",
        "run.threads=1",
        "run.preview.every=null",
        "run.save.every=null",
        "run.tensorboard=false",
    ]
    assert main(["train", "mini", *words]) == 0
    model = tmp_path / "run" / "exports" / f"step-{STEPS:08d}-ema"
    after = lesson.examine(measure.load(model), new=20, old=20, steps=QUICK.steps)
    assert before.new["shape"] <= 0.1, "it does not know the word"
    assert after.new["shape"] >= 0.5
    assert after.old["all"] >= before.old["all"] - 0.1
