"""The dialect `diffusers-lora`: what is trained, and what the script does by accident."""

from __future__ import annotations

from dialect_cases.diffusers_lora import LINES
from dialect_cases.diffusers_sd import LINES as SD
from foreign_lines import flat

from mezzotint.settings.reading.translation import Launched

TWO = Launched(2, "bf16", "accelerate")


def test_shared_flags_act_as_in_the_full_script() -> None:
    words = [
        "--train_batch_size=2", "--max_train_steps=7", "--gradient_accumulation_steps=3", "--gradient_checkpointing",
        "--learning_rate=1e-5", "--scale_lr", "--lr_scheduler=cosine", "--lr_warmup_steps=2", "--use_8bit_adam",
        "--snr_gamma=5.0", "--noise_offset=0.05", "--seed=5", "--allow_tf32", "--output_dir=x", "--resolution=256",
        "--image_interpolation_mode=bicubic", "--center_crop", "--random_flip", "--prediction_type=v_prediction",
    ]  # fmt: skip
    full, lora = (flat(one.translate(*words, launched=TWO).settings) for one in (SD, LINES))
    assert {path for path in full.keys() & lora.keys() if full[path] != lora[path]} == {"sample.steps"}
    more = {path for path in lora.keys() - full.keys() if not path.startswith("model.adapter.")}
    assert more == {"run.export.adapter"}
    assert {path.rpartition(".")[0] for path in full.keys() - lora.keys()} == {"optim.ema"}


def test_improvements_are_noted_where_they_matter() -> None:
    output = LINES.notes_text("--mixed_precision=bf16", "--resume_from_checkpoint=latest", "--seed=1")
    assert "kept in float32" in output
    assert "makes more steps" in output
    assert "float32" not in LINES.notes_text("--mixed_precision=fp16")
