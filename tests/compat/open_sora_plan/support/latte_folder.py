"""A small LatteT2V in the layout of the release, and checks of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from mezzotint.compat.open_sora_plan.latte import Family
from mezzotint.compat.open_sora_plan.latte_spec import LatteSettings
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.stages import Noised
from mezzotint.weights.folder.model_folder import shipped_folder

QUICK = ("model.family=latte", "model.weights=random", "run.device=cpu", "--size=32x32", "--steps=2", "--guidance=2")
"""Drawing of a small LatteT2V."""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model in Open-Sora-Plan's layout: denoisers by length, the autoencoder next to them, T5 separate."""
    return write_release(tmp_path_factory.mktemp("latte"), "5x64x64")


def write_release(root: Path, denoiser: str) -> Path:
    """Writes such a model into a folder that is there. denoiser: the name of its folder."""
    family = Family.tiny(seed=3)
    for part, folder in (("denoiser", denoiser), ("vae", "vae"), ("text_encoder", "t5")):
        (root / folder).mkdir()
        where = shipped_folder("tiny-latte") / {"denoiser": ".", "vae": "vae", "text_encoder": "text_encoder"}[part]
        shutil.copy(where / "config.json", root / folder)
        tensors = {n: t.contiguous() for n, t in family.parts()[part].state_dict().items()}
        name = "model" if part == "text_encoder" else "diffusion_pytorch_model"
        save_file(tensors, root / folder / f"{name}.safetensors")
    for file in (shipped_folder("tiny-latte") / "tokenizer").iterdir():
        shutil.copy(file, root / "t5")
    return root


def settings(released: Path, **changes: Any) -> ModelSettings:
    own = {"text_encoder": released / "t5"} | changes.pop("latte", {})
    own |= {name: changes.pop(name) for name in LatteSettings.model_fields if name in changes}
    values = {"family": "latte", "path": released / "5x64x64", "latte": own} | changes
    return ModelSettings(**values)


def same(one: Family, other: Family) -> bool:
    return all(
        torch.equal(tensor, other.parts()[part].state_dict()[name])
        for part, module in one.parts().items()
        for name, tensor in module.state_dict().items()
    )


def noised(x: Tensor, *timesteps: int) -> Noised:
    t = torch.tensor(timesteps)
    return Noised(x, x, x, x, t, t.float())
