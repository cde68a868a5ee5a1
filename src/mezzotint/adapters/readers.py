"""Compatibility of adapter files with other programs: which layers each applies, and at what strength, by a table of
the names that it accepts."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from mezzotint.adapters import files
from mezzotint.adapters.modules import MAGNITUDE, AdapterModule
from mezzotint.adapters.names import LayerName, LayerNames, OriginalLayer
from mezzotint.assets import ADAPTER_READERS
from mezzotint.errors import WeightsError

_ATTENTION = re.compile(r"\.to_([qkv]|out\.0)$")
_NUMBER = re.compile(r"(?<=[._])\d+(?=[._]|$)")


@dataclass(frozen=True)
class Reader:
    """A program that loads adapters.

    label: its name. basis: the source of the table's facts. strength: its scaling rule, see the table. lora: the
    suffixes of the two factors, in each accepted spelling. dora: the suffix of a DoRA's magnitudes. kinds: the kinds
    that it reads. denoiser, text: accepted names by family, and by text encoder (or family and encoder). no_alpha:
    families of whose files it reads none with `.alpha` tensors.
    """

    label: str
    basis: str
    strength: str
    lora: Sequence[Sequence[str]]
    dora: str
    kinds: Sequence[str]
    denoiser: Mapping[str, Sequence[str]]
    text: Mapping[str, Any]
    no_alpha: Sequence[str] = ()

    def forms(self, family: str, layer: LayerName, names: LayerNames) -> Sequence[str]:
        """The name patterns that it accepts for a layer."""
        if layer.component in names.denoisers:
            return self.denoiser.get(family, ())
        if family not in self.denoiser:
            return ()
        patterns: Sequence[str] = self.text.get(family, {}).get(layer.component) or self.text.get(layer.component, ())
        return patterns


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a reader handles a file.

    accepted, layers: the number of layers that it applies, and of all layers in the file. strengths: the distinct
    ratios of its scale to the trained one, over the applied layers. refused: the names of the other layers.
    """

    reader: Reader
    accepted: int
    layers: int
    strengths: tuple[float, ...]
    refused: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether it applies everything at the trained strength."""
        return self.accepted == self.layers and all(math.isclose(s, 1.0, rel_tol=1e-3) for s in self.strengths)


def load() -> tuple[Reader, ...]:
    """The readers of the table."""
    table = tomllib.loads(ADAPTER_READERS.read_text("utf-8"))
    return tuple(Reader(**{"label": name, **entry}) for name, entry in table.items())


@dataclass
class FileLayer:
    """A layer of a file, by its name in the file. leaves: our names of its tensors by their suffixes in the file."""

    name: str
    leaves: dict[str, str] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)


def layers_of(tensors: Mapping[str, Tensor]) -> list[FileLayer]:
    """The layers of a file, in its order; each tensor that belongs to no adapter is a separate layer."""
    layers: dict[str, FileLayer] = {}
    for name, tensor in tensors.items():
        stem, leaf = files.split_name(name)
        layer = layers.setdefault(stem, FileLayer(stem))
        layer.leaves[name[len(stem) + 1 :] if name.startswith(f"{stem}.") else name] = leaf
        layer.tensors[leaf] = tensor
    return list(layers.values())


def judge(
    reader: Reader, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], names: LayerNames, family: str, *,
    numbered: bool = True,
) -> Verdict:  # fmt: skip
    """How a reader handles a file for a model with these layers. numbered: False compares names without block numbers,
    for a file whose model is not available."""
    plain: Callable[[str], str] = str if numbered else mask_block_numbers
    accepted_by_reader = {plain(name) for name in list_accepted_names(reader, names, family)}
    lookup = {plain(name): layer for name, layer in names.lookup((names.denoisers or ("",))[0]).items()}
    settings = files.read_settings(metadata)
    accepted, strengths, refused = 0, set(), []
    layers = layers_of(tensors)
    for layer in layers:
        module = _module(layer, lookup.get(plain(layer.name)), settings)
        if (
            module is None
            or plain(layer.name) not in accepted_by_reader
            or not _can_read(reader, layer, module, family)
        ):
            refused.append(layer.name)
            continue
        accepted += 1
        applied = _applied_scale(reader, layer, module, is_stated=bool(settings))
        strengths.add(round(applied / module.scale, 6) if module.scale else 1.0)
    return Verdict(reader, accepted, len(layers), tuple(sorted(strengths)), tuple(refused))


def list_accepted_names(reader: Reader, names: LayerNames, family: str) -> Iterator[str]:
    """Every layer name that a reader accepts, for a model with these layers."""
    for layer in names.weights:
        if layer.component in names.denoisers[1:]:
            continue  # files for a second denoiser use the first one's names
        original = names.original_layers.get(layer)
        paths = {"diffusers": layer.path, "text": layer.path}
        if re.match(r"encoder\.layers\.", layer.path):
            paths["text"] = f"text_model.{layer.path}"
        if original is not None:
            paths["original"] = original.path
        if not _ATTENTION.search(layer.path):
            paths["diffusers_but_attention"] = layer.path
        values = paths | {f"{key}_": path.replace(".", "_") for key, path in paths.items()}
        for form in reader.forms(family, layer, names):
            key = form[form.index("{") + 1 : form.index("}")]
            if key in values:
                yield form.format(**{key: values[key]})


def mask_block_numbers(name: str) -> str:
    """A layer's name with N for each block number."""
    return _NUMBER.sub("N", name)


def _module(
    layer: FileLayer, target: LayerName | OriginalLayer | None, settings: Mapping[str, Any]
) -> AdapterModule | None:
    """The module as it was trained; None if it is incomplete."""
    name = target.parts[0] if isinstance(target, OriginalLayer) else target or LayerName("", layer.name)
    try:
        return files.make_module(layer.name, name, layer.tensors, settings)
    except WeightsError:
        return None


def _can_read(reader: Reader, layer: FileLayer, module: AdapterModule, family: str) -> bool:
    kind = "dora" if module.is_dora and module.kind == "lora" else module.kind
    if kind not in reader.kinds or (family in reader.no_alpha and "alpha" in layer.tensors):
        return False
    if module.is_dora and next(raw for raw, leaf in layer.leaves.items() if leaf == MAGNITUDE) != reader.dora:
        return False
    factors = {raw for raw, leaf in layer.leaves.items() if leaf in ("lora_down.weight", "lora_up.weight")}
    return module.kind != "lora" or any(factors == set(pair) for pair in reader.lora)


def _applied_scale(reader: Reader, layer: FileLayer, module: AdapterModule, *, is_stated: bool) -> float:
    """The scale that a reader applies."""
    if reader.strength == "header" and is_stated:
        return module.scale
    return module.scale if "alpha" in layer.tensors else 1.0
