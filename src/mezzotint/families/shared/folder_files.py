"""What is the same of a model's folder in diffusers' layout, whatever the family: its parts, their configurations and
weights, and tokenizers, opened by headers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mezzotint import outside
from mezzotint.errors import WeightsError
from mezzotint.recipe.families.base import FamilySpec
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.weights.files import fingerprint
from mezzotint.weights.folder import components
from mezzotint.weights.folder.model_folder import (
    ModelFolder,
    StoredWeights,
    read_json,
    require_plain,
    tokenizer_files,
)
from mezzotint.weights.folder.tokenizer import require_fitting, tokenizer_errors
from mezzotint.weights.keymap import Shape
from mezzotint.weights.model_files import ConfigConstraint, ModelFiles

Configs = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class FolderFiles(ModelFiles):
    """A model's folder and the configurations of its parts."""

    tokenizer_names: ClassVar[tuple[str, ...]] = (
        "vocab.json",
        "merges.txt",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
    )
    """Those that a text depends on."""

    settings: ModelSettings
    seed: int
    root: Path
    folder: ModelFolder
    configs: Mapping[str, dict[str, Any]]
    scheduler: dict[str, Any]

    @classmethod
    def absent(cls, folder: ModelFolder) -> Collection[str]:
        """Parts that a model of the family may lack, by its small files."""
        return ()

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """What the parts must agree on besides what all families of the kind ask."""
        return iter(())

    @property
    def parts(self) -> tuple[str, ...]:
        """See ModelFiles: those that this model has, in the family's order."""
        return tuple(self.configs)

    @property
    def text_parts(self) -> tuple[str, ...]:
        """Of these, the text encoders."""
        return tuple(part for part in self.spec.tokenizers if part in self.configs)

    def where(self, part: str) -> Path:
        """The configuration's file of a part."""
        return self.root / self.spec.folders[part] / "config.json"

    def weights_of(self, part: str) -> StoredWeights:
        """The weights of a part in the folder. Raises WeightsError E1407 when it has none."""
        weights = self.folder.weights(self.spec.folders[part])
        if weights is None:
            raise self._without_weights(self.where(part).parent)
        return weights

    def shapes(self, part: str) -> Mapping[str, Shape]:
        """See ModelFiles."""
        return components.shapes(self.spec.networks[part], self.configs[part], where=self.where(part))

    def length(self, part: str) -> int:
        """Tokens of a caption for a text encoder, start and end included."""
        return int(self.configs[part].get("max_position_embeddings", 77))

    def tokenizer_fingerprint(self, part: str) -> str:
        """Of the tokenizer's files that belong to a text encoder."""
        paths = tokenizer_files(self.root / self.spec.tokenizers[part])
        return fingerprint.of_files([paths[name] for name in self.tokenizer_names if name in paths])


def configs_in(folder: ModelFolder, spec: FamilySpec, absent: Collection[str]) -> dict[str, dict[str, Any]]:
    """The configurations of a model's parts, but for those of a family that it may lack. Raises WeightsError E1409 for
    a folder without one of the others, a tokenizer or the scheduler."""
    parts = [part for part in spec.parts if part not in absent]
    tokenizers = [name for part, name in spec.tokenizers.items() if part not in absent]
    needed = (*(spec.folders[part] for part in parts), *tokenizers, "scheduler")
    lacking = [f"{name}/" for name in needed if not folder.has(name)]
    if lacking:
        raise WeightsError(f"{folder.root}: lacks {', '.join(lacking)}; fetch the whole model", code="E1409")
    return {part: folder.config(spec.folders[part]) for part in parts}


def clip_tokenizer(root: Path, vocabulary: int) -> Any:
    """The tokenizer of a folder for an encoder that knows so many tokens. Raises WeightsError E1409."""
    from transformers.models.clip.tokenization_clip import CLIPTokenizer

    require_plain(root)
    paths = tokenizer_files(root)
    if "tokenizer.json" not in paths and "merges.txt" not in paths:
        raise WeightsError(f"{root}: lacks merges.txt; fetch the whole tokenizer", code="E1409")
    read_json(paths.get("vocab.json", root / "vocab.json") if "merges.txt" in paths else paths["tokenizer.json"])
    with tokenizer_errors(root):
        tokenizer = (
            _tokenizer_in_two_folders(paths)
            if "merges.txt" in paths and paths["merges.txt"].parent != root
            else CLIPTokenizer.from_pretrained(str(root), local_files_only=True)
        )
    return require_fitting(tokenizer, root, vocabulary)


def _tokenizer_in_two_folders(paths: Mapping[str, Path]) -> Any:
    """A tokenizer whose vocabulary lies elsewhere than its settings, which the library cannot read by itself."""
    from transformers.models.clip.tokenization_clip import CLIPTokenizer

    merges = outside.read_text(paths["merges.txt"]).splitlines()[1:]
    config = read_json(paths["tokenizer_config.json"])
    config.pop("tokenizer_class", None)
    return CLIPTokenizer(vocab=read_json(paths["vocab.json"]), merges=[tuple(m.split()) for m in merges], **config)
