"""The dialect `diffusers-lora`: command lines of diffusers' `train_text_to_image_lora.py`, of the head of August 2026,
into our recipe: LoRA of the UNet's attention, for Stable Diffusion 1.x and 2.x.

Not copied is what the script does by accident: an adapter in bfloat16, a warm-up that is multiplied by the processes,
steps beyond the last after a resume, and what `diffusers-sd` has in common with it. Its file has no alpha and no
settings in its header; ours has both, and reads the same.
"""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common, _lora
from mezzotint.compat.diffusers_scripts.dialect._common import rows
from mezzotint.compat.kit.dialect import Dialect, Draft


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _common.model(draft, "sd")
    _lora.adapter(draft, ("denoiser",))
    _lora.compute(draft, steps=30, guidance=7.5)


DIALECT = Dialect(
    name="diffusers-lora",
    about="diffusers' train_text_to_image_lora.py: LoRA of Stable Diffusion 1.x and 2.x",
    rows=(
        *rows("pretrained_model_name_or_path", "revision", "variant"),
        *_lora.data_rows(512),
        *_common.LENGTH,
        *_lora.UPDATE,
        *_lora.OBJECTIVE,
        _lora.RANK,
        *_lora.RUN,
        *_lora.SHOWING,
    ),
    compute=compute,
    scripts=(_lora.LORA,),
    other_scripts=_common.others(_lora.LORA),
)
