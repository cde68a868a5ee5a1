"""Other programs read what is written as one file."""

from __future__ import annotations

from pathlib import Path

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import StableDiffusionPipeline
from safetensors.torch import load_file

from mezzotint.cli import main
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from support.sd_folder import FOLDER


def convert(*words: object) -> None:
    assert main(["convert", *map(str, words)]) == 0


def test_diffusers_reads_what_is_written(sd1: Path, sd2: tuple[Path, Path]) -> None:
    for path, folder in ((sd1, FOLDER), (sd2[1], sd2[0])):
        ours = Family.of(ModelSettings(path=folder))
        unet = UNet2DConditionModel.from_single_file(str(path), config=str(folder), subfolder="unet")
        vae = AutoencoderKL.from_single_file(str(path), config=str(folder), subfolder="vae")
        for theirs, part in ((unet, "denoiser"), (vae, "vae")):
            state = ours.parts()[part].state_dict()
            assert theirs.state_dict().keys() == state.keys()
            assert all(torch.equal(tensor, state[name]) for name, tensor in theirs.state_dict().items())


def test_diffusers_pipeline_reads_it_whole(sd1: Path, sd2: tuple[Path, Path]) -> None:
    for path, folder in ((sd1, FOLDER), (sd2[1], sd2[0])):
        pipeline = StableDiffusionPipeline.from_single_file(str(path), config=str(folder), local_files_only=True)
        with torch.no_grad():
            states = pipeline.encode_prompt("a red circle", "cpu", 1, False)[0]
            expected = Family.of(ModelSettings(path=folder)).encode_text(["a red circle"]).states
        torch.testing.assert_close(states, expected)


def test_the_text_encoder_has_the_names_that_other_tools_expect(sd1: Path, sd2: tuple[Path, Path]) -> None:
    names = load_file(sd1).keys()
    assert "cond_stage_model.transformer.text_model.encoder.layers.0.self_attn.q_proj.weight" in names
    second = load_file(sd2[1])
    assert second["cond_stage_model.model.transformer.resblocks.0.attn.in_proj_weight"].shape == (96, 32)
    assert not any(name.startswith("cond_stage_model.transformer.") for name in second)
