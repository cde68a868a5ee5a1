"""Runs of MindONE: precision, counts, batches, processes, weights."""

from __future__ import annotations

import pytest
from dialect_cases.mindone_sdxl import BAREST, LINES
from foreign_lines import ALONE, flat

from mezzotint.settings.reading.translation import Launched
from mezzotint.tasks.reading import foreign

EIGHT = Launched(8, None, "torchrun")

translate, changed, notes, refusal = LINES.translate, LINES.changed, LINES.notes_text, LINES.refusal


def test_precision_levels_match_the_framework() -> None:
    runs = {level: translate(f"--ms_amp_level={level}").settings["run"] for level in ("O0", "O1", "O2", "O3")}
    assert {level: run["precision"] for level, run in runs.items()} == {
        "O0": "fp32", "O1": "fp16", "O2": "fp16", "O3": "fp16"
    }  # fmt: skip
    assert {level: run["half_precision"] for level, run in runs.items() if level != "O0"} == {
        "O1": "matmuls", "O2": "most", "O3": "all"
    }  # fmt: skip
    assert refusal("--ms_amp_level=O4") == [("--ms_amp_level", "E1017")]


def test_batch_counts_become_steps_rounding_up() -> None:
    words = ["--gradient_accumulation_steps=3", "--save_ckpt_interval=10", "--log_interval=4", "--resume_step=7",
             "--infer_during_train=True", "--infer_interval=5"]  # fmt: skip
    recipe = foreign.read_command_line("mindone-sdxl", [*BAREST, *words], (), ALONE).recipe
    run = recipe.run
    assert (run.steps, str(run.save.every[0]), run.log_every, run.start.step) == (33334, "4 steps", 2, 3)
    assert str(run.preview.every) == "2 steps"
    assert "100000 batches are 33334 steps" in notes(*words)


def test_batch_size_counts_all_devices_and_scales_the_rate() -> None:
    words = ["--is_parallel=True", "--per_batch_size=2", "--gradient_accumulation_steps=4", "--scale_lr=True"]
    settings = flat(translate(*words, launched=EIGHT).settings)
    assert (settings["data.batch_size"], settings["optim.lr"]) == (16, pytest.approx(1e-6 * 64))
    assert "2 on each of 8 cards: a batch of 16" in notes(*words, launched=EIGHT)


def test_several_processes_need_is_parallel() -> None:
    assert refusal(launched=EIGHT) == [("--is_parallel", "E1083")]
    assert changed("--is_parallel=True") == {}


def test_empty_weights_are_random_and_later_files_override_earlier() -> None:
    assert changed("--weight", "") == {"model.path": "sdxl", "model.weights": "random"}
    assert "random weights" in notes("--weight", "")
    words = "--weight=a.ckpt,b.ckpt, c.ckpt"
    assert changed(words) == {"model.path": "a.ckpt", "model.over": ["b.ckpt", "c.ckpt"]}
    assert "b.ckpt, c.ckpt replace tensors of a.ckpt in this order" in notes(words)
