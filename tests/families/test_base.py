"""What holds for every family: parts are loaded as they are asked for, in float32, and draw nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sd_folder import FOLDER

from mezzotint.errors import WeightsError
from mezzotint.families import base
from mezzotint.families.base import Grid
from mezzotint.families.sd import Family
from mezzotint.families.shared import stable
from mezzotint.recipe.sections.model import ModelSettings


def test_only_the_named_parts_are_loaded_and_the_rest_is_known_all_the_same() -> None:
    part = Family.of(ModelSettings(path=FOLDER), only=["denoiser"])
    assert part.parts().keys() == {"denoiser"}
    assert part.grid == Grid(channels=4, pixels=8)
    assert part.lost_tokens(["a red circle"]) == (0,)
    with pytest.raises(AssertionError, match="vae was not loaded"):
        part.encode_media(torch.zeros(1, 3, 8, 8))


def test_parts_that_are_not_asked_for_may_be_absent(copy: Path) -> None:
    (copy / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    assert Family.of(ModelSettings(path=copy), only=["denoiser", "text_encoder"]).parts().keys() == {
        "denoiser",
        "text_encoder",
    }
    with pytest.raises(WeightsError, match=r"model\.weights=random") as caught:
        Family.of(ModelSettings(path=copy))
    assert caught.value.code == "E1407"


def test_everything_is_float32_in_eval_mode(family: Family) -> None:
    for module in family.parts().values():
        assert not any(m.training for m in module.modules())
        assert {p.dtype for p in module.parameters()} == {torch.float32}


def test_loading_and_encoding_draw_nothing_from_the_global_generator() -> None:
    before = torch.get_rng_state()
    loaded = Family.of(ModelSettings(path=FOLDER))
    loaded.encode_text(["a cat"])
    loaded.encode_media(torch.zeros(1, 3, 16, 16))
    Family.tiny()
    assert torch.equal(torch.get_rng_state(), before)


class Page:
    """In the place of a tensor of the host: what becomes of it."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def pin_memory(self) -> Page:
        self.said.append("page-locked")
        return self

    def to(self, device: torch.device, *, non_blocking: bool = False) -> Page:
        self.said.append(f"to {device.type}" + ", not waited for" * non_blocking)
        return self


def test_tokens_go_to_a_gpu_through_page_locked_memory(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page()
    base.sent(page, torch.device("cuda"))  # type: ignore[arg-type]
    assert page.said == ["page-locked", "to cuda, not waited for"]
    page = Page()
    base.sent(page, torch.device("cpu"))  # type: ignore[arg-type]
    assert page.said == ["to cpu"]
    tokens: list[torch.Tensor] = []
    monkeypatch.setattr(stable, "sent", lambda tensor, device: tokens.append(tensor) or tensor)
    family.encode_text(["a red circle"])
    assert [t.dtype for t in tokens] == [torch.int64]
