"""The arguments of adapters and optimizers, `key=value`: `network_args` and `optimizer_args`."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mezzotint.compat.kit import reading
from mezzotint.compat.kit.dialect import Draft, Row, ignored, row, waits
from mezzotint.errors import did_you_mean

_BLOCKS = "ranks by block"
_BLOCK_RATES = "learning rates by block"
_KINDS = "ranks by kind of layer"
_LYCORIS = "of lycoris.kohya"
_NOTHING = object()
_HUGE = 1e300
_OFF = re.compile(r"None|False|false|0*\.?0*")

# fmt: off
NETWORK = (
    row("conv_dim", int, "model.adapter.targets", "rank of 3×3 convolutions, which have an adapter with it", least=1),
    row("conv_alpha", float, "model.adapter.alpha_pattern", "alpha of 3×3 convolutions, 1 without it", least=0),
    row("train_blocks", "all", "model.adapter.targets", "of FLUX.1", choices=("all", "double", "single")),
    row("split_qkv", False, "model.adapter.targets", "of FLUX.1 and SD3; always so in Mezzotint"),
    ignored("verbose", False, "it prints more"),
    *(waits(name, str, "LoRA+ rates", "rate of the second factor over the first") for name in (
        "loraplus_lr_ratio", "loraplus_unet_lr_ratio", "loraplus_text_encoder_lr_ratio")),
    waits("rank_dropout", "0", "rank and module dropout", "ranks are left out with this chance"),
    waits("module_dropout", "0", "rank and module dropout", "layers are left out with this chance"),
    *(waits(name, str, _BLOCKS, "numbers of 25 blocks") for name in (
        "block_dims", "block_alphas", "conv_block_dims", "conv_block_alphas")),
    *(waits(name, str, _BLOCK_RATES, "factors of 25 blocks") for name in (
        "down_lr_weight", "mid_lr_weight", "up_lr_weight", "block_lr_zero_threshold")),
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
    waits("rank_dropout", "0", "rank and module dropout", _LYCORIS),
    waits("module_dropout", "0", "rank and module dropout", _LYCORIS),
    *(waits(name, False, "LyCORIS variants", _LYCORIS) for name in (
        "use_tucker", "use_cp", "use_conv_cp", "use_scalar", "train_norm", "bypass_mode", "full_matrix", "rs_lora",
        "unbalanced_factorization", "rank_dropout_scale")),
    *(waits(name, str, "LyCORIS variants", _LYCORIS) for name in (
        "constraint", "rescaled", "block_size", "weight_decompose", "constrain")),
)
"""Arguments of lycoris.kohya."""
# fmt: on


def read_network_args(draft: Draft, rows: Sequence[Row]) -> dict[str, Any]:
    """The values of `network_args` by name, with defaults. Unknown names and unsupported values are refused."""
    specs = {one.flag: one for one in rows}
    values: dict[str, Any] = {one.flag: one.default for one in rows}
    for name, text in _read_pairs(draft, "network_args", specs):
        spec = specs[name]
        value, problem = reading.value_of(spec, [text])
        if problem:
            draft.refuse("network_args", f"{name} {problem}", code="E1017")
        elif spec.outcome == "waits" and value != spec.default and not _OFF.fullmatch(text):
            message = f"{name} needs {spec.feature}, which Mezzotint does not have yet"
            draft.refuse("network_args", message, "leave it out")
        elif spec.least is not None and isinstance(value, (int, float)) and value < spec.least:
            draft.refuse("network_args", f"{name} must be {spec.least} or more, got {value}", code="E1017")
        else:
            values[name] = value
    return values


def read_optimizer_args(draft: Draft, known: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `optimizer_args` by name; Python literals. known: the optimizer's defaults by name, of the same
    types; None for a number that may be left out."""
    values: dict[str, Any] = {}
    for name, text in _read_pairs(draft, "optimizer_args", known):
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            value = _NOTHING
        if _is_like(value, known[name]):
            values[name] = value
        else:
            shown = "True or False" if isinstance(known[name], bool) else "a number"
            shown = "two numbers" if isinstance(known[name], tuple) else shown
            draft.refuse("optimizer_args", f"{name} must be {shown}, got {text[:40]}", code="E1017")
    return values


def _is_like(value: Any, default: Any) -> bool:
    """Whether a value has the type of a default, and is finite."""
    if isinstance(default, tuple):
        return isinstance(value, (tuple, list)) and len(value) == 2 and all(_is_like(one, 0.0) for one in value)
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    return (value is None and default is None) or (isinstance(value, (int, float)) and abs(value) < _HUGE)


def _read_pairs(draft: Draft, flag: str, known: Mapping[str, Any]) -> list[tuple[str, str]]:
    words = draft.values[flag]
    pairs = []
    for word in words if isinstance(words, tuple) else ():
        name, sign, text = (part.strip() for part in str(word).partition("="))
        if not sign or not text:
            draft.refuse(flag, f"{str(word)[:40]} has no value", "write it like key=value", "E1017")
        elif name not in known:
            draft.refuse(flag, f"unknown argument {name[:40]}", did_you_mean(name, known, "leave it out"), "E1016")
        else:
            pairs.append((name, text))
    return pairs
