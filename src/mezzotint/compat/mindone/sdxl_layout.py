"""Checkpoints of SDXL and its refiner with the tensor names of MindONE's example (`….ckpt`, MindSpore's format).

The names are Stability's except for their last part: `gamma` and `beta` are the weight and the bias of a norm, and
`embedding_table` is an embedding's weight. Shapes are the same. In MindONE these names decide which tensors have weight
decay: `has_weight_decay`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mezzotint.compat.mindone.mindspore_format_spec import SPEC
from mezzotint.weights.keymap import Entry
from mezzotint.weights.layouts import shared

_NORM = r"norm|norm\d|norm_out|layer_norm\d|final_layer_norm|ln_\d|ln_final"
_SLOTS = r"in_layers\.0|out_layers\.0"
_IS_NORM = re.compile(rf"(?:.+\.)?(?:{_NORM})|model\.diffusion_model\.(?:(?:.+\.)?(?:{_SLOTS})|out\.0)")
_IS_EMBEDDING = re.compile(r"(?:.+\.)?(?:token_embedding|position_embedding)")
_TO_MINDSPORE = {"weight": "gamma", "bias": "beta"}
_TO_STABILITY = {"gamma": "weight", "beta": "bias"}
_LOGIT_SCALE = 4.6052  # ln 100, the limit in OpenCLIP's training


def mindspore_name(name: str) -> str:
    """The name of a tensor in MindSpore, from Stability's."""
    stem, _, word = name.rpartition(".")
    if word in _TO_MINDSPORE and _IS_NORM.fullmatch(stem):
        return f"{stem}.{_TO_MINDSPORE[word]}"
    return f"{stem}.embedding_table" if word == "weight" and _IS_EMBEDDING.fullmatch(stem) else name


def stability_name(name: str) -> str:
    """Stability's name of a tensor, from MindSpore's."""
    stem, _, word = name.rpartition(".")
    if word in _TO_STABILITY and _IS_NORM.fullmatch(stem):
        return f"{stem}.{_TO_STABILITY[word]}"
    return f"{stem}.weight" if word == "embedding_table" and _IS_EMBEDDING.fullmatch(stem) else name


def plain_name(name: str) -> str:
    """A name without what MindONE's program may add: the level `_backbone` of mixed precision, or the stages of its
    several graphs."""
    return re.sub(r"^stage[12]\.", "model.", name.replace("._backbone", ""))


def has_weight_decay(name: str) -> bool:
    """Whether MindONE's optimizers apply weight decay to a tensor of Stability's name.

    They search for `norm` and `bias` in MindSpore's name, in which the bias of a norm is `beta`: norms in numbered
    slots (`in_layers.0`, `out_layers.0`, `out.0`) and OpenCLIP's `ln_1` decay, other norms do not.
    """
    lower = mindspore_name(name).lower()
    return "norm" not in lower and "bias" not in lower


def entries(part: str, names: Sequence[str], *, refiner: bool = False) -> Iterator[Entry]:
    """Yields the entries of a part, from the names of its parameters in the network. Raises KeyError for a part or
    names that such a model does not have."""
    component, required_name, level = _COMPONENTS[part]
    # names of the network may lack the first level of the names in the file
    written = {name if name.startswith(_LEVELS) else level + name: name for name in names}
    if required_name not in written:
        raise KeyError(required_name)
    parts = (LAYOUT.variants[0] if refiner else LAYOUT).parts
    for entry in parts[component][0].table(list(written)).entries:
        yield replace(entry, ours=tuple(written[name] for name in entry.ours))


def undecayed(part: str, names: Sequence[str]) -> Iterator[str]:
    """Yields the parameters of a part that MindONE's optimizers exclude from weight decay. Raises KeyError as
    `entries`."""
    for entry in entries(part, names):
        if not has_weight_decay(stability_name(entry.foreign)):
            yield from entry.ours


_LEVELS = ("text_model.", "text_projection.")
_COMPONENTS = {
    "denoiser": ("unet", "mid_block.resnets.0.conv1.weight", ""),
    "text_encoder": ("text_encoder", "text_model.embeddings.token_embedding.weight", "text_model."),
    "text_encoder_2": ("text_encoder_2", "text_model.embeddings.token_embedding.weight", "text_model."),
}
"""For each trainable part: its component, a tensor that every such network has, and the first level of its names."""


LAYOUT = shared.layout(
    "mindone-sdxl",
    mindspore_name,
    plain_name,
    extras=(r"(?:updates|epoch_num|step_num)",),  # of the average and of MindSpore's trainer
    logit_scale=_LOGIT_SCALE,
    suffix=SPEC.suffix,
    sign=r"\.(?:gamma|beta|embedding_table)$",
)
"""Checkpoints of the base model, 2514 tensors; the variant is the refiner's, 1858 tensors."""
