"""The facts of a model family that are known before anything of it is loaded: one `FamilySpec` each, found by
listing."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mezzotint import outside, registry
from mezzotint.settings.base import Section

FOLDER = "settings/families"
MEDIA_PARTS = ("vae", "image_encoder")
"""Parts that encode pixels: the autoencoder, and the image encoder of image-to-video models."""


@dataclass(frozen=True, slots=True)
class ShippedConfig:
    """Configurations that ship with Mezzotint, for single files. width: of the denoiser's text input. channels: of its
    first layer. prediction: what such a model predicts, "" if all models of this size predict the same."""

    name: str
    width: int
    channels: int
    prediction: str = ""


@dataclass(frozen=True, slots=True)
class Distilled:
    """How a distilled model of the family is recognised, and its sampling defaults.

    file, key, value: the entry of a JSON file in the model's folder that marks it; an absent entry counts as false.
    steps, guidance: its defaults for `sample`.
    """

    file: str
    key: str
    value: Any
    steps: int
    guidance: float

    def marks_distilled(self, folder: Path) -> bool:
        """Whether the folder holds a distilled model; false if the file cannot be read."""
        try:
            return bool((outside.read_json(folder / self.file).get(self.key) or False) == self.value)
        except (OSError, ValueError, AttributeError):
            return False


@dataclass(frozen=True, slots=True)
class Starter:
    """A shipped recipe from which a new run of the family starts. recipe: its name; it trains an adapter or the model.
    model: the shipped model that it is for, "" for all others. pipeline: a pattern of the class in model_index.json, ""
    for all. prediction: the `prediction_type` of the scheduler, "" for all. largest_card: the card in bytes up to which
    it is used, None for every card and for a processor."""

    recipe: str
    model: str = ""
    pipeline: str = ""
    prediction: str = ""
    largest_card: int | None = None

    def fits(self, *, model: str, pipeline: str, prediction: str, card: int | None) -> bool:
        """Whether it is for a model, and for a card of this many bytes; None is a processor."""
        return (
            self.model == model
            and re.search(self.pipeline, pipeline) is not None
            and self.prediction in ("", prediction)
            and (self.largest_card is None or (card is not None and card <= self.largest_card))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySpec:
    """The facts of a family.

    trains: its models, for messages. label: the same in a word or two. networks: of each part, by the names in
    `weights/folder/components.py`. folders: of each part, in diffusers' layout. tokenizers: of each text encoder, its
    tokenizer's folder. trainable: parts that can be trained. supports_learned_tokens: of its text encoders.
    latent_scale: between the autoencoder's latents and the denoiser's, if no file gives it. refuses: settings of
    `model` that have no meaning here, with the reason. settings: the section `model.NAME` of this family. layout: of
    its single-file models, in `weights/layouts`; "" if there are none. advice: the subjects of `settings/advice.py`
    whose advice applies to its models. tensor_names: a pattern for names that occur only in its single files. matches:
    whether a folder with this model_index.json and this denoiser configuration, {} if there is none, is a model of the
    family. shipped: configurations that ship, of Stable Diffusion. single_file_configs: shipped folders with the
    configurations for its single files, of a flow-matching family; the first one that fits is used. published: hub ids
    of its models in diffusers' layout, for messages. is_flow_matching: whether its models are flow-matching models, see
    `FlowSettings`. is_stock: whether the loop of diffusers' `train_text_to_image.py` trains its models. usual: defaults
    of the family for settings that the recipe does not set, by section. distilled: how its distilled models are
    recognised and sampled; None if the family has none. layers: patterns of names of adapter layers in addition to
    those in `adapters/targets.py`, by role: "attention", "mlp", "outer". no_fp16: why its models cannot be trained in
    fp16; "" if they can. starters: recipes for a new run, of which the first that fits is proposed. editors: a pattern
    of the pipelines whose models take images beside the caption without `model.task`; "" if there are none.
    """

    name: str
    trains: str
    label: str
    networks: Mapping[str, str]
    folders: Mapping[str, str]
    tokenizers: Mapping[str, str]
    trainable: tuple[str, ...] = ("denoiser",)
    supports_learned_tokens: bool = False
    latent_scale: float = 1.0
    refuses: Mapping[str, str] = field(default_factory=dict)
    settings: type[Section] | None = None
    layout: str = ""
    advice: tuple[str, ...] = ()
    tensor_names: str = ""
    matches: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] = lambda index, config: False
    shipped: tuple[ShippedConfig, ...] = ()
    single_file_configs: tuple[str, ...] = ()
    published: tuple[str, ...] = ()
    is_flow_matching: bool = False
    is_stock: bool = False
    usual: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    distilled: Distilled | None = None
    layers: Mapping[str, str] = field(default_factory=dict)
    no_fp16: str = ""
    starters: tuple[Starter, ...] = ()
    editors: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """All parts that its models may have."""
        return tuple(self.networks)

    @property
    def text_parts(self) -> tuple[str, ...]:
        """The text encoders among the parts."""
        return tuple(self.tokenizers)

    @property
    def media_parts(self) -> tuple[str, ...]:
        """The parts that encode pixels."""
        return tuple(part for part in self.parts if part in MEDIA_PARTS)

    def denoisers(self, among: Collection[str] | None = None) -> tuple[str, ...]:
        """The denoisers among the parts: one, or two for some models. among: of two, those that are named, or the
        first; None is all."""
        every = tuple(filter(is_denoiser, self.parts))
        return every if among is None else tuple(part for part in every if part in among) or every[:1]

    @property
    def section(self) -> str:
        """The name of its section in `model`."""
        return self.name.replace("-", "_")

    def default_values(self, written: Collection[str]) -> dict[str, Any]:
        """The family's defaults by path, without those that are written in the recipe."""
        values = {f"{section}.{name}": value for section, usual in self.usual.items() for name, value in usual.items()}
        return {path: value for path, value in values.items() if path not in written}

    def model_defaults(self, folder: Path) -> dict[str, Any]:
        """Defaults by path that depend on the model's folder: a distilled model uses few steps and no guidance."""
        if self.distilled is None or not self.distilled.marks_distilled(folder):
            return {}
        return {"sample.steps": self.distilled.steps, "sample.guidance": (self.distilled.guidance,)}

    def names_tensors(self, names: Collection[str]) -> bool:
        """Whether a single file with these tensor names belongs to the family."""
        return bool(self.tensor_names) and any(re.search(self.tensor_names, name) for name in names)


def is_denoiser(part: str) -> bool:
    """Whether a part with this name is a denoiser."""
    return part.partition("_")[0] == "denoiser"


_OF_FOLDERS = "its models are read from folders in diffusers' layout, with all their parts"
_OF_ENCODERS = "its text encoders are used as in the model's training"
FLOW_MATCHING_REFUSES = {
    "ema_weights": _OF_FOLDERS,
    "depth": _OF_FOLDERS,
    "clip_skip": _OF_ENCODERS,
    "caption_tokens": _OF_ENCODERS,
    "task": "its files decide what it takes",
    "last_layers": _OF_ENCODERS,
    "prediction": "it is a flow-matching model and predicts the velocity",
}
"""Settings of `model` that flow-matching families refuse."""


def specs() -> tuple[FamilySpec, ...]:
    """All families, sorted by name; of those from other packages only the ones that a recipe has named."""
    return tuple(registry.find(FOLDER, name).SPEC for name in registry.names(FOLDER, skip_unimported=True))


def family_spec(name: str) -> FamilySpec:
    """The facts of a family. Raises RecipeError E1010 with the nearest name for an unknown one."""
    spec: FamilySpec = registry.find(FOLDER, name).SPEC
    return spec


def find_refused_settings(spec: FamilySpec) -> dict[str, str]:
    """Settings of `model` that have no meaning for a family, with the reason, including the sections of other
    families."""
    others = {s.section: f"it belongs to family {s.name}" for s in specs() if s.name != spec.name and s.settings}
    return others | dict(spec.refuses)
