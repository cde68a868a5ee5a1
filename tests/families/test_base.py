"""Every family loads only the requested parts, in float32, without drawing random numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mezzotint import registry
from mezzotint.errors import WeightsError
from mezzotint.families import base
from mezzotint.families.base import Grid, ModelFamily
from mezzotint.families.sd import Family
from mezzotint.settings.families.base import specs
from mezzotint.settings.sections.model import ModelSettings
from support.meta_device import without_autocast, without_question
from support.sd_folder import FOLDER


def test_only_named_parts_are_loaded_and_others_keep_their_identity() -> None:
    part = Family.of(ModelSettings(path=FOLDER), only=["denoiser"])
    assert part.parts().keys() == {"denoiser"}
    assert part.grid == Grid(channels=4, pixels=8)
    assert part.lost_tokens(["a red circle"]) == (0,)
    with pytest.raises(AssertionError, match="vae was not loaded"):
        part.encode_media(torch.zeros(1, 3, 8, 8))


def test_parts_that_are_not_loaded_may_be_missing(copy: Path) -> None:
    (copy / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    assert Family.of(ModelSettings(path=copy), only=["denoiser", "text_encoder"]).parts().keys() == {
        "denoiser",
        "text_encoder",
    }
    with pytest.raises(WeightsError, match=r"model\.weights=random") as caught:
        Family.of(ModelSettings(path=copy))
    assert caught.value.code == "E1407"


def test_all_parts_are_float32_in_eval_mode(family: Family) -> None:
    for module in family.parts().values():
        assert not any(m.training for m in module.modules())
        assert {p.dtype for p in module.parameters()} == {torch.float32}


def test_loading_and_encoding_leave_the_global_generator_unchanged() -> None:
    before = torch.get_rng_state()
    loaded = Family.of(ModelSettings(path=FOLDER))
    loaded.encode_text(["a cat"])
    loaded.encode_media(torch.zeros(1, 3, 16, 16))
    Family.tiny()
    assert torch.equal(torch.get_rng_state(), before)


class Page:
    """Replaces a host tensor and records calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pin_memory(self) -> Page:
        self.calls.append("page-locked")
        return self

    def to(self, device: torch.device, *, non_blocking: bool = False) -> Page:
        self.calls.append(f"to {device.type}" + ", not waited for" * non_blocking)
        return self


def test_tensors_are_sent_to_a_gpu_through_page_locked_memory() -> None:
    page = Page()
    base.to_device(page, torch.device("cuda"))  # type: ignore[arg-type]
    assert page.calls == ["page-locked", "to cuda, not waited for"]
    page = Page()
    base.to_device(page, torch.device("cpu"))  # type: ignore[arg-type]
    assert page.calls == ["to cpu"]


class Sendings(TorchDispatchMode):
    """Tensors of the host that go to another device: those that `to_device` sends, and those that are only copied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.sent: list[torch.dtype] = []
        self.copied: list[torch.dtype] = []
        self._is_sending = False
        real = base.to_device

        def watched(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
            self._is_sending = True
            try:
                return real(tensor, device)
            finally:
                self._is_sending = False

        for module in [*sys.modules.values()]:
            if vars(module).get("to_device") is real:
                monkeypatch.setattr(module, "to_device", watched)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default) and result.is_meta:
            source = args[0] if func is torch.ops.aten._to_copy.default else args[1]
            if source.device.type == "cpu":
                (self.sent if self._is_sending else self.copied).append(source.dtype)
        return result


@pytest.mark.parametrize("name", [spec.name for spec in specs()])
def test_no_family_sends_pageable_memory_to_a_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends tokens, and once the scaling of latents. The device is meta."""
    family: ModelFamily = registry.find("families", name).Family.tiny()
    for module in family.parts().values():
        module.to("meta")
    without_autocast(monkeypatch)
    without_question(monkeypatch)
    pixels = torch.zeros(1, 3, family.grid.side, family.grid.side, device="meta")
    with torch.no_grad(), Sendings(monkeypatch) as seen:
        assert family.encode_text(["a red circle"]).states.is_meta
        assert len(seen.sent) >= len(family.text_parts)
        assert {*seen.sent} == {torch.int64}
        moments = family.encode_media(pixels)
        already = len(seen.sent)
        family.encode_media(pixels)
        family.decode_media(moments.chunk(2, dim=1)[0])
        assert len(seen.sent) == already
    assert seen.copied == []
