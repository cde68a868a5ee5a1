"""The dialect `diffusers-dreambooth-sd3`: command lines of diffusers' `train_dreambooth_sd3.py`, of the head of August
2026, into our recipe: a subject from a few pictures, by all weights of Stable Diffusion 3 and 3.5."""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common as scripts
from mezzotint.compat.diffusers_scripts.dialect import _dreambooth
from mezzotint.compat.diffusers_scripts.dialect._common import with_default
from mezzotint.compat.diffusers_scripts.dialect.flow import _common
from mezzotint.compat.diffusers_scripts.dialect.flow._common import Script
from mezzotint.compat.kit.dialect import Dialect, Draft

_SCRIPT = Script("sd3", "dreambooth-sd3", ("text_encoder", "text_encoder_2"))
_NAME = "train_dreambooth_sd3.py"


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _common.compute(draft, _SCRIPT)
    _common.stable_three(draft)
    if draft.values["train_text_encoder"]:
        what = "both of CLIP; T5 stays as it is, since dropout inside it has no addresses; there, it is trained, too"
        draft.note("train_text_encoder", what)


DIALECT = Dialect(
    name="diffusers-dreambooth-sd3",
    about="diffusers' train_dreambooth_sd3.py: a subject by all weights of Stable Diffusion 3 and 3.5",
    rows=(
        *_common.MODEL,
        *_common.data_rows(*_dreambooth.CLASS),
        _common.length(77, "model.sd3.t5_tokens"),
        *_common.UPDATE,
        *_common.density("logit_normal"),
        _common.PRECONDITIONED,
        *_common.TEXT,
        with_default("output_dir", "sd3-dreambooth"),
        *_common.RUN,
        *_common.showing(),
    ),
    compute=compute,
    scripts=(_NAME,),
    other_scripts=scripts.others(_NAME),
)
