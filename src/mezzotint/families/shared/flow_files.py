"""The files of a flow-matching model: a folder in diffusers' layout, or an original-format checkpoint, which usually
holds only the denoiser, with such a folder for the rest."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import nn

from mezzotint.diffusion.flow import PREDICTION
from mezzotint.errors import WeightsError
from mezzotint.families.shared.folder_files import FolderFiles, read_configs
from mezzotint.settings.base import with_values
from mezzotint.settings.families.base import MEDIA_PARTS, is_denoiser
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights import kinds
from mezzotint.weights.files import fingerprint, tensor_files
from mezzotint.weights.files.tensor_files import Stored
from mezzotint.weights.folder import components
from mezzotint.weights.folder.model_folder import ModelFolder, open_folder, shipped_folder
from mezzotint.weights.model_files import Prediction, converting_config_errors
from mezzotint.weights.single_file import original as originals
from mezzotint.weights.single_file import standalone
from mezzotint.weights.single_file.original import DENOISER, FilePart, Original, Renames, Written
from mezzotint.weights.single_file.standalone import StandalonePart

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
    """single: the original-format checkpoint with the denoiser and possibly other parts; the folder then has the
    rest."""

    pipelines: ClassVar[tuple[str, ...]]
    """Pipeline classes in model_index.json that the family reads."""
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
    """Parts that an original-format checkpoint may hold, the denoiser first, and their prefixes."""
    renames: ClassVar[Renames] = ()
    """The denoiser's tensor names in such a file."""
    swapped: ClassVar[Collection[str]] = ()
    """Scale-and-shift layers of the denoiser whose halves are in the other order in such a file."""
    flat: ClassVar[str] = ""
    """Pattern for the denoiser's tensors that are vectors in such a file."""
    written_start: ClassVar[str] = ""
    """Prefix of the denoiser's names in a written file."""

    single: Original | None = None

    @classmethod
    def of(cls, settings: ModelSettings, seed: int = 0) -> Self:
        """See ModelFiles. Raises WeightsError E1401, E1406, E1409, E1222, E1478."""
        root = settings.config_source
        kinds.refuse_adapter(root)
        if root.is_file():
            return cls._in_one_file(root, settings, seed)
        folder = open_folder(root)
        transformer = cls.spec.folders["denoiser"]
        config = folder.config(transformer) if (root / transformer / "config.json").is_file() else {}
        cls._require_family(folder, config)
        configs = read_configs(folder, cls.spec, cls.find_absent_parts(folder))
        files = cls(settings, seed, root, folder, configs, folder.config("scheduler", "scheduler_config.json"))
        with converting_config_errors(root):
            cls.require_match(root, configs)
            least = min(*map(files.length, files.text_parts), files.scaling[0])
            if not least > 0:
                raise ValueError(f"expected a number above 0, got {least}")
        return files.with_vae()._with_encoders()

    def _with_encoders(self) -> Self:
        """The same with the text and image encoders in `model.over`. Raises what `standalone.open_encoder` raises."""
        of_images = [part for part in self.parts if part in MEDIA_PARTS and part != "vae"]
        encoders = {part: self.expected(part) for part in (*self.text_parts, *of_images) if self.settings.over}
        parts: dict[str, StandalonePart] = {}
        for path in self.settings.over:
            part, file = standalone.open_encoder(path, encoders, model_name=self.spec.label)
            if part in parts:
                raise WeightsError(
                    f"model.over: {path} and {parts[part].path} are both the {part} of {self.spec.label}; keep one",
                    code="E1478",
                )
            parts[part] = file
        return self.with_standalone(parts)

    @classmethod
    def parts_in_file(cls, settings: ModelSettings) -> Mapping[str, FilePart]:
        """Parts that an original-format checkpoint may hold."""
        return cls.original

    @classmethod
    def _in_one_file(cls, path: Path, settings: ModelSettings, seed: int) -> Self:
        """An original-format checkpoint, with a folder for the configurations and the missing parts."""
        if settings.config is None:
            return cls._with_shipped_configs(path, settings, seed)
        if not settings.config.is_dir():
            raise WeightsError(f"model.config: {settings.config} is not a folder; {cls._advice()}", code="E1478")
        files = cls.of(with_values(settings, {"path": settings.config, "config": None}), seed)
        return replace(files, settings=settings, single=files._open_single(path, settings))

    @classmethod
    def _with_shipped_configs(cls, path: Path, settings: ModelSettings, seed: int) -> Self:
        """The same with the first shipped configurations that fit the file's tensors."""
        header = tensor_files.read_header(path)
        originals.refuse_scaled(path, header)
        for name in cls.spec.single_file_configs:
            files = cls.of(with_values(settings, {"path": shipped_folder(name)}), seed)
            try:
                single = files._open_single(path, settings)
            except WeightsError as error:
                if error.code != "E1478":
                    raise
                continue
            rows = single.parts["denoiser"]
            if all(name in rows and rows[name].shape == shape for name, shape in files.shapes("denoiser").items()):
                return replace(files, settings=settings, single=single)
        names = cls.spec.single_file_configs
        lacks = f"none of the shipped ones fits ({', '.join(names)})" if names else "it holds none"
        what = f"{kinds.describe_tensors(header)}, read as {cls.spec.label}, needs configurations"
        raise WeightsError(f"{path}: {what}, and {lacks}; {cls._advice()}", code="E1478")

    @classmethod
    def _advice(cls) -> str:
        text = "write model.config=FOLDER (convert: --config=FOLDER), the model's folder in diffusers' layout"
        if not cls.spec.published:
            return text
        ids = ", ".join(cls.spec.published)
        return f"{text}, or its id on the hub ({ids}) after `hf download ID --exclude '*.safetensors'`"

    def _open_single(self, path: Path, settings: ModelSettings) -> Original:
        parts = {
            part: (where, self.networks[part], self.configs[part], self.shapes(part))
            for part, where in self.parts_in_file(settings).items()
            if part in self.parts
        }
        return originals.open_original(path, parts, model_name=self.spec.label)

    @classmethod
    def _require_family(cls, folder: ModelFolder, config: Mapping[str, Any]) -> None:
        pipeline, spec = str(folder.index.get("_class_name", "")), cls.spec
        if pipeline in cls.pipelines and (not config or spec.matches({}, config)):
            return  # without a configuration `read_configs` reports what is missing
        family = kinds.family_at(folder.root)
        other = f"; write model.family={family}" if family not in (None, spec.name) else ""
        description = f"a folder of {pipeline or 'an unknown pipeline'}"
        description += f" with a {config['_class_name']}" if "_class_name" in config else ""
        raise WeightsError(
            f"{folder.root}: is {description}; family {spec.name} trains {spec.trains} "
            f"({' or '.join(cls.pipelines)}){other}",
            code="E1222",
        )

    def _without_weights(self, folder: Path) -> WeightsError:
        if self.single is None:
            return super()._without_weights(folder)
        setting = "model.vae" if folder.name == "vae" else "model.over"
        return WeightsError(
            f"{self.single.path}: holds no weights of {folder.name}; name their file in {setting}, or write "
            "model.config=FOLDER, a complete model in diffusers' layout",
            code="E1407",
        )

    @abstractmethod
    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles."""

    def stored_parts(self, parts: Mapping[str, nn.Module]) -> Mapping[str, Stored | None]:
        """See ModelFiles."""
        return {
            part: None if self.is_drawn(part) else components.stored_as(self.networks[part], self.stored(part))
            for part in self.parts
            if part in parts
        }

    @property
    def prediction(self) -> Prediction:
        """See ModelFiles."""
        assert PREDICTION == "flow"
        return "flow"

    def stored_in_file(self, part: str) -> Stored | None:
        """See FolderFiles: the parts in the original-format checkpoint."""
        return self.single.open_part(part) if self.single is not None and part in self.single.parts else None

    def weights_digest(self, part: str) -> Mapping[str, Any]:
        """See FolderFiles."""
        if part not in self.standalone and self.single is not None and part in self.single.parts:
            return {"weights": self.single.open_part(part).digest()}
        return super().weights_digest(part)

    def schedule_fingerprint(self) -> str:
        """See FolderFiles."""
        values = {key: self.scheduler.get(key) for key in _SCHEDULE_KEYS}
        return fingerprint.of_values({**values, "prediction": self.prediction})

    def media_identity(self) -> str:
        """See ModelFiles. The scale of latents is in the autoencoder's configuration and weights."""
        return f"{self.spec.name}-media-1 vae={self.fingerprint('vae')} tiling=off"

    @property
    def scaling(self) -> tuple[float, float]:
        """Scaling factor and shift from the latents of an AutoencoderKL to the model's."""
        vae = self.configs["vae"]
        return float(vae.get("scaling_factor") or self.spec.latent_scale), float(vae.get("shift_factor") or 0.0)

    def notes(self, parts: Collection[str]) -> Iterator[str]:
        """See FolderFiles."""
        if self.single is not None and self.settings.weights == "files":
            yield f"{self.single.path.name} holds {', '.join(self.single.parts)}; the rest is read from {self.root}"
        yield from super().notes(parts)

    # --- original format --------------------------------------------------------------------------------------------

    def plan_original(self, part: str = "denoiser") -> Written:
        """The layout of a denoiser in an original-format checkpoint. Raises WeightsError E1479 if there is none."""
        network, config, shapes = self.networks[part], self.configs[part], self.shapes(part)
        try:
            return originals.plan(network, config, shapes, self.renames, self.written_start, self.flat)
        except originals.NOT_CONVERTED as error:
            raise WeightsError(
                f"{self.root}: the denoiser cannot be written as one file, because diffusers could not read it back "
                f"({error}); write a folder",
                code="E1479",
            ) from error

    def original_names(self, part: str, names: Collection[str]) -> Mapping[str, str]:
        """See ModelFiles."""
        return {name: originals.rename_tensor(name, self.renames) for name in names} if is_denoiser(part) else {}

    @classmethod
    def swapped_layers(cls, names: Collection[str]) -> Collection[str]:
        """See ModelFiles."""
        return cls.swapped
