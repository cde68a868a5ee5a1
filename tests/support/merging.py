"""A trained denoiser and the model it is merged into, for the tests of `merge`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from diffusers import StableDiffusionXLPipeline
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.families.sdxl import Family
from mezzotint.tasks.weights import convert
from mezzotint.tasks.weights import merge as verb
from mezzotint.weights.files import tensor_files
from support.model_export import files_of

UNET = "unet/diffusion_pytorch_model.safetensors"


def merged(*words: object) -> None:
    assert verb.run([str(word) for word in words]) == 0


def same(ours: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
    return ours.keys() == expected.keys() and all(torch.equal(ours[name], expected[name]) for name in expected)


def scaled(family: Family, file: Path, factor: float, dtype: Any = "fp32") -> dict[str, Tensor]:
    """Writes the denoiser with all its numbers multiplied, alone; returns its tensors as diffusers names them."""
    state = {n: t.detach() * factor for n, t in family.parts()["denoiser"].state_dict().items()}
    weights = {f"denoiser/{n}": t for n, t in state.items()}
    family.export_parts(file, ["denoiser"], files_of(family), weights=weights, dtype=dtype)
    return state


def require_a_denoiser_takes_its_place(
    forms: dict[str, Path],
    family: Family,
    base: str,
    ending: str,
    tmp_path: Path,
    capsys: Any,
    *,
    written: Sequence[str],
) -> None:
    """A trained denoiser in a file of an ending takes its place in a base of a form. written: files that are made of
    both, which are what converting the folder gives."""
    state = scaled(family, tmp_path / f"unet_1000{ending}", 2.0)
    sources = [forms[base], tmp_path / f"unet_1000{ending}"]
    config = () if base == "folder" else (f"--config={forms['folder']}",)
    merged(*sources, tmp_path / "model", *config)
    said = capsys.readouterr().out
    assert f"unet: {len(state)} tensors from {sources[1]}" in said
    assert f"tensors from {sources[0]}" in said
    assert same(load_file(tmp_path / "model" / UNET), state)
    opened: Any = StableDiffusionXLPipeline.from_pretrained(str(tmp_path / "model"), local_files_only=True)
    vae = family.parts()["vae"].state_dict()
    assert all(torch.equal(tensor, vae[name]) for name, tensor in opened.vae.state_dict().items())

    # the same as files, which are what converting that folder gives
    for name in written:
        merged(*sources, tmp_path / name, *config)
        assert convert.run([str(tmp_path / "model"), str(tmp_path / f"other-{name}")]) == 0
        assert same(tensor_files.read(tmp_path / name), tensor_files.read(tmp_path / f"other-{name}"))
