"""What is said of a family of models before anything of it is loaded: one `FamilySpec` for each, found by listing."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mezzotint import outside, registry
from mezzotint.settings.base import Section

FOLDER = "settings/families"


@dataclass(frozen=True, slots=True)
class ShippedConfig:
    """Configurations that ship, for single files. width: of the text that the denoiser takes. channels: of its first
    layer. prediction: what such a model predicts, "" where all models of this size predict the same."""

    name: str
    width: int
    channels: int
    prediction: str = ""


@dataclass(frozen=True, slots=True)
class Distilled:
    """How a model of the family says that it was distilled, and how it is sampled then.

    file, key, value: the entry of a JSON file of the model's folder that says it; an absent entry counts as false.
    steps, guidance: its defaults for `sample`.
    """

    file: str
    key: str
    value: Any
    steps: int
    guidance: float

    def is_said_in(self, folder: Path) -> bool:
        """Whether the folder holds a distilled model; false where the file cannot be read."""
        try:
            return bool((outside.read_json(folder / self.file).get(self.key) or False) == self.value)
        except (OSError, ValueError, AttributeError):
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySpec:
    """The facts of a family.

    trains: its models, for messages. called: the same in a word or two. networks: of each part, by the names in
    `weights/folder/components.py`. folders: of each part, in diffusers' layout. tokenizers: of each text encoder, its
    tokenizer's folder. trainable: parts that can be trained. has_new_words: whether its text encoders take new words.
    latent_scale: between the autoencoder's latents and the denoiser's, where no file says it. refuses: settings of
    `model` that have no meaning here, with the reason.
    settings: the section `model.NAME`, which this family alone has.
    layout: of its models in one file, in `weights/layouts`; "" where none come so.
    advice: the subjects of
    `settings/advice.py` whose advice holds for its models. tensor_names: a pattern for names that only its single files
    have. holds: whether a folder with this model_index.json and this configuration of a denoiser, {} where there is
    none, is a model of the family. shipped: configurations that ship. is_straight: whether its models are on straight
    paths, see `FlowSettings`. is_stock: whether the loop of diffusers' `train_text_to_image.py` trains its models.
    usual: values of settings that hold where the recipe does not write them, by section. distilled: how its distilled
    models are told apart and sampled; None where the family has none. layers: patterns of what adapters' layers are
    called beside those in `adapters/targets.py`, by role: "attention", "mlp", "outer". no_fp16: why its models cannot
    be trained in fp16; "" where they can.
    """

    name: str
    trains: str
    called: str
    networks: Mapping[str, str]
    folders: Mapping[str, str]
    tokenizers: Mapping[str, str]
    trainable: tuple[str, ...] = ("denoiser",)
    has_new_words: bool = False
    latent_scale: float = 1.0
    refuses: Mapping[str, str] = field(default_factory=dict)
    settings: type[Section] | None = None
    layout: str = ""
    advice: tuple[str, ...] = ()
    tensor_names: str = ""
    holds: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] = lambda index, config: False
    shipped: tuple[ShippedConfig, ...] = ()
    is_straight: bool = False
    is_stock: bool = False
    usual: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    distilled: Distilled | None = None
    layers: Mapping[str, str] = field(default_factory=dict)
    no_fp16: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """All parts that its models may have."""
        return tuple(self.networks)

    @property
    def text_parts(self) -> tuple[str, ...]:
        """Of these, the text encoders."""
        return tuple(self.tokenizers)

    def denoisers(self, among: Collection[str] | None = None) -> tuple[str, ...]:
        """Of these, those that denoise: one, or of some models two. among: of two those that are named, or the first;
        None is all."""
        every = tuple(filter(is_denoiser, self.parts))
        return every if among is None else tuple(part for part in every if part in among) or every[:1]

    @property
    def section(self) -> str:
        """The name of its own section in `model`."""
        return self.name.replace("-", "_")

    def usual_values(self, written: Collection[str]) -> dict[str, Any]:
        """What the family has by default, by path, where nothing is written."""
        values = {f"{section}.{name}": value for section, usual in self.usual.items() for name, value in usual.items()}
        return {path: value for path, value in values.items() if path not in written}

    def model_defaults(self, folder: Path) -> dict[str, Any]:
        """Defaults by path that a model's own folder changes: a distilled model takes few steps and no guidance."""
        if self.distilled is None or not self.distilled.is_said_in(folder):
            return {}
        return {"sample.steps": self.distilled.steps, "sample.guidance": (self.distilled.guidance,)}

    def names_tensors(self, names: Collection[str]) -> bool:
        """Whether a single file with these names is one of the family's."""
        return bool(self.tensor_names) and any(re.search(self.tensor_names, name) for name in names)


def is_denoiser(part: str) -> bool:
    """Whether a part of this name denoises."""
    return part.partition("_")[0] == "denoiser"


_OF_FOLDERS = "its models are read from folders in diffusers' layout, with all their parts"
_OF_ENCODERS = "its text encoders are read as the model was trained with them"
STRAIGHT_REFUSES = {
    "ema_weights": _OF_FOLDERS,
    "depth": _OF_FOLDERS,
    "clip_skip": _OF_ENCODERS,
    "last_layers": _OF_ENCODERS,
    "prediction": "it predicts the velocity of a straight path",
}
"""What families on straight paths refuse of `model`."""


def specs() -> tuple[FamilySpec, ...]:
    """All families, sorted by name; of those that other packages bring the ones that a recipe has named."""
    return tuple(registry.find(FOLDER, name).SPEC for name in registry.names(FOLDER, skip_unimported=True))


def family_spec(name: str) -> FamilySpec:
    """The facts of a family. Raises RecipeError E1010 with the nearest name when there is none."""
    spec: FamilySpec = registry.find(FOLDER, name).SPEC
    return spec


def refused_by(spec: FamilySpec) -> dict[str, str]:
    """Settings of `model` that have no meaning for a family, with the reason: the sections of others among them."""
    others = {s.section: f"it belongs to family {s.name}" for s in specs() if s.name != spec.name and s.settings}
    return others | dict(spec.refuses)
