"""Classifier-free guidance (Ho and Salimans 2022, arXiv:2207.12598)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mezzotint.stages import TextEmbedding

Images = Mapping[str, Tensor]
"""Latents (B, C, h, w) of condition images, by name."""
Predict = Callable[[Tensor, Tensor, TextEmbedding, Images], Tensor]
"""(model input (B, C, h, w), model time (B,), text of B, images of B) → the denoiser's output."""


@dataclass(frozen=True, slots=True)
class Branch:
    """What the denoiser is given for B images in one of the evaluations that guidance combines."""

    text: TextEmbedding
    images: Images = field(default_factory=dict)

    def without_images(self) -> Branch:
        """The same with zeros for the images."""
        return replace(self, images={name: torch.zeros_like(image) for name, image in self.images.items()})


def predict_all(predict: Predict, model_input: Tensor, model_t: Tensor, branches: Sequence[Branch]) -> Tensor:
    """The denoiser's output for n branches in order, (n B, C, h, w), from one forward pass. model_input: (B, C, h, w).
    model_t: () or (1,)."""
    repeated = torch.cat((model_input,) * len(branches)) if len(branches) > 1 else model_input
    text = concatenate([branch.text for branch in branches]) if len(branches) > 1 else branches[0].text
    images = {name: torch.cat([branch.images[name] for branch in branches]) for name in branches[0].images}
    return predict(repeated, model_t.expand(len(repeated)), text, images)


def apply_guidance(
    output: Tensor, push: Callable[[Tensor, Tensor], Tensor], rescale: float = 0.0, *, image_scale: float | None = None
) -> Tensor:
    """The output of `predict_all` for the negative texts n and the texts p, (2B, C, h, w), pushed away from the
    negative texts: (B, C, h, w). push: a family's `guide` at a scale, mostly n + scale · (p − n). rescale: see
    `rescale_contrast`.

    image_scale: also for negative texts without images u, which come first, (3B, C, h, w). Then image_scale · (n − u)
    takes the place of n − u (Brooks et al. 2023, arXiv:2211.09800, eq. 3).
    """
    *before, away, towards = output.chunk(2 if image_scale is None else 3)
    pushed = push(away, towards)
    if image_scale is not None:
        pushed = pushed + (image_scale - 1.0) * (away - before[0])
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
