"""The dialect `diffusers-dreambooth`: command lines of diffusers' `train_dreambooth.py`, of the head of August 2026,
into our recipe: a subject from a few pictures, by all weights of Stable Diffusion 1.x and 2.x."""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common, _dreambooth
from mezzotint.compat.diffusers_scripts.dialect._common import rows, with_default
from mezzotint.compat.kit.dialect import Dialect, Draft, idle, row

_SOLVERS = {"DPMSolverMultistepScheduler": "dpm++", "DDPMScheduler": "ddpm"}

_OBJECTIVE = (
    row("offset_noise", False, "objective.noise_offset", "a constant a channel", on=0.1, off=0.0),
    *rows("snr_gamma"),
)
_MORE = (
    idle("set_grads_to_none", False, "gradients are always let go"),
    idle("skip_save_text_encoder", False, "the finished folder is whole; what was not trained is copied"),
)
_WHEN = (
    row("validation_steps", 100, "run.preview.every", "steps between previews", above=0),
    row("validation_scheduler", "DPMSolverMultistepScheduler", "sample.solver", "the solver of previews",
        choices=tuple(_SOLVERS), values=_SOLVERS),
)  # fmt: skip


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _dreambooth.stable(draft, "dreambooth")
    draft.set("data.resize", "bilinear", "resolution")
    draft.lay("offset_noise", "validation_scheduler")
    _dreambooth.min_snr(draft)
    steps = draft.whole("validation_steps")
    _dreambooth.previews(draft, f"{steps} steps", "validation_steps")


DIALECT = Dialect(
    name="diffusers-dreambooth",
    about="diffusers' train_dreambooth.py: a subject by all weights of Stable Diffusion 1.x and 2.x",
    rows=(
        *_dreambooth.MODEL,
        *_dreambooth.DATA,
        with_default("num_train_epochs", 1),
        *rows("max_train_steps", "gradient_accumulation_steps", "gradient_checkpointing"),
        with_default("learning_rate", 5e-6),
        *_dreambooth.UPDATE[1:],
        *_OBJECTIVE,
        *_dreambooth.TEXT,
        with_default("output_dir", "dreambooth-model"),
        *_dreambooth.RUN,
        *_MORE,
        *_dreambooth.drawn(*_WHEN),
        *_dreambooth.SHOWING,
    ),
    compute=compute,
    scripts=(_dreambooth.DREAMBOOTH,),
    other_scripts=_common.others(_dreambooth.DREAMBOOTH),
)
