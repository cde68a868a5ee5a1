"""The dialect `open-sora-plan`: what several flags decide together."""

from __future__ import annotations

import pytest
from dialect_cases.open_sora_plan import DEFAULTS, LINES, MANY
from foreign_lines import flat

from mezzotint.settings.reading.translation import Launched

FOUR = Launched(processes=4, launcher="torchrun")
translate, changed, notes, refusal = LINES.translate, LINES.changed, LINES.notes, LINES.refusal


def test_the_document_s_options_are_all_there() -> None:
    assert len(DEFAULTS) == 73


@pytest.mark.parametrize("flag", MANY)
def test_a_flag_of_many_processes_moves_its_settings_and_no_others(flag: str) -> None:
    beside, words, expected = MANY[flag]
    if flag == "use_parallel":
        assert refusal(launched=FOUR) == [("--use_parallel", "E1018")]
        assert flat(translate("--use_parallel=True", launched=FOUR).settings)["run.runtime"] == "ddp"
    else:
        assert changed(*words, launched=FOUR, beside=beside) == expected


def test_a_shard_size_has_to_divide_the_cards() -> None:
    words = ("--use_parallel=True", "--parallel_mode=optim", "--optimizer_weight_shard_size=3")
    assert refusal(*words, launched=FOUR) == [("--optimizer_weight_shard_size", "E1017")]
    semi = changed("--parallel_mode=semi", launched=FOUR, beside=("--use_parallel=True",))
    assert semi == MANY["parallel_mode"][2]
    assert any("semi is read as optim" in n for n in notes("--use_parallel=1", "--parallel_mode=semi", launched=FOUR))


def test_counts_of_micro_batches_are_divided_by_the_accumulation_and_rounded_up() -> None:
    beside = ("--gradient_accumulation_steps=4",)
    words = [f"--{flag}=10" for flag in ("max_train_steps", "checkpointing_steps", "log_interval", "lr_warmup_steps")]
    moved = changed(*words, "--lr_decay_steps=9", beside=beside)
    assert moved == {
        "run.steps": 3, "run.whole_epochs": True, "run.epochs": "gone", "run.save.every": "3 steps",
        "run.log_every": 3, "optim.schedule.warmup_steps": 3, "optim.schedule.decay_steps": 6,
    }  # fmt: skip
    assert any("is updated once per step" in note for note in notes(*beside))


def test_pictures_alone_are_trained_with_one_frame() -> None:
    moved = changed("--num_frames=1", "--image_data=pictures.txt")
    assert moved == {
        "data.path": ["pictures.txt"], "data.clips.frames": 1, "data.clips.images": "gone",
        "model.latte.video_length": 1,
    }  # fmt: skip
    assert any("only the list of images" in n for n in notes("--num_frames=1", "--image_data=pictures.txt"))


def test_an_odd_number_that_is_not_4k_plus_1_trains_with_a_note() -> None:
    assert any("the autoencoder returns 17 frames" in note for note in notes("--num_frames=19"))


def test_a_file_of_weights_takes_the_configuration_that_ships() -> None:
    moved = changed("--pretrained=LatteT2V-XL-122-e1.ckpt")
    assert moved == {
        "model.path": "LatteT2V-XL-122-e1.ckpt", "model.config": "latte-17f", "model.weights": "gone",
    }  # fmt: skip
    resumed = changed("--resume_from_checkpoint=output/ckpt/train_resume.ckpt")
    assert (resumed["model.path"], resumed["run.resume"]) == ("output/ckpt/train_resume.ckpt", "auto")
    assert changed("--resume_from_checkpoint=output/checkpoints/step-00000005")["run.resume"].endswith("step-00000005")


def test_notes_tell_what_acts_with_another_flag_alone() -> None:
    for words, said in (
        (["--max_grad_norm=2"], "without --clip_grad"),
        (["--num_no_recompute=2"], "only with --use_recompute"),
        (["--sink_size=5"], "only with --dataset_sink_mode"), (["--scale_window=5"], "has an effect only in fp16"),
        (["--compress_kv_factor=2"], "nothing is compressed"), (["--lr_scheduler=multi_step_decay"], "no milestones"),
        (["--use_parallel=True"], "one process is running"), (["--step_mode=True"], "counted in steps with"),
        (["--image_data=p.txt"], "no images are joined to clips"),
    ):  # fmt: skip
        assert any(said in note for note in notes(*words)), words
