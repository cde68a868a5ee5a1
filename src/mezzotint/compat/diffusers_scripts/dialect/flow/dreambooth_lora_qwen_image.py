"""The dialect `diffusers-dreambooth-lora-qwen-image`: command lines of diffusers'
`train_dreambooth_lora_qwen_image.py`, of the head of August 2026, into our recipe: a subject from a few pictures, as
a LoRA of Qwen-Image."""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common as scripts
from mezzotint.compat.diffusers_scripts.dialect._common import with_default
from mezzotint.compat.diffusers_scripts.dialect.flow import _common
from mezzotint.compat.diffusers_scripts.dialect.flow._common import ATTENTION, Script
from mezzotint.compat.kit.dialect import Dialect, Draft, idle

_SCRIPT = Script("qwen-image", "dreambooth-qwen-image-lora", remainder="drop", parts_weights=True)
_NAME = "train_dreambooth_lora_qwen_image.py"
_OUTER = ("pos_embed", "time_text_embed", "txt_norm", "img_in", "txt_in", "transformer_blocks", "norm_out", "proj_out")
_LLAMA = "meta-llama/Meta-Llama-3.1-8B-Instruct"
_OF_ANOTHER = "it is left over from another model's script, which reads Llama; Qwen-Image has none"


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _common.compute(draft, _SCRIPT)
    _common.buckets(draft)
    _common.caption_dropout(draft)
    _common.adapter(draft, _SCRIPT, _common.layers_of(draft, ATTENTION), _OUTER)
    _common.low_bit(draft)
    draft.set("objective.posterior", "mean" if draft.values["cache_latents"] else "sample", "cache_latents")


DIALECT = Dialect(
    name="diffusers-dreambooth-lora-qwen-image",
    about="diffusers' train_dreambooth_lora_qwen_image.py: a subject as a LoRA of Qwen-Image",
    rows=(
        *_common.MODEL,
        idle("pretrained_tokenizer_4_name_or_path", _LLAMA, _OF_ANOTHER),
        idle("pretrained_text_encoder_4_name_or_path", _LLAMA, _OF_ANOTHER),
        _common.BNB,
        *_common.data_rows(*_common.CLASS_WITHOUT_PRECISION, between=_common.BUCKETS),
        _common.CACHED,
        _common.DROPOUT,
        _common.length(512, "model.qwen_image.text_tokens"),
        *_common.UPDATE,
        *_common.density("none"),
        *_common.ADAPTER,
        _common.UPCAST,
        _common.OFFLOAD,
        with_default("output_dir", "hidream-dreambooth-lora"),
        *_common.RUN,
        *_common.showing(*_common.FINAL),
    ),
    compute=compute,
    tables=(_common.BNB_FILE,),
    scripts=(_NAME,),
    other_scripts=scripts.others(_NAME),
)
