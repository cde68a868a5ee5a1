"""The dialect `diffusers-sdxl`: what it does otherwise than `diffusers-sd`, and what several flags decide together."""

from __future__ import annotations

import pytest
from dialect_cases.diffusers_sd import LINES as SD
from dialect_cases.diffusers_sdxl import BAREST, LINES
from foreign_lines import ALONE, flat

from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Launched

EIGHT = Launched(8, "fp16", "accelerate")
translate, changed, notes, refusal = LINES.translate, LINES.changed, LINES.notes_text, LINES.refusal


def test_shared_flags_act_as_in_the_other_script() -> None:
    words = [
        "--revision=main", "--dataset_config_name=a", "--image_column=b", "--caption_column=c", "--max_train_samples=9",
        "--cache_dir=d", "--train_batch_size=2", "--dataloader_num_workers=3", "--max_train_steps=7",
        "--gradient_accumulation_steps=3", "--gradient_checkpointing", "--learning_rate=1e-5", "--scale_lr",
        "--lr_scheduler=cosine", "--lr_warmup_steps=2", "--use_8bit_adam", "--adam_beta1=0.8", "--adam_beta2=0.98",
        "--adam_weight_decay=0.1", "--adam_epsilon=1e-6", "--max_grad_norm=2", "--use_ema", "--snr_gamma=5.0",
        "--noise_offset=0.05", "--seed=5", "--mixed_precision=no", "--allow_tf32", "--checkpointing_steps=50",
        "--checkpoints_total_limit=2", "--resume_from_checkpoint=latest", "--output_dir=x", "--resolution=512",
        "--image_interpolation_mode=lanczos", "--center_crop", "--random_flip",
    ]  # fmt: skip
    xl = flat(translate(*words, launched=EIGHT).settings)
    sd = flat(SD.dialect.translate([*BAREST, *words], EIGHT).settings)
    differ = {path for path in sd.keys() & xl.keys() if sd[path] != xl[path]}
    assert differ == {"model.family", "sample.steps", "sample.guidance"}
    assert sd.keys() - xl.keys() == {"optim.ema.device"}
    assert xl["run.vae_dtype"] == "fp32", "whatever the precision, as in the script"
    assert xl["optim.lr"] == pytest.approx(1e-5 * 3 * 2 * 8)


def test_images_are_encoded_once_with_a_fixed_crop_and_flip() -> None:
    assert "each with one crop, as in the script" in notes()
    assert "each with one crop and mirror, as in the script" in notes("--random_flip")
    assert "each with one mirror, as in the script" in notes("--center_crop", "--random_flip")
    assert "encoded once" not in notes("--center_crop")


def test_quirks_not_copied_are_noted_where_they_matter() -> None:
    output = notes(
        "--use_ema", "--gradient_accumulation_steps=2", "--lr_scheduler=linear", "--proportion_empty_prompts=0.1",
        "--resume_from_checkpoint=latest",
    )  # fmt: skip
    for words in ("in 0.26.3 it never is", "500 optimizer steps, as given", "decided at each visit",
                  "has full weight", "resumes exactly"):  # fmt: skip
        assert words in output
    bare = notes("--center_crop")
    assert bare == "--seed: not given; 0 is used, so that the run can be repeated. Other seeds give other results"


def test_other_script_is_refused_with_the_name_of_its_dialect() -> None:
    with pytest.raises(RecipeError, match=r"write --as diffusers-sd$"):
        LINES.dialect.translate(["python", "train_text_to_image.py", *BAREST], ALONE)
    with pytest.raises(RecipeError, match=r"write --as diffusers-sdxl$"):
        SD.dialect.translate(["python", "train_text_to_image_sdxl.py", *BAREST], ALONE)
    with pytest.raises(RecipeError, match="torchrun --nproc-per-node 4 -m mezzotint train --as diffusers-sdxl -- "):
        LINES.dialect.translate(
            ["accelerate", "launch", "--multi_gpu", "--num_processes=4", "train_text_to_image_sdxl.py", *BAREST], ALONE
        )
