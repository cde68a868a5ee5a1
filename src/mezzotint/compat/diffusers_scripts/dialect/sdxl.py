"""The dialect `diffusers-sdxl`: command lines of diffusers' `train_text_to_image_sdxl.py`, of release 0.26.3 and of the
head of August 2026, into our recipe. Where a default differs between the two, 0.26.3 counts.

As there, pictures and captions are encoded once, before the training, which then holds the UNet alone. Not copied is
what the script does by accident: an average that never moves, a warm-up that is multiplied by the accumulation, crops
that are not those that the model is told, an encoded data set that outlives another autoencoder or size, and what
`diffusers-sd` has in common with it.
"""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common
from mezzotint.compat.diffusers_scripts.dialect._common import XL, rows, with_default
from mezzotint.compat.kit import timestep_bias
from mezzotint.compat.kit.dialect import Dialect, Draft, idle, row

PROJECT = "text2image-fine-tune-sdxl"
"""What the script calls itself at its trackers."""

_MODEL = (
    *rows("pretrained_model_name_or_path"),
    row("pretrained_vae_model_name_or_path", str, "model.vae",
        "another autoencoder, such as the one repaired for fp16: a folder, or a hub id in the local cache",
        optional=True),
    *rows("revision", "variant"),
)  # fmt: skip

_DATA = (
    *rows("dataset_name", "dataset_config_name", "train_data_dir", "image_column", "caption_column",
          "max_train_samples", "cache_dir"),
    with_default("resolution", 1024),
    *rows("center_crop", "random_flip", "image_interpolation_mode"),
    row("proportion_empty_prompts", 0.0, "data.captions.dropout",
        "the chance that a caption is replaced by the empty one"),
    *rows("train_batch_size", "dataloader_num_workers"),
)  # fmt: skip

_OBJECTIVE = (
    *rows("snr_gamma", "noise_offset"),
    *timestep_bias.ROWS,
    row("prediction_type", str, "model.prediction", "none takes the scheduler file's",
        choices=("epsilon", "v_prediction", "sample")),
)  # fmt: skip

_RUN = (
    with_default("output_dir", "sdxl-model-finetuned"),
    *rows("seed", "mixed_precision", "allow_tf32", "enable_xformers_memory_efficient_attention"),
    idle("enable_npu_flash_attention", False,
        "torch's own attention, which is used, does the same work on every device", since="head"),
    *rows("checkpointing_steps", "checkpoints_total_limit", "resume_from_checkpoint", "local_rank"),
)  # fmt: skip

_SHOWING = (
    row("validation_prompt", str, "sample.prompts run.preview.every run.preview.weights",
        "drawn during the run, from the average when there is one"),
    row("num_validation_images", 4, "sample.prompts", "so many pictures of it", above=0),
    with_default("validation_epochs", 1),
    *rows("report_to", "logging_dir", "push_to_hub", "hub_token", "hub_model_id"),
)  # fmt: skip


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _common.model(draft, "sdxl")
    draft.lay("pretrained_vae_model_name_or_path")
    _common.data(draft)
    _captions(draft)
    _encoded_once(draft)
    _common.batches(draft)
    _common.rate(draft)
    _common.update(draft)
    draft.lay("snr_gamma")
    timestep_bias.notes(draft)
    _prediction(draft)
    _common.precision(draft)
    draft.set("run.vae_dtype", "fp32", "mixed_precision")
    _common.saving(draft)
    _showing(draft)
    _quirks(draft)


def _captions(draft: Draft) -> None:
    share = draft.number("proportion_empty_prompts")
    if not 0.0 <= share <= 1.0:
        draft.refuse("proportion_empty_prompts", f"must be between 0 and 1, got {share:g}", code="E1017")
        return
    draft.set("data.captions.dropout", share, "proportion_empty_prompts")
    if share:
        draft.note("proportion_empty_prompts", "drawn anew at each visit; there, once for the whole run")


def _encoded_once(draft: Draft) -> None:
    """Latents and text embeddings are made ahead of the training, as there."""
    draft.put({"data.cache.latents": True, "data.cache.text": True})
    draft.set("data.cache.crops", 1, "center_crop", "random_flip")
    drawn = {"crop": not draft.values["center_crop"], "mirror": draft.values["random_flip"]}
    changes = [word for word, is_drawn in drawn.items() if is_drawn]
    if changes:
        draft.note(
            "random_flip" if changes == ["mirror"] else "center_crop",
            f"pictures are encoded once, each with one {' and '.join(changes)}, as there; the model is given the crop "
            "that was encoded (there, another one). data.cache.crops=4 keeps four of each picture",
        )


def _prediction(draft: Draft) -> None:
    kind = draft.text("prediction_type")
    if kind == "sample":
        what = "sample is trained there on the prediction less the noise, which no sampler can draw with"
        draft.refuse("prediction_type", what, "take epsilon or v_prediction")
    else:
        draft.set("model.prediction", {"": None, "v_prediction": "v"}.get(kind, kind), "prediction_type")


def _showing(draft: Draft) -> None:
    prompt, count = draft.text("validation_prompt"), draft.whole("num_validation_images")
    if prompt:
        draft.fits("num_validation_images")
    if not prompt and "num_validation_images" in draft.named:
        draft.note("num_validation_images", "without --validation_prompt nothing is drawn")
    prompts = [prompt] * max(1, count) if prompt else []
    _common.previews(draft, prompts, "validation_prompt", steps=25, guidance=5.0)
    _common.tracking(draft, PROJECT)


def _quirks(draft: Draft) -> None:
    """What this script alone does by accident and this run does not."""
    _common.quirks(draft)
    if draft.values["use_ema"]:
        draft.note("use_ema", "the average moves at every step; in 0.26.3 it never does")
    warmup = draft.settings.get("optim", {}).get("schedule", {}).get("warmup_steps", 0)
    if warmup and draft.whole("gradient_accumulation_steps") != draft.launched.processes:
        what = f"{warmup} optimizer steps, as it is written; there, times the accumulation, over the processes"
        draft.note("lr_warmup_steps", what)


DIALECT = Dialect(
    name="diffusers-sdxl",
    about="diffusers' train_text_to_image_sdxl.py: SDXL",
    rows=(*_MODEL, *_DATA, *_common.LENGTH, *_common.UPDATE, *_OBJECTIVE, *_RUN, *_SHOWING),
    compute=compute,
    scripts=(XL,),
    other_scripts=_common.others(XL),
)
