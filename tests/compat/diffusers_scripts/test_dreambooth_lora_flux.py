"""The dialect `diffusers-dreambooth-lora-flux`: a run prepared from its command."""

from __future__ import annotations

from pathlib import Path

import pytest
from prepared_commands import batches, images, largest_changes, prepared, record_inputs


def test_flux_layers_and_clip_train_at_separate_learning_rates() -> None:
    """AdamW's first step is as long as the rate, which shows batch and accumulation in it."""
    images(Path("cat"), 20, 90, 160, 230)
    words = (
        "--train_text_encoder", "--text_encoder_lr=1e-3", "--scale_lr", "--gradient_accumulation_steps=2",
        "--learning_rate=1e-3", "--guidance_scale=2.5", "--lora_layers=attn.to_k,proj_out", "--use_8bit_adam",
        "--adam_weight_decay_text_encoder=0.5", "--rank=2", "--lora_alpha=6", "--max_grad_norm=1e9",
    )  # fmt: skip
    with prepared("diffusers-dreambooth-lora-flux", *words) as job:
        assert job.model.optim.optimizer.kind == "adamw", "8-bit optimizers need a GPU"
        calls, lengths = record_inputs(job), largest_changes(job, batches(job))
        decay = {group.part: group.weight_decay for group in job.model.update.groups}
        assert decay == {"denoiser": 1e-4, "text_encoder": 0.5}
        parts = {name.partition("/")[0] for name in lengths}
        assert parts == {"denoiser", "text_encoder"}
        layers = {name.partition("/")[2].partition(".lora")[0] for name in lengths if name.startswith("denoiser")}
        assert {layer.rpartition(".")[2] for layer in layers} == {"to_k", "proj_out"}
        assert "proj_out" in layers, "that of the model itself, as well as those of its blocks"
        for part, rate in (("denoiser", 1e-3 * 2 * 2), ("text_encoder", 1e-3)):
            ups = [length for name, length in lengths.items() if name.startswith(part) and "lora_up" in name]
            assert max(ups) == pytest.approx(rate, rel=1e-2), part
        assert {float(value) for call in calls for value in call["guidance"]} == {2.5}
        assert {call["encoder_hidden_states"].shape[1] for call in calls} == {48}
        assert {call["hidden_states"].shape[0] for call in calls} == {2}
        [lora] = {m.scaling["default"] for m in job.model.family.parts()["denoiser"].modules() if hasattr(m, "lora_A")}
        assert lora == 3.0
