"""Overlay files replace only the tensors that they contain."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from mezzotint.weights.files import fingerprint
from mezzotint.weights.single_file.overlay import Overlay
from support.sd_folder import FOLDER


def test_overlay_replaces_only_its_tensors(tmp_path: Path) -> None:
    file = tmp_path / "over.safetensors"
    own = load_file(FOLDER / "unet" / "diffusion_pytorch_model.safetensors")
    save_file({"conv_in.bias": own["conv_in.bias"] + 1}, file)
    overlay = Overlay(FOLDER, (file,))
    overlay.require_fit()
    assert overlay.touches("unet")
    assert not overlay.touches("vae")
    assert overlay.digests("unet") == [fingerprint.of_file(file)]
    stored = overlay.component("unet")
    assert stored.path == file
    assert stored.header().keys() == own.keys()
    tensors = stored.read_all()
    assert [name for name in own if not torch.equal(own[name], tensors[name])] == ["conv_in.bias"]
    assert list(overlay.notes()) == [f"model.over: 1 of {len(own)} tensors of unet from {file}"]
