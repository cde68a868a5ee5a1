"""Clean latents: cached, or sampled from moments by key; images joined after the frames."""

from __future__ import annotations

from dataclasses import replace

import torch

from mezzotint.families.base import batch_latents
from mezzotint.families.sd import Family
from mezzotint.stages import Batch
from support.trainers import batch_of, latents_at

CPU = torch.device("cpu")


def drawn(batch: Batch) -> torch.Tensor:
    return batch_latents(None, batch, CPU)  # type: ignore[arg-type]  # nothing is encoded


def from_moments(moments: torch.Tensor, first: int = 0) -> Batch:
    addresses = torch.arange(first, first + len(moments))
    return replace(batch_of(moments, None), latents=None, moments=moments, posterior_keys=addresses)


def test_cached_latents_are_used_unchanged() -> None:
    latents = latents_at(1, 2)
    assert torch.equal(drawn(batch_of(latents, None)), latents)


def test_sampling_of_moments_depends_only_on_the_sample() -> None:
    mean, deviation = latents_at(1, 3), latents_at(2, 3).abs()
    moments = torch.cat([mean, deviation], dim=1)
    whole = drawn(from_moments(moments))
    assert not torch.equal(whole, mean)
    assert torch.equal(drawn(from_moments(moments[1:], first=1)), whole[1:])
    assert torch.equal(drawn(from_moments(torch.cat([mean, 0 * deviation], dim=1))), mean)


def test_latents_of_pixels_equal_those_of_their_moments() -> None:
    family = Family.tiny()
    pixels = torch.linspace(-1, 1, 3 * 64 * 64).reshape(1, 3, 64, 64)
    batch = from_moments(family.encode_media(pixels))
    of_pixels = replace(batch, moments=None, pixels=pixels)
    assert torch.equal(batch_latents(family, of_pixels, CPU), drawn(batch))


def test_images_joined_to_a_clip_follow_its_frames() -> None:
    clips, joined_images = latents_at(1, 2)[:, :, None].repeat(1, 1, 3, 1, 1), latents_at(2, 4)
    joined = drawn(replace(batch_of(clips, None), joined_images=batch_of(joined_images, None)))
    assert joined.shape == (2, 4, 5, 8, 8)
    assert torch.equal(joined[:, :, :3], clips)
    assert torch.equal(joined[1, :, 4], joined_images[3])
