"""The files of a LatteT2V: its own, those of its autoencoder and those of T5, which are usually in separate folders.

    ROOT/config.json, ROOT/*.safetensors       as released by Open-Sora-Plan (65x512x512/); `vae` in it or next to it
    ROOT/transformer/…, ROOT/vae/…, …          in diffusers' layout
    FILE                                       .safetensors, a torch file, a checkpoint of the MindSpore port

Files are opened by their headers; nothing is downloaded or executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from torch import nn

from mezzotint.compat.open_sora_plan import latte_layout as layout
from mezzotint.compat.open_sora_plan.latte_spec import CLASSES, SPEC, LatteSettings
from mezzotint.compat.open_sora_plan.nets.causal_vae import CausalVAE, CausalVAEConfig
from mezzotint.compat.open_sora_plan.nets.latte import Latte, LatteConfig
from mezzotint.errors import WeightsError
from mezzotint.settings import weights_formats
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights import kinds, low_bit
from mezzotint.weights.files import fingerprint, pickled
from mezzotint.weights.files.tensor_files import InFile, Stored
from mezzotint.weights.folder import state, t5
from mezzotint.weights.folder.model_folder import find_weights, read_json
from mezzotint.weights.keymap import Shape
from mezzotint.weights.low_bit import FLOAT32, WeightForm
from mezzotint.weights.model_files import ModelFiles

PIXELS, FRAMES = 8, 4
"""Pixels and frames of a clip per latent."""

CONFIGS = ("latte-17f", "latte-65f", "latte-221f")
"""Shipped configurations, by frames of a clip."""

_SCHEDULE_KEYS = (
    "beta_start", "beta_end", "beta_schedule", "num_train_timesteps", "trained_betas", "rescale_betas_zero_snr",
)  # fmt: skip
_SCHEDULER: Mapping[str, Any] = {
    "_class_name": "DDIMScheduler", "beta_end": 0.02, "beta_schedule": "linear", "beta_start": 0.0001,
    "clip_sample": False, "num_train_timesteps": 1000, "prediction_type": "epsilon", "set_alpha_to_one": True,
    "steps_offset": 0, "timestep_spacing": "leading",
}  # fmt: skip
"""The schedule of Open-Sora-Plan's training; released folders have no file of it."""


@dataclass(frozen=True)
class StoredPart:
    """A part of the model on disk. config: as written. where: its configuration's file. weights: opens them by their
    headers; None if there are none."""

    config: dict[str, Any]
    where: Path
    weights: Callable[[], Stored] | None

    @cached_property
    def stored(self) -> Stored:
        """The weights, of a part that has weights."""
        assert self.weights is not None
        return self.weights()


@dataclass(frozen=True)
class Files(ModelFiles):
    """A model's parts on disk. existing_parts: those that exist. root: the folder of `model.path`, or the folder that
    contains it. own_text: whether the text encoder is in the model's own folder. hollow: all weights are random, for a
    model that is only described."""

    spec = SPEC
    settings: ModelSettings
    seed: int
    root: Path
    existing_parts: Mapping[str, StoredPart]
    tokenizer_folder: Path | None
    scheduler: dict[str, Any]
    own_text: bool
    hollow: bool = False

    @classmethod
    def of(cls, settings: ModelSettings, seed: int = 0) -> Self:
        """See ModelFiles. Raises WeightsError E1401, E1406 to E1409, E1411, E1460 to E1462."""
        path = settings.path
        if not path.exists():
            raise WeightsError(
                f"model.path: {path} does not exist; give the folder or file of a LatteT2V, or one of "
                f"{', '.join(CONFIGS)}, shipped configurations without weights",
                code="E1401",
            )
        root = path if path.is_dir() else path.parent
        existing_parts = {"denoiser": _find_denoiser(settings.config_source, settings.config)}
        vae = _find_vae(settings.vae, root)
        if vae is not None:
            existing_parts["vae"] = vae
        text, tokenizer, has_own_text = _find_text_encoder(settings.get_section(LatteSettings).text_encoder, root)
        if text is not None:
            existing_parts["text_encoder"] = text
        scheduler = root / "scheduler" / "scheduler_config.json"
        config = read_json(scheduler) if scheduler.is_file() else dict(_SCHEDULER)
        files = cls(settings, seed, root, existing_parts, tokenizer, config, has_own_text)
        files.require_match()
        return files

    @classmethod
    def from_configs(cls, settings: ModelSettings) -> Self:
        """See ModelFiles. Without a text encoder if there is none: embeddings may come from files."""
        return replace(cls.of(settings), hollow=True)

    @property
    def parts(self) -> tuple[str, ...]:
        """See ModelFiles: a missing part is reported when it is loaded."""
        return tuple(p for p in SPEC.parts if p != "text_encoder" or p in self.existing_parts or not self.hollow)

    @cached_property
    def own(self) -> LatteSettings:
        """The settings of this family."""
        return self.settings.get_section(LatteSettings)

    def part(self, name: str) -> StoredPart:
        """A part. Raises WeightsError E1461 or E1462 if it does not exist."""
        if name in self.existing_parts:
            return self.existing_parts[name]
        if name == "vae":
            raise WeightsError(
                f"{self.root}: there is no autoencoder in it or next to it (vae/config.json); set model.vae=FOLDER, "
                "the folder `vae` of Open-Sora-Plan v1.1.0",
                code="E1461",
            )
        raise WeightsError(
            f"{self.root}: there is no text encoder in it; set model.latte.text_encoder=FOLDER, that of T5 v1.1 XXL "
            "(`hf download DeepFloyd/t5-v1_1-xxl` prints it)",
            code="E1462",
        )

    @cached_property
    def config(self) -> LatteConfig:
        """The denoiser's configuration, with the changes of the recipe. Raises WeightsError E1409."""
        denoiser, settings = self.part("denoiser"), self.own
        changes: dict[str, Any] = {}
        if settings.rope is not None:
            changes["use_rope"] = settings.rope
        if settings.compress_kv is not None:
            changes["compress_kv_factor"] = settings.compress_kv
        if settings.video_length is not None:
            changes |= {"video_length": settings.video_length, "interpolation_scale_1d": None}
        return replace(LatteConfig.read(denoiser.config, str(denoiser.where)), **changes)

    @cached_property
    def length(self) -> int:
        """Tokens of a caption."""
        return self.own.max_tokens or self.config.model_max_length

    def shapes(self, name: str) -> Mapping[str, Shape]:
        """See ModelFiles."""
        return {key: tuple(tensor.shape) for key, tensor in state.build_on_meta(self._build(name)).state_dict().items()}

    def network(self, name: str, form: WeightForm = FLOAT32) -> nn.Module:
        """See ModelFiles. Raises WeightsError E1402 to E1409."""
        part, build = self.part(name), self._build(name)
        if self.is_random(name):
            return low_bit.convert_network(state.build_random(build, self.seed, name), form)
        if part.weights is None:
            raise self._without_weights(part.where.parent)
        module = state.build_on_meta(build)
        state.load_into(module, part.stored if name == "text_encoder" else self.with_our_names(name, module), form)
        return module

    def with_our_names(self, name: str, module: nn.Module) -> layout.RenamedTensors:
        """The stored weights of the denoiser or the autoencoder under our names."""
        shapes = {key: tuple(tensor.shape) for key, tensor in module.state_dict().items()}
        stored = self.part(name).stored
        if name == "vae":
            return layout.open_autoencoder(stored, shapes)
        may_be_absent = self.own.compress_kv is not None
        return layout.open_denoiser(stored, shapes, shrinking=self.config.compress_kv_factor if may_be_absent else None)

    def stored_parts(self, parts: Mapping[str, nn.Module]) -> Mapping[str, Stored | None]:
        """See ModelFiles."""
        stored: dict[str, Stored | None] = {}
        for name in (part for part in self.existing_parts if part in parts):
            if self.is_random(name):
                stored[name] = None
            else:
                stored[name] = (
                    self.existing_parts[name].stored
                    if name == "text_encoder"
                    else self.with_our_names(name, parts[name])
                )
        return stored

    def is_random(self, name: str) -> bool:
        """Whether a part's weights are random: with `model.weights=random`, those of the denoiser and of all parts
        without weights."""
        is_random = self.settings.weights == "random" and (name == "denoiser" or self.part(name).weights is None)
        return self.hollow or is_random

    def fingerprint(self, part: str) -> str:
        """See ModelFiles. That of the denoiser includes the recipe's changes of its configuration."""
        if part == "schedule":
            values = {key: self.scheduler.get(key) for key in _SCHEDULE_KEYS}
            return fingerprint.of_values({**values, "prediction": self.prediction})
        if part == "tokenizer":
            if self.tokenizer_folder is None:
                return fingerprint.of_values({"absent": "tokenizer"})
            return fingerprint.of_files([self.tokenizer_folder / name for name in t5.TOKENIZER_FILES])
        if part not in self.existing_parts:
            return fingerprint.of_values({"absent": part})
        config: Mapping[str, Any] = self.existing_parts[part].config
        if part == "denoiser":
            config = {key: getattr(self.config, key) for key in LatteConfig.__slots__}
        if self.is_random(part):
            return self._fingerprint(part, config)
        stored = self.existing_parts[part].stored
        weights = stored.digest() if isinstance(stored, t5.EncoderOnly) else fingerprint.of_file(stored.path)
        return self._fingerprint(part, config, weights=weights)

    def text_identity(self) -> str:
        """See ModelFiles."""
        encoder, tokenizer = self.fingerprint("text_encoder"), self.fingerprint("tokenizer")
        return f"latte-text-1 encoder={encoder} tokenizer={tokenizer} tokens={self.length}"

    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles."""
        return self.length, self.config.caption_channels

    def media_identity(self) -> str:
        """See ModelFiles."""
        tiling = self.own.tiling
        pieces = f"{tiling.side}x{tiling.frames}@{tiling.overlap!r}" if tiling.enabled else "whole"
        vae = self.fingerprint("vae")
        return f"latte-media-1 vae={vae} scale={SPEC.latent_scale!r} pieces={pieces} norms={self.own.vae_norms}"

    def tokenizer(self) -> Any:
        """The tokenizer of the text encoder. Raises WeightsError E1463."""
        assert self.tokenizer_folder is not None
        return t5.tokenizer_in(self.tokenizer_folder, int(self.part("text_encoder").config["vocab_size"]))

    def notes(self, parts: Mapping[str, nn.Module]) -> Iterator[str]:
        """Yields notes about the files of these parts."""
        for name, module in parts.items():
            if name == "text_encoder" or self.is_random(name):
                continue
            stored = self.with_our_names(name, module)
            left, absent = stored.dropped(), stored.initialised()
            if left is not None:
                yield f"{name}: {left} of {stored.path.name} is ignored, because no network has it"
            if absent is not None:
                yield f"{name}: {absent} is not in {stored.path.name} and is initialised"

    def require_match(self) -> None:
        """Raises WeightsError E1409 if the configurations of the parts do not match."""
        pairs: list[tuple[str, Any, Any]] = []
        if "vae" in self.existing_parts:
            vae = CausalVAEConfig.read(self.existing_parts["vae"].config, str(self.existing_parts["vae"].where))
            pairs.append(("the denoiser takes latents of channels", self.config.in_channels, vae.embed_dim))
            pairs += [("latents of pixels a side", PIXELS, vae.pixels), ("latents of frames", FRAMES, vae.frames)]
        if "text_encoder" in self.existing_parts:
            width = self.existing_parts["text_encoder"].config.get("d_model")
            pairs.append(("the denoiser takes text of width", self.config.caption_channels, width))
        self._require_equal(self.root, pairs)

    def _build(self, name: str) -> Callable[[], nn.Module]:
        if name == "denoiser":
            return lambda: Latte(self.config)
        part = self.part(name)
        if name == "text_encoder":
            return lambda: t5.construct(part.config, part.where)
        return lambda: CausalVAE(CausalVAEConfig.read(part.config, str(part.where)))


def _find_denoiser(path: Path, config: Path | None) -> StoredPart:
    kinds.refuse_adapter(path)
    if path.is_file():
        return _read_single_file(path, config)
    for folder in (path, path / "transformer"):
        if (folder / "config.json").is_file():
            description = read_json(folder / "config.json")
            _require_latte(description, folder)
            return StoredPart(description, folder / "config.json", _weights_in(folder))
    inner = sorted(p.parent.name for p in path.glob("*/config.json") if _class_of(p) in CLASSES)
    if inner:
        raise WeightsError(
            f"{path}: contains several models, {', '.join(inner)}; give the one to train, such as "
            f"model.path={path / inner[0]}",
            code="E1406",
        )
    guess = kinds.describe_path(path) or "a model of another family"
    raise WeightsError(
        f"{path}: looks like {guess}; family latte needs a folder with the config.json and the weights of a LatteT2V",
        code="E1406",
    )


def _read_single_file(path: Path, config: Path | None) -> StoredPart:
    suffixes = weights_formats.readable_suffixes()
    if path.suffix not in suffixes:
        raise WeightsError(f"{path}: a model in one file ends in {', '.join(suffixes)}; check the path", code="E1406")
    where = next((p for p in _configs_for(path, config) if p.is_file()), None)
    if where is None:
        raise WeightsError(
            f"{path}: does not contain the length of its clips, and there is no config.json next to it; set "
            f"model.config={CONFIGS[0]}, {CONFIGS[1]} or {CONFIGS[2]} (frames of a clip), or a folder with config.json",
            code="E1460",
        )
    description = read_json(where)
    _require_latte(description, where.parent)
    return StoredPart(description, where, lambda: InFile(pickled.readable(path)))


def _configs_for(path: Path, config: Path | None) -> Iterator[Path]:
    if config is not None:
        yield config / "config.json"
        yield config / "transformer" / "config.json"
    else:
        yield path.parent / "config.json"


def _require_latte(config: Mapping[str, Any], folder: Path) -> None:
    name = config.get("_class_name", CLASSES[0])
    if name not in CLASSES:
        raise WeightsError(
            f"{folder}: contains {name}; family latte trains LatteT2V of Open-Sora-Plan v1.1", code="E1406"
        )


def _class_of(config: Path) -> str:
    try:
        return str(read_json(config).get("_class_name", ""))
    except WeightsError:
        return ""


def _weights_in(folder: Path) -> Callable[[], Stored] | None:
    weights = find_weights(folder)
    return None if weights is None else lambda: InFile(weights.path)


def _find_vae(named: Path | None, root: Path) -> StoredPart | None:
    """The autoencoder: as given, or in the folder `vae` of the model or next to it."""
    if named is not None and not named.exists():
        raise WeightsError(
            f"model.vae: {named} does not exist (searched in {Path.cwd()}); check the path", code="E1401"
        )
    candidates = (root / "vae", root.parent / "vae") if named is None else (named / "vae", named)
    folder = next((candidate for candidate in candidates if (candidate / "config.json").is_file()), None)
    if folder is None:
        if named is None:
            return None
        raise WeightsError(
            f"model.vae: {named} has no config.json; give the folder `vae` of Open-Sora-Plan v1.1.0", code="E1406"
        )
    config = read_json(folder / "config.json")
    if config.get("_class_name", "CausalVAEModel") != "CausalVAEModel":
        raise WeightsError(
            f"{folder}: contains {config['_class_name']}; family latte needs CausalVAEModel of Open-Sora-Plan v1.1.0",
            code="E1406",
        )
    CausalVAEConfig.read(config, str(folder / "config.json"))
    return StoredPart(config, folder / "config.json", _weights_in(folder))


def _find_text_encoder(named: Path | None, root: Path) -> tuple[StoredPart | None, Path | None, bool]:
    """The text encoder, its tokenizer's folder, and whether both are in the model's own folder."""
    if named is not None and not named.exists():
        raise WeightsError(
            f"model.latte.text_encoder: {named} does not exist (searched in {Path.cwd()}); check the path", code="E1401"
        )
    base = named if named is not None else root
    inner = base / "text_encoder"
    folder = inner if (inner / "config.json").is_file() or named is None else named
    if not (folder / "config.json").is_file():
        if named is None:
            return None, None, False
        raise WeightsError(
            f"model.latte.text_encoder: {named} has no config.json; give the folder of T5 v1.1 XXL's encoder",
            code="E1406",
        )
    tokenizers = (base / "tokenizer", folder)
    tokenizer = next((p for p in tokenizers if any((p / n).is_file() for n in t5.TOKENIZER_FILES[:2])), folder)
    weights = (lambda: t5.stored_in(folder)) if t5.has_weights(folder) else None
    return StoredPart(read_json(folder / "config.json"), folder / "config.json", weights), tokenizer, named is None
