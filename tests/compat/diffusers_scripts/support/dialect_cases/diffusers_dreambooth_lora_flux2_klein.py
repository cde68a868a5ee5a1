"""Expectations of the flags of `diffusers-dreambooth-lora-flux2-klein`."""

from __future__ import annotations

from dialect_cases import flow_lines
from dialect_cases.flow_lines import lines, report_to

DOCUMENTED = flow_lines.DOCUMENTED | flow_lines.OF_TEXT | flow_lines.OF_ADAPTERS | flow_lines.OF_NEW_ONES | {
    "output_dir": "flux-dreambooth-lora", "max_sequence_length": 512, "lora_alpha": 4, "guidance_scale": 3.5,
    "enable_npu_flash_attention": False, "caption_dropout": 0.0, "do_fp8_training": False,
    "fsdp_text_encoder": False, "text_encoder_out_layers": (10.0, 20.0, 30.0),
}  # fmt: skip
TARGETS = [f"denoiser/*.{layer}" for layer in ("to_k", "to_q", "to_v", "to_out.0", "to_qkv_mlp_proj")]
TARGETS += ["denoiser/single_transformer_blocks.*.attn.to_out"]
EXPECTED = flow_lines.EXPECTED | flow_lines.ADAPTED | flow_lines.at("flux-dreambooth-lora") | {
    "model.family": "flux2", "model.flux2.text_tokens": 512, "model.adapter.alpha": 4.0,
    "model.adapter.targets": TARGETS, "data.captions.dropout": 0.0, "data.remainder": "drop",
    "objective.posterior": "mean",
}  # fmt: skip
ACTS = {
    **flow_lines.ACTS,
    **flow_lines.OF_ADAPTERS_ACTS,
    **flow_lines.OF_NEW_ONES_ACTS,
    "with_prior_preservation": flow_lines.PRIOR_WITH_DROPOUT,
    "caption_dropout": flow_lines.CAPTION_DROPOUT,
    "max_sequence_length": (["--max_sequence_length=128"], {"model.flux2.text_tokens": 128}),
    "text_encoder_out_layers": (["--text_encoder_out_layers", "5", "9", "27"], {"model.flux2.text_layers": [5, 9, 27]}),
    "report_to": report_to("dreambooth-flux2-klein-lora"),
}
LINES = lines(
    "lora-flux2-klein", DOCUMENTED, EXPECTED, ACTS,
    (
        *flow_lines.OF_ADAPTERS_IMPOSSIBLE, *flow_lines.OF_NEW_ONES_IMPOSSIBLE,
        (["--text_encoder_out_layers", "9", "18"], "--text_encoder_out_layers"),
        (["--caption_dropout=1.5"], "--caption_dropout"),
    ),
)  # fmt: skip
