"""The dialect `diffusers-lora-sdxl`: command lines of diffusers' `train_text_to_image_lora_sdxl.py`, of the head of
August 2026, into our recipe: LoRA of the attention of SDXL's UNet and, if asked for, of both text encoders.

Not copied is what the script does by accident: the last layer of the first text encoder, whose adapters get no
gradient there, a warm-up that is multiplied by the accumulation, sizes rounded to bfloat16, and what `diffusers-lora`
and `diffusers-sdxl` have in common with it. Nothing is encoded ahead, as there; `data.cache.latents=true` over the line
does.
"""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common, _lora
from mezzotint.compat.diffusers_scripts.dialect._common import rows
from mezzotint.compat.kit.dialect import Dialect, Draft, idle, row

_MODEL = (
    *rows("pretrained_model_name_or_path"),
    row("pretrained_vae_model_name_or_path", str, "model.vae run.vae_dtype",
        "another autoencoder, such as the one repaired for fp16, in the type of the arithmetic", optional=True),
    *rows("revision", "variant"),
)  # fmt: skip
_TEXT = row("train_text_encoder", False, "model.train", "LoRA of both text encoders' attention, too")
_MORE = (
    idle("enable_npu_flash_attention", False,
        "torch's own attention, which is used, does the same work on every device"),
    idle("debug_loss", False, "it logs the batch's loss under each picture's name; metrics.jsonl has the step's"),
)  # fmt: skip


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _common.model(draft, "sdxl")
    vae = draft.text("pretrained_vae_model_name_or_path")
    if vae:
        draft.set("model.vae", vae, "pretrained_vae_model_name_or_path")
    texts = ("text_encoder", "text_encoder_2") if draft.values["train_text_encoder"] else ()
    _lora.adapter(draft, ("denoiser", *texts), "train_text_encoder")
    _lora.compute(draft, steps=25, guidance=5.0)
    draft.set("run.vae_dtype", "same" if vae else "fp32", "pretrained_vae_model_name_or_path")


DIALECT = Dialect(
    name="diffusers-lora-sdxl",
    about="diffusers' train_text_to_image_lora_sdxl.py: LoRA of SDXL",
    rows=(
        *_MODEL,
        *_lora.data_rows(1024),
        *_common.LENGTH,
        *_lora.UPDATE,
        *_lora.OBJECTIVE,
        _lora.RANK,
        _TEXT,
        *_lora.RUN,
        *_MORE,
        *_lora.SHOWING,
    ),
    compute=compute,
    scripts=(_lora.LORA_XL,),
    other_scripts=_common.others(_lora.LORA_XL),
)
