"""What is asked of a model's files: they are opened once a run, by headers, and no network of theirs computes here."""

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
from mezzotint.weights.files import fingerprint
from mezzotint.weights.files.tensor_files import Stored
from mezzotint.weights.folder import scheduler_file
from mezzotint.weights.folder.model_folder import shipped
from mezzotint.weights.keymap import Shape
from mezzotint.weights.low_bit import FLOAT32, WeightForm
from mezzotint.weights.single_file.modelspec import Description

Prediction = Literal["epsilon", "v", "x0", "edm", "v-edm", "epsilon-unscaled", "flow"]
ConfigConstraint = tuple[str, Any, Any]
"""Something that two parts must agree on: in words, with what the one says and what the other says."""


@dataclass(frozen=True, slots=True)
class EncodedSpec:
    """What a model takes of what another trainer has encoded. Latents of `channels`, which become (x − shift) · factor.
    Text of `length` tokens, `width` wide, and `pooled` numbers of its own."""

    channels: int
    factor: float
    shift: float
    length: int
    width: int
    pooled: int


@contextmanager
def configured(root: Path) -> Iterator[None]:
    """Within, what the configurations of a folder lack or misstate becomes a WeightsError E1409."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"lacks {error.args[0]}" if isinstance(error, KeyError) else f"says what cannot be used ({error})"
        raise WeightsError(f"{root}: a configuration in it {what}; take another copy", code="E1409") from error


class ModelFiles(ABC):
    """The files of one model. settings: with paths resolved. seed: of random weights, where `settings.weights` asks for
    them. root: the folder of its configurations. scheduler: the noise scheduler's configuration."""

    spec: ClassVar[FamilySpec]
    has_split_names: ClassVar[bool] = False
    """Whether every version of ComfyUI that knows the family reads diffusers' names of layers that are fused in
    original-format checkpoints."""
    settings: ModelSettings
    seed: int
    root: Path
    scheduler: dict[str, Any]

    @classmethod
    @abstractmethod
    def of(cls, settings: ModelSettings, seed: int = 0) -> Self:
        """Opens what a recipe names. Raises WeightsError naming the file, what is in it, and what to do."""

    @classmethod
    @abstractmethod
    def described(cls, settings: ModelSettings) -> Self:
        """The same model by its configurations alone, all its weights random, whatever files there are: to be counted,
        where memory is not given. An autoencoder from elsewhere is taken to be as large as the model's own."""

    @classmethod
    def tiny(cls, seed: int = 0) -> Self:
        """A model that ships, with random weights and under a million parameters."""
        name = cls.spec.name
        return cls.of(ModelSettings(family=name, path=shipped(f"tiny-{name}"), weights="random"), seed)

    @property
    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """The parts of this model, in the family's order; one that is nowhere may be among them."""

    @property
    def prediction(self) -> Prediction:
        """What the recipe says that the denoiser predicts, else what the files say. Raises WeightsError E1409."""
        prediction = self.settings.prediction or scheduler_file.prediction_of(self.scheduler)
        if prediction is None:
            raise WeightsError(
                f"{self.root / 'scheduler' / 'scheduler_config.json'}: prediction_type is "
                f"{self.scheduler.get('prediction_type')!r}; family {self.spec.name} knows epsilon and v_prediction, "
                "write model.prediction to choose",
                code="E1409",
            )
        return cast(Prediction, prediction)

    @staticmethod
    def _require_equal(where: Path, constraints: Iterable[ConfigConstraint]) -> None:
        for what, one, two in constraints:
            if one != two:
                raise WeightsError(
                    f"{where}: {what} {one}, the other part says {two}; its parts are of different models", code="E1409"
                )

    def _without_weights(self, folder: Path) -> WeightsError:
        return WeightsError(
            f"{folder}: has a configuration and no weights; give the path of a complete model, or write "
            "model.weights=random to train from nothing",
            code="E1407",
        )

    @abstractmethod
    def shapes(self, part: str) -> Mapping[str, Shape]:
        """The shape of every tensor of a part, by the names of files in diffusers' layout. No memory is taken for
        values. Raises WeightsError."""

    def require_trainable(self) -> None:
        """Raises WeightsError E1220, E1221 for a variant that can be drawn from, and is not trained unless the recipe
        says so."""
        return

    def absences(self) -> Iterator[str]:
        """Parts that the model may have and has not, with what takes their place."""
        return iter(())

    def trainable_shapes(self) -> dict[str, Mapping[str, Shape]]:
        """`shapes` of all parts that can be trained, by their folders in diffusers' layout, as adapters name them."""
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
        """A part with its weights: in `form`, on the CPU, eval mode. Stored weights are read straight into it. Raises
        WeightsError."""

    @abstractmethod
    def fingerprint(self, part: str) -> str:
        """64 hexadecimal digits that name a part's weights and configuration. "schedule" (noise schedule and
        prediction) and "tokenizer" (all of them) are asked for like parts. A part that the model has not has a name,
        too. Of random weights: of the configuration, the seed and torch's version."""

    def _fingerprint(self, part: str, config: Mapping[str, Any], **weights: Any) -> str:
        """Of a configuration, without what says nothing of the network, and what the weights are; nothing is given
        of random ones."""
        values = {k: v for k, v in config.items() if not k.startswith("_") and k != "transformers_version"}
        version = torch.__version__.split("+")[0]
        drawn = {"weights": "random", "seed": self.seed, "part": part, "torch": version}
        return fingerprint.of_values({"config": values} | (weights or drawn))

    @abstractmethod
    def text_identity(self) -> str:
        """What a text embedding depends on besides the caption: tokenizer, encoder weights, clip skip, token length.
        One line of text."""

    @abstractmethod
    def media_identity(self) -> str:
        """What latents depend on besides the placed pixels: VAE weights and configuration, scaling, tiling. One line
        of text."""

    def description(self, title: str) -> Description | None:
        """What a header says of the model; None of families that ModelSpec has no word for."""
        return None

    def text_shape(self) -> tuple[int, int] | None:
        """Tokens and width of the text that the denoiser takes, from its configuration, where no encoder has to be
        asked; None otherwise. Embeddings that were made elsewhere are held to it."""
        return None

    def encoded_spec(self) -> EncodedSpec | None:
        """What the model takes of latents and texts that another trainer has encoded; None where nothing is known that
        makes such."""
        return None

    def stored_parts(self, parts: Mapping[str, nn.Module]) -> Mapping[str, Stored | None] | None:
        """The weights of each part under its network's names; of a part that has none, None.

        parts: of a described model. None for models in diffusers' layout, or in one file of Stable Diffusion's, whose
        files are looked at as such. Raises WeightsError.
        """
        return None
