"""The dialect `diffusers-dreambooth-lora-sd3`: command lines of diffusers' `train_dreambooth_lora_sd3.py`, of the head
of August 2026, into our recipe: a subject from a few pictures, as a LoRA of Stable Diffusion 3 and 3.5."""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common as scripts
from mezzotint.compat.diffusers_scripts.dialect import _dreambooth
from mezzotint.compat.diffusers_scripts.dialect._common import with_default
from mezzotint.compat.diffusers_scripts.dialect.flow import _common
from mezzotint.compat.diffusers_scripts.dialect.flow._common import Script
from mezzotint.compat.kit.dialect import Dialect, Draft, row

_SCRIPT = Script("sd3", "dreambooth-sd3-lora", ("text_encoder", "text_encoder_2"))
_NAME = "train_dreambooth_lora_sd3.py"
_LAYERS = (
    "attn.add_k_proj", "attn.add_q_proj", "attn.add_v_proj", "attn.to_add_out", "attn.to_k", "attn.to_out.0",
    "attn.to_q", "attn.to_v",
)  # fmt: skip
_OUTER = ("pos_embed", "time_text_embed", "context_embedder", "transformer_blocks", "norm_out", "proj_out")


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _common.compute(draft, _SCRIPT)
    _common.stable_three(draft)
    _common.adapter(draft, _SCRIPT, _layers(draft), _OUTER)
    if draft.says("lora_blocks"):
        draft.origin["model.adapter.targets"] = draft.called("lora_blocks")
    if draft.values["cache_latents"]:
        what = "pictures are found with their own captions in any order; there, both by the number of the step"
        draft.note("cache_latents", what)


def _layers(draft: Draft) -> list[str]:
    """Layers of all blocks, or of those that the line names."""
    layers, text = _common.layers_of(draft, _LAYERS), draft.values["lora_blocks"]
    if text is None:
        return layers
    blocks = [block.strip() for block in str(text).split(",")]
    if not all(block.isdigit() for block in blocks):
        draft.refuse("lora_blocks", "takes numbers of blocks", "write them like 12,30", "E1017")
    return [f"transformer_blocks.{block}.{layer}" for block in blocks for layer in layers]


DIALECT = Dialect(
    name="diffusers-dreambooth-lora-sd3",
    about="diffusers' train_dreambooth_lora_sd3.py: a subject as a LoRA of Stable Diffusion 3 and 3.5",
    rows=(
        *_common.MODEL,
        *_common.data_rows(*_dreambooth.CLASS),
        _common.CACHED,
        _common.length(77, "model.sd3.t5_tokens"),
        *_common.UPDATE,
        *_common.density("logit_normal"),
        _common.PRECONDITIONED,
        *_common.TEXT,
        *(one for one in _common.ADAPTER if one.flag != "lora_alpha"),
        row("lora_blocks", str, "model.adapter.targets", "numbers of the blocks whose layers get one, with commas"),
        _common.UPCAST,
        with_default("output_dir", "sd3-dreambooth"),
        *_common.RUN,
        *_common.showing(),
    ),
    compute=compute,
    scripts=(_NAME,),
    other_scripts=scripts.others(_NAME),
)
