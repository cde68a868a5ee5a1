"""The dialect `diffusers-dreambooth-sd3`: a run prepared from its command."""

from __future__ import annotations

from pathlib import Path

import pytest
from prepared_commands import batches, images, largest_changes, prepared


@pytest.mark.slow
def test_transformer_and_both_clip_encoders_train_at_their_rates() -> None:
    """T5 is not among them, and the autoencoder stays in float32."""
    images(Path("cat"), 20, 90)
    words = ("--train_text_encoder", "--text_encoder_lr=1e-3", "--mixed_precision=bf16", "--max_grad_norm=1e9")
    with prepared("diffusers-dreambooth-sd3", *words) as job:
        lengths = largest_changes(job, batches(job))
        for part, rate in {"denoiser": 1e-2, "text_encoder": 1e-3, "text_encoder_2": 1e-3}.items():
            longest = max(length for name, length in lengths.items() if name.startswith(f"{part}/"))
            assert longest == pytest.approx(rate, rel=2e-2), part
        assert {name.partition("/")[0] for name in lengths} == {"denoiser", "text_encoder", "text_encoder_2"}
        assert {str(p.dtype) for p in job.model.family.parts()["vae"].parameters()} == {"torch.float32"}
        assert {str(p.dtype) for p in job.model.family.parts()["text_encoder_3"].parameters()} == {"torch.bfloat16"}
