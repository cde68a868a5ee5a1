"""The dialect `diffusers-dreambooth-lora-flux2-klein`: a run prepared from its command, and layers of its text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dialect_cases.diffusers_dreambooth_lora_flux2_klein import LINES
from prepared_commands import PRIOR, batches, images, largest_changes, prepared

from mezzotint.families.base import batch_latents


def test_klein_pairs_images_and_drops_only_instance_captions() -> None:
    """Latents are the mean of the posterior, and the two halves have separate weights."""
    images(Path("cat"), 20, 90)
    images(Path("kind"), 160, 230)
    words = (*PRIOR, "--prior_loss_weight=0.25", "--caption_dropout=1", "--random_flip", "--train_batch_size=1")
    with prepared("diffusers-dreambooth-lora-flux2-klein", *words) as job:
        step = batches(job)
        [batch] = step.batches
        assert batch.captions == ("", "a cat")
        assert batch.is_class is not None
        assert batch.is_class.tolist() == [False, True]
        assert batch.weight.tolist() == [2.0, 0.5], "1 and a quarter, of halves of two images"
        family, device = job.model.family, torch.device("cpu")
        x_0 = batch_latents(family, batch, device, job.model.objective.settings.posterior)
        assert torch.equal(x_0, family.encode_media(batch.pixels).chunk(2, dim=1)[0])
        assert not torch.equal(x_0, batch_latents(family, batch, device))
        assert max(largest_changes(job, step).values()) == pytest.approx(1e-2, rel=1e-2)


def test_text_layers_default_to_those_of_the_pipeline() -> None:
    assert "as in the model's pipeline; in the script, 10, 20 and 30" in LINES.notes_text()
    assert "10, 20 and 30" not in LINES.notes_text("--text_encoder_out_layers", "9", "18", "27")
    own = LINES.translate("--text_encoder_out_layers", "10", "20", "30").settings["model"]["flux2"]
    assert own["text_layers"] == [10, 20, 30]
