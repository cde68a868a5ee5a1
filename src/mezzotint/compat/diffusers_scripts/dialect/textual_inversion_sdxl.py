"""The dialect `diffusers-textual-inversion-sdxl`: command lines of diffusers' `textual_inversion_sdxl.py`, of the
head of August 2026, into our recipe: a new word of both text encoders of SDXL for what a few pictures show."""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common, _dreambooth, _inversion
from mezzotint.compat.diffusers_scripts.dialect._common import rows
from mezzotint.compat.kit.dialect import Dialect, Draft


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _inversion.compute(draft, "sdxl", "textual_inversion")
    draft.set("run.vae_dtype", "fp32", "mixed_precision")
    _dreambooth.previews(draft, f"{draft.whole('validation_steps')} steps", "validation_steps", guidance=5.0)


DIALECT = Dialect(
    name="diffusers-textual-inversion-sdxl",
    about="diffusers' textual_inversion_sdxl.py: a new word for SDXL",
    rows=(
        *rows("pretrained_model_name_or_path", "revision", "variant"),
        *_inversion.WORD,
        *_inversion.DATA,
        *_inversion.UPDATE,
        *rows("use_8bit_adam"),
        *_inversion.RUN,
    ),
    compute=compute,
    scripts=(_inversion.INVERSION_XL,),
    other_scripts=_common.others(_inversion.INVERSION_XL),
)
