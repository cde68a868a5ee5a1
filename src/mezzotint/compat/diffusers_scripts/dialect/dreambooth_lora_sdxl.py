"""The dialect `diffusers-dreambooth-lora-sdxl`: command lines of diffusers' `train_dreambooth_lora_sdxl.py`, of the
head of August 2026, into our recipe: a subject from a few pictures, as a LoRA of SDXL.

Not copied is what the script does by accident: class pictures of a batch of two and more that are trained with the
subject's prompt, a Min-SNR weight that meets the losses of other samples, kohya files that no reader takes, and what
`diffusers-dreambooth-lora` and `diffusers-lora-sdxl` have in common with it.
"""

from __future__ import annotations

from dataclasses import replace

from mezzotint.compat.diffusers_scripts.dialect import _common, _dreambooth, _lora
from mezzotint.compat.diffusers_scripts.dialect._common import rows, with_default
from mezzotint.compat.kit.dialect import Dialect, Draft, refused, row

_TEXTS = ("text_encoder", "text_encoder_2")

_DATA = (
    *_dreambooth.TABLE,
    *_dreambooth.CLASS,
    with_default("resolution", 1024),
    *rows("center_crop", "random_flip"),
    _lora.INTERPOLATION,
    with_default("train_batch_size", 4),
    *rows("dataloader_num_workers"),
)
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
    _dreambooth.pictures(draft)
    _dreambooth.compute(draft, "dreambooth-lora-sd-xl", "sdxl", _TEXTS)
    draft.lay("random_flip", "pretrained_vae_model_name_or_path")
    draft.set("run.vae_dtype", "fp32", "pretrained_vae_model_name_or_path")
    trained = _TEXTS if draft.values["train_text_encoder"] else ()
    _lora.adapter(draft, ("denoiser", *trained), "train_text_encoder")
    draft.lay("use_dora", "output_kohya_format")
    _dreambooth.optimizer(draft, trained)
    _dreambooth.min_snr(draft)
    epochs = draft.whole("validation_epochs")
    _dreambooth.previews(draft, f"{epochs} epochs", "validation_epochs", guidance=5.0)
    _lora.quirks(draft)
    if draft.values["with_prior_preservation"] and draft.whole("train_batch_size") > 1:
        what = "each picture is trained with its own prompt; there, half of them with the other one"
        draft.note("with_prior_preservation", what)


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
        *_dreambooth.PRODIGY,
        *_dreambooth.OF_TEXT,
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
