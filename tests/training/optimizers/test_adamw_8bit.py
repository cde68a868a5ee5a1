"""AdamW with 8-bit moments."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from mezzotint.errors import RecipeError
from support.stepping import parameters, update_of


def test_adamw_8bit_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bitsandbytes", "bitsandbytes.optim"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RecipeError, match="eight-bit"):
        update_of("adamw-8bit", parameters())


def test_adamw_8bit_counts_byte_moments_and_block_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = type("AdamW8bit", (torch.optim.AdamW,), {"__module__": "bitsandbytes.optim.adamw"})
    for name in ("bitsandbytes", "bitsandbytes.optim"):
        monkeypatch.setitem(sys.modules, name, module := ModuleType(name))
    vars(module)["AdamW8bit"] = stand_in
    update = update_of("adamw-8bit", parameters({"denoiser/a": (300,)}))
    assert update.state_bytes() == 2 * 300 + 2 * 4 * 2
