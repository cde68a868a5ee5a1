"""A batch that Open-Sora-Plan has joined, recorded, against ours."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from mezzotint.data.clip_padding import joined, latent_mask, padded
from mezzotint.shapes import Size

DATA = Path(__file__).parent / "data" / "open-sora-plan"
RECORD = load_file(DATA / "collate_masks.safetensors")
TOLD = json.loads((DATA / "collate_masks.json").read_text())


def test_the_recorded_batch_has_the_same_shape_and_mask() -> None:
    samples, count = TOLD["samples"], TOLD["args"]["use_image_num"]
    clips = [torch.ones(3, *sample["video_thw"]) for sample in samples]
    stills = [torch.ones(3, count, *sample["image_hw"]) for sample in samples]
    pixels, mask = joined(clips, stills)
    assert list(pixels.shape) == RECORD["out.pixel_shape"].tolist()
    assert torch.equal(mask, RECORD["out.attention_mask"])
    assert 0 < mask.sum() < mask.numel()


def test_what_is_added_is_zero_and_lies_at_the_end() -> None:
    small = torch.ones(3, 2, 3, 4)
    found = padded([small, torch.ones(3, 5, 6, 7)])
    assert found.shape == (2, 3, 5, 6, 7)
    assert torch.equal(found[0, :, :2, :3, :4], small)
    assert found[0].sum() == small.sum()


def test_a_clip_without_pictures_has_the_mask_of_its_frames() -> None:
    pixels, mask = joined([torch.ones(3, 9, 16, 24)], [torch.ones(3, 0, 16, 24)])
    assert pixels.shape == (1, 3, 9, 16, 24)
    assert torch.equal(mask, torch.ones(1, 3, 2, 3))


def test_latents_that_are_begun_count() -> None:
    whole = Size(32, 32, 17)
    counted = [int(latent_mask([Size(8, 8, n)], whole).sum()) for n in (1, 2, 5, 6, 9, 10, 17)]
    assert counted == [1, 2, 2, 3, 3, 4, 5]
    assert int(latent_mask([Size(9, 17, 1)], whole).sum()) == 2 * 3
