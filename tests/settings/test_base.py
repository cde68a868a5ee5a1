"""What all sections share: other values in a section, and old words for new ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.errors import RecipeError
from mezzotint.settings.base import Every, with_values
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.recipe import Recipe


def test_with_values_changes_only_the_given_paths() -> None:
    recipe = Recipe()
    other = with_values(recipe, {"run.seed": 7, "run.export.folder": Path("x"), "data.cache.latents": True})
    assert (other.run.seed, other.run.export.folder, other.data.cache.latents) == (7, Path("x"), True)
    assert (recipe.run.seed, recipe.run.export.folder, recipe.data.cache.latents) == (0, None, False)
    assert with_values(other, {"run.seed": 0, "run.export.folder": None, "data.cache.latents": False}) == recipe
    assert "latents" in other.data.cache.model_fields_set


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run: {preview: {weights: shadow}}", "run.preview.weights"),
        ("optim: {ema: {passes: 3}}", "optim.ema.passes"),
        ("data: {holdout: {rule: chance}}", "data.holdout.rule"),
        ("data: {cache: {batches: free}}", "data.cache.batches"),
    ],
)
def test_old_setting_names_are_unknown(text: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read_text(text)
    (problem,) = caught.value.problems
    assert problem.where == said
    assert problem.code in ("E1001", "E1007")


@pytest.mark.parametrize(
    "path",
    [
        "run.steps", "run.epochs", "run.start.step", "run.micro_batch", "run.threads", "run.timeout_seconds",
        "run.validation.timesteps", "data.batch_size", "data.repeats", "data.prefetch", "data.cache.crops",
        "data.cache.shuffles", "data.clips.frames", "data.clips.interval", "data.clips.images",
        "data.prior.num_class_images", "optim.accumulation", "model.adapter.rank", "model.tokens.vectors",
        "sample.batch_size", "sample.clip.frames", "sample.size",
    ],
)  # fmt: skip
def test_impossible_values_are_refused_with_a_bound(path: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read_text("schema: 1", overrides=[f"{path}={f'[{10**18}, 64]' if path == 'sample.size' else 10**18}"])
    assert any("at most" in problem.message for problem in caught.value.problems)


def test_excessive_lengths_are_refused() -> None:
    for text in ("2000000000 steps", "2000000 epochs"):
        with pytest.raises(RecipeError, match="longer than allowed"):
            read_text("schema: 1", overrides=[f"run.extend={text}"])
    assert read_text("schema: 1", overrides=["run.steps=1000000000", "run.extend=9 steps"]).recipe.run.steps == 10**9


def test_numbers_beyond_float32_are_refused() -> None:
    with pytest.raises(RecipeError, match="too large to compute with"):
        read_text("schema: 1", overrides=["objective.min_snr_gamma=1e300"])


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1", "1 step"), ("500.0", "500 steps"), ("1000000", "1000000 steps"), ("1234567 steps", "1234567 steps"),
        ("1e+06", "1000000 steps"), ("7.5 min", "7.5 minutes"), ("0.1234567 min", "0.1234567 minutes"),
        ("0.00001 minutes", "1e-05 minutes"),
    ],
)  # fmt: skip
def test_interval_round_trips(text: str, written: str) -> None:
    assert str(Every.parse(text)) == written
    assert Every.parse(written) == Every.parse(text)


@pytest.mark.parametrize("text", ["1e999", "1..2 steps", ".", float("inf"), float("nan"), "1.5 epochs", "0 steps"])
def test_invalid_interval_is_refused_with_examples(text: object) -> None:
    with pytest.raises(ValueError, match="an interval"):
        Every.parse(text)
