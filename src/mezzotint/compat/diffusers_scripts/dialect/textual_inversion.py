"""The dialect `diffusers-textual-inversion`: command lines of diffusers' `textual_inversion.py`, of the head of August
2026, into our recipe: a new word for what a few pictures show, for Stable Diffusion 1.x and 2.x."""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common, _dreambooth, _inversion
from mezzotint.compat.diffusers_scripts.dialect._common import rows
from mezzotint.compat.kit.dialect import Dialect, Draft, idle, refused, row

_MORE = (
    row("validation_epochs", int, "run.preview.every", "an old name: epochs between previews", above=0),
    idle("no_safe_serialization", False, "files are safetensors, which every reader of .bin files takes"),
)


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _inversion.compute(draft, "sd", "textual_inversion")
    is_old = draft.values["validation_epochs"] is not None
    flag, unit = ("validation_epochs", "epochs") if is_old else ("validation_steps", "steps")
    _dreambooth.previews(draft, f"{draft.whole(flag)} {unit}", flag)


DIALECT = Dialect(
    name="diffusers-textual-inversion",
    about="diffusers' textual_inversion.py: a new word for Stable Diffusion 1.x and 2.x",
    rows=(
        *rows("pretrained_model_name_or_path", "revision", "variant"),
        refused("tokenizer_name", str, "another tokenizer than the model's; put it into the model's folder"),
        *_inversion.WORD,
        *_inversion.DATA,
        *_inversion.UPDATE,
        *_inversion.RUN,
        *_MORE,
    ),
    compute=compute,
    scripts=(_inversion.INVERSION,),
    other_scripts=_common.others(_inversion.INVERSION),
)
