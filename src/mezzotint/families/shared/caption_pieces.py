"""Captions of more tokens than CLIP reads at once, 75 and the start and the end: they are encoded in pieces.

Each piece gets its own start and end. Of their hidden states those of the captions' tokens are put together, between
the start of the first piece and the end of the last. This is the rule of sd-scripts' `max_token_length`.
"""

from __future__ import annotations

import torch
from torch import Tensor

TOKENS = 75
"""Tokens of a piece in published models, without its start and end."""


def split(ids: Tensor, *, pieces: int, end: int, pad: int) -> Tensor:
    """(B, n L + 2) tokens with start, end and padding, as (B n, L + 2). pieces: n. end, pad: the tokenizer's tokens.

    A piece that is full of text ends with the end token, others with padding. A piece without text begins with the end
    token.
    """
    if pieces == 1:
        return ids
    body = ids[:, 1:-1].unflatten(1, (pieces, -1)).clone()
    body[..., 0] = torch.where(body[..., 0] == pad, end, body[..., 0])
    has_ended = (body[..., -1:] == end) | (body[..., -1:] == pad)
    last = torch.where(has_ended, pad, end)
    start = ids[:, :1, None].expand(-1, pieces, -1)
    return torch.cat([start, body, last], dim=2).flatten(0, 1)


def join(states: Tensor, pieces: int) -> Tensor:
    """The hidden states (B n, L + 2, D) of pieces as (B, n L + 2, D). pieces: n."""
    if pieces == 1:
        return states
    each = states.unflatten(0, (-1, pieces))
    return torch.cat([each[:, 0, :1], each[:, :, 1:-1].flatten(1, 2), each[:, -1, -1:]], dim=1)
