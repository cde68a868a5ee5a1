"""Expectations of the flags of `diffusers-dreambooth-lora-qwen-image`."""

from __future__ import annotations

from dialect_cases import flow_lines
from dialect_cases.flow_lines import lines, report_to
from foreign_lines import without

_LLAMA = "meta-llama/Meta-Llama-3.1-8B-Instruct"
DOCUMENTED = (
    without(flow_lines.DOCUMENTED, "prior_generation_precision") | flow_lines.OF_ADAPTERS | flow_lines.OF_NEW_ONES
    | {
        "output_dir": "hidream-dreambooth-lora", "max_sequence_length": 512, "lora_alpha": 4, "caption_dropout": 0.0,
        "pretrained_tokenizer_4_name_or_path": _LLAMA, "pretrained_text_encoder_4_name_or_path": _LLAMA,
    }
)  # fmt: skip
TARGETS = [f"denoiser/*.{layer}" for layer in ("to_k", "to_q", "to_v", "to_out.0")]
EXPECTED = flow_lines.EXPECTED | flow_lines.ADAPTED | flow_lines.at("hidream-dreambooth-lora") | {
    "model.family": "qwen-image", "model.qwen_image.text_tokens": 512, "model.adapter.alpha": 4.0,
    "model.adapter.targets": TARGETS, "data.captions.dropout": 0.0, "data.remainder": "drop",
    "objective.posterior": "sample",
}  # fmt: skip
ACTS = {
    **flow_lines.ACTS,
    **flow_lines.OF_ADAPTERS_ACTS,
    **flow_lines.OF_NEW_ONES_ACTS,
    "cache_latents": (["--cache_latents"], {"data.cache.latents": True, "objective.posterior": "mean"}),
    "with_prior_preservation": flow_lines.PRIOR_WITH_DROPOUT,
    "caption_dropout": flow_lines.CAPTION_DROPOUT,
    "max_sequence_length": (["--max_sequence_length=128"], {"model.qwen_image.text_tokens": 128}),
    "report_to": report_to("dreambooth-qwen-image-lora"),
}
LINES = lines(
    "lora-qwen-image", DOCUMENTED, EXPECTED, ACTS,
    (*flow_lines.OF_ADAPTERS_IMPOSSIBLE, *flow_lines.OF_NEW_ONES_IMPOSSIBLE),
)  # fmt: skip
