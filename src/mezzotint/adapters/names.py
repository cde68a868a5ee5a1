"""Names of a model's layers in adapter files: diffusers' paths and original-format paths, with every prefix in use.

A flattened name (`lora_unet_down_blocks_0_attentions_0_proj_in`) does not show where its dots were. Therefore names are
generated from the layers of the model and looked up, never parsed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

from mezzotint.settings.families.base import is_denoiser
from mezzotint.weights.keymap import Shape
from mezzotint.weights.layouts import base
from mezzotint.weights.model_files import ModelFiles

_TABLE = re.compile(r"(^|\.)(embeddings\.|shared\.|embed_tokens\.|relative_attention_bias\.)")
"""Embedding tables (tokens, positions), which no adapter changes."""
_ROW_ORDER = ("q", "k", "v", "mlp")
"""The order of rows in a fused projection of an original-format checkpoint."""
_CLIP_PATH = re.compile(r"(text_model\.)?(encoder\.layers\.|embeddings\.|final_layer_norm)")
_DOTTED = ("transformer.", "unet.", "diffusion_model.", "model.diffusion_model.", "base_model.model.",
           "base_model.model.transformer.", "base_model.model.unet.", "")  # fmt: skip
"""Prefixes of a denoiser's dotted names in files."""
_FLAT = ("lora_unet_", "lora_transformer_", "lycoris_")
"""Prefixes of a denoiser's names with underscores for dots."""


class LayerName(NamedTuple):
    """A layer of a model. component: its folder (`unet`, `text_encoder_2`). path: dotted, as in the component's
    files."""

    component: str
    path: str

    def __str__(self) -> str:
        return f"{self.component}.{self.path}"


class OriginalLayer(NamedTuple):
    """A layer of the original-format checkpoint.

    path: dotted. parts: the layers of this model that its rows belong to, in order: one, or several if it is fused.
    is_swapped: the two halves of its rows are in the other order (scale before shift).
    """

    path: str
    parts: tuple[LayerName, ...]
    is_swapped: bool = False


@dataclass(frozen=True)
class LayerNames:
    """The layers of one model that an adapter can change, and their names in files.

    shapes: by component, the shape of every tensor by its name in files; an autoencoder is ignored. originals: by
    component, the original-format name of each tensor; several may share one. swapped: paths of layers whose two halves
    of rows are in the other order in such checkpoints. has_split_names: whether ComfyUI reads diffusers' names for its
    fused layers.
    """

    shapes: Mapping[str, Mapping[str, Shape]]
    originals: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    swapped: frozenset[str] = frozenset()
    has_split_names: bool = False

    @classmethod
    def of(cls, files: ModelFiles) -> Self:
        """The layers of a model. Raises WeightsError if its configurations cannot be used."""
        shapes = files.trainable_shapes()
        parts = {part: folder for part, folder in files.spec.folders.items() if folder in shapes}
        by_folder = {folder: files.original_names(part, shapes[folder]) for part, folder in parts.items()}
        originals = {folder: names for folder, names in by_folder.items() if names}
        denoisers = [name for part, folder in parts.items() if is_denoiser(part) for name in shapes[folder]]
        return cls(shapes, originals, frozenset(files.swapped_layers(denoisers)), files.has_split_names)

    @classmethod
    def of_stable(cls, shapes: Mapping[str, Mapping[str, Shape]]) -> Self:
        """The layers of a Stable Diffusion or SDXL model with these shapes."""
        unet = {entry.ours[0]: entry.foreign for entry in base.unet(list(shapes.get("unet", {})))}
        return cls(shapes, {"unet": unet} if unet else {})

    @cached_property
    def weights(self) -> dict[LayerName, Shape]:
        """Linear and convolution layers, with the shapes of their weights."""
        return {
            LayerName(component, name.removesuffix(".weight")): shape
            for component, tensors in self.shapes.items()
            if component != "vae"
            for name, shape in tensors.items()
            if name.endswith(".weight") and len(shape) in (2, 4) and not _TABLE.search(name)
        }

    @cached_property
    def denoisers(self) -> tuple[str, ...]:
        """The denoisers: one, or the two of Wan 2.2 A14B (high noise, low noise)."""
        return tuple(c for c in self.shapes if c != "vae" and not c.startswith("text_encoder"))

    @cached_property
    def original_layers(self) -> dict[LayerName, OriginalLayer]:
        """The original-format layer that contains each layer, for components whose original names are known."""
        groups: dict[tuple[str, str], list[LayerName]] = defaultdict(list)
        for layer in self.weights:
            name = self.originals.get(layer.component, {}).get(f"{layer.path}.weight")
            if name is not None:
                groups[layer.component, name.removesuffix(".weight")].append(layer)
        result: dict[LayerName, OriginalLayer] = {}
        for (_, path), layers in groups.items():
            parts = tuple(sorted(layers, key=_row_order)) if len(layers) > 1 else tuple(layers)
            original = OriginalLayer(path, parts, len(parts) == 1 and parts[0].path in self.swapped)
            result |= dict.fromkeys(parts, original)
        return result

    @cached_property
    def kohya(self) -> dict[LayerName, str]:
        """The flattened name of each layer in sd-scripts and musubi-tuner: original names, but diffusers' names for
        Stable Diffusion 1 and 2. Parts of a fused layer share one."""
        return {layer: self._kohya_name(layer) for layer in self.weights}

    def _kohya_name(self, layer: LayerName) -> str:
        if layer.component not in self.denoisers:
            return self.text_names(layer)[0]
        original = None if self.is_sd else self.original_layers.get(layer)
        return f"{_FLAT[0]}{_flatten(layer.path if original is None else original.path)}"

    def text_names(self, layer: LayerName) -> list[str]:
        """Flattened names of a text encoder's layer, the usual one first. CLIP's files may lack the level `text_model`,
        which programs expect."""
        number = layer.component.removeprefix("text_encoder").removeprefix("_") or "1"
        starts = [f"lora_te{number}_"]
        if self.is_sd:
            starts = ["lora_te_", "lora_te1_"]
        elif number == "1":
            starts = ["lora_te1_", "lora_te_"] if not self.is_sdxl else starts
        plain = layer.path.removeprefix("text_model.")
        paths = [f"text_model.{plain}", plain] if _CLIP_PATH.match(layer.path) else [layer.path]
        return [start + _flatten(path) for path in paths for start in starts]

    def lookup(self, denoiser: str) -> dict[str, LayerName | OriginalLayer]:
        """The layer of each name in a file, in every spelling that programs write. denoiser: the component of a file's
        denoiser names, if the model has two."""
        table: dict[str, LayerName | OriginalLayer] = {}
        for layer in sorted(self.weights, key=lambda layer: layer.component != denoiser):
            for name in self._dotted_names(layer, denoiser):
                table.setdefault(name, layer)
        for layer, original in self.original_layers.items():
            if layer.component == denoiser:
                target = layer if original.parts == (layer,) and not original.is_swapped else original
                for prefix in _DOTTED:
                    table.setdefault(prefix + original.path, target)
                for prefix in _FLAT:
                    table.setdefault(prefix + _flatten(original.path), target)
        return table

    def _dotted_names(self, layer: LayerName, denoiser: str) -> Iterator[str]:
        if layer.component in self.denoisers:
            yield str(layer)
            if layer.component == denoiser:
                yield from (prefix + layer.path for prefix in _DOTTED)
                yield from (prefix + _flatten(layer.path) for prefix in _FLAT)
            return
        plain = layer.path.removeprefix("text_model.")
        for path in (layer.path, plain, f"text_model.{plain}"):
            yield f"{layer.component}.{path}"
            yield f"base_model.model.{layer.component}.{path}"
        yield from self.text_names(layer)

    @property
    def is_sdxl(self) -> bool:
        """Whether the model is SDXL, whose denoiser has original names in kohya's files."""
        return {"unet", "text_encoder_2"} <= self.shapes.keys()

    @property
    def is_sd(self) -> bool:
        """Whether the model is Stable Diffusion 1 or 2."""
        return "unet" in self.shapes and not self.is_sdxl


def _row_order(layer: LayerName) -> int:
    roles = layer.path.rpartition(".")[2].split("_")
    return next(number for number, role in enumerate(_ROW_ORDER) if role in roles)


def _flatten(path: str) -> str:
    return path.replace(".", "_")
