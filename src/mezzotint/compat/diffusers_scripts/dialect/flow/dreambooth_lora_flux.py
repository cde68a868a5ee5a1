"""The dialect `diffusers-dreambooth-lora-flux`: command lines of diffusers' `train_dreambooth_lora_flux.py`, of the
head of August 2026, into our recipe: a subject from a few pictures, as a LoRA of FLUX.1 dev."""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common as scripts
from mezzotint.compat.diffusers_scripts.dialect import _dreambooth
from mezzotint.compat.diffusers_scripts.dialect._common import with_default
from mezzotint.compat.diffusers_scripts.dialect.flow import _common
from mezzotint.compat.diffusers_scripts.dialect.flow._common import Script
from mezzotint.compat.kit.dialect import Dialect, Draft

_SCRIPT = Script("flux", "dreambooth-flux-dev-lora", ("text_encoder",))
_NAME = "train_dreambooth_lora_flux.py"
_LAYERS = (
    "attn.to_k", "attn.to_q", "attn.to_v", "attn.to_out.0", "attn.add_k_proj", "attn.add_q_proj", "attn.add_v_proj",
    "attn.to_add_out", "ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj", "ff_context.net.2",
)  # fmt: skip
_OUTER = (
    "pos_embed", "time_text_embed", "context_embedder", "x_embedder", "transformer_blocks", "single_transformer_blocks",
    "norm_out",
)  # fmt: skip


def compute(draft: Draft) -> None:
    """What needs more than one flag, or more than copying; and the notes that belong to it."""
    _common.compute(draft, _SCRIPT)
    draft.lay("guidance_scale")
    layers = _common.layers_of(draft, _LAYERS)
    _common.adapter(draft, _SCRIPT, layers, _OUTER)
    if "proj_out" in layers:  # single blocks have one, and so has the model
        draft.settings["model"]["adapter"]["targets"].append("denoiser/proj_out")


DIALECT = Dialect(
    name="diffusers-dreambooth-lora-flux",
    about="diffusers' train_dreambooth_lora_flux.py: a subject as a LoRA of FLUX.1 dev",
    rows=(
        *_common.MODEL,
        *_common.data_rows(*_dreambooth.CLASS),
        _common.CACHED,
        _common.length(512, "model.flux.t5_tokens"),
        *_common.UPDATE,
        *_common.density("none"),
        _common.GUIDANCE,
        *_common.TEXT,
        *_common.ADAPTER,
        _common.UPCAST,
        with_default("output_dir", "flux-dreambooth-lora"),
        *_common.RUN,
        _common.NO_NPU,
        *_common.showing(),
    ),
    compute=compute,
    scripts=(_NAME,),
    other_scripts=scripts.others(_NAME),
)
