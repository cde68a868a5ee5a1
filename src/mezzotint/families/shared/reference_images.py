"""Reference images of flow-matching denoisers: their tokens follow those of the noisy latents in one sequence, and
differ from them only by their positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def join_tokens(
    noisy: Tensor,
    references: Iterable[Tensor],
    *,
    tokens_of: Callable[[Tensor], Tensor],
    positions_of: Callable[[int, Tensor], Tensor],
) -> tuple[Tensor, Tensor, int]:
    """The tokens (B, n, D) of noisy latents and of reference images, their positions, and how many are of the noisy
    latents, which come first.

    noisy, references: latents (B, C, h, w), references of any height and width. tokens_of: of latents, (B, n, D).
    positions_of: of the tokens of latents, (…, n, axes), by their number: 0 for the noisy ones, then 1, 2, …
    """
    images = [noisy, *references]
    tokens = [tokens_of(image) for image in images]
    positions = [positions_of(number, image) for number, image in enumerate(images)]
    if len(images) == 1:
        return tokens[0], positions[0], tokens[0].shape[1]
    return torch.cat(tokens, dim=1), torch.cat(positions, dim=-2), tokens[0].shape[1]
