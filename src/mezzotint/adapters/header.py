"""The header of a trained adapter's file: kohya's entries (`ss_…`), which A1111, Forge and ComfyUI show, and
ModelSpec's. It contains nothing about the images and no paths of this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping

from mezzotint.adapters.files import Adapter
from mezzotint.settings.sections.adapter import AdapterSettings
from mezzotint.weights.single_file import modelspec
from mezzotint.weights.single_file.modelspec import Description

BASE = "mezzotint.base"
"""Entry with the fingerprints of the base model's parts, as JSON."""
_MODULES = {"loha": "lycoris.kohya", "lokr": "lycoris.kohya", "oft": "peft.oft"}
_VERSIONS = {
    "stable-diffusion-v1": "sd_v1",
    "stable-diffusion-v2-512": "sd_v2",
    "stable-diffusion-v2-768-v": "sd_v2_v",
    "stable-diffusion-xl-v1-base": "sdxl_base_v1-0",
}
"""Kohya's name of a base model by ModelSpec's."""


def entries(
    adapter: Adapter,
    settings: AdapterSettings,
    base: Mapping[str, str],
    description: Description | None,
    facts: Mapping[str, object],
) -> dict[str, str]:
    """The entries of a header, all strings.

    base: fingerprints of the model's parts; empty if unknown. description: of the model, with the adapter's title; None
    for a family that ModelSpec does not define. facts: of the run, by kohya's names without `ss_`. With a description
    the hash is left open for `modelspec.seal`.
    """
    modules = list(adapter.modules.values())
    rank = max(module.rank for module in modules)
    first = next(module for module in modules if module.rank == rank)
    kind = "dora" if first.is_dora else first.kind
    fields: dict[str, object] = {
        "network_module": _MODULES.get(first.kind, "networks.lora"),
        "network_dim": rank,
        "network_alpha": first.plain_alpha if first.alpha is not None else rank,
        "network_args": json.dumps({"algo": kind} if kind != "lora" else {}),
        **facts,
    }
    if settings.trigger:
        fields["tag_frequency"] = json.dumps({settings.trigger: {settings.trigger: 1}})
    if description is not None:
        fields["base_model_version"] = _VERSIONS.get(description.architecture, description.architecture)
        fields["v2"] = description.version == "2"
    header = {f"ss_{name}": str(value) for name, value in fields.items()}
    header |= {BASE: json.dumps(dict(base), sort_keys=True)} if base else {}
    if description is not None:
        spec = description.metadata({})
        spec["modelspec.architecture"] += "/lora"
        header |= spec | ({"modelspec.trigger_phrase": settings.trigger} if settings.trigger else {})
    return header | {modelspec.LEGACY_HASH: modelspec.OPEN[2:]} if description is not None else header
