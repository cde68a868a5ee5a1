"""Selecting the layers of a model that get an adapter: presets and name patterns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Literal, get_args

from mezzotint.adapters.names import LayerName, LayerNames
from mezzotint.errors import WeightsError, did_you_mean

Preset = Literal["attention", "attention+mlp", "all-linear", "all"]

_ROLES: Mapping[str, str] = {
    "attention": r".*\.(to_q|to_k|to_v|to_out(\.0)?|[qkv]_proj|out_proj|[qkvo]|add_[qkv]_proj|to_add_out)",
    "mlp": r".*\.(ff(n|_context)?\.net\.\d+(\.proj)?|mlp\.fc[12]|attentions\.\d+\.proj_(in|out)|DenseReluDense\.w\w+)",
    "outer": r"(conv_in|conv_out|time_embedding\..*|add_embedding\..*|.*projection.*|time_embed\..*|time_text_embed\..*"
    r"|(x|context)_embedder|proj_(in|out)|norm_out\..*|pos_embed\..*)",
}
"""Patterns of layer names in the libraries' blocks, for any family; `FamilySpec.layers` adds a family's own. `outer`
are layers at a network's ends, which no preset includes."""


def select_layers(
    names: LayerNames,
    component: str,
    targets: Preset | Sequence[str],
    family_patterns: Mapping[str, str] = MappingProxyType({}),
) -> list[LayerName]:
    """The layers of a component that get an adapter, in its order.

    targets: `attention` is the projections to and from queries, keys and values, as in diffusers' scripts;
    `attention+mlp` all layers of attention blocks, as in kohya's networks; `all-linear` every linear layer except those
    at the network's ends; `all` convolutions too, as in kohya's with `conv_dim`. Or path patterns, `*` for any part.
    family_patterns: `FamilySpec.layers`. Raises WeightsError E1437 for a pattern that matches no layer.
    """
    shapes = {layer: shape for layer, shape in names.weights.items() if layer.component == component}
    if not isinstance(targets, str):
        for pattern in targets:
            if not any(fnmatchcase(layer.path, pattern) for layer in shapes):
                raise WeightsError(
                    f"no layer of {component} matches {pattern!r}; "
                    + did_you_mean(
                        pattern,
                        [*get_args(Preset), *(existing.path for existing in shapes)],
                        "`*` matches any part of a name",
                    ),
                    code="E1437",
                )
        return [layer for layer in shapes if any(fnmatchcase(layer.path, pattern) for pattern in targets)]
    inner = {layer: shape for layer, shape in shapes.items() if not _has_role(layer, family_patterns, "outer")}
    match targets:
        case "attention":
            return [layer for layer in inner if _has_role(layer, family_patterns, "attention")]
        case "attention+mlp":
            return [layer for layer in inner if _has_role(layer, family_patterns, "attention", "mlp")]
        case "all-linear":
            return [layer for layer, shape in inner.items() if len(shape) == 2]
        case _:
            return list(inner)


def _has_role(layer: LayerName, family_patterns: Mapping[str, str], *roles: str) -> bool:
    patterns = [table[role] for role in roles for table in (_ROLES, family_patterns) if role in table]
    return any(re.fullmatch(pattern, layer.path) for pattern in patterns)
