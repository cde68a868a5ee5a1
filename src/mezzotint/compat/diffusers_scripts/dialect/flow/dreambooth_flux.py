"""The dialect `diffusers-dreambooth-flux`: command lines of diffusers' `train_dreambooth_flux.py`, of the head of
August 2026, into our recipe: a subject from a few pictures, by all weights of FLUX.1 dev."""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common as scripts
from mezzotint.compat.diffusers_scripts.dialect import _dreambooth, _lora
from mezzotint.compat.diffusers_scripts.dialect._common import with_default
from mezzotint.compat.diffusers_scripts.dialect.flow import _common
from mezzotint.compat.diffusers_scripts.dialect.flow._common import Script
from mezzotint.compat.kit.dialect import Dialect, Draft

_SCRIPT = Script("flux", "dreambooth-flux-dev-lora", ("text_encoder",))
_NAME = "train_dreambooth_flux.py"


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _common.compute(draft, _SCRIPT)
    draft.lay("guidance_scale", "image_interpolation_mode")


DIALECT = Dialect(
    name="diffusers-dreambooth-flux",
    about="diffusers' train_dreambooth_flux.py: a subject by all weights of FLUX.1 dev",
    rows=(
        *_common.MODEL,
        *_common.data_rows(*_dreambooth.CLASS),
        _lora.INTERPOLATION,
        _common.length(77, "model.flux.t5_tokens"),
        *_common.UPDATE,
        *_common.density("none"),
        _common.GUIDANCE,
        *_common.TEXT,
        with_default("output_dir", "flux-dreambooth"),
        *_common.RUN,
        _common.NO_NPU,
        *_common.showing(),
    ),
    compute=compute,
    scripts=(_NAME,),
    other_scripts=scripts.others(_NAME),
)
