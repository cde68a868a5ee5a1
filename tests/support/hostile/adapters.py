# ruff: noqa: E501 (an entry a line)
"""Files of adapters: the row I1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from support.hostile.entry import Entry, Make, file
from support.hostile.texts import pipe

NAME = "x.safetensors"
LAYER = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"
SHAPES = {
    "unet": {f"{LAYER}.weight": (32, 32), "conv_in.weight": (32, 4, 3, 3)},
    "text_encoder": {"text_model.encoder.layers.0.self_attn.q_proj.weight": (32, 32)},
}
"""Of the model that the adapters are for."""
_FLAT, _DOTTED = f"lora_unet_{LAYER.replace('.', '_')}", f"unet.{LAYER}"
_DOWN, _UP = torch.ones(4, 32), torch.ones(32, 4)


def flat(**changed: Tensor | None) -> dict[str, Tensor]:
    """kohya's names of one layer. changed: leaves, with _ for a dot; None leaves one out."""
    leaves = {"lora_down_weight": _DOWN, "lora_up_weight": _UP, "alpha": torch.tensor(4.0)} | changed
    return {f"{_FLAT}.{leaf.replace('_weight', '.weight')}": t for leaf, t in leaves.items() if t is not None}


def dotted() -> dict[str, Tensor]:
    """diffusers' names of one layer."""
    return {f"{_DOTTED}.lora_A.weight": _DOWN, f"{_DOTTED}.lora_B.weight": _UP}


def of(tensors: Mapping[str, Tensor], settings: Any = None) -> bytes:
    """A file. settings: the text of peft's settings in its header, or what stands in it."""
    own = {name: tensor.clone() for name, tensor in tensors.items()}
    if settings is None:
        return save(own)
    text = settings if isinstance(settings, str) else json.dumps(settings)
    return save(own, {"format": "pt", "lora_adapter_metadata": text})


def _entry(id_: str, fault: str, content: bytes | Make, code: str = "", **more: Any) -> Entry:
    make = file(NAME, content) if isinstance(content, bytes) else content
    more = {"expected": "E2" if code else "ok", "names": NAME if code else ""} | more
    return Entry(id=f"adapter-{id_}", reader="adapter", fault=fault, row="I1", make=make, code=code, **more)


def _settings(id_: str, fault: str, settings: Any, code: str = "E1434", **more: Any) -> Entry:
    return _entry(f"settings-{id_}", fault, of(dotted(), settings), code, **more)


ENTRIES = (
    _entry("sound", "nothing, in kohya's layout", of(flat())),
    _entry("sound-diffusers", "nothing, in diffusers' layout", of(dotted(), {"unet.lora_alpha": 8, "unet.r": 4}), is_quick=True),
    _entry("cut", "it ends in its middle", of(flat())[:-100], "E1402"),
    _entry("pickle", "a pickle under .safetensors", b"\x80\x02cos\nsystem\nU\x0ctouch canaryq\x85R.", "E1402", says="pickle", is_quick=True),
    _entry("pipe", "a pipe that nobody writes to", pipe(NAME), "E1401"),
    _entry("none", "tensors of a model", of({f"{LAYER}.weight": torch.ones(32, 32)}), "E1430", is_quick=True),
    _entry("empty", "no tensor", of({}), "E1430"),
    _entry("other", "layers of another model", of({f"lora_unet_double_blocks_{n}_img_attn_qkv.lora_down.weight": _DOWN for n in range(3)}), "E1431", says="FLUX"),
    _entry("some-other", "one layer of another model among its own", of(flat() | {"lora_unet_middle.lora_up.weight": _UP}), "E1431", is_quick=True),
    _entry("many-others", "2,000 layers of nobody's", of({f"lora_unet_{n}.alpha": torch.tensor(1.0) for n in range(2000)}), "E1431"),
    _entry("codes", "a name that steers a terminal", of(flat() | {"lora_unet_\x1b[31m\n.alpha": torch.tensor(1.0)}), "E1431", is_quick=True),
    _entry("wide", "a matrix that is too wide", of(flat(lora_down_weight=torch.ones(4, 33))), "E1432", is_quick=True),
    _entry("ranks", "two matrices of different ranks", of(flat(lora_up_weight=torch.ones(32, 5))), "E1432"),
    _entry("flat", "a matrix of one dimension", of(flat(lora_down_weight=torch.ones(32))), "E1432", is_quick=True),
    _entry("single", "a matrix of no dimension", of(flat(lora_up_weight=torch.tensor(1.0))), "E1432"),
    _entry("window", "a window where the layer has none", of(flat(lora_down_weight=torch.ones(4, 32, 1, 2))), "E1432"),
    _entry("rank-0", "no rank", of(flat(lora_down_weight=torch.ones(0, 32), lora_up_weight=torch.ones(32, 0))), "E1433", is_quick=True),
    _entry("half", "half a layer", of(flat(lora_up_weight=None)), "E1433"),
    _entry("alpha-alone", "an alpha and nothing else", of(flat(lora_up_weight=None, lora_down_weight=None)), "E1433", is_quick=True),
    _entry("alphas", "an alpha of two numbers", of(flat(alpha=torch.ones(2))), "E1433"),
    _entry("alpha-nan", "an alpha that is no number", of(flat(alpha=torch.tensor(float("nan")))), "E1403", is_quick=True),
    _entry("infinite", "a matrix that is not finite", of(flat(lora_up_weight=torch.full((32, 4), float("inf")))), "E1403"),
    _entry("integers", "a matrix of whole numbers", of(flat(lora_down_weight=torch.ones(4, 32, dtype=torch.int32))), "E1433", is_quick=True),
    _entry("yes-or-no", "a matrix of yes and no", of(flat(lora_down_weight=torch.ones(4, 32, dtype=torch.bool))), "E1433"),
    _entry("complex-alpha", "an alpha of a type without a fraction", of(flat(alpha=torch.tensor(4))), ""),
    _entry("kinds", "two kinds in a layer", of(flat(hada_w1_a=torch.ones(32, 4))), "E1433"),
    _entry("twice", "a layer under two of its names", of(dotted() | {f"{_DOTTED}.lora.down.weight": _DOWN}), "E1433", is_quick=True),
    _entry("magnitude", "lengths of rows that are too few", of(flat(dora_scale=torch.ones(7))), "E1432", is_quick=True),
    _entry("lokr", "factors that make another matrix", of(flat(lora_up_weight=None, lora_down_weight=None) | {f"{_FLAT}.lokr_w1": torch.ones(3, 3), f"{_FLAT}.lokr_w2": torch.ones(4, 4)}), "E1432"),
    _entry("loha", "factors of different ranks", of(flat(lora_up_weight=None, lora_down_weight=None) | {f"{_FLAT}.hada_w1_a": torch.ones(32, 4), f"{_FLAT}.hada_w1_b": torch.ones(4, 32), f"{_FLAT}.hada_w2_a": torch.ones(32, 3), f"{_FLAT}.hada_w2_b": torch.ones(2, 32)}), "E1432"),
    _settings("text", "settings that are no JSON", "alpha=8", is_quick=True),
    _settings("deep", "settings nested 100,000 deep", "[" * 100_000, is_quick=True),
    _settings("number", "a number of 5,000 digits", '{"unet.lora_alpha": ' + "9" * 5000 + "}"),
    _settings("large", "an alpha of 10^400", '{"unet.lora_alpha": 1e400}'),
    _settings("nan", "an alpha that is no number", '{"unet.lora_alpha": NaN}', is_quick=True),
    _settings("twice", "a key twice", '{"unet.lora_alpha": 8, "unet.lora_alpha": 4}'),
    _settings("list", "settings that are a list", [8]),
    _settings("alpha-text", "an alpha that is a text", {"unet.lora_alpha": "8"}),
    _settings("alpha-yes", "an alpha that is true", {"unet.lora_alpha": True}),
    _settings("alpha-null", "an alpha that is null", {"unet.lora_alpha": None}),
    _settings("pattern-list", "alphas by layer as a list", {"unet.lora_alpha": 8, "unet.alpha_pattern": [4]}, is_quick=True),
    _settings("pattern-text", "an alpha by layer that is a text", {"unet.lora_alpha": 8, "unet.alpha_pattern": {LAYER: "4"}}),
)  # fmt: skip
