"""Guidance: extrapolation from the negative text through the prompt, in one forward pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mezzotint.sampling.guidance import Branch, Images, apply_guidance, concatenate, predict_all, zeros_like
from mezzotint.stages import TextEmbedding


def _linear(x: torch.Tensor, t: torch.Tensor, text: TextEmbedding) -> torch.Tensor:
    return x + text.states.mean(dim=(1, 2)).reshape(-1, 1, 1, 1) + t.reshape(-1, 1, 1, 1)


def test_guidance_extrapolates_from_negative_to_prompt() -> None:
    calls: list[int] = []

    def predict(x: torch.Tensor, t: torch.Tensor, text: TextEmbedding, images: Images) -> torch.Tensor:
        assert not images
        calls.append(len(x))
        return _linear(x, t, text)

    x, t = torch.zeros(2, 1, 1, 1), torch.tensor(10.0)
    prompt, negative = TextEmbedding(torch.full((2, 1, 1), 3.0)), TextEmbedding(torch.full((2, 1, 1), 1.0))
    for scale, expected in ((1.0, 13.0), (0.0, 11.0), (2.0, 15.0)):
        out = predict_all(predict, x, t, [Branch(text) for text in ([] if scale == 1.0 else [negative]) + [prompt]])
        if scale != 1.0:
            out = apply_guidance(out, lambda n, p, scale=scale: n + scale * (p - n))  # type: ignore[misc]
        assert out.flatten().tolist() == [expected, expected]
    assert calls == [2, 4, 4]  # one forward pass each; a scale of 1 has no second half


def test_image_and_text_have_scales_of_their_own() -> None:
    """e(∅, ∅) + s_I (e(∅, I) − e(∅, ∅)) + s_T (e(T, I) − e(∅, I)), arXiv:2211.09800, eq. 3."""

    def predict(x: torch.Tensor, t: torch.Tensor, text: TextEmbedding, images: Images) -> torch.Tensor:
        return _linear(x, t, text) + 7 * images["source"]

    x, t = torch.zeros(1, 1, 1, 1), torch.tensor(10.0)
    prompt, negative = TextEmbedding(torch.full((1, 1, 1), 3.0)), TextEmbedding(torch.full((1, 1, 1), 1.0))
    images = {"source": torch.ones(1, 1, 1, 1)}
    branches = [Branch(negative, images).without_images(), Branch(negative, images), Branch(prompt, images)]
    out = predict_all(predict, x, t, branches)
    assert out.flatten().tolist() == [11.0, 18.0, 20.0]
    guided = apply_guidance(out, lambda n, p: n + 4.0 * (p - n), image_scale=1.5)
    assert guided.item() == 11.0 + 1.5 * (18.0 - 11.0) + 4.0 * (20.0 - 18.0)


def test_embeddings_are_joined_with_masks_and_pooled_parts() -> None:
    one = TextEmbedding(torch.zeros(1, 2, 3), torch.ones(1, 2), torch.zeros(1, 4), lengths=(2,))
    joined = concatenate([one, zeros_like(one)])
    assert joined.lengths == (2, 2)
    assert concatenate([one, replace(one, lengths=None)]).lengths is None
    assert joined.mask is not None
    assert joined.pooled is not None
    assert (joined.states.shape, joined.mask.shape, joined.pooled.shape) == ((2, 2, 3), (2, 2), (2, 4))
    with pytest.raises(AssertionError):
        concatenate([one, TextEmbedding(torch.zeros(1, 2, 3))])
