"""The dialect `diffusers-dreambooth-lora-sd3`: a run prepared from its command, and the names of layers."""

from __future__ import annotations

from pathlib import Path

import pytest
from dialect_cases.diffusers_dreambooth_lora_sd3 import LINES
from prepared_commands import batches, images, largest_changes, prepared


@pytest.mark.slow
def test_sd3_blocks_train_with_prodigy() -> None:
    images(Path("cat"), 20, 90)
    words = ("--optimizer=prodigy", "--learning_rate=1", "--lora_blocks=0,2", "--lora_layers=attn.to_q")
    with prepared("diffusers-dreambooth-lora-sd3", *words) as job:
        assert job.model.optim.optimizer.kind == "prodigy"
        lengths = largest_changes(job, batches(job))
        blocks = {name.partition(".lora")[0] for name in lengths}
        assert blocks == {f"denoiser/transformer_blocks.{block}.attn.to_q" for block in (0, 2)}
        assert 0 < max(lengths.values()) < 1e-4, "its first rate is a millionth"


def test_layer_names_match_peft() -> None:
    def targets(*words: str) -> list[str]:
        return list(LINES.translate(*words).settings["model"]["adapter"]["targets"])

    assert targets("--lora_layers=to_k, norm_out.linear") == ["denoiser/*.to_k", "denoiser/norm_out.linear"]
    assert targets("--lora_layers=to_k", "--lora_blocks=1") == ["denoiser/transformer_blocks.1.to_k"]
