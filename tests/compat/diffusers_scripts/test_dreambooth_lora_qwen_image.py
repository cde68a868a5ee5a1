"""The dialect `diffusers-dreambooth-lora-qwen-image`: runs prepared from its commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from prepared_commands import batches, images, largest_changes, prepared

from mezzotint.families.base import batch_latents
from mezzotint.weights.low_bit import LowBitLinear


@pytest.mark.slow
def test_table_captions_replace_the_prompt() -> None:
    """Cached and shuffled, an image keeps its own caption."""
    images(Path("table"), 20, 90, 160, 230)
    rows = [{"image": f"{shade:03}.png", "words": f"shade {shade}"} for shade in (20, 90, 160, 230)]
    Path("table/metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = (
        "--dataset_name=table", "--image_column=image", "--caption_column=words", "--repeats=2", "--cache_latents",
        "--center_crop", "--num_train_epochs=2", "--train_batch_size=4",
    )  # fmt: skip
    with prepared("diffusers-dreambooth-lora-qwen-image", *words) as job:
        assert set(job.model.family.parts()) == {"denoiser"}, "both encoders are let go"
        pairs = set()
        for step, _ in zip(job.trainer.batches, range(2), strict=False):
            for batch in step.batches:
                pairs |= {(Path(key).name, caption) for key, caption in zip(batch.keys, batch.captions, strict=True)}
                assert batch.text is not None
                x_0 = batch_latents(job.model.family, batch, torch.device("cpu"), "mean")
                assert len(torch.unique(x_0.flatten(1), dim=0)) == len(set(batch.keys))
        assert pairs == {(f"{shade:03}.png", f"shade {shade}") for shade in (20, 90, 160, 230)}


@pytest.mark.slow
def test_frozen_model_is_quantized_to_8_bits() -> None:
    pytest.importorskip("torchao")
    images(Path("cat"), 20, 90)
    Path("bits.json").write_text('{"load_in_8bit": true}')
    words = ("--bnb_quantization_config_path=bits.json", "--mixed_precision=bf16")
    with prepared("diffusers-dreambooth-lora-qwen-image", *words) as job:
        held = [m for m in job.model.family.parts()["denoiser"].modules() if isinstance(m, LowBitLinear)]
        assert held
        assert {m.low_bit for m in held} == {"int8"}
        assert max(largest_changes(job, batches(job)).values()) > 0
