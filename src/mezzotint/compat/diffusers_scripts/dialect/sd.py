"""The dialect `diffusers-sd`: command lines of diffusers' `train_text_to_image.py`, of release 0.26.3 and of the head
of August 2026, into our recipe. Where a default differs between the two, 0.26.3 counts.

What the script does by accident is not copied, and a note says so: the loss of one micro-batch on one process as the
step's, the short update at an epoch's end that counts less than it should, noise coefficients rounded to half
precision, the same noise on all processes, and a resume that repeats an epoch.
"""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common
from mezzotint.compat.diffusers_scripts.dialect._common import SD, rows, with_default
from mezzotint.compat.kit.dialect import Dialect, Draft, idle, mapped, refused, row

_MODEL = (
    *rows("pretrained_model_name_or_path", "revision"),
    refused("non_ema_revision", str, "trains another revision of the UNet than the rest comes from (deprecated in "
        "diffusers, too); put that UNet into the model's folder, and name the folder"),
    *rows("variant"),
)  # fmt: skip

_DATA = rows(
    "dataset_name", "dataset_config_name", "train_data_dir", "image_column", "caption_column", "max_train_samples",
    "cache_dir", "resolution", "center_crop", "random_flip", "image_interpolation_mode", "train_batch_size",
    "dataloader_num_workers",
)  # fmt: skip

_UPDATE = (
    *_common.UPDATE,
    row("offload_ema", False, "optim.ema.device", "the average in main memory", on="cpu", off="same", since="head"),
    idle("foreach_ema", False, "the average rounds as without it", since="head"),
)  # fmt: skip

_OBJECTIVE = (
    *rows("snr_gamma", "noise_offset"),
    row("input_perturbation", 0.0, "objective.input_perturbation",
        "more noise in what the model sees, not in its target", optional=True),
    mapped("prediction_type", str, "model.prediction", "none takes the scheduler file's",
        choices=("epsilon", "v_prediction"), values={"v_prediction": "v"}),
    refused("dream_training", False, "DREAM (a second prediction in every step) is not supported; leave it out",
        since="head"),
    idle("dream_detail_preservation", 1.0, "only DREAM reads it, which is not switched on", since="head"),
)  # fmt: skip

_RUN = (
    with_default("output_dir", "sd-model-finetuned"),
    *rows("seed", "mixed_precision", "allow_tf32", "enable_xformers_memory_efficient_attention", "checkpointing_steps",
          "checkpoints_total_limit", "resume_from_checkpoint", "local_rank"),
)  # fmt: skip

_SHOWING = (
    row("validation_prompts", list, "sample.prompts run.preview.every run.preview.weights",
        "one picture each, from the average when there is one"),
    *rows("validation_epochs", "report_to", "logging_dir"),
    row("tracker_project_name", "text2image-fine-tune", "run.wandb.project",
        "with wandb; the run's name in TensorBoard is its folder's"),
    *rows("push_to_hub", "hub_token", "hub_model_id"),
)  # fmt: skip


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _common.model(draft, "sd")
    _common.data(draft)
    _common.batches(draft)
    _common.rate(draft)
    _common.update(draft)
    draft.lay("offload_ema")
    if draft.values["offload_ema"] and not draft.values["use_ema"]:
        draft.note("offload_ema", "without --use_ema there is no average")
    draft.lay("snr_gamma", "input_perturbation")
    _common.precision(draft)
    _common.saving(draft)
    _showing(draft)
    _quirks(draft)


def _showing(draft: Draft) -> None:
    written = draft.values["validation_prompts"]
    prompts = list(map(str, written)) if isinstance(written, tuple) else []
    _common.previews(draft, prompts, "validation_prompts", steps=20, guidance=7.5)
    _common.tracking(draft, draft.text("tracker_project_name"), "tracker_project_name")
    if draft.text("report_to") != "wandb" and "tracker_project_name" in draft.named:
        draft.note("tracker_project_name", "the run's name in TensorBoard is its folder's")


def _quirks(draft: Draft) -> None:
    """What the script does by accident and this run does not."""
    _common.quirks(draft)
    if draft.settings.get("run", {}).get("precision", "fp32") != "fp32":
        what = "noise is added in float32; there, its coefficients are rounded to half precision"
        draft.note("mixed_precision", what)
    if draft.values["prediction_type"] is not None:
        draft.note("prediction_type", "the exported scheduler says so; there, it does not")


DIALECT = Dialect(
    name="diffusers-sd",
    about="diffusers' train_text_to_image.py: Stable Diffusion 1.x and 2.x",
    rows=(*_MODEL, *_DATA, *_common.LENGTH, *_UPDATE, *_OBJECTIVE, *_RUN, *_SHOWING),
    compute=compute,
    scripts=(SD,),
    other_scripts=_common.others(SD),
    published_loss=0.0456,
)
