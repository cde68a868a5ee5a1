"""Expectations of the flags of `diffusers-dreambooth-lora-sd3`."""

from __future__ import annotations

from dialect_cases import diffusers_dreambooth_sd3, flow_lines
from dialect_cases.flow_lines import lines, of_encoders, report_to, with_targets
from foreign_lines import without

DOCUMENTED = diffusers_dreambooth_sd3.DOCUMENTED | flow_lines.OF_ADAPTERS | {"lora_blocks": None}
_LAYERS = (
    "attn.add_k_proj", "attn.add_q_proj", "attn.add_v_proj", "attn.to_add_out", "attn.to_k", "attn.to_out.0",
    "attn.to_q", "attn.to_v",
)  # fmt: skip
TARGETS = [f"denoiser/*.{layer}" for layer in _LAYERS]
EXPECTED = diffusers_dreambooth_sd3.EXPECTED | flow_lines.ADAPTED | {"model.adapter.targets": TARGETS}
_BLOCKS = [f"denoiser/transformer_blocks.{block}.{layer}" for block in (0, 2) for layer in _LAYERS]
ACTS = {
    **diffusers_dreambooth_sd3.ACTS,
    **without(flow_lines.OF_ADAPTERS_ACTS, "lora_alpha"),
    **with_targets(of_encoders(*diffusers_dreambooth_sd3.TEXTS), TARGETS, *diffusers_dreambooth_sd3.TEXTS),
    "lora_blocks": (["--lora_blocks=0, 2"], {"model.adapter.targets": _BLOCKS}),
    "report_to": report_to("dreambooth-sd3-lora"),
}
LINES = lines(
    "lora-sd3", DOCUMENTED, EXPECTED, ACTS,
    (*flow_lines.OF_ADAPTERS_IMPOSSIBLE, (["--lora_blocks=a"], "--lora_blocks")),
)  # fmt: skip
