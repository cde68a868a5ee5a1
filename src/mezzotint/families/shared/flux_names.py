"""Tensor names in Black Forest Labs' files for layers that FLUX.1, Chroma and FLUX.2 share."""

from __future__ import annotations

from mezzotint.weights.single_file.original import Renames

AROUND: Renames = (
    (r"\.linear_1\.", ".in_layer."),
    (r"\.linear_2\.", ".out_layer."),
    (r"^context_embedder\.", "txt_in."),
    (r"^x_embedder\.", "img_in."),
    (r"^proj_out\.", "final_layer.linear."),
    (r"^norm_out\.linear\.", "final_layer.adaLN_modulation.1."),
)
"""Layers before and after the blocks."""

ATTENTION: Renames = (
    (r"\.attn\.to_[qkv]\.", ".img_attn.qkv."),
    (r"\.attn\.add_[qkv]_proj\.", ".txt_attn.qkv."),
    (r"\.attn\.to_out\.0\.", ".img_attn.proj."),
    (r"\.attn\.to_add_out\.", ".txt_attn.proj."),
    (r"\.attn\.norm_added_", ".txt_attn.norm_"),
    (r"^(double.+)\.attn\.norm_", r"\1.img_attn.norm_"),
    (r"\.norm_q\.weight$", ".norm.query_norm.scale"),
    (r"\.norm_k\.weight$", ".norm.key_norm.scale"),
)
"""Attention; comes after a family's renames of its blocks."""

FLUX1: Renames = (
    *AROUND,
    (r"^single_transformer_blocks\.(\d+)\.norm\.linear\.", r"single_blocks.\1.modulation.lin."),
    (r"^single_transformer_blocks\.(\d+)\.(attn\.to_[qkv]|proj_mlp)\.", r"single_blocks.\1.linear1."),
    (r"^single_transformer_blocks\.(\d+)\.proj_out\.", r"single_blocks.\1.linear2."),
    (r"^single_transformer_blocks\.(\d+)\.attn\.", r"single_blocks.\1."),
    (r"^transformer_blocks\.", "double_blocks."),
    (r"\.norm1\.linear\.", ".img_mod.lin."),
    (r"\.norm1_context\.linear\.", ".txt_mod.lin."),
    (r"\.ff\.net\.(\d)(\.proj)?\.", r".img_mlp.\1."),
    (r"\.ff_context\.net\.(\d)(\.proj)?\.", r".txt_mlp.\1."),
    *ATTENTION,
)
"""Layers that FLUX.1 and Chroma share: all but those that embed time and conditions."""
