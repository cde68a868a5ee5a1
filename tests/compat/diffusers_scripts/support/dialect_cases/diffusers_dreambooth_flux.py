"""Expectations of the flags of `diffusers-dreambooth-flux`."""

from __future__ import annotations

from dialect_cases import diffusers_dreambooth_lora, flow_lines
from dialect_cases.flow_lines import lines, of_encoders, report_to

OF_FLUX = {"guidance_scale": 3.5, "enable_npu_flash_attention": False, "train_text_encoder": False}
DOCUMENTED = flow_lines.DOCUMENTED | flow_lines.OF_TEXT | OF_FLUX | {
    "output_dir": "flux-dreambooth", "image_interpolation_mode": "lanczos",
}  # fmt: skip
EXPECTED = flow_lines.EXPECTED | flow_lines.at("flux-dreambooth") | {
    "model.family": "flux", "model.flux.t5_tokens": 77, "model.flux.guidance": 3.5, "data.resize": "lanczos",
}  # fmt: skip
GUIDANCE = {
    "guidance_scale": (["--guidance_scale=1"], {"model.flux.guidance": 1.0}),
    "max_sequence_length": (["--max_sequence_length=128"], {"model.flux.t5_tokens": 128}),
}
ACTS = {
    **flow_lines.ACTS,
    **of_encoders("text_encoder"),
    **GUIDANCE,
    "image_interpolation_mode": diffusers_dreambooth_lora.ACTS["image_interpolation_mode"],
    "report_to": report_to("dreambooth-flux-dev-lora"),
}
LINES = lines("flux", DOCUMENTED, EXPECTED, ACTS, ((["--guidance_scale=-1"], "--guidance_scale"),))
