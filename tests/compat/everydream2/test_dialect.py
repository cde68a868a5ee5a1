"""The dialect `everydream2`: what several flags decide together."""

from __future__ import annotations

import pytest
from dialect_cases.everydream2 import BAREST, LINES, ON
from foreign_lines import ALONE, flat

from mezzotint.compat.everydream2.dialect import DIALECT
from mezzotint.errors import RecipeError
from mezzotint.settings.counting import format_count
from mezzotint.tasks.reading import foreign

translate, changed, notes, refusal = LINES.translate, LINES.changed, LINES.notes, LINES.refusal


def test_what_the_trainer_leaves_out_is_left_out_by_the_recipe_s_own_defaults() -> None:
    recipe = foreign.read_command_line("everydream2", BAREST, (), ALONE).recipe
    assert (recipe.data.cache.latents, recipe.data.cache.text) == (False, False)
    assert (recipe.data.repeats, recipe.data.rating.fraction, recipe.data.small_images) == (1.0, None, "upscale")
    assert (recipe.data.holdout.fraction, recipe.data.holdout.path) == (0.0, {})
    assert (recipe.model.last_layers, recipe.model.freeze, recipe.model.prediction) == (None, (), None)
    assert (recipe.objective.input_perturbation, recipe.run.steps, recipe.run.live.path) == (0.0, None, None)
    assert (recipe.sample.prompt_file, recipe.sample.prompts, recipe.sample.size) == (None, (), None)


@pytest.mark.parametrize(("skip", "ours"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 3)])
def test_clip_skip_counts_the_last_layer_as_1(skip: int, ours: int) -> None:
    assert flat(translate(f"--clip_skip={skip}").settings)["model.clip_skip"] == ours


def test_minus_one_means_zero_terminal_snr() -> None:
    minus = {"objective.noise_offset": 0.0, "objective.zero_terminal_snr": True, "sample.guidance_rescale": 0.7}
    assert changed("--zero_frequency_noise_ratio=-1") == minus
    assert changed("--zero_frequency_noise_ratio", "-1") == minus
    both = changed("--enable_zero_terminal_snr", "--zero_frequency_noise_ratio=0.05")
    assert (both["objective.noise_offset"], both["objective.zero_terminal_snr"]) == (0.05, True)
    assert any("models that predict v" in note for note in notes("--zero_frequency_noise_ratio=-1"))
    assert changed("--zero_frequency_noise_ratio=-0.5") == {"objective.noise_offset": 0.0}
    assert any("only -1 is zero terminal SNR" in note for note in notes("--zero_frequency_noise_ratio=-0.5"))


@pytest.mark.parametrize(("batches", "accumulation", "steps"), [(2500, 2, 1250), (2501, 2, 1251), (1, 3, 1), (9, 3, 3)])
def test_batch_counts_are_divided_by_accumulation_rounding_up(batches: int, accumulation: int, steps: int) -> None:
    words = ["--lr_scheduler=linear", f"--lr_decay_steps={batches}", f"--grad_accum={accumulation}",
             "--lr_warmup_steps=0", f"--log_step={batches}"]  # fmt: skip
    settings = flat(translate(*words).settings)
    assert (settings["optim.schedule.decay_steps"], settings["run.log_every"]) == (steps, steps)
    output = (
        f"{format_count(batches, 'batch')}; in Mezzotint {format_count(steps, 'step')} "
        f"of {format_count(accumulation, 'batch')}"
    )
    assert {f"--lr_decay_steps: {output}", *([f"--log_step: {output}"] if batches > 1 else [])} <= set(notes(*words))


def test_polynomial_schedule_ends_at_a_fixed_rate() -> None:
    for words, peak in (([], 2e-6), (["--scale_lr", "--batch_size=4", "--grad_accum=2"], 2e-6 * 8**0.55)):
        settings = flat(translate("--lr_scheduler=polynomial", "--lr=2e-6", *words).settings)
        assert settings["optim.schedule.floor"] * peak == pytest.approx(1e-7)
        assert settings["optim.schedule.power"] == 1.0


def test_options_that_only_act_together_are_noted() -> None:
    output = " ".join(
        notes("--keep_tags=4", "--ema_device=cuda", "--rated_dataset_target_dropout_percent=20",
              "--load_settings_every_epoch", "--cond_dropout=0.3", "--grad_accum=2", "--save_every_n_epochs=1",
              "--ckpt_every_n_minutes=5", "--resolution=700")
    )  # fmt: skip
    for words in ("captions that are shuffled", "there is no average", "ratings are ignored",
                  "without --config there is no file", "influences all", "averaged over its batches", "both save",
                  "rounded down to 640"):  # fmt: skip
        assert words in output
    assert set(notes()) == {
        "--resume_ckpt: starts a new run; a run folder of Mezzotint would be resumed",
        "--sample_prompts: there is no sample_prompts.txt here: samples use captions of the data set",
    }


def test_old_option_names_are_noted_and_new_ones_win() -> None:
    assert "--ema_decay_interval: is called ema_update_interval now" in notes(ON, "--ema_decay_interval=7")
    words = (ON, "--ema_decay_interval=7", "--ema_update_interval=9")
    assert flat(translate(*words).settings)["optim.ema.interval"] == 9
    assert any("which is given, too, and is used" in note for note in notes(*words))


def test_windows_and_unix_line_continuations_are_accepted() -> None:
    caret = ["python", "train.py", "--resume_ckpt", "sd15", "^", "--lr", "2e-6", "^", "--data_root", r"X:\my data", "^"]
    slash = ["python", "train.py", "--resume_ckpt", "sd15", "\\", "--lr=2e-6", "\\", "--data_root", r"X:\my data"]
    assert DIALECT.translate(caret, ALONE).settings == DIALECT.translate(slash, ALONE).settings
    assert flat(DIALECT.translate(caret, ALONE).settings)["data.path"] == r"X:\my data"
    [note_] = [note for note in notes(r"--save_ckpt_dir=r:\webui\models") if note.startswith("--save_ckpt_dir")]
    assert note_.endswith("is a Windows path: on this system it is a folder of that name in the current one")


def test_script_that_starts_several_trainings_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"chain\.py starts several trainings.*as --resume_ckpt") as caught:
        DIALECT.translate(["python", "chain.py", "--config", "chain.json"], ALONE)
    assert caught.value.code == "E1018"
