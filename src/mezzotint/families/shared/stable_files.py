"""The files of a Stable Diffusion model (UNet, AutoencoderKL, CLIP text encoders): a folder in diffusers' layout, or a
single-file checkpoint with all weights and a matching folder of configurations."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import WeightsError
from mezzotint.families.shared import caption_pieces
from mezzotint.families.shared.folder_files import Configs, FolderFiles, read_configs
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights import kinds
from mezzotint.weights.files import fingerprint
from mezzotint.weights.files.tensor_files import Stored
from mezzotint.weights.folder import components
from mezzotint.weights.folder.model_folder import ModelFolder, open_folder
from mezzotint.weights.keymap import KeyMap
from mezzotint.weights.layouts import base
from mezzotint.weights.single_file.extras import drop_average, extras_of
from mezzotint.weights.single_file.modelspec import Description
from mezzotint.weights.single_file.original import FilePart
from mezzotint.weights.single_file.overlay import Overlay
from mezzotint.weights.single_file.single_file import SingleFile, open_single
from mezzotint.weights.single_file.writing import describe_folder
from mezzotint.weights.widened import CONV_IN, WidenedInput

_DOES = {"edit": "edits images", "inpaint": "inpaints"}
"""What models do that are given more than text, by `model.task`."""
_NEEDS = {"edit": "data.conditions.source", "inpaint": "data.inpaint.masks"}
_SINCE = "0.6.0"
_TOO_OLD = ("0.0.", "0.1.", "0.2.", "0.3.", "0.4.", "0.5.")
"""diffusers' inpainting pipeline opens no folder of an earlier release than `_SINCE`, or of none."""
_LAYER = re.compile(r".+\.transformer_blocks\.\d+(?=\.)")


@dataclass(frozen=True)
class StableFiles(FolderFiles):
    """single: the file with all weights, if there is one; the folder then has only the configurations. whole_depth:
    transformer layers per level in the files, if `model.depth` uses fewer. overlay: files whose tensors replace the
    model's own. widens_input: whether `model.task` adds input channels to the denoiser that its file does not have."""

    layout: ClassVar[KeyMap]
    """The layout of the family's single-file checkpoints."""
    original: ClassVar[Mapping[str, FilePart]] = {"vae": FilePart(base.VAE, keeps_start=True)}
    fewest_layers: ClassVar[int] = 1
    """Layers of a text encoder that `model.clip_skip` must leave."""
    narrower: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Values that make the configurations of the shipped tiny model even smaller, by part."""

    needs_aligned_conditions = True
    pipelines: ClassVar[Mapping[str, str]] = {}
    """The pipelines of diffusers for models that edit and inpaint, by `model.task`."""

    single: SingleFile | None = None
    whole_depth: tuple[int, ...] = ()
    overlay: Overlay | None = None
    widens_input: bool = False

    @classmethod
    def of(cls, settings: ModelSettings, seed: int = 0) -> Self:
        """See ModelFiles. Raises WeightsError E1401, E1406, E1409, E1411 to E1415 and E1478."""
        files = cls._in_one_file(settings, seed) if settings.path.is_file() else cls._in_folder(settings, seed)
        if settings.over:
            files = replace(files, overlay=Overlay(settings.path, settings.over, settings.config))
        files = files.with_vae()._with_task()
        if settings.depth is not None:
            files = files._with_depth(settings.depth)
        files.require_layers(settings.clip_skip)
        return files

    @classmethod
    def tiny(cls, seed: int = 0) -> Self:
        """See ModelFiles."""
        files = super().tiny(seed)
        configs = {part: config | dict(cls.narrower.get(part, {})) for part, config in files.configs.items()}
        return replace(files, configs=configs)

    def component(self, part: str) -> str:
        """The folder name of a part."""
        return self.spec.folders[part]

    def original_names(self, part: str, names: Collection[str]) -> Mapping[str, str]:
        """See ModelFiles."""
        return {entry.ours[0]: entry.foreign for entry in base.unet(list(names))} if part == "denoiser" else {}

    def stored_in_file(self, part: str) -> Stored | None:
        """See FolderFiles: parts in the overlay or in the single-file checkpoint."""
        if self.overlay is not None and self.overlay.touches(self.component(part)):
            return self.overlay.component(self.component(part))
        return None if self.single is None else self.single.component(self.component(part))

    @property
    def condition_names(self) -> tuple[str, ...]:
        """See ModelFiles: a model that edits takes the image before the edit."""
        return ("source",) if self.task == "edit" else ()

    @property
    def inpaints(self) -> bool:
        """See ModelFiles."""
        return self.task == "inpaint"

    @property
    def task(self) -> str:
        """What the denoiser is given, as in `model.task`."""
        return task_of(self.configs["denoiser"].get("in_channels", 4), self._latent_channels)

    @property
    def _latent_channels(self) -> int:
        return int(self.configs["vae"].get("latent_channels", 4))

    def stored(self, part: str) -> Stored:
        """See FolderFiles: with further input channels if `model.task` adds them."""
        stored = super().stored(part)
        is_widened = self.widens_input and part == "denoiser"
        return WidenedInput(stored, int(self.configs[part]["in_channels"])) if is_widened else stored

    def _with_task(self) -> Self:
        """The same with the input channels that `model.task` requests. Raises WeightsError E1296 for a model of another
        task that has such channels already, and for an adapter on new channels."""
        unet, settings = dict(self.configs["denoiser"]), self.settings
        if self.single is not None:
            unet["in_channels"] = self.single.component("unet").header()[CONV_IN].shape[1]
        files = replace(self, configs={**self.configs, "denoiser": unet})
        if settings.task not in ("auto", files.task):
            if files.task != "text":
                raise WeightsError(
                    f"{settings.path}: {_DOES[files.task]} (its denoiser takes {unet['in_channels']} channels), but "
                    f"model.task={settings.task}; leave it out, and give {_NEEDS[files.task]}",
                    code="E1296",
                )
            if settings.adapter.is_trained:
                raise WeightsError(
                    f"{settings.path}: takes no image, and an adapter cannot teach it to; train the whole denoiser "
                    f"(model.adapter.kind=none), or start from a model that {_DOES[settings.task]}",
                    code="E1296",
                )
            unet["in_channels"] = _input_channels(settings.task, files._latent_channels)
            files = replace(files, configs={**self.configs, "denoiser": unet}, widens_input=True)
        if files.task != "text":
            index = {**files.folder.index, "_class_name": self.pipelines[files.task]}
            if str(index.get("_diffusers_version", _TOO_OLD[0])).startswith(_TOO_OLD):
                index["_diffusers_version"] = _SINCE
            files = replace(files, folder=replace(files.folder, index=index))
        return files

    def excluded_names(self, part: str) -> list[str]:
        """See FolderFiles: the transformer layers that `model.depth` removes."""
        if part != "denoiser" or not self.whole_depth:
            return []
        config, where = self.configs["denoiser"], self.where("denoiser")
        whole = config | {"transformer_layers_per_block": list(self.whole_depth)}
        shortened = components.shapes("unet", config, where=where)
        return [name for name in components.shapes("unet", whole, where=where) if name not in shortened]

    def write_extras(self, folder: Path) -> None:
        """See FolderFiles: what the single file holds besides the model. A folder's averaged copy is dropped, because
        it belongs to another model."""
        if self.single is not None and self.settings.weights == "files":
            extras_of(self.single).write(folder)
        else:
            drop_average(folder)

    def schedule_fingerprint(self) -> str:
        """See FolderFiles."""
        table = Schedule.from_config(self.scheduler).alpha_bar.numpy().tobytes()
        return fingerprint.of_values({"alpha_bar": table.hex(), "prediction": self.prediction})

    def weights_digest(self, part: str) -> Mapping[str, Any]:
        """See FolderFiles, with the overlay's files."""
        if part in self.standalone:
            return super().weights_digest(part)
        name = self.component(part)
        digest = (
            super().weights_digest(part) if self.single is None else {"weights": self.single.component(name).digest()}
        )
        over = [] if self.overlay is None else self.overlay.digests(name)
        return {**digest, "over": over} if over else digest

    def fingerprint(self, part: str) -> str:
        """See FolderFiles."""
        if part == "tokenizer" and len(self.text_parts) == 1:
            return self.tokenizer_fingerprint(self.text_parts[0])
        return super().fingerprint(part)

    def media_identity(self) -> str:
        """See ModelFiles."""
        scale, shift = self.scaling
        return f"sd-media-1 vae={self.fingerprint('vae')} scale={scale!r} shift={shift!r} tiling=off"

    def description(self, title: str) -> Description | None:
        """See ModelFiles."""
        return describe_folder(self.folder, self.prediction, title)

    @property
    def scaling(self) -> tuple[float, float]:
        """Scaling factor and shift from the VAE's latents to the model's."""
        vae, where = self.configs["vae"], self.where("vae")
        scale = components.number_of(vae, "scaling_factor", self.spec.latent_scale, where=where)
        if scale <= 0:
            raise WeightsError(f"{where}: scaling_factor must be above 0, got {scale}; use another copy", code="E1409")
        return scale, components.number_of(vae, "shift_factor", 0.0, where=where)

    def notes(self, parts: Collection[str]) -> Iterator[str]:
        """See FolderFiles."""
        if self.overlay is not None:
            yield from self.overlay.notes()
        layers = {match[0] for name in self.excluded_names("denoiser") if (match := _LAYER.match(name))}
        if layers:  # the depth may equal that of the files
            listed = ", ".join(sorted(layers, key=_numbers_last))
            yield f"denoiser: model.depth removes {len(layers)} transformer layers: {listed}"
        if self.single is not None and self.settings.weights == "files":
            yield from self.single.notes()
        yield from super().notes(parts)

    @property
    def pieces(self) -> int:
        """The number of pieces in which the text encoders read a caption."""
        return self.settings.caption_tokens // caption_pieces.TOKENS

    def length(self, part: str) -> int:
        """See FolderFiles: of all pieces together."""
        return self.pieces * (super().length(part) - 2) + 2

    def require_layers(self, clip_skip: int) -> None:
        """Raises WeightsError E1409 when `model.clip_skip` leaves nothing of a text encoder."""
        require_layers({part: self.configs[part] for part in self.text_parts}, clip_skip, self.fewest_layers)

    @classmethod
    def require_match(cls, where: Path, configs: Configs) -> None:
        """See FolderFiles, with the channels of latents."""
        unet, vae = configs["denoiser"], configs["vae"]
        super().require_match(where, configs)
        taken, channels = unet.get("in_channels", 4), vae.get("latent_channels", 4)
        if task_of(taken, channels) != "text":
            taken = channels
        cls._require_equal(
            where,
            (
                ("the denoiser takes latents of channels", taken, channels),
                ("the denoiser gives latents of channels", unet.get("out_channels", 4), vae.get("latent_channels", 4)),
            ),
        )

    # --- opening ----------------------------------------------------------------------------------------------------

    @classmethod
    def _in_folder(cls, settings: ModelSettings, seed: int) -> Self:
        """Opens a folder and checks by its small files that it is a model of the family."""
        root = settings.config_source
        kinds.refuse_adapter(root)
        guess = kinds.describe_path(root) if root.exists() else None
        if guess is not None:
            seems = "is" if guess.startswith("a folder without") else "looks like"
            raise WeightsError(
                f"{root}: {seems} {guess}; family {cls.spec.name} needs a complete folder in diffusers' layout, of "
                f"{cls.spec.trains}",
                code="E1406",
            )
        return cls._open(open_folder(root), settings, seed)

    @classmethod
    def _in_one_file(cls, settings: ModelSettings, seed: int) -> Self:
        """Opens a single-file checkpoint: weights from the file, configurations and tokenizer from a matching
        folder."""
        single = open_single(
            settings.path,
            cls.layout,
            config=settings.config,
            averaged=settings.ema_weights == "use",
            prediction=settings.prediction,
        )
        files = cls._open(single.folder, settings, seed)
        if single.layout.networks.keys() != {files.component(part) for part in files.parts}:
            raise WeightsError(
                f"{settings.path}: holds {', '.join(sorted(single.layout.networks))}, but the configurations in "
                f"{single.folder.root} are for another model; write model.config=FOLDER with matching ones",
                code="E1414",
            )
        return replace(files, single=single, scheduler=single.scheduler(files.scheduler))

    @classmethod
    def _open(cls, folder: ModelFolder, settings: ModelSettings, seed: int) -> Self:
        root, spec = folder.root, cls.spec
        unet = folder.config("unet") if (root / "unet" / "config.json").is_file() else {}
        other = kinds.describe_folder(folder.index, unet, spec.name)
        if other is not None:
            better = kinds.other_family(folder.index, unet, spec.name) or kinds.family_at(root)
            better = None if better == spec.name else better
            problem = f"looks like {other}" if better is None else f"is {other}: write model.family={better}"
            raise WeightsError(f"{root}: {problem}; family {spec.name} trains {spec.trains}", code="E1406")
        configs = read_configs(folder, spec, cls.find_absent_parts(folder))
        cls.require_match(root, configs)
        return cls(settings, seed, root, folder, configs, folder.config("scheduler", "scheduler_config.json"))

    def _with_depth(self, depth: tuple[int, ...]) -> Self:
        """A denoiser with fewer transformer layers. Raises WeightsError E1079 for a wrong number of levels, or more
        layers than the model has."""
        config = self.configs["denoiser"]
        levels = len(config["block_out_channels"])
        layers = config.get("transformer_layers_per_block", 1)
        whole = (layers,) * levels if isinstance(layers, int) else tuple(layers)
        if len(depth) != levels or any(few > all_ for few, all_ in zip(depth, whole, strict=False)) or 0 in depth:
            raise WeightsError(
                f"model.depth: {list(depth)} does not fit a denoiser with {list(whole)} transformer layers per level; "
                f"write {levels} numbers from 1 up to these",
                code="E1079",
            )
        shallow = config | {"transformer_layers_per_block": list(depth)}
        return replace(self, configs=dict(self.configs) | {"denoiser": shallow}, whole_depth=whole)


def task_of(taken: int, channels: int) -> str:
    """What a denoiser is given, as in `model.task`, by the channels that it takes and those of a latent. A model that
    edits takes the latents of an image, too, one that inpaints these and a mask."""
    return next((task for task in _DOES if taken == _input_channels(task, channels)), "text")


def _input_channels(task: str, channels: int) -> int:
    return 2 * channels + (task == "inpaint")


def require_layers(encoders: Configs, clip_skip: int, fewest: int) -> None:
    """Raises WeightsError E1409 if `model.clip_skip` leaves fewer than `fewest` layers of a text encoder."""
    for config in encoders.values():
        layers = config.get("num_hidden_layers", 12)
        if not isinstance(layers, int):
            raise WeightsError(
                f"num_hidden_layers of a text encoder must be an integer, got {layers!r:.40}", code="E1409"
            )
        if clip_skip > layers - fewest:
            raise WeightsError(
                f"model.clip_skip: {clip_skip} is too high for a text encoder with {layers} layers; "
                f"write at most {layers - fewest}",
                code="E1409",
            )


def _numbers_last(name: str) -> list[str]:
    """Sort key that orders numbers in a name by value."""
    return [part.zfill(6) for part in re.split(r"(\d+)", name)]
