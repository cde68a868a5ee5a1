"""Learning rates by block: which layers a block has, and the factors of adapters, against numbers that
tools/kohya_formulas.py works out."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kohya_commands import notes, recipe, refusal, settings

from mezzotint.assets import MODELS
from mezzotint.compat.kohya import _block_rates
from mezzotint.weights.folder import components, state
from mezzotint.weights.layouts import base

NUMBERS: dict[str, Any] = json.loads((Path(__file__).parent / "formulas.json").read_text("utf-8"))
RATES = ("--block_lr", ",".join(str(1e-6 * (number + 1)) for number in range(23)))


def original_names(family: str) -> dict[str, str]:
    """The names of a U-Net's parameters by those in original files."""
    config = json.loads((MODELS / {"sd": "sd1"}.get(family, family) / "unet" / "config.json").read_text())
    network = state.build_on_meta(partial(components.find_builder("unet"), config))
    names = [name for name, _ in network.named_parameters()]
    return {entry.foreign: name for entry in base.unet(names) for name in entry.ours}


def block_of_sdxl(original: str) -> int:
    """The scripts' number of the block of a parameter, from its original name."""
    head, _, rest = original.removeprefix("model.diffusion_model.").partition(".")
    starts = {"time_embed": 0, "label_emb": 0, "input_blocks": 1, "middle_block": 10, "output_blocks": 13, "out": 22}
    inner = int(rest.split(".")[0]) if head.endswith(("_blocks", "_block")) else 0
    return starts[head] + inner


def block_of_sd(name: str) -> int | None:
    """Likewise for layers that may have an adapter, from diffusers' name; None for others."""
    side, _, rest = name.partition(".")
    if side == "mid_block":
        return 12
    if not side.endswith("_blocks"):
        return None
    level, kind, number = rest.split(".")[:3]
    place = 3 * int(level) + (2 if kind.endswith("samplers") else int(number))
    return (13 if side == "up_blocks" else 1) + place


def found_block(family: str, name: str) -> int | None:
    matching = [
        number for number, paths in enumerate(_block_rates.blocks(family))
        if any(fnmatchcase(name, f"{path}.*") for path in paths)
    ]  # fmt: skip
    assert len(matching) <= 1, name
    return matching[0] if matching else None


@pytest.mark.parametrize("family", ["sd", "sdxl"])
def test_each_path_of_a_block_exists(family: str) -> None:
    names = original_names(family).values()
    for path in (path for paths in _block_rates.blocks(family) for path in paths):
        assert any(fnmatchcase(name, f"{path}.*") for name in names), path


def test_each_parameter_of_sdxl_is_in_its_block() -> None:
    names = original_names("sdxl")
    assert len(names) == 1680
    assert {original: found_block("sdxl", name) for original, name in names.items()} == {
        original: block_of_sdxl(original) for original in names
    }


def test_each_layer_of_stable_diffusion_is_in_its_block() -> None:
    names = original_names("sd").values()
    assert {name: found_block("sd", name) for name in names} == {name: block_of_sd(name) for name in names}
    assert {found_block("sd", name) for name in names} == {None, *range(1, 25)}


def test_rates_of_blocks_are_patterns() -> None:
    optim = recipe("sdxl_train", "--learning_rate=4e-6", *RATES).optim
    assert len(_block_rates.blocks("sdxl")) == 23
    assert optim.part_lr["~denoiser/time_embedding.*"] == pytest.approx(1e-6)
    assert optim.part_lr["~denoiser/conv_out.*"] == pytest.approx(23e-6)
    assert not [key for key in optim.part_lr if key.startswith("~denoiser/down_blocks.0.resnets.1")], "4e-6, as usual"
    zeros = ",".join("0" if number == 11 else "1e-6" for number in range(23))
    assert recipe("sdxl_train", "--learning_rate=1e-6", "--block_lr", zeros).optim.part_lr == {
        "~denoiser/mid_block.attentions.0.*": 0.0
    }
    both = recipe("sdxl_train", "--train_text_encoder", "--learning_rate_te1=3e-6", "--block_lr", zeros).optim.part_lr
    assert both["text_encoder"] == 3e-6
    assert both["~denoiser/mid_block.attentions.0.*"] == 0.0


@pytest.mark.parametrize(
    ("rates", "message"),
    [("1e-6", "must be 23 numbers separated by commas, got 1"), (",".join(["-1"] * 23), "must be 0 or more, got -1"),
     (",".join(["x"] * 23), "must be numbers separated by commas, got x")],
)  # fmt: skip
def test_wrong_rates_of_blocks_are_refused(rates: str, message: str) -> None:
    assert refusal("sdxl_train", f"--block_lr={rates}") == [("--block_lr", "E1017", message)]


def weights(family: str, **arguments: str | float) -> list[float]:
    values: dict[str, Any] = dict.fromkeys(_block_rates.ARGUMENTS) | {"block_lr_zero_threshold": 0.0}
    return _block_rates.weights_by_block(family, values | arguments)


@pytest.mark.parametrize("family", ["sd", "sdxl"])
@pytest.mark.parametrize("curve", ["sine", "cosine", "linear", "reverse_linear", "zeros"])
def test_curves_of_factors(family: str, curve: str) -> None:
    count, start = (12, 0) if family == "sd" else (9, 1)
    assert weights(family, down_lr_weight=f"{curve}+.25")[start : start + count] == pytest.approx(
        NUMBERS["block_weights"][family][curve]
    )


def test_listed_factors_are_filled_with_one_and_cut() -> None:
    listed = weights("sd", down_lr_weight="0.5,,2", mid_lr_weight="0.3", up_lr_weight=",".join(["0.1"] * 14))
    assert listed == [0.5, 0.0, 2.0, *[1.0] * 9, 0.3, *[0.1] * 12]
    assert weights("sdxl", mid_lr_weight="0.5,0.05", block_lr_zero_threshold=0.1)[10:13] == [0.5, 0.0, 1.0]
    assert weights("sd", down_lr_weight="cosine")[11] == 0.0


def test_factors_multiply_the_rate_of_the_unet() -> None:
    words = ("--unet_lr=1e-4", "--text_encoder_lr=5e-5", "--network_args", "mid_lr_weight=0.5", "up_lr_weight=0,1")
    part_lr = recipe("train_network", *words).optim.part_lr
    assert part_lr.pop("text_encoder") == 5e-5
    assert part_lr == {
        "~denoiser/mid_block.*": pytest.approx(5e-5),
    }  # fmt: skip
    words = ("--network_args", "conv_dim=4", "up_lr_weight=1,1,1,0")
    assert recipe("train_network", *words).optim.part_lr == {
        "~denoiser/up_blocks.1.resnets.0.*": 0.0, "~denoiser/up_blocks.1.attentions.0.*": 0.0,
    }  # fmt: skip
    assert list(recipe("sdxl_train_network", *words[:1], words[2]).optim.part_lr) == [
        "~denoiser/up_blocks.1.attentions.0.*"
    ]
    assert not [path for path in settings("train_network", "--network_args", "mid_lr_weight=1") if "part_lr" in path]


def test_wrong_factors_are_refused() -> None:
    for word, said in (
        ("down_lr_weight=0.5", "down_lr_weight must be numbers separated by commas, or one of sine"),
        ("mid_lr_weight=sine", "mid_lr_weight must be numbers separated by commas, got sine"),
        ("up_lr_weight=1,nan", "up_lr_weight must be numbers separated by commas, got nan"),
    ):
        [(flag, code, message)] = refusal("train_network", "--network_args", word)
        assert (flag, code) == ("--network_args", "E1017")
        assert said in message
    [(_, code, message)] = refusal("flux_train_network", "--network_args", "mid_lr_weight=0.5")
    assert (code, "another model" in message) == ("E1018", True)
    words = ("--network_train_text_encoder_only", "--network_args", "mid_lr_weight=0.5")
    assert "mid_lr_weight has no effect" in notes("train_network", *words)
