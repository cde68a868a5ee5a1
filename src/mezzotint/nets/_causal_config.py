"""The configuration of a causal video autoencoder: what its config.json says, checked against the layers there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mezzotint.errors import WeightsError

_COUNTS = ("hidden_size", "z_channels", "embed_dim", "num_res_blocks")
_FIXED: Mapping[str, Any] = {
    "q_conv": "CausalConv3d",
    "encoder_conv_in": "Conv2d",
    "encoder_conv_out": "CausalConv3d",
    "encoder_attention": "AttnBlock3DFix",
    "encoder_mid_resnet": "ResnetBlock3D",
    "decoder_conv_in": "CausalConv3d",
    "decoder_conv_out": "CausalConv3d",
    "decoder_attention": "AttnBlock3DFix",
    "decoder_mid_resnet": "ResnetBlock3D",
}
_BY_LEVEL: Mapping[str, tuple[str, ...]] = {
    "encoder_resnet_blocks": ("ResnetBlock2D", "ResnetBlock3D"),
    "encoder_spatial_downsample": ("", "Downsample"),
    "encoder_temporal_downsample": ("", "TimeDownsampleRes2x"),
    "decoder_resnet_blocks": ("ResnetBlock3D",),
    "decoder_spatial_upsample": ("", "SpatialUpsample2x"),
    "decoder_temporal_upsample": ("", "TimeUpsampleRes2x"),
}
_OTHERWISE: Mapping[str, Any] = {"double_z": True, "dropout": 0.0, "in_channels": 3, "out_channels": 3}


@dataclass(frozen=True, slots=True)
class CausalVAEConfig:
    """A causal video autoencoder of the layers of Open-Sora-Plan v1.1. The defaults are CausalVAEModel_4x8x8 as it was
    released.

    hidden_size, hidden_size_mult: channels, and their factor in each level, the finest first. num_res_blocks: of a
    level of the encoder; the decoder has one more. z_channels: of the encoder's output, embed_dim: of the latents.
    flat: which levels of the encoder look at one frame alone. shrinks, shrinks_time: which halve the picture, the
    frames; grows, grows_time: which levels of the decoder double them.
    """

    hidden_size: int = 128
    hidden_size_mult: tuple[int, ...] = (1, 2, 4, 4)
    num_res_blocks: int = 2
    z_channels: int = 4
    embed_dim: int = 4
    flat: tuple[bool, ...] = (True, True, False, False)
    shrinks: tuple[bool, ...] = (True, True, True, False)
    shrinks_time: tuple[bool, ...] = (False, True, True, False)
    grows: tuple[bool, ...] = (False, True, True, True)
    grows_time: tuple[bool, ...] = (False, False, True, True)

    @classmethod
    def read(cls, config: Mapping[str, Any], where: str = "config.json") -> CausalVAEConfig:
        """From a config.json of CausalVAEModel; keys of its training (loss, rates) are ignored.

        where: the file, for messages. Raises WeightsError E1409 for a key that is missing (its class would take the
        layers of v1.0 there) or asks for other layers than those of v1.1.
        """
        needed = (*_COUNTS, "hidden_size_mult", *_FIXED, *_BY_LEVEL)
        lacking = [name for name in needed if config.get(name) is None]
        if lacking:
            raise _unusable(
                where, f"lacks {', '.join(lacking[:4])}; take the config.json that came with the weights of v1.1"
            )
        if config.get("attn_resolutions"):
            raise _unusable(where, f"attn_resolutions is {config['attn_resolutions']!r}; v1.1 has [] there")
        for name, only in {**_FIXED, **_OTHERWISE}.items():
            if config.get(name, only) != only:
                raise _of_another_version(where, name, config[name], repr(only))
        _refuse_strange_counts(config, where)
        level = _levels(config, where)
        return cls(
            **{name: config[name] for name in _COUNTS},
            hidden_size_mult=tuple(config["hidden_size_mult"]),
            flat=tuple(name == "ResnetBlock2D" for name in level["encoder_resnet_blocks"]),
            shrinks=tuple(map(bool, level["encoder_spatial_downsample"])),
            shrinks_time=tuple(map(bool, level["encoder_temporal_downsample"])),
            grows=tuple(map(bool, level["decoder_spatial_upsample"])),
            grows_time=tuple(map(bool, level["decoder_temporal_upsample"])),
        )

    def __post_init__(self) -> None:
        if sum(self.shrinks) != sum(self.grows) or sum(self.shrinks_time) != sum(self.grows_time):
            raise _unusable("CausalVAE", "the decoder does not grow by what the encoder shrinks")

    @property
    def pixels(self) -> int:
        """Pixels per latent, in height and width: 8."""
        return 1 << sum(self.shrinks)

    @property
    def frames(self) -> int:
        """Frames per latent after the first: 4."""
        return 1 << sum(self.shrinks_time)


def _refuse_strange_counts(config: Mapping[str, Any], where: str) -> None:
    factors = config["hidden_size_mult"]
    for name, value in [(n, config[n]) for n in _COUNTS] + [("hidden_size_mult", f) for f in factors]:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise _unusable(where, f"{name} must be whole numbers above 0, got {value!r}")
    if config["hidden_size"] % 32:
        raise _unusable(where, f"hidden_size must divide by 32, the groups of its norms; got {config['hidden_size']}")


def _levels(config: Mapping[str, Any], where: str) -> dict[str, list[str]]:
    count = len(config["hidden_size_mult"])
    for name, known in _BY_LEVEL.items():
        if len(config[name]) != count:
            raise _unusable(where, f"{name} has {len(config[name])} entries, and hidden_size_mult {count}")
        for layer in config[name]:
            if layer not in known:
                raise _of_another_version(where, name, layer, " or ".join(map(repr, known)))
    return {name: list(config[name]) for name in _BY_LEVEL}


def _of_another_version(where: str, name: str, met: object, known: str) -> WeightsError:
    return _unusable(
        where,
        f"{name} has {met!r}, and the autoencoder of v1.1 has {known}; this looks like another version's (v1.0?): take "
        "the folder `vae` of Open-Sora-Plan v1.1.0",
    )


def _unusable(where: str, reason: str) -> WeightsError:
    return WeightsError(f"{where}: {reason}", code="E1409")
