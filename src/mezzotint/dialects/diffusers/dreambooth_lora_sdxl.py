"""The dialect `diffusers-dreambooth-lora-sdxl`: command lines of diffusers' `train_dreambooth_lora_sdxl.py`, of the
head of August 2026, into our recipe: a subject from a few pictures, as a LoRA of SDXL.

Not copied is what the script does by accident: class pictures of a batch of two and more that are trained with the
subject's prompt, a Min-SNR weight that meets the losses of other samples, kohya files that no reader takes, and what
`diffusers-dreambooth-lora` and `diffusers-lora-sdxl` have in common with it.
"""

from __future__ import annotations

from dataclasses import replace

from mezzotint.dialects.base import Dialect, Draft, idle, refused, row
from mezzotint.dialects.diffusers import _common, _dreambooth, _lora
from mezzotint.dialects.diffusers._common import rows, with_default

_TEXTS = ("text_encoder", "text_encoder_2")
_OPTIMIZERS = ("AdamW", "adamw", "Prodigy", "prodigy")
_ALWAYS = "is on there whatever is written, since its parser takes every word for True"

_FOLDER, _PROMPT = _dreambooth.INSTANCE
_DATA = (
    row("dataset_name", str, "data.path data.format", "a folder, or a hub id in the local cache, instead of "
        "instance_data_dir"),
    *rows("dataset_config_name"),
    replace(_FOLDER, required=False),
    *rows("cache_dir", "image_column"),
    row("caption_column", str, "data.columns.caption", "of dataset_name: captions instead of instance_prompt"),
    row("repeats", 1, "data.repeats", "how often an epoch visits each picture of the subject", above=0),
    _PROMPT,
    *_dreambooth.CLASS,
    with_default("resolution", 1024),
    *rows("center_crop", "random_flip"),
    _lora.INTERPOLATION,
    with_default("train_batch_size", 4),
    *rows("dataloader_num_workers"),
)  # fmt: skip
_UPDATE = (
    row("optimizer", "AdamW", "optim.optimizer.kind", "AdamW, or Prodigy, which needs the extra optimizers",
        choices=_OPTIMIZERS),
    row("prodigy_beta3", float, "optim.optimizer.d_beta", "with Prodigy"),
    idle("prodigy_decouple", True, f"decoupled weight decay {_ALWAYS}"),
    idle("prodigy_use_bias_correction", True, f"it {_ALWAYS}"),
    idle("prodigy_safeguard_warmup", True, f"it {_ALWAYS}"),
    row("text_encoder_lr", 5e-6, "optim.part_lr", "of the text encoders' adapters; with Prodigy learning_rate counts",
        least=0),
    row("adam_weight_decay_text_encoder", 1e-3, "optim.part_optimizer", "of the text encoders' adapters", least=0),
)  # fmt: skip
_ADAPTER = (
    _lora.RANK,
    _lora.DROPOUT,
    row("use_dora", False, "model.adapter.kind", "DoRA instead of LoRA", on="dora", off="lora"),
    row("train_text_encoder", False, "model.train", "LoRA of both text encoders' attention, too"),
    row("output_kohya_format", False, "run.export.adapter", "a file for A1111, Forge and ComfyUI besides", on="both",
        off="diffusers"),
)  # fmt: skip
_REFUSED = refused("do_edm_style_training", False,
    "it trains models that think in σ, such as Playground 2.5, on levels of their scheduler; write a recipe with "
    "model.prediction=edm")  # fmt: skip


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _pictures(draft)
    _dreambooth.compute(draft, "dreambooth-lora-sd-xl", "sdxl", _TEXTS)
    draft.lay("random_flip", "pretrained_vae_model_name_or_path")
    draft.set("run.vae_dtype", "fp32", "pretrained_vae_model_name_or_path")
    trained = _TEXTS if draft.values["train_text_encoder"] else ()
    _lora.adapter(draft, ("denoiser", *trained), "train_text_encoder")
    draft.lay("use_dora", "output_kohya_format")
    _optimizer(draft, trained)
    _dreambooth.min_snr(draft)
    epochs = draft.whole("validation_epochs")
    _dreambooth.previews(draft, f"{epochs} epochs", "validation_epochs", guidance=5.0)
    _lora.quirks(draft)
    if draft.values["with_prior_preservation"] and draft.whole("train_batch_size") > 1:
        what = "each picture is trained with its own prompt; there, half of them with the other one"
        draft.note("with_prior_preservation", what)


def _pictures(draft: Draft) -> None:
    name, folder, column = (draft.text(flag) for flag in ("dataset_name", "instance_data_dir", "caption_column"))
    if bool(name) == bool(folder):
        what = "and --dataset_name are both given" if name else "is not given, nor --dataset_name"
        draft.refuse("instance_data_dir", f"{what}; the script takes one of them", code="E1017")
    kind = "metadata" if name else "image-folder"
    draft.put({"data.path": [name or folder], "data.format": kind}, "dataset_name" if name else "instance_data_dir")
    draft.set("data.columns.image", draft.text("image_column") if name else "image", "image_column")
    if name:
        draft.lay("dataset_config_name", "cache_dir")
    for flag in ("dataset_config_name", "cache_dir", "image_column", "caption_column"):
        if flag in draft.named and not name:
            draft.note(flag, "without --dataset_name it has no effect, there as here")
    if name and column:
        draft.set("data.columns.caption", column, "caption_column")
        draft.note("instance_prompt", "--caption_column counts")
    else:
        _dreambooth.one_prompt(draft)
    if draft.fits("repeats"):
        draft.set("data.repeats", [float(draft.whole("repeats"))], "repeats")


def _optimizer(draft: Draft, texts: tuple[str, ...]) -> None:
    """The optimizer; the text encoders' have a rate and a decay of their own."""
    is_prodigy = draft.text("optimizer").lower() == "prodigy"
    if is_prodigy:
        draft.put({"optim.optimizer.kind": "prodigy", "optim.optimizer.d_beta": draft.values["prodigy_beta3"]},
                  "optimizer", "prodigy_beta3")  # fmt: skip
        draft.put({"optim.optimizer.bias_correction": True, "optim.optimizer.safeguard_warmup": True}, "optimizer")
        if draft.values["use_8bit_adam"]:
            draft.note("use_8bit_adam", "without AdamW it has no effect, there as here")
    elif "prodigy_beta3" in draft.named:
        draft.note("prodigy_beta3", "without --optimizer=prodigy it has no effect, there as here")
    if not texts:
        for flag in ("text_encoder_lr", "adam_weight_decay_text_encoder"):
            if flag in draft.named:
                draft.note(flag, "without --train_text_encoder it has no effect, there as here")
        return
    own = dict(draft.settings["optim"]["optimizer"]) | {"weight_decay": draft.number("adam_weight_decay_text_encoder")}
    rate = draft.number("text_encoder_lr") or draft.number("learning_rate")
    for part in texts if draft.fits("adam_weight_decay_text_encoder") else ():
        values = {f"optim.part_optimizer.{part}.{name}": value for name, value in own.items()}
        draft.put(values, "adam_weight_decay_text_encoder")
    for part in texts if draft.fits("text_encoder_lr") and not is_prodigy else ():
        draft.set(f"optim.part_lr.{part}", rate, "text_encoder_lr")


DIALECT = Dialect(
    name="diffusers-dreambooth-lora-sdxl",
    about="diffusers' train_dreambooth_lora_sdxl.py: a subject as a LoRA of SDXL",
    rows=(
        *rows("pretrained_model_name_or_path"),
        row("pretrained_vae_model_name_or_path", str, "model.vae",
            "another autoencoder, such as the one repaired for fp16", optional=True),
        *rows("revision", "variant"),
        *_DATA,
        with_default("num_train_epochs", 1),
        *rows("max_train_steps", "gradient_accumulation_steps", "gradient_checkpointing"),
        *_dreambooth.UPDATE[:6],
        *rows("use_8bit_adam", "adam_beta1", "adam_beta2"),
        replace(*rows("adam_weight_decay"), default=1e-4),
        *rows("adam_epsilon", "max_grad_norm"),
        *_UPDATE,
        *rows("snr_gamma"),
        *_ADAPTER,
        _REFUSED,
        with_default("output_dir", "lora-dreambooth-model"),
        *_dreambooth.PLAIN_RUN,
        *_dreambooth.drawn(with_default("validation_epochs", 50)),
        *_dreambooth.SHOWING,
    ),
    compute=compute,
    scripts=(_dreambooth.DREAMBOOTH_LORA_XL,),
    other_scripts=_common.others(_dreambooth.DREAMBOOTH_LORA_XL),
)  # fmt: skip
