"""Classifier-free guidance (Ho and Salimans 2022, arXiv:2207.12598)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mezzotint.stages import TextEmbedding

Predict = Callable[[Tensor, Tensor, TextEmbedding], Tensor]
"""(model input (B, C, h, w), model time (B,), text of B) → the denoiser's output."""


def predict_both(
    predict: Predict, model_input: Tensor, model_t: Tensor, text: TextEmbedding, negative: TextEmbedding | None
) -> Tensor:
    """The denoiser's output for the negative texts and then for the texts, (2B, C, h, w), from one forward pass; only
    for the texts if there are no negative ones.

    model_input: (B, C, h, w). model_t: () or (1,). text, negative: of B captions.
    """
    if negative is None:
        return predict(model_input, model_t.expand(len(model_input)), text)
    doubled = torch.cat((model_input,) * 2)
    return predict(doubled, model_t.expand(len(doubled)), concatenate((negative, text)))


def apply_guidance(output: Tensor, push: Callable[[Tensor, Tensor], Tensor], rescale: float = 0.0) -> Tensor:
    """The output of `predict_both`, (2B, C, h, w), pushed away from the negative texts: (B, C, h, w). push: a family's
    `guide` at a scale, mostly n + scale · (p − n). rescale: see `rescale_contrast`."""
    away, towards = output.chunk(2)
    pushed = push(away, towards)
    return pushed if rescale == 0.0 else rescale_contrast(pushed, towards, share=rescale)


def rescale_contrast(pushed: Tensor, towards: Tensor, *, share: float) -> Tensor:
    """The guided output brought back to the contrast of the unguided one, by a share: φ · x σ(p)/σ(x) + (1 − φ) · x
    (Lin et al. 2023, arXiv:2305.08891, eq. 15 and 16).

    pushed, towards: (B, C, h, w), the guided output and that for the prompt. share: φ in [0, 1]. Standard deviations
    are of each image, over channels and positions.
    """
    dims = list(range(1, pushed.ndim))
    towards_std = towards.float().std(dim=dims, keepdim=True)
    pushed_std = pushed.float().std(dim=dims, keepdim=True)
    return (share * (pushed * (towards_std / pushed_std)) + (1.0 - share) * pushed).to(pushed.dtype)


def apply_threshold(clean: Tensor, *, ratio: float, most: float) -> Tensor:
    """Clean latents within bounds: cut at ±s and divided by s, where s is the quantile `ratio` of each sample's
    absolute values, between 1 and `most` (Saharia et al. 2022, arXiv:2205.11487, section 2.3). clean: (B, C, …)."""
    sizes = clean.float().abs().flatten(1)
    bound = torch.quantile(sizes, ratio, dim=1).clamp(1.0, most).reshape(-1, *[1] * (clean.ndim - 1))
    return (clean.clamp(-bound, bound) / bound).to(clean.dtype)


def zeros_like(text: TextEmbedding) -> TextEmbedding:
    """No text: zeros for states and pooled text. The mask stays."""
    pooled = None if text.pooled is None else torch.zeros_like(text.pooled)
    return replace(text, states=torch.zeros_like(text.states), pooled=pooled)


def concatenate(texts: Sequence[TextEmbedding]) -> TextEmbedding:
    """One batch of all embeddings. Either all have masks or none, likewise for pooled ones."""

    def join(tensors: Sequence[Tensor | None]) -> Tensor | None:
        present = [t for t in tensors if t is not None]
        assert len(present) in (0, len(tensors))
        return torch.cat(present) if present else None

    states, counted = torch.cat([text.states for text in texts]), [text.lengths for text in texts]
    lengths = None if None in counted else tuple(length for lengths in counted for length in lengths or ())
    mask, pooled = join([text.mask for text in texts]), join([text.pooled for text in texts])
    return TextEmbedding(states, mask, pooled, lengths)
