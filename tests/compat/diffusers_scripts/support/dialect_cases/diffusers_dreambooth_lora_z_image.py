"""Expectations of the flags of `diffusers-dreambooth-lora-z-image`."""

from __future__ import annotations

from dialect_cases import diffusers_dreambooth_lora_qwen_image, flow_lines
from dialect_cases.flow_lines import lines, report_to

DOCUMENTED = flow_lines.DOCUMENTED | flow_lines.OF_TEXT | flow_lines.OF_ADAPTERS | flow_lines.OF_NEW_ONES | {
    "output_dir": "z-image-dreambooth-lora", "max_sequence_length": 512, "lora_alpha": 4, "guidance_scale": 3.5,
    "enable_npu_flash_attention": False, "do_fp8_training": False, "fsdp_text_encoder": False,
}  # fmt: skip
EXPECTED = flow_lines.EXPECTED | flow_lines.ADAPTED | flow_lines.at("z-image-dreambooth-lora") | {
    "model.family": "z-image", "model.z_image.text_tokens": 512, "model.adapter.alpha": 4.0,
    "model.adapter.targets": diffusers_dreambooth_lora_qwen_image.TARGETS, "data.remainder": "drop",
    "objective.posterior": "mean",
}  # fmt: skip
ACTS = {
    **flow_lines.ACTS,
    **flow_lines.OF_ADAPTERS_ACTS,
    **flow_lines.OF_NEW_ONES_ACTS,
    "max_sequence_length": (["--max_sequence_length=128"], {"model.z_image.text_tokens": 128}),
    "report_to": report_to("dreambooth-z-image-lora"),
}
LINES = lines(
    "lora-z-image", DOCUMENTED, EXPECTED, ACTS,
    (*flow_lines.OF_ADAPTERS_IMPOSSIBLE, *flow_lines.OF_NEW_ONES_IMPOSSIBLE),
)  # fmt: skip
