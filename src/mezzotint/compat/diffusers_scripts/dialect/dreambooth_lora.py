"""The dialect `diffusers-dreambooth-lora`: command lines of diffusers' `train_dreambooth_lora.py`, of the head of
August 2026, into our recipe: a subject from a few pictures, as a LoRA, for Stable Diffusion 1.x and 2.x."""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common, _dreambooth, _lora
from mezzotint.compat.diffusers_scripts.dialect._common import rows, with_default
from mezzotint.compat.kit.dialect import Dialect, Draft


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _dreambooth.stable(draft, "dreambooth-lora")
    parts = ("denoiser", "text_encoder") if draft.values["train_text_encoder"] else ("denoiser",)
    _lora.adapter(draft, parts, "train_text_encoder")
    epochs = draft.whole("validation_epochs")
    _dreambooth.previews(draft, f"{epochs} epochs", "validation_epochs")
    _lora.quirks(draft)


DIALECT = Dialect(
    name="diffusers-dreambooth-lora",
    about="diffusers' train_dreambooth_lora.py: a subject as a LoRA of Stable Diffusion 1.x and 2.x",
    rows=(
        *_dreambooth.MODEL,
        *_dreambooth.DATA,
        _lora.INTERPOLATION,
        with_default("num_train_epochs", 1),
        *rows("max_train_steps", "gradient_accumulation_steps", "gradient_checkpointing"),
        with_default("learning_rate", 5e-4),
        *_dreambooth.UPDATE[1:],
        _lora.RANK,
        _lora.DROPOUT,
        *_dreambooth.TEXT,
        with_default("output_dir", "lora-dreambooth-model"),
        *_dreambooth.RUN,
        *_dreambooth.drawn(with_default("validation_epochs", 50)),
        *_dreambooth.SHOWING,
    ),
    compute=compute,
    scripts=(_dreambooth.DREAMBOOTH_LORA,),
    other_scripts=_common.others(_dreambooth.DREAMBOOTH_LORA),
)
