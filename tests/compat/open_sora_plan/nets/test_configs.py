"""Configurations of networks: which are read, and which are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from small_nets import released

from mezzotint.compat.open_sora_plan.nets.causal_vae import CausalVAEConfig
from mezzotint.compat.open_sora_plan.nets.latte import LatteConfig
from mezzotint.errors import WeightsError


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q_conv": None}, "lacks q_conv; use the config.json that came with the weights of v1.1"),
        ({"encoder_attention": "AttnBlock3D"}, "encoder_attention has 'AttnBlock3D'.*v1.0"),
        ({"encoder_temporal_downsample": ["", "TimeDownsample2x", "TimeDownsample2x", ""]}, "TimeDownsample2x"),
        ({"encoder_conv_in": "CausalConv3d"}, "encoder_conv_in has 'CausalConv3d'"),
        ({"attn_resolutions": [16]}, "attn_resolutions"),
        ({"dropout": 0.1}, "dropout has 0.1"),
        ({"hidden_size": 48}, "hidden_size must be divisible by 32"),
        ({"embed_dim": "4"}, "embed_dim must be an integer"),
        ({"hidden_size_mult": [1, 2, 4]}, "has 4 entries, but hidden_size_mult has 3"),
        ({"decoder_spatial_upsample": ["", "", "SpatialUpsample2x", "SpatialUpsample2x"]}, "does not match"),
    ],
)
def test_configuration_of_another_version_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(WeightsError, match=message) as met:
        CausalVAEConfig.read(released("latte-17f", "vae") | change, "vae/config.json")
    assert met.value.code == "E1409"


def test_training_fields_are_ignored() -> None:
    config = released("latte-17f", "vae") | {
        "lr": 1e-5,
        "loss_type": "lpips",
        "loss_params": {"kl_weight": 1e-6},
        "resolution": 256,
    }
    assert CausalVAEConfig.read(config) == CausalVAEConfig()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"video_length": None}, "lacks video_length"),
        ({"activation_fn": "geglu"}, "activation_fn is 'geglu'"),
        ({"dropout": 0.1}, "dropout is 0.1"),
        ({"patch_size_t": 2}, "patch_size_t is 2"),
        ({"num_layers": "28"}, "num_layers must be an integer"),
        ({"num_layers": True}, "num_layers must be an integer"),
        ({"sample_size": [64]}, "sample_size must be"),
        ({"sample_size": 64.0}, "sample_size must be"),
        ({"use_rope": "yes"}, "use_rope must be true or false"),
        ({"norm_eps": 0}, "norm_eps must be a number above 0"),
        ({"cross_attention_dim": 768}, "cross_attention_dim is 768; it must be 1152"),
        ({"use_rope": True, "compress_kv_factor": 2}, "use_rope with a compress_kv_factor above 1"),
        ({"attention_head_dim": 71, "num_attention_heads": 1, "cross_attention_dim": 71}, "must be divisible by 4"),
    ],
)
def test_configuration_of_another_network_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(WeightsError, match=message) as met:
        LatteConfig.read(released("latte-17f") | change, "x/config.json")
    assert met.value.code == "E1409"


@pytest.mark.parametrize(
    ("change", "time", "plane"),
    [
        ({"video_length": 1}, 1, 1),
        ({"video_length": 129}, 8, 1),
        ({"video_length": 33, "sample_size": [128, 64]}, 2, 2),
        ({"interpolation_scale_1d": 2.5, "sample_size": [32, 32]}, 2.5, 1),
    ],
)
def test_positions_are_scaled_to_the_configured_size(change: dict[str, Any], time: float, plane: int) -> None:
    config = LatteConfig.read(released("latte-17f") | change)
    assert (config.time_scale, config.plane_scale) == (time, plane)


def test_fields_unrelated_to_the_network_are_ignored() -> None:
    plain = LatteConfig.read(released("latte-17f"))
    config = released("latte-17f") | {"hidden_size": 300, "attention_mode": "math", "enable_flash_attention": True}
    assert LatteConfig.read(config | {"compress_kv_factor": None, "sample_size": 64}) == plain == LatteConfig()
