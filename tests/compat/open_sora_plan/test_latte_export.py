"""A LatteT2V as it is written: as released, and for diffusers where its class computes the same."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from diffusers.models.transformers.latte_transformer_3d import LatteTransformer3DModel
from latte_folder import noised, same, settings

from mezzotint.compat.open_sora_plan.latte import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.stages import Condition, TextEmbedding
from mezzotint.weights.folder.model_folder import shipped_folder
from support.model_export import export_model, load_model


def test_export_opens_as_released_and_in_diffusers(released: Path, tmp_path: Path) -> None:
    base = settings(released)
    family = load_model(Family, base, only=["denoiser"])
    trained = {f"denoiser/{n}": t + 0.01 * t.sin() for n, t in family.parts()["denoiser"].named_parameters()}
    out = tmp_path / "out"
    export_model(family, out, trained)
    again = Family.of(settings(released, path=out))
    for name, tensor in again.parts()["denoiser"].named_parameters():
        assert torch.equal(tensor, trained[f"denoiser/{name}"])
    assert same(again, Family.of(settings(released, path=out, vae=released / "vae")))
    theirs = LatteTransformer3DModel.from_pretrained(str(out), subfolder="transformer", local_files_only=True)
    text = again.encode_text(["a cat", "a dog"])
    x = torch.randn(2, 4, 2, 4, 6, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        ours = again.predict(noised(x, 1, 800), Condition(TextEmbedding(text.states)))
        expected = theirs(x, torch.tensor([1, 800]), text.states).sample
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)
    first, second = (p / "diffusion_pytorch_model.safetensors" for p in (out, out / "transformer"))
    assert first.samefile(second)
    assert (out / "vae" / "config.json").read_bytes() == (released / "vae" / "config.json").read_bytes()
    assert not (out / "text_encoder").exists()
    assert json.loads((out / "scheduler" / "scheduler_config.json").read_text())["beta_schedule"] == "linear"


def test_export_incompatible_with_diffusers_is_not_written_for_it(tmp_path: Path) -> None:
    for name, changes in {"rope": {"rope": True}, "long": {"video_length": 56}}.items():
        section = ModelSettings(family="latte", path=shipped_folder("tiny-latte"), weights="random", latte=changes)
        family = load_model(Family, section)
        out = tmp_path / name
        export_model(family, out, dtype="bf16")
        assert not (out / "transformer").exists()
        again = Family.of(ModelSettings(family="latte", path=out))  # all parts are in it: they were random
        assert again.parts()["denoiser"].config == family.parts()["denoiser"].config
        output = again.encode_text(["a cat"])
        assert output.states.isfinite().all()
