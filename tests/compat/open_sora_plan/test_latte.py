"""LatteT2V as a family: its files in every layout, captions by T5, clips and joined stills, exports that open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from latte_folder import noised, settings

from mezzotint.compat.open_sora_plan.latte import Family
from mezzotint.families.base import posterior_sample
from mezzotint.stages import Condition


def test_clips_and_stills_are_encoded_and_decoded(released: Path) -> None:
    family = Family.of(settings(released, text_encoder=None), only=["vae"])
    rng = torch.Generator().manual_seed(0)
    clips = torch.rand(2, 3, 9, 32, 48, generator=rng) * 2 - 1
    moments = family.encode_media(clips)
    assert moments.shape == (2, 8, 3, 4, 6)
    one = family.encode_media(clips[1:])
    torch.testing.assert_close(moments[1:], one, rtol=0, atol=1e-6)
    joined_images = family.encode_media(clips[:, :, 0])
    torch.testing.assert_close(joined_images, family.encode_media(clips[:, :, :1])[:, :, 0], rtol=0, atol=1e-6)
    vae: Any = family.parts()["vae"]
    mean, log_variance = vae.encode(clips).chunk(2, dim=1)
    torch.testing.assert_close(moments[:, :4], mean.detach() * 0.18215, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(moments[:, 4:], (log_variance.detach() / 2).exp() * 0.18215, rtol=1e-5, atol=1e-6)
    assert family.encode_media(clips[:0]).shape == (0, 8, 3, 4, 6)
    assert family.decode_media(moments[:, :4]).shape == clips.shape
    assert family.decode_media(joined_images[:, :4]).shape == (2, 3, 32, 48)


def test_joined_stills_have_their_own_captions(released: Path) -> None:
    family = Family.of(settings(released))
    network: Any = family.parts()["denoiser"]
    text = family.encode_text(["a dog", "a red cat"])
    joined_images = family.encode_text(["a ball", "a moon", "", "a star on a hill"])
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(2, 4, 4, 4, 4, generator=rng)  # two latent frames and two stills
    masks = {"latents": torch.ones(2, 4, 4, 4)}
    masks["latents"][1, :, 2:] = 0
    with torch.no_grad():
        predicted = family.predict(noised(x, 5, 700), Condition(text, joined_images=joined_images, masks=masks))
        rows = [torch.cat([text.states[b : b + 1], joined_images.states[2 * b : 2 * b + 2]]) for b in range(2)]
        marks = [torch.cat([text.mask[b : b + 1], joined_images.mask[2 * b : 2 * b + 2]]) for b in range(2)]  # type: ignore[index]
        direct = network(
            x, torch.tensor([5, 700]), torch.stack(rows), text_mask=torch.stack(marks),
            latent_mask=masks["latents"], use_image_num=2,
        )  # fmt: skip
        assert torch.equal(predicted, direct)
        other = family.predict(
            noised(x, 5, 700), Condition(text, joined_images=family.encode_text([""] * 4), masks=masks)
        )
    assert torch.equal(other[:, :, :2], predicted[:, :, :2])
    assert not torch.equal(other[:, :, 2:], predicted[:, :, 2:])


def test_image_is_a_clip_of_one_frame_or_a_still(released: Path) -> None:
    clip = Family.of(settings(released))
    still = Family.of(settings(released, latte={"images": "still"}))
    network: Any = clip.parts()["denoiser"]
    text, x = clip.encode_text(["a dog"]), torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        for family, temporal in ((clip, True), (still, False)):
            direct = network(
                x[:, :, None], torch.tensor([9]), text.states, text_mask=text.mask, temporal=temporal
            )  # fmt: skip
            assert torch.equal(family.predict(noised(x, 9), Condition(text)), direct[:, :, 0])


def test_posterior_samples_of_a_clip_depend_on_its_address(released: Path) -> None:
    moments = torch.cat([torch.zeros(1, 4, 2, 4, 4), torch.ones(1, 4, 2, 4, 4)], dim=1)
    eps = torch.randn(1, 4, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(posterior_sample(moments, eps), eps)
