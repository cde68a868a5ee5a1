"""What the two LoRA scripts of diffusers have in common: `train_text_to_image_lora.py` and
`train_text_to_image_lora_sdxl.py`, of the head of August 2026."""

from __future__ import annotations

from dataclasses import replace

from mezzotint.compat.diffusers_scripts.dialect import _common
from mezzotint.compat.diffusers_scripts.dialect._common import rows, with_default
from mezzotint.compat.kit.dialect import Draft, Row, mapped, row

LORA, LORA_XL = "train_text_to_image_lora.py", "train_text_to_image_lora_sdxl.py"
PROJECT = "text2image-fine-tune"

INTERPOLATION = replace(
    *rows("image_interpolation_mode"), since="", default="lanczos", about="the filter, of torchvision's names"
)
RANK = row("rank", 4, "model.adapter.rank model.adapter.kind model.adapter.targets model.adapter.init",
    "LoRA of the attention's projections; alpha is the rank, so that the change is not scaled", above=0)  # fmt: skip
DROPOUT = mapped("lora_dropout", 0.0, "model.adapter.dropout", "of the adapter's input, at addresses of its own")
UPDATE = rows(
    "learning_rate", "scale_lr", "lr_scheduler", "lr_warmup_steps", "use_8bit_adam", "adam_beta1", "adam_beta2",
    "adam_weight_decay", "adam_epsilon", "max_grad_norm",
)  # fmt: skip
OBJECTIVE = (
    *rows("snr_gamma", "noise_offset"),
    mapped("prediction_type", str, "model.prediction", "none takes the scheduler file's",
        choices=("epsilon", "v_prediction"), values={"v_prediction": "v"}),
)  # fmt: skip
RUN = (
    with_default("output_dir", "sd-model-finetuned-lora"),
    *rows("seed", "mixed_precision", "allow_tf32", "enable_xformers_memory_efficient_attention", "checkpointing_steps",
          "checkpoints_total_limit", "resume_from_checkpoint", "local_rank"),
)  # fmt: skip
SHOWING = (
    row("validation_prompt", str, "sample.prompts run.preview.every run.preview.weights", "drawn during the run"),
    row("num_validation_images", 4, "sample.prompts", "so many pictures of it", above=0),
    with_default("validation_epochs", 1),
    *rows("report_to", "logging_dir", "push_to_hub", "hub_token", "hub_model_id"),
)  # fmt: skip


def data_rows(side: int) -> tuple[Row, ...]:
    """side: the default of `resolution`."""
    return (
        *rows("dataset_name", "dataset_config_name", "train_data_dir", "image_column", "caption_column",
              "max_train_samples", "cache_dir"),
        with_default("resolution", side),
        *rows("center_crop", "random_flip"),
        INTERPOLATION,
        *rows("train_batch_size", "dataloader_num_workers"),
    )  # fmt: skip


def adapter(draft: Draft, parts: tuple[str, ...], *flags: str) -> None:
    """What is trained: the attention of these parts. flags: that decide which."""
    draft.set("model.train", list(parts), *flags, "pretrained_model_name_or_path")
    if draft.fits("rank"):
        draft.put({"model.adapter.kind": "lora", "model.adapter.rank": draft.whole("rank")}, "rank")
        draft.put({"model.adapter.targets": ["attention"], "model.adapter.init": "gaussian"}, "rank")
    draft.set("run.export.adapter", "diffusers", "output_dir")


def compute(draft: Draft, *, steps: int, guidance: float) -> None:
    """What both scripts decide by more than one flag. steps, guidance: of validation."""
    _common.data(draft)
    _common.batches(draft)
    _common.rate(draft)
    _common.update(draft)
    draft.set("optim.ema.rule", "none", "output_dir")
    draft.lay("snr_gamma")
    _common.precision(draft)
    _common.saving(draft)
    prompt, count = draft.text("validation_prompt"), draft.whole("num_validation_images")
    if prompt:
        draft.fits("num_validation_images")
    elif "num_validation_images" in draft.named:
        draft.note("num_validation_images", "without --validation_prompt nothing is drawn")
    prompts = [prompt] * max(1, count) if prompt else []
    _common.previews(draft, prompts, "validation_prompt", steps=steps, guidance=guidance)
    _common.tracking(draft, PROJECT)
    _common.quirks(draft)
    quirks(draft)


def quirks(draft: Draft) -> None:
    """What scripts of LoRA do by accident and this run does not."""
    if draft.settings.get("run", {}).get("precision") == "bf16":
        what = "the adapter is kept in float32; there, in bfloat16, which rounds most small updates away"
        draft.note("mixed_precision", what)
    if draft.values["resume_from_checkpoint"] is not None:
        draft.note("resume_from_checkpoint", "ends at --max_train_steps; there, a run that went on makes more steps")
