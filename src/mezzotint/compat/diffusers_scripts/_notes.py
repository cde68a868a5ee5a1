"""Notes about differences between a script and Mezzotint, for the commands that they affect."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mezzotint.compat.diffusers_scripts._scripts import ExampleScript
from mezzotint.compat.kit.dialect import Draft


class Remark(NamedTuple):
    """A note about a flag. scripts: a selector, see `ExampleScript.is_one_of`. text: with names of flags in braces.
    when: the condition; by default, the flag is given or on."""

    scripts: str
    flag: str
    text: str
    when: Callable[[Draft], bool] | None = None


def _processes(draft: Draft) -> int:
    return draft.launched.processes


def _accumulation(draft: Draft) -> int:
    return draft.integer("gradient_accumulation_steps")


def _warmup(draft: Draft) -> int:
    return int(draft.settings["optim"]["schedule"]["warmup_steps"])


def _precision(draft: Draft) -> str:
    return str(draft.settings.get("run", {}).get("precision", "fp32"))


def _has_prior(draft: Draft) -> bool:
    return bool(draft.values["with_prior_preservation"])


REMARKS = (
    Remark("all", "", "the logged loss is that of the whole step, not of one process's last micro-batch",
        lambda draft: _processes(draft) > 1 or _accumulation(draft) > 1),
    Remark("all", "gradient_accumulation_steps",
        "a shorter step at the end of an epoch has full weight; in the script, less",
        lambda draft: _accumulation(draft) > 1),
    Remark("all", "seed", "each sample has its own noise; in the script, all processes draw the same",
        lambda draft: _processes(draft) > 1 and draft.values["seed"] is not None),
    Remark("all", "resume_from_checkpoint", "resumes exactly where it stopped; in the script, the epoch starts again"),
    Remark("unet+adapter", "resume_from_checkpoint",
        "ends at --max_train_steps; in the script, a resumed run makes more steps"),
    Remark("adapter", "mixed_precision",
        "the adapter is kept in float32; in the script, in bfloat16, which rounds most small updates away",
        lambda draft: _precision(draft) == "bf16"),
    Remark("sd edits", "mixed_precision",
        "noise is added in float32; in the script, its coefficients are rounded to half precision",
        lambda draft: _precision(draft) != "fp32"),
    Remark("sd", "prediction_type", "is written to the exported scheduler; in the script, it is not"),
    Remark("sd", "offload_ema", "without --use_ema there is no average",
        lambda draft: bool(draft.values["offload_ema"] and not draft.values["use_ema"])),
    Remark("sdxl", "use_ema", "the average is updated at every step; in 0.26.3 it never is"),
    Remark("sdxl", "proportion_empty_prompts", "decided at each visit; in the script, once for the whole run"),
    Remark("sdxl instruct-pix2pix-sdxl", "lr_warmup_steps",
        "{lr_warmup_steps} optimizer steps, as given; in the script, times the accumulation, divided by the processes",
        lambda draft: bool(_warmup(draft)) and _accumulation(draft) != _processes(draft)),
    Remark("edits", "pretrained_model_name_or_path",
        "the UNet's first layer keeps its bias, and its new channels start as zeros; in the script, the bias starts at "
        "random"),
    Remark("edits", "validation_prompt", "previews have the size --resolution; in the script, that of the image",
        lambda draft: draft.settings["run"]["preview"]["every"] is not None),
    Remark("instruct-pix2pix-sdxl", "vae_precision",
        "with --pretrained_vae_model_name_or_path it has no effect, as in the script",
        lambda draft: draft.is_given("vae_precision") and bool(draft.text("pretrained_vae_model_name_or_path"))),
    Remark("instruct-pix2pix-sdxl", "original_image_column",
        "the model gets the mean of the image's latent distribution, as in the pipeline; in the script, a draw from it",
        lambda draft: True),
    Remark("instruct-pix2pix-sdxl", "resolution",
        "the model is given each image's own size; in the script, the size --resolution", lambda draft: True),
    Remark("instruct-pix2pix-sdxl", "conditioning_dropout_prob",
        "a dropped instruction is dropped from the pooled embedding, too; in the script, it stays there"),
    Remark("token", "adam_weight_decay",
        "applies only to the learned tokens; in the script, to the whole table, whose other rows are restored "
        "afterwards"),
    Remark("dreambooth dreambooth-lora-sdxl", "snr_gamma",
        "of a v-prediction model min(γ, snr) / (snr + 1), as the paper has it; in the script, min(γ, snr) / snr + 1",
        lambda draft: draft.values["snr_gamma"] is not None),
    Remark("dreambooth-lora-sdxl", "with_prior_preservation",
        "each image is trained with its own prompt; in the script, half of them with the other one",
        lambda draft: _has_prior(draft) and draft.integer("train_batch_size") > 1),
    Remark("flux2 qwen-image z-image", "with_prior_preservation",
        "all class images are trained, and an epoch has as many pairs as the larger folder has images; in the script, "
        "as many as the subject has, and no more of the class"),
    Remark("sd3 flux z-image", "weighting_scheme",
        "each image has the weight of its own noise level; in the script, class images have that of the subject's",
        lambda draft: _has_prior(draft) and draft.text("weighting_scheme") in ("sigma_sqrt", "cosmap")),
    Remark("flow", "caption_column",
        "an empty caption stays empty; in the script, it becomes --instance_prompt",
        lambda draft: bool(draft.text("dataset_name") and draft.text("caption_column"))),
    Remark("dreambooth-sd3", "train_text_encoder",
        "trains both CLIP text encoders; T5 is not trained, since its dropout cannot be reproduced; in the script, "
        "it is"),
    Remark("dreambooth-lora-sd3", "cache_latents",
        "images keep their own captions in any order; in the script, both are found by the number of the step"),
    Remark("z-image", "cache_latents",
        "batches are shuffled in each epoch; in the script, they stay as they were encoded"),
)  # fmt: skip


def note_differences(draft: Draft, script: ExampleScript) -> None:
    """Adds the notes whose conditions a command meets."""
    for one in REMARKS:
        if script.is_one_of(one.scripts) and (one.when(draft) if one.when else draft.values[one.flag]):
            draft.note(one.flag, one.text.format(**draft.values))
