"""Unknown keys answer with the setting that was meant."""

from __future__ import annotations

import pytest

from mezzotint.settings.reading.nearest import advice, nearest, search
from mezzotint.settings.reading.paths import settings


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("optim.lrr", "optim.lr"), ("lr", "optim.lr"), ("epochs", "run.epochs"), ("batch", "data.batch_size"),
        ("train_batch_size", "data.batch_size"), ("data.batchsize", "data.batch_size"),
        ("data.resoluton", "data.resolution"), ("run.precison", "run.precision"), ("run.step", "run.steps"),
        ("max_train_steps", "run.steps"), ("gradient_accumulation_steps", "optim.accumulation"),
        ("mixed_precision", "run.precision"),
        ("snr_gamma", "objective.min_snr_gamma"), ("weight_decay", "optim.optimizer.weight_decay"),
        ("max_grad_norm", "optim.clip.norm"), ("ema_decay", "optim.ema.decay"), ("ema", "optim.ema"),
        ("lr_warmup_steps", "optim.schedule.warmup_steps"), ("optim.warmup_steps", "optim.schedule.warmup_steps"),
        ("num_workers", "data.workers"), ("output_dir", "run.folder"), ("seed", "run.seed"),
        ("data.batch-size", "data.batch_size"),
    ],
)  # fmt: skip
def test_foreign_or_mistyped_key_finds_the_setting(written: str, meant: str) -> None:
    assert nearest(written) == meant


@pytest.mark.parametrize("word", ["zorp", "optim.zzzqqq", "qwertz", "x"])
def test_nonsense_has_no_suggestion(word: str) -> None:
    assert nearest(word) is None
    assert "mezzotint explain" in advice(word)


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.exhaustive])])
def test_every_setting_is_found_with_a_letter_missing(every: int) -> None:
    named = [s for s in settings() if len(s.name) > 4]
    missed = {s.path for s in named[::every] if nearest(s.path[:-1]) != s.path}
    # `image` is another setting's name, `images_pat` is as near to `images_format`, `class_token` is another trainer's
    # name of the trigger
    assert missed <= {"data.clips.images", "data.clips.images_path", "data.kohya_subsets.class_tokens"}


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("run.holdout.every", "run.validation.every"),
        ("run.eval.every", "run.validation.every"),
        ("run.checkpoint.every", "run.save.every"),
        ("run.sample.every", "run.preview.every"),
        ("model.lora.alpha", "model.adapter.alpha"),
    ],
)
def test_setting_is_found_under_a_foreign_section_name(asked: str, meant: str) -> None:
    assert nearest(asked) == meant


def test_search_lists_path_matches_first() -> None:
    assert search("learning rate")[:3] == ["optim.schedule", "optim.lr", "optim.part_lr"]
    assert search("batch size")[0] == "data.batch_size"
    assert search("the of") == search("xylophone") == []
