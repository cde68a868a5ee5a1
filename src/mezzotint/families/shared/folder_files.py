"""The files of a model in diffusers' folder layout, or of a file that such a folder describes, for any family: parts
with their configurations, weights, tokenizers and identities. Only headers are read at first; nothing is downloaded and
no code in a folder runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import nn

from mezzotint import outside
from mezzotint.errors import WeightsError
from mezzotint.settings.base import with_values
from mezzotint.settings.families.base import FamilySpec
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights import low_bit
from mezzotint.weights.files import fingerprint
from mezzotint.weights.files.tensor_files import InFile, Stored
from mezzotint.weights.folder import components, plain_vae, state, t5
from mezzotint.weights.folder.export import Replaced
from mezzotint.weights.folder.model_folder import (
    ModelFolder,
    StoredWeights,
    read_json,
    require_plain,
    tokenizer_files,
)
from mezzotint.weights.folder.tokenizer import require_fitting, tokenizer_errors
from mezzotint.weights.keymap import Shape
from mezzotint.weights.low_bit import FLOAT32, WeightForm
from mezzotint.weights.model_files import ConfigConstraint, ModelFiles
from mezzotint.weights.single_file import standalone
from mezzotint.weights.single_file.original import FilePart
from mezzotint.weights.single_file.standalone import ExpectedPart, StandalonePart

Configs = Mapping[str, Mapping[str, Any]]

_T5 = ("t5_text", "umt5_text")


@dataclass(frozen=True)
class FolderFiles(ModelFiles):
    """A model's folder and the configurations of its parts. standalone: parts from separate files or folders, which
    replace the folder's. is_outline: opened by its configurations only, though its weights are files."""

    tokenizer_names: ClassVar[tuple[str, ...]] = (
        "vocab.json",
        "merges.txt",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
    )
    """Tokenizer files that determine a text embedding."""
    original: ClassVar[Mapping[str, FilePart]] = {}
    """Parts that an original-format checkpoint may hold, and their prefixes."""

    settings: ModelSettings
    seed: int
    root: Path
    folder: ModelFolder
    configs: Mapping[str, dict[str, Any]]
    scheduler: dict[str, Any]
    standalone: Mapping[str, StandalonePart] = field(default_factory=dict, kw_only=True)
    is_outline: bool = field(default=False, kw_only=True)

    @classmethod
    def from_configs(cls, settings: ModelSettings) -> Self:
        """See ModelFiles."""
        config = settings.config if settings.path.is_file() else None
        changes = {"weights": "random", "path": settings.config_source, "config": config, "vae": None, "over": ()}
        return replace(cls.of(with_values(settings, changes)), is_outline=settings.weights == "files")

    @classmethod
    def find_absent_parts(cls, folder: ModelFolder) -> Collection[str]:
        """Optional parts that this model lacks, judged by its small files."""
        return ()

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """Values that must agree between the parts."""
        return iter(())

    @classmethod
    def require_match(cls, where: Path, configs: Configs) -> None:
        """Checks by the configurations that the networks fit each other. where: for messages. Raises WeightsError
        E1409."""
        cls._require_equal(where, cls.constraints(configs))

    @property
    def parts(self) -> tuple[str, ...]:
        """See ModelFiles: the parts that this model has, in the family's order."""
        return tuple(self.configs)

    @property
    def text_parts(self) -> tuple[str, ...]:
        """The text encoders among the parts."""
        return tuple(part for part in self.spec.tokenizers if part in self.configs)

    # --- weights ----------------------------------------------------------------------------------------------------

    def with_vae(self) -> Self:
        """The same with the autoencoder in `model.vae`. Raises what `standalone.open_vae` raises."""
        if self.settings.vae is None:
            return self
        vae = standalone.open_vae(self.settings.vae, self.expected("vae"), model_name=self.spec.label)
        return self.with_standalone({"vae": vae})

    def with_standalone(self, parts: Mapping[str, StandalonePart]) -> Self:
        """The same with further standalone parts. Raises WeightsError E1409 for one that does not fit the rest."""
        if not parts:
            return self
        configs = dict(self.configs) | {part: dict(file.config) for part, file in parts.items()}
        self.require_match(next((file.where.parent for file in parts.values()), self.root), configs)
        return replace(self, configs=configs, standalone={**self.standalone, **parts})

    def expected(self, part: str) -> ExpectedPart:
        """A part as the folder's configuration describes it."""
        start = self.original[part].start if part in self.original else ""
        return ExpectedPart(self.networks[part], self.configs[part], self.where(part), self.shapes(part), start)

    def is_drawn(self, part: str) -> bool:
        """Whether a part's weights are random: with `model.weights=random` all except standalone ones."""
        return self.settings.weights == "random" and part not in self.standalone

    def is_in_folder(self, part: str) -> bool:
        """Whether a part's weights are files of the folder, which an export can copy."""
        return part not in self.standalone and self.stored_in_file(part) is None

    def where(self, part: str) -> Path:
        """The configuration file of a part."""
        if part in self.standalone:
            return self.standalone[part].where
        return self.root / self.spec.folders[part] / "config.json"

    def weights_of(self, part: str) -> StoredWeights:
        """The weights of a part in the folder. Raises WeightsError E1407 if there are none."""
        weights = self.folder.weights(self.spec.folders[part])
        if weights is None:
            raise self._without_weights(self.root / self.spec.folders[part])
        return weights

    @abstractmethod
    def stored_in_file(self, part: str) -> Stored | None:
        """The weights of a part that is neither in the folder nor standalone; None for parts of the folder."""

    def stored(self, part: str) -> Stored:
        """The weights of a part, with the tensor names of diffusers' layout. Raises WeightsError E1407."""
        if part in self.standalone:
            return self.standalone[part].stored
        return self.stored_in_file(part) or self._stored_in_folder(part)

    def _stored_in_folder(self, part: str) -> Stored:
        path = self.weights_of(part).path
        return t5.stored_in(path.parent) if self.networks[part] in _T5 else InFile(path)

    def excluded_names(self, part: str) -> list[str]:
        """Names in the file of a part's tensors that the recipe excludes."""
        return []

    def network(self, part: str, form: WeightForm = FLOAT32) -> nn.Module:
        """See ModelFiles. Raises WeightsError E1402 to E1409."""
        network, config, where = self.networks[part], self.configs[part], self.where(part)
        if self.is_drawn(part):
            return low_bit.convert_network(
                components.random_network(network, config, self.seed, part, where=where), form
            )
        left_out = self.excluded_names(part)
        return components.load(network, config, self.stored(part), form, where=where, left_out=left_out)

    def replacement_of(self, part: str) -> Replaced | None:
        """A part that is not trained as an export writes it; None if the folder's files are copied."""
        is_shortened = bool(self.excluded_names(part))
        if self.is_in_folder(part) and not is_shortened:
            return None
        network = self.networks[part]
        if is_shortened:
            return Replaced(network, self.network(part).state_dict(), self.configs[part], keep_types=True)
        stored = components.stored_as(network, self.stored(part))
        shapes = {name: info.shape for name, info in stored.header().items()}
        state.require_shapes(stored.path, self.shapes(part), components.modern_names(network, shapes))
        tensors = components.modern_names(network, stored.read(tuple(shapes)))
        return Replaced(network, tensors, self.configs[part], keep_types=True)

    def write_extras(self, folder: Path) -> None:
        """Writes further files into an exported folder."""

    def shapes(self, part: str) -> Mapping[str, Shape]:
        """See ModelFiles."""
        return components.shapes(self.networks[part], self.configs[part], where=self.where(part))

    def notes(self, parts: Collection[str]) -> Iterator[str]:
        """Notes for the user about the files of these parts."""
        for part, file in self.standalone.items():
            if part in parts:
                yield f"{part}: {file.path} replaces the model's own"
        if self.settings.weights == "random":
            is_drawn = "vae" in parts and self.is_drawn("vae") and not self.is_outline
            if is_drawn and plain_vae.fits(self.configs["vae"]):
                yield "vae: not random but constructed to preserve colours; details smaller than a latent are lost"
            return
        for part in parts:
            if self.is_in_folder(part) and (variant := self.weights_of(part).variant):
                yield f"{self.spec.folders[part]}: has only weights of the variant {variant}; using those"

    # --- identities -------------------------------------------------------------------------------------------------

    @abstractmethod
    def schedule_fingerprint(self) -> str:
        """The fingerprint of the scheduler's values that affect training."""

    def weights_digest(self, part: str) -> Mapping[str, Any]:
        """What identifies a part's weights."""
        if part in self.standalone:
            return {"weights": self.standalone[part].digest()}
        return {"weights": fingerprint.of_file(self.weights_of(part).path)}

    def fingerprint(self, part: str) -> str:
        """See ModelFiles."""
        if part == "schedule":
            return self.schedule_fingerprint()
        if part == "tokenizer":
            return fingerprint.of_values({encoder: self.tokenizer_fingerprint(encoder) for encoder in self.text_parts})
        if part not in self.configs:
            return fingerprint.of_values({"absent": part})
        if self.is_drawn(part):
            return self._fingerprint(part, self.configs[part])
        return self._fingerprint(part, self.configs[part], **self.weights_digest(part))

    def text_identity(self) -> str:
        """See ModelFiles."""
        encoders = [
            f"{part}={self.fingerprint(part)} tokenizer={self.tokenizer_fingerprint(part)} tokens={self.length(part)}"
            for part in self.text_parts
        ]
        return f"{self.spec.name}-text-1 {' '.join(encoders)}"

    @property
    @abstractmethod
    def scaling(self) -> tuple[float, float]:
        """Scaling factor and shift from the VAE's latents to the model's: (x − shift) · factor."""

    # --- text -------------------------------------------------------------------------------------------------------

    def length(self, part: str) -> int:
        """Maximum number of tokens of a caption for a text encoder, start and end included."""
        return int(self.configs[part].get("max_position_embeddings", 77))

    def tokenizer_fingerprint(self, part: str) -> str:
        """The fingerprint of a text encoder's tokenizer files."""
        paths = tokenizer_files(self.root / self.spec.tokenizers[part])
        return fingerprint.of_files([paths[name] for name in self.tokenizer_names if name in paths])

    def tokenizer(self, part: str) -> Any:
        """The tokenizer of a text encoder. Raises WeightsError E1409, E1463."""
        root, config = self.root / self.spec.tokenizers[part], self.configs[part]
        vocabulary = int((config.get("text_config") or config).get("vocab_size", 1 << 30))
        network = self.networks[part]
        if network.startswith("clip_text"):
            return clip_tokenizer(root, vocabulary)
        return t5.tokenizer_in(root, vocabulary) if network in _T5 else _qwen_tokenizer(root, vocabulary)


def read_configs(folder: ModelFolder, spec: FamilySpec, absent: Collection[str]) -> dict[str, dict[str, Any]]:
    """The configurations of a model's parts, except absent ones. Raises WeightsError E1409 for a folder without one of
    the other parts, a tokenizer or the scheduler."""
    parts = [part for part in spec.parts if part not in absent]
    tokenizers = [name for part, name in spec.tokenizers.items() if part not in absent]
    needed = (*(spec.folders[part] for part in parts), *tokenizers, "scheduler")
    lacking = [f"{name}/" for name in needed if not folder.has(name)]
    if lacking:
        raise WeightsError(f"{folder.root}: lacks {', '.join(lacking)}; download the complete model", code="E1409")
    return {part: folder.config(spec.folders[part]) for part in parts}


def clip_tokenizer(root: Path, vocabulary: int) -> Any:
    """The tokenizer of a folder for an encoder with a vocabulary of this size. The library creates an empty vocabulary
    when files are missing, so they are checked first. Raises WeightsError E1409."""
    from transformers.models.clip.tokenization_clip import CLIPTokenizer

    require_plain(root)
    paths = tokenizer_files(root)
    if "tokenizer.json" not in paths and "merges.txt" not in paths:
        raise WeightsError(f"{root}: lacks merges.txt; download the complete tokenizer", code="E1409")
    read_json(paths.get("vocab.json", root / "vocab.json") if "merges.txt" in paths else paths["tokenizer.json"])
    with tokenizer_errors(root):
        tokenizer = (
            _tokenizer_in_two_folders(paths)
            if "merges.txt" in paths and paths["merges.txt"].parent != root
            else CLIPTokenizer.from_pretrained(str(root), local_files_only=True)
        )
    return require_fitting(tokenizer, root, vocabulary)


def _tokenizer_in_two_folders(paths: Mapping[str, Path]) -> Any:
    """A tokenizer whose vocabulary and settings are in different folders, which the library cannot read."""
    from transformers.models.clip.tokenization_clip import CLIPTokenizer

    merges = outside.read_text(paths["merges.txt"]).splitlines()[1:]
    config = read_json(paths["tokenizer_config.json"])
    config.pop("tokenizer_class", None)
    return CLIPTokenizer(vocab=read_json(paths["vocab.json"]), merges=[tuple(m.split()) for m in merges], **config)


def _qwen_tokenizer(root: Path, vocabulary: int) -> Any:
    """The tokenizer of Qwen2.5-VL and Qwen3."""
    from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer

    require_plain(root)
    with tokenizer_errors(root):
        tokenizer = Qwen2Tokenizer.from_pretrained(str(root), local_files_only=True)
    return require_fitting(tokenizer, root, vocabulary)
