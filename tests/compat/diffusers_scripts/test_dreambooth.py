"""The dialect `diffusers-dreambooth`: subject and class."""

from __future__ import annotations

from dialect_cases.diffusers_dreambooth import LINES, PRIOR

from mezzotint.settings.reading.translation import Launched


def test_batch_has_instance_and_class_halves_on_each_process() -> None:
    translation = LINES.translate(*PRIOR, "--train_batch_size=3", launched=Launched(2, "no", "accelerate"))
    assert translation.settings["data"]["batch_size"] == 12
    assert any("as many class images: a batch of 12" in str(note) for note in translation.notes)
    recipe = LINES.recipe(*PRIOR)
    assert (recipe.data.prior.balance, recipe.data.prior.weight, recipe.data.batch_size) == ("pairs", 1.0, 8)


def test_class_images_without_prior_preservation_are_noted() -> None:
    words = ("--class_data_dir=cats", "--class_prompt=a cat", "--num_class_images=5")
    assert LINES.changed(*words) == {}
    assert LINES.notes_text(*words).count("without --with_prior_preservation") == 3


def test_prior_loss_weight_with_another_meaning_is_noted() -> None:
    assert "v-prediction" in LINES.notes_text("--snr_gamma=5")
    assert LINES.recipe("--snr_gamma=5").objective.min_snr_gamma == 5
