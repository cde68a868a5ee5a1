"""Expectations of the flags of `diffusers-dreambooth-lora-flux`."""

from __future__ import annotations

from dialect_cases import diffusers_dreambooth_flux, flow_lines
from dialect_cases.flow_lines import lines, of_encoders, report_to, with_targets

DOCUMENTED = (
    flow_lines.DOCUMENTED | flow_lines.OF_TEXT | flow_lines.OF_ADAPTERS | diffusers_dreambooth_flux.OF_FLUX
    | {"output_dir": "flux-dreambooth-lora", "max_sequence_length": 512, "lora_alpha": 4}
)  # fmt: skip
TARGETS = [
    f"denoiser/*.{layer}"
    for layer in (
        "attn.to_k", "attn.to_q", "attn.to_v", "attn.to_out.0", "attn.add_k_proj", "attn.add_q_proj",
        "attn.add_v_proj", "attn.to_add_out", "ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj",
        "ff_context.net.2",
    )
]  # fmt: skip
EXPECTED = flow_lines.EXPECTED | flow_lines.ADAPTED | flow_lines.at("flux-dreambooth-lora") | {
    "model.family": "flux", "model.flux.t5_tokens": 512, "model.flux.guidance": 3.5, "model.adapter.alpha": 4.0,
    "model.adapter.targets": TARGETS,
}  # fmt: skip
ACTS = {
    **flow_lines.ACTS,
    **flow_lines.OF_ADAPTERS_ACTS,
    **with_targets(of_encoders("text_encoder"), TARGETS, "text_encoder"),
    **diffusers_dreambooth_flux.GUIDANCE,
    "report_to": report_to("dreambooth-flux-dev-lora"),
}
LINES = lines(
    "lora-flux", DOCUMENTED, EXPECTED, ACTS, (*flow_lines.OF_ADAPTERS_IMPOSSIBLE, (["--lora_alpha=0"], "--lora_alpha"))
)
