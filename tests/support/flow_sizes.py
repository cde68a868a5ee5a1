"""Denoisers of flow-matching models in their published sizes."""

from __future__ import annotations

from typing import Any

SD3 = {"attention_head_dim": 64, "joint_attention_dim": 4096, "pooled_projection_dim": 2048, "pos_embed_max_size": 8}
SD35 = SD3 | {"qk_norm": "rms_norm"}
FLUX = {"joint_attention_dim": 4096, "pooled_projection_dim": 768, "in_channels": 64}
WAN = {"attention_head_dim": 128, "text_dim": 4096}
KLEIN = {"attention_head_dim": 128, "in_channels": 128, "guidance_embeds": False}
FULL: dict[str, tuple[str, dict[str, Any], int]] = {
    "sd3": ("sd3", SD3 | {"num_layers": 24, "num_attention_heads": 24, "caption_projection_dim": 1536}, 2_028_328_000),
    "sd3.5-medium": (
        "sd3",
        SD35 | {"num_layers": 24, "num_attention_heads": 24, "caption_projection_dim": 1536,
                "dual_attention_layers": list(range(13))},
        2_243_171_520,
    ),
    "sd3.5-large": (
        "sd3", SD35 | {"num_layers": 38, "num_attention_heads": 38, "caption_projection_dim": 2432}, 8_056_627_520,
    ),
    "flux-dev": ("flux", FLUX | {"guidance_embeds": True}, 11_901_408_320),
    "flux-schnell": ("flux", FLUX, 11_891_178_560),
    "chroma": ("chroma", {}, 8_899_983_424),
    "z-image": ("z-image", {}, 6_154_908_736),
    "qwen-image": ("qwen-image", {}, 20_430_401_088),
    "krea2": ("krea2", {}, 12_820_073_036),
    "wan-1.3b": ("wan", WAN | {"num_attention_heads": 12, "ffn_dim": 8960, "num_layers": 30}, 1_418_996_800),
    "wan-5b": ("wan", WAN | {"num_attention_heads": 24, "ffn_dim": 14336, "num_layers": 30, "in_channels": 48,
                             "out_channels": 48}, 4_999_787_712),
    "wan-14b": ("wan", WAN | {"num_attention_heads": 40, "ffn_dim": 13824, "num_layers": 40}, 14_288_491_584),
    "wan-i2v-14b": (
        "wan",
        WAN | {"num_attention_heads": 40, "ffn_dim": 13824, "num_layers": 40, "in_channels": 36, "image_dim": 1280,
               "added_kv_proj_dim": 5120},
        16_394_878_784,
    ),
    "wan-i2v-a14b": (
        "wan", WAN | {"num_attention_heads": 40, "ffn_dim": 13824, "num_layers": 40, "in_channels": 36}, 14_288_901_184,
    ),
    "ltx-2b": ("ltx", {}, 1_923_385_472),
    "ltx-13b": ("ltx", {"attention_head_dim": 128, "cross_attention_dim": 4096, "num_layers": 48}, 13_042_569_344),
    "flux2-dev": ("flux2", {}, 32_223_281_152),
    "klein-4b": ("flux2", KLEIN | {"num_layers": 5, "num_single_layers": 20, "num_attention_heads": 24,
                                   "joint_attention_dim": 7680}, 3_875_544_576),
    "klein-9b": ("flux2", KLEIN | {"num_layers": 8, "num_single_layers": 24, "num_attention_heads": 32,
                                   "joint_attention_dim": 12288}, 9_078_581_248),
}  # fmt: skip
"""Published models: the family, what their configuration says beyond the class's own values, their parameters. SD3's
table of positions, which is none, is smaller than theirs: it takes seconds to work out."""
