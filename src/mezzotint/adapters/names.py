"""How files of adapters call the layers of a model: dotted paths in diffusers' layout, flat names in kohya's.

A flat name (`lora_unet_down_blocks_0_attentions_0_proj_in`) does not tell where its dots were. So names are made from
the layers that the model has and looked up, never taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from mezzotint.weights.keymap import Shape
from mezzotint.weights.layouts import base

_TABLE = re.compile(r"(^|\.)(embeddings\.|shared\.|embed_tokens\.|relative_attention_bias\.)")
"""Matrices that are looked up by number: tokens, positions."""
UNET_START = "lora_unet_"
"""What flat names of a denoiser begin with, of every family."""


class LayerName(NamedTuple):
    """A layer of a model. component: of its folder (`unet`, `text_encoder_2`). path: dotted, as in that component's
    files."""

    component: str
    path: str

    def __str__(self) -> str:
        return f"{self.component}.{self.path}"


@dataclass(frozen=True)
class LayerNames:
    """The layers of one model that an adapter can change, and what they are called in files.

    shapes: by component, the shape of every tensor under the names of its files; an autoencoder among them is left
    alone.
    """

    shapes: Mapping[str, Mapping[str, Shape]]

    @cached_property
    def weights(self) -> dict[LayerName, Shape]:
        """Matrices and convolutions, with the shapes of their weights."""
        return {
            LayerName(component, name.removesuffix(".weight")): shape
            for component, tensors in self.shapes.items()
            if component != "vae"
            for name, shape in tensors.items()
            if name.endswith(".weight") and len(shape) in (2, 4) and not _TABLE.search(name)
        }

    @cached_property
    def flat(self) -> dict[LayerName, str]:
        """Kohya's name of each layer: of SDXL's denoiser after generative-models' names, else after diffusers'."""
        return {layer: next(self._spellings(layer)) for layer in self.weights}

    @cached_property
    def by_flat(self) -> dict[str, LayerName]:
        """The layer behind each flat name, in every spelling that files are met with."""
        layers = {name: layer for layer in self.weights for name in self._spellings(layer)}
        return layers | {name: layer for layer, name in self.flat.items()}

    def find(self, component: str, path: str) -> LayerName | None:
        """The layer of a dotted path; the level `text_model` may be missing, as newer transformers leave it out."""
        for spelling in (path, f"text_model.{path}", path.removeprefix("text_model.")):
            if LayerName(component, spelling) in self.weights:
                return LayerName(component, spelling)
        return None

    def _spellings(self, layer: LayerName) -> Iterator[str]:
        """Flat names of a layer, the proper one first."""
        path = layer.path.replace(".", "_")
        if not layer.component.startswith("text_encoder"):
            if self.is_sdxl:
                yield UNET_START + self._generative[layer.path].replace(".", "_")
            yield UNET_START + path
            return
        number = layer.component.removeprefix("text_encoder").removeprefix("_") or "1"
        starts = [f"lora_te{number}_"]
        if "text_encoder_2" not in self.shapes:
            starts = ["lora_te_", "lora_te1_"]
        plain = path.removeprefix("text_model_")
        for start in starts:
            yield f"{start}{path}"
        for start in starts:
            yield from (start + other for other in (f"text_model_{plain}", plain) if other != path)

    @cached_property
    def is_sdxl(self) -> bool:
        """Whether they are of SDXL, whose denoiser kohya's files call otherwise."""
        return {"unet", "text_encoder_2"} <= self.shapes.keys()

    @cached_property
    def _generative(self) -> dict[str, str]:
        """Paths of SDXL's denoiser as generative-models names them."""
        entries = base.unet(list(self.shapes["unet"])) if "unet" in self.shapes else ()
        return {e.ours[0].removesuffix(".weight"): e.foreign.removesuffix(".weight") for e in entries}
