"""Models written as one file are read by other programs."""

from __future__ import annotations

from pathlib import Path

import torch
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import StableDiffusionPipeline
from safetensors.torch import load_file

from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from support.sd_folder import FOLDER


def test_diffusers_pipeline_loads_the_written_file(sd1: Path, sd2: tuple[Path, Path]) -> None:
    for path, folder in ((sd1, FOLDER), (sd2[1], sd2[0])):
        pipeline = StableDiffusionPipeline.from_single_file(str(path), config=str(folder), local_files_only=True)
        ours = Family.of(ModelSettings(path=folder))
        for theirs, part in ((pipeline.unet, "denoiser"), (pipeline.vae, "vae")):
            state = ours.parts()[part].state_dict()
            assert theirs.state_dict().keys() == state.keys()
            assert all(torch.equal(tensor, state[name]) for name, tensor in theirs.state_dict().items())
        with torch.no_grad():
            states = pipeline.encode_prompt("a red circle", "cpu", 1, False)[0]
            torch.testing.assert_close(states, ours.encode_text(["a red circle"]).states)


def test_text_encoder_has_the_names_that_other_tools_expect(sd1: Path, sd2: tuple[Path, Path]) -> None:
    names = load_file(sd1).keys()
    assert "cond_stage_model.transformer.text_model.encoder.layers.0.self_attn.q_proj.weight" in names
    second = load_file(sd2[1])
    assert second["cond_stage_model.model.transformer.resblocks.0.attn.in_proj_weight"].shape == (96, 32)
    assert not any(name.startswith("cond_stage_model.transformer.") for name in second)
