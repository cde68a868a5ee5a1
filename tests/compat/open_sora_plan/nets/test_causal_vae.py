"""The causal video autoencoder: names of the released size, frame law, causality, pieces and their memory."""

from __future__ import annotations

import pytest
import torch
from small_nets import clip, released

from mezzotint.compat.open_sora_plan.nets.causal_vae import CausalVAE, CausalVAEConfig, posterior
from mezzotint.weights.folder.state import build_on_meta


@pytest.mark.parametrize("name", ["latte-17f", "latte-65f", "latte-221f"])
def test_released_autoencoder_configuration_gives_its_tensors(name: str) -> None:
    config = CausalVAEConfig.read(released(name, "vae"))
    assert config == CausalVAEConfig()
    assert (config.pixels, config.frames) == (8, 4)
    network = build_on_meta(lambda: CausalVAE(config))
    names = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    assert len(names) == 260
    assert sum(p.numel() for p in network.parameters()) == 246_859_499
    assert sum(p.numel() for p in network.encoder.parameters()) == pytest.approx(97.3e6, rel=1e-3)
    assert sum(p.numel() for p in network.decoder.parameters()) == pytest.approx(149.5e6, rel=1e-3)
    for key, shape in {
        "encoder.conv_in.weight": (128, 3, 3, 3),
        "encoder.down.0.block.0.conv1.weight": (128, 128, 3, 3),
        "encoder.down.2.block.0.nin_shortcut.conv.weight": (512, 256, 1, 1, 1),
        "encoder.down.2.downsample.conv.weight": (512, 512, 3, 3),
        "encoder.down.1.time_downsample.conv.weight": (256, 256, 3, 3, 3),
        "encoder.down.2.time_downsample.mix_factor": (1,),
        "encoder.mid.attn_1.q.conv.weight": (512, 512, 1, 1, 1),
        "encoder.conv_out.conv.weight": (8, 512, 3, 3, 3),
        "decoder.up.3.time_upsample.conv.conv.weight": (512, 512, 3, 3, 3),
        "decoder.up.1.upsample.conv.conv.weight": (256, 256, 1, 3, 3),
        "quant_conv.conv.weight": (8, 8, 1, 1, 1),
        "post_quant_conv.conv.weight": (4, 4, 1, 1, 1),
    }.items():
        assert names[key] == shape
    assert not any(key.startswith(("encoder.down.0.time", "encoder.down.3.down", "decoder.up.0.up")) for key in names)


@pytest.mark.parametrize(("frames", "latents"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (17, 5)])
def test_n_frames_become_1_plus_a_quarter_of_the_others(frames: int, latents: int, network: CausalVAE) -> None:
    moments = network.encode(clip(frames))
    assert moments.shape == (1, 8, latents, 2, 2)
    assert network.latent_frames(frames) == latents
    mean, log_variance = posterior(moments)
    assert network.decode(mean).shape == (1, 3, 4 * (latents - 1) + 1, 16, 16)
    assert log_variance.shape == mean.shape == (1, 4, latents, 2, 2)
    assert [network.latent_frames(n) for n in (65, 221, 513)] == [17, 56, 129]


def test_posterior_clamps_the_variance_and_is_float32() -> None:
    moments = torch.tensor([1.0, -50.0, 2.0, 50.0], dtype=torch.bfloat16).view(1, 4, 1, 1, 1)
    mean, log_variance = posterior(moments)
    assert mean.flatten().tolist() == [1, -50]
    assert log_variance.flatten().tolist() == [2, 20]
    assert posterior(-moments)[1].flatten().tolist() == [-2, -30]
    assert mean.dtype == log_variance.dtype == torch.float32
