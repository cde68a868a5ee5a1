"""Tensor names in Black Forest Labs' files for layers that FLUX.1 and FLUX.2 share."""

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
