"""The dialect `diffusers-dreambooth-lora-flux2-klein`: command lines of diffusers'
`train_dreambooth_lora_flux2_klein.py`, of the head of August 2026, into our recipe: a subject from a few pictures,
as a LoRA of FLUX.2 Klein.

Not copied is that the script reads other layers of the text encoder than the pipeline that draws."""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common as scripts
from mezzotint.compat.diffusers_scripts.dialect import _dreambooth
from mezzotint.compat.diffusers_scripts.dialect._common import with_default
from mezzotint.compat.diffusers_scripts.dialect.flow import _common
from mezzotint.compat.diffusers_scripts.dialect.flow._common import ATTENTION, Script
from mezzotint.compat.kit.dialect import Dialect, Draft, row

_SCRIPT = Script("flux2", "dreambooth-flux2-klein-lora", remainder="drop", parts_weights=True)
_NAME = "train_dreambooth_lora_flux2_klein.py"
_LAYERS = (*ATTENTION, "to_qkv_mlp_proj", "single_transformer_blocks.*.attn.to_out")
_OUTER = (
    "pos_embed", "time_guidance_embed", "double_stream_modulation_img", "double_stream_modulation_txt",
    "single_stream_modulation", "x_embedder", "context_embedder", "transformer_blocks", "single_transformer_blocks",
    "norm_out", "proj_out",
)  # fmt: skip


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _common.compute(draft, _SCRIPT)
    _common.buckets(draft)
    _common.caption_dropout(draft)
    _common.adapter(draft, _SCRIPT, _common.layers_of(draft, _LAYERS), _OUTER)
    _common.low_bit(draft)
    draft.set("objective.posterior", "mean", "pretrained_model_name_or_path")
    _text_layers(draft)


def _text_layers(draft: Draft) -> None:
    """Layers that the line names; without, those that the model's own pipeline reads."""
    flag, value = "text_encoder_out_layers", draft.values["text_encoder_out_layers"]
    assert isinstance(value, tuple)
    if not draft.says(flag):
        what = "not given; the text is layers 9, 18 and 27, as the model's pipeline reads it; there, 10, 20 and 30"
        draft.note(flag, what)
        return
    layers = [int(number) for number in value]
    if len(layers) != 3 or layers != list(value) or min(layers) < 0:
        draft.refuse(flag, "takes three numbers of layers, as many as the model was made for", "write 9 18 27", "E1017")
    draft.set("model.flux2.text_layers", layers, flag)


DIALECT = Dialect(
    name="diffusers-dreambooth-lora-flux2-klein",
    about="diffusers' train_dreambooth_lora_flux2_klein.py: a subject as a LoRA of FLUX.2 Klein",
    rows=(
        *_common.MODEL,
        _common.BNB,
        _common.NO_FP8,
        *_common.data_rows(*_dreambooth.CLASS, between=_common.BUCKETS),
        _common.CACHED,
        _common.DROPOUT,
        _common.length(512, "model.flux2.text_tokens"),
        row("text_encoder_out_layers", (10.0, 20.0, 30.0), "model.flux2.text_layers",
            "whose states are the text; without it 9, 18 and 27, which the model's pipeline reads"),
        *_common.UPDATE,
        *_common.density("none"),
        _common.NO_GUIDANCE,
        *_common.NO_TEXT,
        *_common.ADAPTER,
        _common.UPCAST,
        _common.OFFLOAD,
        _common.FSDP_TEXT,
        with_default("output_dir", "flux-dreambooth-lora"),
        *_common.RUN,
        _common.NO_NPU,
        *_common.showing(*_common.FINAL),
    ),
    compute=compute,
    tables=(_common.BNB_FILE,),
    scripts=(_NAME,),
    other_scripts=scripts.others(_NAME),
)  # fmt: skip
