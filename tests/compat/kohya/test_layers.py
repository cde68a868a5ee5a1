"""Layers of SD3 and FLUX.1 by kind and block."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint.compat.kohya._arguments import NETWORK
from mezzotint.compat.kohya._layers import INDICES, KINDS, choose_layers, find_arguments, parse_indices


@pytest.mark.parametrize(
    ("text", "numbers"), [("all", None), ("none", []), ("0", [0]), ("0,3-5", [0, 3, 4, 5]), ("7, 20", [7, 20])]
)
def test_numbers_of_blocks(text: str, numbers: list[int] | None) -> None:
    assert parse_indices(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "5-3", "1-", "-1", "1,,2", "9999"])
def test_wrong_numbers_of_blocks(text: str) -> None:
    with pytest.raises(ValueError, match="must be all, none, or numbers like 0,3-5"):
        parse_indices(text)


def test_all_arguments_have_rows() -> None:
    flags = {row.flag for row in NETWORK if row.outcome == "computed"}
    assert {name for table in (*KINDS.values(), *INDICES.values()) for name in table} <= flags


def test_kinds_and_blocks_together() -> None:
    arguments = {"img_attn_dim": 8, "single_dim": 0, "single_mod_dim": 0, "train_double_block_indices": "1-2"}
    targets, ranks = choose_layers("flux", arguments)
    assert ranks == {
        f"denoiser/transformer_blocks.{number}.{layer}": 8
        for number in (1, 2) for layer in ("attn.to_[qkv]", "attn.to_out*")
    }  # fmt: skip
    assert "denoiser/transformer_blocks.1.ff.net.*" in targets
    assert not any("single" in target for target in targets)
    assert choose_layers("flux", {}) == choose_layers("sd3", {"train_block_indices": "all"}) == ([], {})


@pytest.mark.parametrize(
    ("family", "arguments"),
    [
        ("flux", {"train_double_block_indices": "0,3-5", "train_single_block_indices": "none"}),
        ("flux", {"train_single_block_indices": "7"}),
        ("flux", {"img_attn_dim": 8, "txt_mod_dim": 0}),
        ("flux", {"single_dim": 0, "train_double_block_indices": "1-2"}),
        ("sd3", {"x_attn_dim": 4, "context_mlp_dim": 4, "train_block_indices": "0-11"}),
        ("sd3", {"train_block_indices": "3"}),
    ],
)
def test_layers_have_the_arguments_that_choose_them(family: str, arguments: dict[str, Any]) -> None:
    found = find_arguments(family, *choose_layers(family, arguments))
    assert choose_layers(family, found) == choose_layers(family, arguments)
    assert arguments.items() <= found.items()


def test_layers_that_no_arguments_choose_have_none() -> None:
    assert find_arguments("flux", ["denoiser/all-linear"], {}) == {}
    assert find_arguments("flux", ["denoiser/transformer_blocks.0.attn.to_q"], {}) == {}
    assert find_arguments("sd3", ["denoiser/transformer_blocks.0.*"], {"denoiser/transformer_blocks.0.*": 2}) == {}
