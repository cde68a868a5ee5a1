"""The dialect `diffusers-dreambooth-lora-z-image`: command lines of diffusers' `train_dreambooth_lora_z_image.py`, of
the head of August 2026, into our recipe: a subject from a few pictures, as a LoRA of Z-Image."""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common as scripts
from mezzotint.compat.diffusers_scripts.dialect import _dreambooth
from mezzotint.compat.diffusers_scripts.dialect._common import with_default
from mezzotint.compat.diffusers_scripts.dialect.flow import _common
from mezzotint.compat.diffusers_scripts.dialect.flow._common import ATTENTION, Script
from mezzotint.compat.kit.dialect import Dialect, Draft

_SCRIPT = Script("z-image", "dreambooth-z-image-lora", remainder="drop")
_NAME = "train_dreambooth_lora_z_image.py"
_OUTER = (
    "all_x_embedder", "all_final_layer", "noise_refiner", "context_refiner", "t_embedder", "cap_embedder", "layers",
)  # fmt: skip


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _common.compute(draft, _SCRIPT)
    _common.buckets(draft)
    _common.adapter(draft, _SCRIPT, _common.layers_of(draft, ATTENTION), _OUTER)
    _common.low_bit(draft)
    draft.set("objective.posterior", "mean", "pretrained_model_name_or_path")
    if draft.values["cache_latents"]:
        what = "batches are drawn anew in each epoch; there, they stay as they were encoded"
        draft.note("cache_latents", what)


DIALECT = Dialect(
    name="diffusers-dreambooth-lora-z-image",
    about="diffusers' train_dreambooth_lora_z_image.py: a subject as a LoRA of Z-Image",
    rows=(
        *_common.MODEL,
        _common.BNB,
        _common.NO_FP8,
        *_common.data_rows(*_dreambooth.CLASS, between=_common.BUCKETS),
        _common.CACHED,
        _common.length(512, "model.z_image.text_tokens"),
        *_common.UPDATE,
        *_common.density("none"),
        _common.NO_GUIDANCE,
        *_common.NO_TEXT,
        *_common.ADAPTER,
        _common.UPCAST,
        _common.OFFLOAD,
        _common.FSDP_TEXT,
        with_default("output_dir", "z-image-dreambooth-lora"),
        *_common.RUN,
        _common.NO_NPU,
        *_common.showing(*_common.FINAL),
    ),
    compute=compute,
    tables=(_common.BNB_FILE,),
    scripts=(_NAME,),
    other_scripts=scripts.others(_NAME),
)
