"""Stages of sampling: first frames, and the dtype of each network."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from mezzotint.families.sd import Family
from support.sample_command import draw


def test_first_frame_is_recorded_with_path_and_digest(tmp_path: Path) -> None:
    begin = tmp_path / "deep" / "begin.png"
    begin.parent.mkdir()
    Image.new("RGB", (40, 40), "red").save(begin)
    words = [f"sample.image={begin}", "sample.strength=0.5", "--spacing=stability"]
    ((_, facts),) = draw(tmp_path / "out", "--prompt=a", *words).values()
    assert facts["image"] == str(begin)
    assert facts["image_sha256"] == hashlib.sha256(begin.read_bytes()).hexdigest()
    assert (facts["strength"], facts["data.resize"]) == ("0.5", "lanczos")


def test_only_the_denoiser_computes_in_low_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, bool] = {}

    def noting(name: str) -> None:
        plain = getattr(Family, name)

        def run(self: Family, *arguments: Any) -> Any:
            seen[name] = torch.is_autocast_enabled("cpu")
            return plain(self, *arguments)

        monkeypatch.setattr(Family, name, run)

    for name in ("encode_text", "predict", "encode_media", "decode_media"):
        noting(name)
    image = tmp_path / "begin.png"
    Image.new("RGB", (32, 32), "red").save(image)
    draw(tmp_path / "out", "--prompt=a fox", "run.precision=bf16", f"sample.image={image}", "--solver=euler")
    # a float32 autoencoder could overflow in the denoiser's autocast, as that of SDXL does in fp16
    assert seen == {"encode_text": False, "predict": True, "encode_media": False, "decode_media": False}


def test_black_images_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Family, "decode_media", lambda self, latents: torch.full((len(latents), 3, 32, 32), torch.nan))
    draw(tmp_path / "out", "--prompt=a fox")
    said = "".join(capsys.readouterr())
    assert "warning: a generated image has values that are not finite and is black there" in said
    assert "run.vae_dtype=fp32" in said
