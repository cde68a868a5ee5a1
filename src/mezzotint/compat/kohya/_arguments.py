"""The arguments of adapters, `key=value`: `network_args`."""

from __future__ import annotations

from mezzotint.compat.kit.adapters import FACTORS
from mezzotint.compat.kit.dialect import ignored, row, waits

_KINDS = "ranks by kind of layer"
_LYCORIS = "of lycoris.kohya"

# fmt: off
NETWORK = (
    row("conv_dim", int, "model.adapter.targets", "rank of 3×3 convolutions, which have an adapter with it", least=1),
    row("conv_alpha", float, "model.adapter.alpha_pattern", "alpha of 3×3 convolutions, 1 without it", least=0),
    row("train_blocks", "all", "model.adapter.targets", "of FLUX.1", choices=("all", "double", "single")),
    row("split_qkv", False, "model.adapter.targets", "of FLUX.1 and SD3; always so in Mezzotint"),
    ignored("verbose", False, "it prints more"),
    *FACTORS,
    *(row(name, 0.0, "model.adapter.b_lr_ratio", "the same ratio, of some networks only", least=0) for name in (
        "loraplus_unet_lr_ratio", "loraplus_text_encoder_lr_ratio")),
    *(row(name, str, "model.adapter.rank_pattern optim.part_lr", "ranks of the blocks of a U-Net, 0 for no adapter")
      for name in ("block_dims", "conv_block_dims")),
    *(row(name, str, "model.adapter.alpha_pattern", "alphas of the blocks of a U-Net") for name in (
        "block_alphas", "conv_block_alphas")),
    *(row(name, str, "optim.part_lr", "factors of the rates of blocks of a U-Net, 0 for no adapter") for name in (
        "down_lr_weight", "mid_lr_weight", "up_lr_weight")),
    row("block_lr_zero_threshold", 0.0, "optim.part_lr", "factors up to this are 0"),
    *(row(name, int, "model.adapter.rank_pattern", "a rank of these layers, 0 for none", least=0) for name in (
        "img_attn_dim", "txt_attn_dim", "img_mlp_dim", "txt_mlp_dim", "img_mod_dim", "txt_mod_dim", "single_dim",
        "single_mod_dim", "context_attn_dim", "context_mlp_dim", "context_mod_dim", "x_attn_dim", "x_mlp_dim",
        "x_mod_dim")),
    *(row(name, str, "model.adapter.targets", "numbers of blocks, like 0,3-5; all, or none") for name in (
        "train_double_block_indices", "train_single_block_indices", "train_block_indices")),
    *(waits(name, str, _KINDS, "a rank of these layers") for name in ("in_dims", "emb_dims", "network_reg_dims")),
    waits("network_reg_lrs", str, "learning rates by name pattern", "pattern=rate"),
    waits("ggpo_beta", str, "GGPO", "noise of LoRA weights"),
    waits("ggpo_sigma", str, "GGPO", "noise of LoRA weights"),
    waits("train_t5xxl", False, "training of T5", "an adapter of T5"),
    waits("unit", str, "DyLoRA", "ranks trained together"),
    waits("enable_all_linear", str, "OFT", "all linear layers"),
    waits("enable_conv", str, "OFT", "convolutions, too"),
)
"""Arguments of the networks of sd-scripts."""

LYCORIS = (
    row("algo", "lora", "model.adapter.kind", _LYCORIS,
        choices=("lora", "locon", "loha", "lokr", "dylora", "glora", "full", "ia3", "diag-oft", "boft", "tlora")),
    row("preset", "full", "model.adapter.targets", _LYCORIS,
        choices=("full", "full-lin", "attn-mlp", "attn-only", "unet-transformer-only", "unet-convblock-only")),
    row("conv_dim", int, "model.adapter.rank_pattern", f"rank of convolutions, network_dim without it; {_LYCORIS}"),
    row("conv_alpha", float, "model.adapter.alpha_pattern",
        f"alpha of convolutions, network_alpha without it; {_LYCORIS}"),
    row("factor", -1, "model.adapter.factor", f"of lokr; {_LYCORIS}"),
    row("decompose_both", False, "model.adapter.decompose_both", f"of lokr; {_LYCORIS}"),
    row("dora_wd", False, "model.adapter.kind", f"dora; {_LYCORIS}"),
    row("dropout", 0.0, "model.adapter.dropout", _LYCORIS),
    waits("rank_dropout", 0.0, "LyCORIS' dropout of rows", _LYCORIS),
    row("module_dropout", 0.0, "model.adapter.module_dropout", f"of lora; {_LYCORIS}", least=0),
    *(waits(name, False, "LyCORIS variants", _LYCORIS) for name in (
        "use_tucker", "use_cp", "use_conv_cp", "use_scalar", "train_norm", "bypass_mode", "full_matrix", "rs_lora",
        "unbalanced_factorization", "rank_dropout_scale")),
    *(waits(name, str, "LyCORIS variants", _LYCORIS) for name in (
        "constraint", "rescaled", "block_size", "weight_decompose", "constrain")),
)
"""Arguments of lycoris.kohya."""
# fmt: on
