"""Ranks and alphas by block, layer by layer against the scripts' rules."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import Any

import pytest
from kohya_commands import notes, recipe, refusal

from mezzotint.assets import MODELS
from mezzotint.compat.kohya import _block_rates
from mezzotint.settings.recipe import Recipe
from mezzotint.weights.folder import components, state

COUNTS = {"sd": 25, "sdxl": 23}
SCRIPTS = {"sd": "train_network", "sdxl": "sdxl_train_network"}


def listed(family: str, start: int, *, zero: int = -1) -> str:
    """A different number for each block; 0 for one of them."""
    return ",".join(str(0 if number == zero else start + number) for number in range(COUNTS[family]))


@cache
def layers(family: str) -> dict[str, bool]:
    """The layers of a U-Net's blocks, and whether each is a 3×3 convolution."""
    config = json.loads((MODELS / {"sd": "sd1"}.get(family, family) / "unet" / "config.json").read_text())
    network = state.build_on_meta(partial(components.find_builder("unet"), config))
    shapes = {name.removesuffix(".weight"): p.shape for name, p in network.named_parameters() if p.ndim in (2, 4)}
    inner = {name: shape for name, shape in shapes.items() if "_block" in name}
    return {name: len(shape) == 4 and shape[-1] == 3 for name, shape in inner.items()}


@cache
def block_of(family: str, layer: str) -> int:
    return next(number for number, paths in enumerate(_block_rates.blocks(family))
                if any(layer.startswith(f"{path}.") for path in paths))  # fmt: skip


def last(patterns: dict[str, Any], layer: str, usual: Any) -> Any:
    fitting = [value for key, value in patterns.items() if fnmatchcase(f"denoiser/{layer}", key.lstrip("~"))]
    return fitting[-1] if fitting else usual


def sizes(family: str, trained: Recipe) -> dict[str, tuple[int, float]]:
    """Rank and alpha of each layer with an adapter."""
    adapter, with_convolutions = trained.model.adapter, "denoiser/all" in trained.model.adapter.targets
    found = {}
    for layer in layers(family):
        if last(trained.optim.part_lr, layer, 1.0) > 0 and (with_convolutions or ".attentions." in layer):
            rank = last(adapter.rank_pattern, layer, adapter.rank)
            found[layer] = (rank, last(adapter.alpha_pattern, layer, adapter.alpha or rank))
    for pattern in (*adapter.rank_pattern, *adapter.alpha_pattern):
        assert any(last({pattern: True}, layer, False) for layer in layers(family)), pattern
    return found


def expected(family: str, of_layers: tuple[str, str], of_convolutions: tuple[str, str]) -> dict[str, tuple[int, float]]:
    """(ranks, alphas) of all blocks, "" for none."""
    found = {}
    for layer, is_convolution in layers(family).items():
        ranks, alphas = of_convolutions if is_convolution else of_layers
        if not of_convolutions[0] and ".attentions." not in layer:
            continue
        number = block_of(family, layer)
        rank, alpha = int(ranks.split(",")[number]), float(alphas.split(",")[number])
        if rank:
            found[layer] = (rank, alpha or rank)
    return found


@pytest.mark.parametrize("family", ["sd", "sdxl"])
@pytest.mark.parametrize("zero", [-1, 8, 12, 14])
def test_each_layer_has_the_size_of_its_block(family: str, zero: int) -> None:
    dims, alphas = listed(family, 3, zero=zero), listed(family, 1, zero=6)
    conv, conv_alphas = listed(family, 7, zero=zero + 1), listed(family, 2, zero=7)
    same = [",".join([text] * COUNTS[family]) for text in ("8", "1", "4", "2")]
    start = (SCRIPTS[family], "--network_dim=8", "--network_args", f"block_dims={dims}")
    for words, of_layers, of_convolutions in (
        ((), (dims, same[1]), ("", "")),
        ((f"block_alphas={alphas}", f"conv_block_alphas={conv_alphas}"), (dims, alphas), ("", "")),
        (("conv_dim=4", "conv_alpha=2"), (dims, same[1]), (same[2], same[3])),
        (("conv_dim=4", "conv_alpha=2", f"conv_block_alphas={conv}"), (dims, same[1]), (same[2], same[3])),
        ((f"block_alphas={alphas}", f"conv_block_dims={conv}"), (dims, alphas), (conv, same[1])),
        ((f"conv_block_dims={conv}", f"conv_block_alphas={conv_alphas}"), (dims, same[1]), (conv, conv_alphas)),
    ):
        assert sizes(family, recipe(*start, *words)) == expected(family, of_layers, of_convolutions), words


def test_ranks_act_with_factors_of_rates_too() -> None:
    conv = listed("sd", 2)
    words = ("train_network", "--network_dim=8", "--network_args", f"conv_block_dims={conv}", "up_lr_weight=1,0")
    trained = recipe(*words)
    assert trained.model.adapter.rank_pattern["denoiser/mid_block.resnets.*.conv[12]"] == 14
    assert trained.optim.part_lr["~denoiser/up_blocks.0.resnets.1.*"] == 0.0


def test_ranks_without_effect_are_noted() -> None:
    text = "conv_block_dims has no effect without block_dims, as in the scripts"
    assert text in notes("train_network", "--network_args", f"conv_block_dims={listed('sd', 1)}")
    words = ("--network_train_text_encoder_only", "--network_args", f"block_dims={listed('sd', 1)}")
    assert "block_dims has no effect without an adapter of the U-Net" in notes("train_network", *words)


@pytest.mark.parametrize(
    ("script", "word", "code", "said"),
    [
        ("train_network", "block_dims=4,4", "E1017", "block_dims must be 25 numbers, one for each block, got 2"),
        ("sdxl_train_network", "block_dims=4", "E1017", "must be 23 numbers, one for each block, got 1"),
        (
            "train_network",
            "block_dims=4,x",
            "E1017",
            "must be whole numbers of 0 or more, separated by commas, got 4,x",
        ),
        ("train_network", "block_dims=-4", "E1017", "must be whole numbers of 0 or more, separated by commas, got -4"),
        ("flux_train_network", "block_dims=4", "E1018", "block_dims is for another model than flux_train_network.py"),
    ],
)
def test_wrong_ranks_are_refused(script: str, word: str, code: str, said: str) -> None:
    [(flag, found, message)] = refusal(script, "--network_args", word)
    assert (flag, found) == ("--network_args", code)
    assert said in message
