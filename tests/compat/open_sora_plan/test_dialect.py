"""The dialect `open-sora-plan`: what several flags decide together."""

from __future__ import annotations

import pytest
from dialect_cases.open_sora_plan import DEFAULTS, LINES, MANY
from foreign_lines import flat

from mezzotint.settings.reading.translation import Launched

FOUR = Launched(processes=4, launcher="torchrun")
translate, changed, notes, refusal = LINES.translate, LINES.changed, LINES.notes, LINES.refusal


def test_all_documented_options_exist() -> None:
    assert len(DEFAULTS) == 73


@pytest.mark.parametrize("flag", MANY)
def test_multi_process_flags_change_only_their_settings(flag: str) -> None:
    beside, words, expected = MANY[flag]
    if flag == "use_parallel":
        assert refusal(launched=FOUR) == [("--use_parallel", "E1018")]
        assert flat(translate("--use_parallel=True", launched=FOUR).settings)["run.runtime"] == "ddp"
    else:
        assert changed(*words, launched=FOUR, beside=beside) == expected


def test_shard_size_must_divide_the_number_of_devices() -> None:
    words = ("--use_parallel=True", "--parallel_mode=optim", "--optimizer_weight_shard_size=3")
    assert refusal(*words, launched=FOUR) == [("--optimizer_weight_shard_size", "E1017")]
    semi = changed("--parallel_mode=semi", launched=FOUR, beside=("--use_parallel=True",))
    assert semi == MANY["parallel_mode"][2]
    assert any("semi is read as optim" in n for n in notes("--use_parallel=1", "--parallel_mode=semi", launched=FOUR))


def test_micro_batch_counts_are_divided_by_accumulation() -> None:
    beside = ("--gradient_accumulation_steps=4",)
    words = [f"--{flag}=10" for flag in ("max_train_steps", "checkpointing_steps", "log_interval", "lr_warmup_steps")]
    moved = changed(*words, "--lr_decay_steps=9", beside=beside)
    assert moved == {
        "run.steps": 3, "run.whole_epochs": True, "run.epochs": "gone", "run.save.every": "3 steps",
        "run.log_every": 3, "optim.schedule.warmup_steps": 3, "optim.schedule.decay_steps": 6,
    }  # fmt: skip
    assert any("is updated once per step" in note for note in notes(*beside))


def test_image_only_data_is_trained_with_one_frame() -> None:
    moved = changed("--num_frames=1", "--image_data=images.txt")
    assert moved == {
        "data.path": "images.txt", "data.clips.frames": 1, "data.clips.images": "gone",
        "model.latte.video_length": 1,
    }  # fmt: skip
    assert any("only the list of images" in n for n in notes("--num_frames=1", "--image_data=images.txt"))


def test_odd_frame_count_other_than_4k_plus_1_is_noted() -> None:
    assert any("the autoencoder returns 17 frames" in note for note in notes("--num_frames=19"))


def test_weights_file_uses_the_shipped_configuration() -> None:
    moved = changed("--pretrained=LatteT2V-XL-122-e1.ckpt")
    assert moved == {
        "model.path": "LatteT2V-XL-122-e1.ckpt", "model.config": "latte-17f", "model.weights": "gone",
    }  # fmt: skip
    resumed = changed("--resume_from_checkpoint=output/ckpt/train_resume.ckpt")
    assert (resumed["model.path"], resumed["run.resume"]) == ("output/ckpt/train_resume.ckpt", "auto")
    assert changed("--resume_from_checkpoint=output/checkpoints/step-00000005")["run.resume"].endswith("step-00000005")


def test_flags_that_need_another_flag_are_noted() -> None:
    for words, output in (
        (["--max_grad_norm=2"], "without --clip_grad"),
        (["--num_no_recompute=2"], "only with --use_recompute"),
        (["--sink_size=5"], "only with --dataset_sink_mode"), (["--scale_window=5"], "has an effect only in fp16"),
        (["--compress_kv_factor=2"], "nothing is compressed"), (["--lr_scheduler=multi_step_decay"], "no milestones"),
        (["--use_parallel=True"], "one process is running"), (["--step_mode=True"], "counted in steps with"),
        (["--image_data=p.txt"], "no images are joined to clips"),
    ):  # fmt: skip
        assert any(output in note for note in notes(*words)), words
