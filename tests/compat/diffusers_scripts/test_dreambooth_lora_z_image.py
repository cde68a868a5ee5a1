"""The dialect `diffusers-dreambooth-lora-z-image`: a run prepared from its command."""

from __future__ import annotations

from pathlib import Path

import pytest
from prepared_commands import images, prepared


@pytest.mark.slow
def test_offloading_caches_latents_in_their_own_shapes() -> None:
    images(Path("cat"), 20, 90, size=(48, 32))
    images(Path("cat"), 160, 230, size=(32, 48))
    words = ("--use_aspect_ratio_buckets", "--aspect_ratio_buckets=32,48;48,32", "--offload", "--repeats=3")
    ours = ("model.z_image.distilled=true",)
    with prepared("diffusers-dreambooth-lora-z-image", *words, ours=ours) as job:
        assert set(job.model.family.parts()) == {"denoiser"}
        shapes = set()
        for step, _ in zip(job.trainer.batches, range(2), strict=False):
            shapes |= {tuple(batch.moments.shape[-2:]) for batch in step.batches if batch.moments is not None}
        assert len(shapes) == 2
        assert {(width, height) for height, width in shapes} == shapes, "one is landscape, the other portrait"
