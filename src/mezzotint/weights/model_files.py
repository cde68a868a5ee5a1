"""`ModelFiles`, the interface to a model's files: they are opened by their headers once a run; no network runs here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import torch
from torch import nn

from mezzotint.errors import WeightsError
from mezzotint.settings.families.base import FamilySpec
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.shapes import TextImages
from mezzotint.weights.files import fingerprint
from mezzotint.weights.files.tensor_files import Stored
from mezzotint.weights.folder import scheduler_file
from mezzotint.weights.folder.model_folder import shipped_folder
from mezzotint.weights.keymap import Shape
from mezzotint.weights.low_bit import FLOAT32, WeightForm
from mezzotint.weights.single_file.modelspec import Description

Prediction = Literal["epsilon", "v", "x0", "edm", "v-edm", "epsilon-unscaled", "flow"]
ConfigConstraint = tuple[str, Any, Any]
"""A value that two parts must agree on: its description, and the value in each part."""


@dataclass(frozen=True, slots=True)
class EncodedSpec:
    """What a model accepts from another trainer's caches. Latents of `channels`, scaled to (x − shift) · factor. Text
    embeddings (`length`, `width`) and pooled embeddings (`pooled`,)."""

    channels: int
    factor: float
    shift: float
    length: int
    width: int
    pooled: int


@contextmanager
def converting_config_errors(root: Path) -> Iterator[None]:
    """Turns errors about missing or invalid values in the configurations of a folder into WeightsError E1409."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"lacks {error.args[0]}" if isinstance(error, KeyError) else f"has an unusable value ({error})"
        raise WeightsError(f"{root}: a configuration in it {problem}; get another copy", code="E1409") from error


class ModelFiles(ABC):
    """The files of one model. settings: with paths resolved. seed: of random weights, where `settings.weights` selects
    them. root: the folder of its configurations. scheduler: the noise scheduler's configuration."""

    spec: ClassVar[FamilySpec]
    has_split_names: ClassVar[bool] = False
    """Whether every version of ComfyUI that supports the family reads diffusers' names of layers that are fused in
    original-format checkpoints."""
    needs_aligned_conditions: ClassVar[bool] = False
    """Whether condition images must have the sizes of their samples, as those that are further channels."""
    settings: ModelSettings
    seed: int
    root: Path
    scheduler: dict[str, Any]

    @classmethod
    @abstractmethod
    def of(cls, settings: ModelSettings, seed: int = 0) -> Self:
        """Opens the files that a recipe names. Raises WeightsError with the file, its content, and what to do."""

    @classmethod
    @abstractmethod
    def from_configs(cls, settings: ModelSettings) -> Self:
        """The model by its configurations only, with random weights even where files exist: for counting parameters on
        the meta device. A replaced autoencoder is assumed to be as large as the model's own."""

    @classmethod
    def tiny(cls, seed: int = 0) -> Self:
        """A shipped model with random weights and fewer than a million parameters."""
        name = cls.spec.name
        return cls.of(ModelSettings(family=name, path=shipped_folder(f"tiny-{name}"), weights="random"), seed)

    @property
    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """The parts of this model, in the family's order; parts without files may be among them."""

    @property
    def prediction(self) -> Prediction:
        """What the denoiser predicts, by the recipe or else by the files. Raises WeightsError E1409."""
        prediction = self.settings.prediction or scheduler_file.prediction_of(self.scheduler)
        if prediction is None:
            raise WeightsError(
                f"{self.root / 'scheduler' / 'scheduler_config.json'}: prediction_type is "
                f"{self.scheduler.get('prediction_type')!r}; family {self.spec.name} supports epsilon and "
                "v_prediction; set model.prediction to choose",
                code="E1409",
            )
        return cast(Prediction, prediction)

    @staticmethod
    def _require_equal(where: Path, constraints: Iterable[ConfigConstraint]) -> None:
        for description, first, second in constraints:
            if first != second:
                raise WeightsError(
                    f"{where}: {description} {first}, the other part has {second}; its parts are of different models",
                    code="E1409",
                )

    def _without_weights(self, folder: Path) -> WeightsError:
        return WeightsError(
            f"{folder}: has a configuration but no weights; give the path of a complete model, or set "
            "model.weights=random to train from scratch",
            code="E1407",
        )

    @abstractmethod
    def shapes(self, part: str) -> Mapping[str, Shape]:
        """The shape of every tensor of a part, by the names of files in diffusers' layout. Allocates no memory for
        values. Raises WeightsError."""

    @property
    def networks(self) -> Mapping[str, str]:
        """The network of each part, see `FamilySpec`."""
        return self.spec.networks

    @property
    def condition_names(self) -> tuple[str, ...]:
        """The condition images that the denoiser needs, by their names in `data.conditions`."""
        return ()

    @property
    def min_conditions(self) -> int | None:
        """The least number of condition images for a denoiser that takes any number, under any names, in their order;
        None for one that takes exactly `condition_names`."""
        return None

    @property
    def text_images(self) -> TextImages | None:
        """How the text encoder sees condition images; None if it sees only captions."""
        return None

    @property
    def inpaints(self) -> bool:
        """Whether the denoiser fills a region of an image (`data.inpaint`)."""
        return False

    @property
    def animates(self) -> bool:
        """Whether the denoiser continues a clip's first frame, which it takes as further channels."""
        return False

    def require_trainable(self) -> None:
        """Raises WeightsError E1220, E1221 for a variant that can be sampled but is trained only if the recipe allows
        it."""
        return

    def absences(self) -> Iterator[str]:
        """Notes on optional parts that the model does not have, and what is used instead."""
        return iter(())

    def trainable_shapes(self) -> dict[str, Mapping[str, Shape]]:
        """`shapes` of all trainable parts, by their folders in diffusers' layout, as adapters name them."""
        return {self.spec.folders[part]: self.shapes(part) for part in self.spec.trainable if part in self.parts}

    def original_names(self, part: str, names: Collection[str]) -> Mapping[str, str]:
        """The name of each of a part's tensors in the original-format checkpoint; tensors that are fused there share
        one. Empty where the part has no original names."""
        return {}

    @classmethod
    def swapped_layers(cls, names: Collection[str]) -> Collection[str]:
        """Of a denoiser's tensors, the layers whose two halves of rows are in the other order in the original-format
        checkpoint."""
        return ()

    @abstractmethod
    def network(self, part: str, form: WeightForm = FLOAT32) -> nn.Module:
        """A part with its weights: in `form`, on the CPU, eval mode. Stored weights are read directly into it. Raises
        WeightsError."""

    @abstractmethod
    def fingerprint(self, part: str) -> str:
        """64 hexadecimal digits that identify a part's weights and configuration. "schedule" (noise schedule and
        prediction) and "tokenizer" (all of them) count as parts. A part that the model does not have has a fingerprint,
        too. That of random weights depends on the configuration, the seed and torch's version."""

    def _fingerprint(self, part: str, config: Mapping[str, Any], **weights: Any) -> str:
        """The fingerprint of a configuration, without entries that do not affect the network, and of `weights`, which
        is empty for random ones."""
        values = {k: v for k, v in config.items() if not k.startswith("_") and k != "transformers_version"}
        version = torch.__version__.split("+")[0]
        random = {"weights": "random", "seed": self.seed, "part": part, "torch": version}
        return fingerprint.of_values({"config": values} | (weights or random))

    @abstractmethod
    def text_identity(self) -> str:
        """What a text embedding depends on besides the caption: tokenizer, encoder weights, clip skip, token length.
        One line of text."""

    @abstractmethod
    def media_identity(self) -> str:
        """What latents depend on besides the placed pixels: VAE weights and configuration, scaling, tiling. One line
        of text."""

    def description(self, title: str) -> Description | None:
        """The model's description for a file header; None for families that ModelSpec does not define."""
        return None

    def text_shape(self) -> tuple[int, int] | None:
        """Token count and width of the text that the denoiser takes, if its configuration contains them; None
        otherwise. Embeddings from other trainers must have this shape."""
        return None

    def encoded_spec(self) -> EncodedSpec | None:
        """What the model accepts of latents and texts that another trainer has encoded; None if no such trainer is
        known."""
        return None

    def stored_parts(self, parts: Mapping[str, nn.Module]) -> Mapping[str, Stored | None] | None:
        """The weights of each part under its network's names; None for a part without weights.

        parts: the networks of a model opened with `from_configs`. Returns None for models in diffusers' layout and for
        Stable Diffusion in one file, whose files are inspected directly. Raises WeightsError.
        """
        return None
