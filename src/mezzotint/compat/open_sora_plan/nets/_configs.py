"""Configurations of networks, read from their config.json and checked against the supported values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mezzotint.errors import WeightsError

_VAE_COUNTS = ("hidden_size", "z_channels", "embed_dim", "num_res_blocks")
_CONVS = ("q_conv", "encoder_conv_out", "decoder_conv_in", "decoder_conv_out")
_VAE_FIXED: Mapping[str, Any] = dict.fromkeys(_CONVS, "CausalConv3d") | {
    "encoder_conv_in": "Conv2d",
    "encoder_attention": "AttnBlock3DFix",
    "encoder_mid_resnet": "ResnetBlock3D",
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
    """A causal video autoencoder with the layers of Open-Sora-Plan v1.1. The defaults are those of the released
    CausalVAEModel_4x8x8.

    hidden_size, hidden_size_mult: channels, and their factor in each level, from the finest. num_res_blocks: per level
    of the encoder; the decoder has one more. z_channels: of the encoder's output, embed_dim: of the latents. flat:
    which levels of the encoder process single frames. shrinks, shrinks_time: which levels halve the image, the number
    of frames; grows, grows_time: which levels of the decoder double them.
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
        """Reads a config.json of CausalVAEModel; keys of its training (loss, rates) are ignored.

        where: the file, for messages. Raises WeightsError E1409 for a missing key (the default would be the layers of
        v1.0) or other layers than those of v1.1.
        """
        needed = (*_VAE_COUNTS, "hidden_size_mult", *_VAE_FIXED, *_BY_LEVEL)
        lacking = [name for name in needed if config.get(name) is None]
        if lacking:
            reason = f"lacks {', '.join(lacking[:4])}; use the config.json that came with the weights of v1.1"
            raise _unusable(where, reason)
        if config.get("attn_resolutions"):
            raise _unusable(where, f"attn_resolutions is {config['attn_resolutions']!r}; v1.1 has []")
        for name, only in {**_VAE_FIXED, **_OTHERWISE}.items():
            if config.get(name, only) != only:
                raise _of_another_version(where, name, config[name], repr(only))
        for name, value in [(n, config[n]) for n in _VAE_COUNTS] + [
            ("hidden_size_mult", f) for f in config["hidden_size_mult"]
        ]:
            _require_count(name, value, where)
        if config["hidden_size"] % 32:
            raise _unusable(
                where, f"hidden_size must be divisible by 32, the groups of its norms; got {config['hidden_size']}"
            )
        level = _levels(config, where)
        return cls(
            **{name: config[name] for name in _VAE_COUNTS},
            hidden_size_mult=tuple(config["hidden_size_mult"]),
            flat=tuple(name == "ResnetBlock2D" for name in level["encoder_resnet_blocks"]),
            shrinks=tuple(map(bool, level["encoder_spatial_downsample"])),
            shrinks_time=tuple(map(bool, level["encoder_temporal_downsample"])),
            grows=tuple(map(bool, level["decoder_spatial_upsample"])),
            grows_time=tuple(map(bool, level["decoder_temporal_upsample"])),
        )

    def __post_init__(self) -> None:
        if sum(self.shrinks) != sum(self.grows) or sum(self.shrinks_time) != sum(self.grows_time):
            raise _unusable("CausalVAE", "the upsampling of the decoder does not match the downsampling of the encoder")

    @property
    def pixels(self) -> int:
        """Pixels per latent, in height and width: 8."""
        return 1 << sum(self.shrinks)

    @property
    def frames(self) -> int:
        """Frames per latent after the first: 4."""
        return 1 << sum(self.shrinks_time)


def _levels(config: Mapping[str, Any], where: str) -> dict[str, list[str]]:
    count = len(config["hidden_size_mult"])
    for name, allowed in _BY_LEVEL.items():
        if len(config[name]) != count:
            raise _unusable(where, f"{name} has {len(config[name])} entries, but hidden_size_mult has {count}")
        for layer in config[name]:
            if layer not in allowed:
                raise _of_another_version(where, name, layer, " or ".join(map(repr, allowed)))
    return {name: list(config[name]) for name in _BY_LEVEL}


def _of_another_version(where: str, name: str, met: object, allowed: str) -> WeightsError:
    return _unusable(
        where,
        f"{name} has {met!r}, but the autoencoder of v1.1 has {allowed}; this may be another version (v1.0?): use "
        "the folder `vae` of Open-Sora-Plan v1.1.0",
    )


_LATTE_FIXED: Mapping[str, Any] = {
    "patch_size_t": 1, "activation_fn": "gelu-approximate", "norm_type": "ada_norm_single",
    "norm_elementwise_affine": False, "attention_type": "default", "double_self_attention": False,
    "only_cross_attention": False, "num_vector_embeds": None, "rope_scaling_type": "linear", "dropout": 0.0,
}  # fmt: skip
_LATTE_NEEDED = (
    "num_layers", "num_attention_heads", "attention_head_dim", "in_channels", "out_channels", "patch_size",
    "sample_size", "video_length", "caption_channels",
)  # fmt: skip
_LATTE_COUNTS = (*(name for name in _LATTE_NEEDED if name != "sample_size"), "compress_kv_factor", "model_max_length")


@dataclass(frozen=True, slots=True)
class LatteConfig:
    """A LatteT2V. The defaults are those of the released LatteT2V-XL/122 for 17 frames of 512 × 512 pixels.

    sample_size: rows and columns of the latents of the 2D position table. video_length: latent frames of the temporal
    scale: 5, 17, 56 for clips of 17, 65, 221 frames. interpolation_scale_1d: that scale, derived from video_length if
    it is None. compress_kv_factor: factor by which the later half of the layers compresses keys and values in each
    direction, 1 for no compression. use_rope: rotary positions in addition to the tables. model_max_length: text
    tokens; the network accepts any number.
    """

    num_layers: int = 28
    num_attention_heads: int = 16
    attention_head_dim: int = 72
    in_channels: int = 4
    out_channels: int = 8
    patch_size: int = 2
    sample_size: tuple[int, int] = (64, 64)
    video_length: int = 5
    caption_channels: int = 4096
    attention_bias: bool = True
    norm_eps: float = 1e-6
    compress_kv_factor: int = 1
    use_rope: bool = False
    interpolation_scale_1d: float | None = None
    model_max_length: int = 300

    @classmethod
    def read(cls, config: Mapping[str, Any], where: str = "config.json") -> LatteConfig:
        """Reads a config.json of LatteT2V, or of diffusers' LatteTransformer3DModel; keys that do not describe the
        network are ignored.

        where: the file, for messages. Raises WeightsError E1409 for a key that is missing, has the wrong type, or
        describes a network that is not a LatteT2V.
        """
        lacking = [name for name in _LATTE_NEEDED if config.get(name) is None]
        if lacking:
            raise _unusable(where, f"lacks {', '.join(lacking)}; use the config.json that came with the weights")
        for name, only in _LATTE_FIXED.items():
            if config.get(name, only) != only:
                raise _unusable(where, f"{name} is {config[name]!r}, but a LatteT2V has {only!r}; set it so")
        side = config["sample_size"]
        values = {name: config[name] for name in cls.__slots__ if name in config} | {
            "sample_size": (side, side) if not isinstance(side, (list, tuple)) else tuple(side)
        }
        if config.get("compress_kv_factor") is None:
            values.pop("compress_kv_factor", None)
        _check_values(values, where)
        settings = cls(**values)
        if config.get("cross_attention_dim") not in (None, settings.width):
            reason = f"cross_attention_dim is {config['cross_attention_dim']!r}; it must be {settings.width}"
            raise _unusable(where, reason)
        return settings

    def __post_init__(self) -> None:
        if self.use_rope and self.compress_kv_factor != 1:
            raise _unusable(
                "LatteT2V",
                "use_rope with a compress_kv_factor above 1: compressed keys have no rotary positions; choose one",
            )
        if self.width % 4 or (self.use_rope and self.attention_head_dim % 4):
            raise _unusable(
                "LatteT2V",
                f"{self.num_attention_heads} heads of {self.attention_head_dim} cannot be split into sines and "
                "cosines of two directions; heads × size (with use_rope the size itself) must be divisible by 4",
            )

    @property
    def width(self) -> int:
        """Channels of a token."""
        return self.num_attention_heads * self.attention_head_dim

    @property
    def base_cells(self) -> int:
        """Patches along a side that the 2D position table is scaled to; both directions use that of the height."""
        return self.sample_size[0] // self.patch_size

    @property
    def plane_scale(self) -> int:
        """The divisor of 2D positions: 1 at 512 pixels, 2 at 1024."""
        return max(self.sample_size[0] // 64, 1)

    @property
    def time_scale(self) -> float:
        """The divisor of temporal positions: 1 for 17 and 65 frames, 3 for 221, 8 for 513."""
        if self.interpolation_scale_1d is not None:
            return self.interpolation_scale_1d
        return max((self.video_length - self.video_length % 2) // 16, 1)

    def compresses(self, layer: int) -> bool:
        """Whether a layer compresses its keys and values: the later half, with a factor above 1."""
        return self.compress_kv_factor > 1 and layer >= self.num_layers // 2


def _check_values(values: Mapping[str, Any], where: str) -> None:
    for name in _LATTE_COUNTS:
        _require_count(name, values.get(name, 1), where)
    sides = values["sample_size"]
    if len(sides) != 2 or not all(isinstance(s, int) and s >= values["patch_size"] for s in sides):
        raise _unusable(where, f"sample_size must be one or two integers, in latents, got {sides!r}")
    for name in ("attention_bias", "use_rope"):
        if not isinstance(values.get(name, False), bool):
            raise _unusable(where, f"{name} must be true or false, got {values[name]!r}")
    for name in ("norm_eps", "interpolation_scale_1d"):
        value = values.get(name)
        if value is not None and (not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0):
            raise _unusable(where, f"{name} must be a number above 0, got {value!r}")


def _require_count(name: str, value: object, where: str) -> None:
    """Raises WeightsError E1409 for anything but an integer above 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _unusable(where, f"{name} must be an integer above 0, got {value!r}")


def _unusable(where: str, reason: str) -> WeightsError:
    """The error of an invalid configuration."""
    return WeightsError(f"{where}: {reason}", code="E1409")
