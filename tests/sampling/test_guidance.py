"""Guidance: extrapolation from the negative text through the prompt, in one forward pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mezzotint.sampling.guidance import apply_guidance, concatenate, predict_both, zeros_like
from mezzotint.stages import TextEmbedding


def _linear(x: torch.Tensor, t: torch.Tensor, text: TextEmbedding) -> torch.Tensor:
    return x + text.states.mean(dim=(1, 2)).reshape(-1, 1, 1, 1) + t.reshape(-1, 1, 1, 1)


def test_guidance_extrapolates_from_negative_to_prompt() -> None:
    calls: list[int] = []

    def predict(x: torch.Tensor, t: torch.Tensor, text: TextEmbedding) -> torch.Tensor:
        calls.append(len(x))
        return _linear(x, t, text)

    x, t = torch.zeros(2, 1, 1, 1), torch.tensor(10.0)
    prompt, negative = TextEmbedding(torch.full((2, 1, 1), 3.0)), TextEmbedding(torch.full((2, 1, 1), 1.0))
    for scale, expected in ((1.0, 13.0), (0.0, 11.0), (2.0, 15.0)):
        out = predict_both(predict, x, t, prompt, None if scale == 1.0 else negative)
        if scale != 1.0:
            out = apply_guidance(out, lambda n, p, scale=scale: n + scale * (p - n))  # type: ignore[misc]
        assert out.flatten().tolist() == [expected, expected]
    assert calls == [2, 4, 4]  # one forward pass each; a scale of 1 has no second half


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
