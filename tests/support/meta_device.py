"""Torch's meta device, on which reading a value raises: shows that code does not read values back."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields, replace

import pytest
import torch
from transformers import masking_utils

from mezzotint.stages import Batch


def without_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has none for such a device."""
    real = torch.autocast
    monkeypatch.setattr(torch, "autocast", lambda kind, **how: nullcontext() if kind == "meta" else real(kind, **how))


def without_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers asks of the mask that a text encoder is given whether all tokens count, which `docs/gpu-path.md`
    says; here it takes them not to."""
    for asks in ("_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa"):
        monkeypatch.setattr(masking_utils, asks, lambda *_, **__: False)


def valueless(batch: Batch) -> Batch:
    """The batch there; what a step works with on the host stays."""
    tensors = {f.name: getattr(batch, f.name) for f in fields(batch) if f.name != "positions"}
    there = {name: t.to("meta") for name, t in tensors.items() if isinstance(t, torch.Tensor)}
    return replace(batch, **there, text=None if batch.text is None else batch.text.to("meta"))
