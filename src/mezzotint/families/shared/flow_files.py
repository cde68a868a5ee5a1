"""Where a model on a straight path comes from: a folder in diffusers' layout, opened by headers. Nothing is fetched and
nothing runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import nn

from mezzotint.diffusion.flow import PREDICTION
from mezzotint.errors import WeightsError
from mezzotint.families.shared.folder_files import FolderFiles, clip_tokenizer, configs_in
from mezzotint.recipe.base import with_values
from mezzotint.recipe.families.base import is_denoiser
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.weights import kinds, low_bit
from mezzotint.weights.files import fingerprint
from mezzotint.weights.files.tensor_files import InFile, Stored
from mezzotint.weights.folder import components, plain_vae, t5
from mezzotint.weights.folder.model_folder import (
    ModelFolder,
    open_folder,
    require_plain,
)
from mezzotint.weights.folder.tokenizer import require_fitting, tokenizer_errors
from mezzotint.weights.low_bit import FLOAT32, WeightForm
from mezzotint.weights.model_files import Prediction, configured
from mezzotint.weights.single_file import alone
from mezzotint.weights.single_file import original as originals
from mezzotint.weights.single_file.alone import Described, PartAlone
from mezzotint.weights.single_file.original import DENOISER, FilePart, Original, Renames, Written

_T5 = ("t5_text", "umt5_text")
_SCHEDULE_KEYS = (
    "shift",
    "flow_shift",
    "use_dynamic_shifting",
    "base_shift",
    "max_shift",
    "base_image_seq_len",
    "max_image_seq_len",
    "time_shift_type",
)


@dataclass(frozen=True)
class FlowFiles(FolderFiles):
    """A model's folder and the configurations of its parts. single: the file of the model's makers that holds the
    denoiser, and may hold other parts; the folder then has the others. alone: parts in files of their own, in the place
    of both."""

    pipelines: ClassVar[tuple[str, ...]]
    """Classes of model_index.json whose folders are read."""
    refused: ClassVar[Mapping[str, str]] = {}
    """Pipelines of the same networks that are not trained here: what they are, and why."""
    tokenizer_names: ClassVar[tuple[str, ...]] = (
        "vocab.json",
        "merges.txt",
        "tokenizer.json",
        "spiece.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
    )
    original: ClassVar[Mapping[str, FilePart]] = {"denoiser": FilePart(DENOISER)}
    """Parts that a file of the model's makers may hold, the denoiser first, and where."""
    renames: ClassVar[Renames] = ()
    """The denoiser's names in such a file."""
    swapped: ClassVar[Collection[str]] = ()
    """Layers of the denoiser that scale and shift: those whose halves are in the other order in such a file."""
    written_start: ClassVar[str] = ""
    """What these begin with in the file that is written."""

    single: Original | None = None
    alone: Mapping[str, PartAlone] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: ModelSettings, seed: int = 0) -> Self:
        """See ModelFiles. Raises WeightsError E1401, E1406, E1409, E1222, E1478."""
        root = settings.described_by
        kinds.refuse_adapter(root)
        if root.is_file():
            return cls._in_one_file(root, settings, seed)
        folder = open_folder(root)
        transformer = cls.spec.folders["denoiser"]
        config = folder.config(transformer) if (root / transformer / "config.json").is_file() else {}
        cls._require_family(folder, config)
        configs = configs_in(folder, cls.spec, cls.absent(folder))
        files = cls(settings, seed, root, folder, configs, folder.config("scheduler", "scheduler_config.json"))
        with configured(root):
            cls._require_equal(root, cls.constraints(configs))
            least = min(*map(files.length, files.text_parts), files.scaling[0])
            if not least > 0:
                raise ValueError(f"{least} where a number above 0 belongs")
        return files._with_parts_alone()

    def _with_parts_alone(self) -> Self:
        """The same with what `model.vae` and `model.over` name. Raises WeightsError as `weights/single_file/alone.py`,
        E1409 for an autoencoder that does not go with the denoiser."""
        if self.settings.vae is None and not self.settings.over:
            return self
        parts, what = dict(self.alone), self.spec.called
        if self.settings.vae is not None:
            parts["vae"] = alone.open_vae(self.settings.vae, self._described("vae"), what=what)
        encoders = {part: self._described(part) for part in self.text_parts if self.settings.over}
        for path in self.settings.over:
            part, file = alone.open_encoder(path, encoders, what=what)
            if part in parts:
                raise WeightsError(
                    f"model.over: {path} and {parts[part].place} are both the {part} of {what}; give one of them",
                    code="E1478",
                )
            parts[part] = file
        configs = dict(self.configs) | {part: dict(file.config) for part, file in parts.items()}
        self._require_equal(self.root, self.constraints(configs))
        return replace(self, configs=configs, alone=parts)

    def _described(self, part: str) -> Described:
        """A part by the folder's configuration."""
        start = self.original[part].start if part in self.original else ""
        return Described(self.spec.networks[part], self.configs[part], self.where(part), self.shapes(part), start)

    @classmethod
    def parts_in_file(cls, settings: ModelSettings) -> Mapping[str, FilePart]:
        """Parts that a file of the model's makers may hold."""
        return cls.original

    @classmethod
    def _in_one_file(cls, path: Path, settings: ModelSettings, seed: int) -> Self:
        """A file of the model's makers, with a folder that has the configurations, and the parts that it lacks."""
        if settings.config is None or not settings.config.is_dir():
            raise WeightsError(
                f"{path}: is a single file, and of {cls.spec.called} it holds the denoiser, and hardly more; write "
                "model.config=FOLDER (convert: --config=FOLDER), the model's folder in diffusers' layout, which has "
                "the other parts",
                code="E1478",
            )
        files = cls.of(with_values(settings, {"path": settings.config, "config": None}), seed)
        parts = {
            part: (where, cls.spec.networks[part], files.configs[part], files.shapes(part))
            for part, where in cls.parts_in_file(settings).items()
            if part in files.parts
        }
        return replace(files, settings=settings, single=originals.opened(path, parts, what=cls.spec.called))

    @property
    def in_file(self) -> Collection[str]:
        """Parts whose weights a file of the model's makers holds."""
        held = () if self.single is None or self.is_drawn else self.single.parts
        return tuple(dict.fromkeys((*held, *self.alone)))

    @classmethod
    def _require_family(cls, folder: ModelFolder, config: Mapping[str, Any]) -> None:
        pipeline, spec = str(folder.index.get("_class_name", "")), cls.spec
        if pipeline in cls.pipelines and (not config or spec.holds({}, config)):
            return  # without a configuration: `configs_in` names what is missing
        family = kinds.family_at(folder.root)
        other = f"; write model.family={family}" if family not in (None, spec.name) else ""
        what = f"a folder of {pipeline or 'an unknown pipeline'}"
        what += f" with a {config['_class_name']}" if "_class_name" in config else ""
        what += f", {cls.refused[pipeline]}" if pipeline in cls.refused else ""
        raise WeightsError(
            f"{folder.root}: is {what}; family {spec.name} trains {spec.trains} ({' or '.join(cls.pipelines)}){other}",
            code="E1222",
        )

    @classmethod
    def described(cls, settings: ModelSettings) -> Self:
        """See ModelFiles."""
        path, config = settings.described_by, settings.config if settings.path.is_file() else None
        own = {"weights": "random", "path": path, "config": config, "vae": None, "over": ()}
        return cls.of(with_values(settings, own))

    @abstractmethod
    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles."""

    def stored_parts(self, parts: Mapping[str, nn.Module]) -> Mapping[str, Stored | None]:
        """See ModelFiles."""
        return {
            part: None if self._is_drawn(part) else components.stored_as(self.spec.networks[part], self.stored(part))
            for part in self.parts
            if part in parts
        }

    @property
    def prediction(self) -> Prediction:
        """See ModelFiles."""
        assert PREDICTION == "flow"
        return "flow"

    @property
    def is_drawn(self) -> bool:
        """Whether all weights are random."""
        return self.settings.weights == "random"

    def _is_drawn(self, part: str) -> bool:
        return self.is_drawn and part not in self.alone

    def where(self, part: str) -> Path:
        """The configuration's file of a part."""
        return self.alone[part].where if part in self.alone else super().where(part)

    def network(self, part: str, form: WeightForm = FLOAT32) -> nn.Module:
        """See ModelFiles. Raises WeightsError E1402 to E1409."""
        network, config, where = self.spec.networks[part], self.configs[part], self.where(part)
        if self._is_drawn(part):
            return low_bit.converted(components.draw(network, config, self.seed, part, where=where), form)
        return components.load(network, config, self.stored(part), form, where=where)

    def plan_original(self, part: str = "denoiser") -> Written:
        """How a denoiser lies in a file of its makers. Raises WeightsError E1479 where that cannot be."""
        network, config, shapes = self.spec.networks[part], self.configs[part], self.shapes(part)
        try:
            return originals.plan(network, config, shapes, self.renames, self.written_start)
        except (ValueError, KeyError, IndexError, AttributeError, TypeError, AssertionError) as error:
            raise WeightsError(
                f"{self.root}: its denoiser is not written as one file, since diffusers could not read it back "
                f"({error}); take the folder",
                code="E1479",
            ) from error

    def original_names(self, part: str, names: Collection[str]) -> Mapping[str, str]:
        """See ModelFiles."""
        return {name: originals.renamed(name, self.renames) for name in names} if is_denoiser(part) else {}

    @classmethod
    def swapped_layers(cls, names: Collection[str]) -> Collection[str]:
        """See ModelFiles."""
        return cls.swapped

    def stored(self, part: str) -> Stored:
        """The weights of a part, under the names of files in diffusers' layout. Raises WeightsError E1407."""
        if part in self.alone:
            return self.alone[part].stored
        if self.single is not None and part in self.single.parts:
            return self.single.stored(part)
        path = self.weights_of(part).path
        return t5.stored_in(path.parent) if self.spec.networks[part] in _T5 else InFile(path)

    def fingerprint(self, part: str) -> str:
        """See ModelFiles."""
        if part == "schedule":
            values = {key: self.scheduler.get(key) for key in _SCHEDULE_KEYS}
            return fingerprint.of_values({**values, "prediction": self.prediction})
        if part == "tokenizer":
            return fingerprint.of_values({encoder: self.tokenizer_fingerprint(encoder) for encoder in self.text_parts})
        if part not in self.configs:
            return fingerprint.of_values({"absent": part})
        if self._is_drawn(part):
            return self._fingerprint(part, self.configs[part])
        if part in self.alone:
            return self._fingerprint(part, self.configs[part], weights=self.alone[part].digest())
        if self.single is not None and part in self.single.parts:
            return self._fingerprint(part, self.configs[part], weights=self.single.digest(part))
        return self._fingerprint(part, self.configs[part], weights=fingerprint.of_file(self.weights_of(part).path))

    def text_identity(self) -> str:
        """See ModelFiles."""
        encoders = [
            f"{part}={self.fingerprint(part)} tokenizer={self.tokenizer_fingerprint(part)} tokens={self.length(part)}"
            for part in self.text_parts
        ]
        return f"{self.spec.name}-text-1 {' '.join(encoders)}"

    def media_identity(self) -> str:
        """See ModelFiles: what latents are scaled by stands in the autoencoder's configuration and weights."""
        return f"{self.spec.name}-media-1 vae={self.fingerprint('vae')} tiling=off"

    @property
    def scaling(self) -> tuple[float, float]:
        """Factor and shift between the latents of an AutoencoderKL and the model's."""
        vae = self.configs["vae"]
        return float(vae.get("scaling_factor") or self.spec.latent_scale), float(vae.get("shift_factor") or 0.0)

    def notes(self, parts: Collection[str]) -> Iterator[str]:
        """What was met in the files of these parts that the reader should know."""
        yield from (f"{part}: {file.place} takes the place of the model's own" for part, file in self.alone.items())
        if self.is_drawn:
            if "vae" in parts and "vae" not in self.alone and plain_vae.fits(self.configs["vae"]):
                yield "vae: not random but set by hand to carry colours; details finer than a latent's pixels are lost"
            return
        if self.single is not None:
            yield f"{self.single.place.name} holds {', '.join(self.single.parts)}; all else is that of {self.root}"
        for part in parts:
            if part not in self.in_file and (variant := self.weights_of(part).variant):
                yield f"{self.spec.folders[part]}: only weights of the variant {variant} are there; they were read"

    def tokenizer(self, part: str) -> Any:
        """The tokenizer of a text encoder. Raises WeightsError E1409, E1463."""
        root, config = self.root / self.spec.tokenizers[part], self.configs[part]
        vocabulary = int((config.get("text_config") or config).get("vocab_size", 1 << 30))
        network = self.spec.networks[part]
        if network.startswith("clip_text"):
            return clip_tokenizer(root, vocabulary)
        if network in _T5:
            return t5.tokenizer_in(root, vocabulary)
        return _qwen_tokenizer(root, vocabulary)


def _qwen_tokenizer(root: Path, vocabulary: int) -> Any:
    """Of Qwen2.5-VL and Qwen3. No program that a folder brings is run."""
    from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer

    require_plain(root)
    with tokenizer_errors(root):
        tokenizer = Qwen2Tokenizer.from_pretrained(str(root), local_files_only=True)
    return require_fitting(tokenizer, root, vocabulary)
