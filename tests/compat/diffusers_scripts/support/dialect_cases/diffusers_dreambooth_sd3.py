"""Expectations of the flags of `diffusers-dreambooth-sd3`."""

from __future__ import annotations

from dialect_cases import flow_lines
from dialect_cases.flow_lines import lines, of_encoders, report_to

OF_SD3 = {"weighting_scheme": "logit_normal", "precondition_outputs": 1, "train_text_encoder": False}
DOCUMENTED = flow_lines.DOCUMENTED | flow_lines.OF_TEXT | OF_SD3 | {"output_dir": "sd3-dreambooth"}
EXPECTED = flow_lines.EXPECTED | flow_lines.at("sd3-dreambooth") | {
    "model.family": "sd3", "model.sd3.t5_tokens": 77, "objective.flow.density": "logit-normal",
    "objective.flow.mean": 0.0, "objective.flow.std": 1.0, "objective.flow.preconditioned": True,
    "run.vae_dtype": "fp32",
}  # fmt: skip
TEXTS = ("text_encoder", "text_encoder_2")
ACTS = {
    **flow_lines.ACTS,
    **flow_lines.OF_LOGIT,
    **of_encoders(*TEXTS),
    "precondition_outputs": flow_lines.PRECONDITIONED,
    "max_sequence_length": (["--max_sequence_length=128"], {"model.sd3.t5_tokens": 128}),
    "report_to": report_to("dreambooth-sd3"),
}
LINES = lines("sd3", DOCUMENTED, EXPECTED, ACTS, ((["--weighting_scheme=none"], "--weighting_scheme"),))
