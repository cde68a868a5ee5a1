"""Where a model of Stable Diffusion's kind comes from: a folder in diffusers' layout, or one file, opened by headers.

Nothing is fetched and nothing runs. What the models of these families share is here and in `stable.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import nn

from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import WeightsError
from mezzotint.families.shared.folder_files import Configs, FolderFiles, clip_tokenizer, configs_in
from mezzotint.recipe.base import with_values
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.weights import kinds, low_bit
from mezzotint.weights.files import fingerprint
from mezzotint.weights.folder import components, plain_vae
from mezzotint.weights.folder.export import Replaced
from mezzotint.weights.folder.model_folder import (
    ModelFolder,
    open_folder,
)
from mezzotint.weights.folder.other_vae import OtherVae, open_vae
from mezzotint.weights.keymap import KeyMap
from mezzotint.weights.layouts import base
from mezzotint.weights.low_bit import FLOAT32, WeightForm
from mezzotint.weights.single_file.match_tensors import ComponentInFile
from mezzotint.weights.single_file.modelspec import Description
from mezzotint.weights.single_file.overlay import OverlaidComponent, Overlay
from mezzotint.weights.single_file.single_file import SingleFile, open_single
from mezzotint.weights.single_file.writing import described

_LAYER = re.compile(r".+\.transformer_blocks\.\d+(?=\.)")


@dataclass(frozen=True)
class StableFiles(FolderFiles):
    """A model's folder, the configurations of its parts, and how weights come about. single: the file that holds all
    weights, when there is one; the folder then has the configurations alone. vae: the autoencoder that takes the place
    of the model's own, whose configuration is then among `configs`. whole_depth: transformer layers by level in the
    files, where `model.depth` takes fewer. overlay: files whose tensors take the place of the model's own."""

    layout: ClassVar[KeyMap]
    """Of the family's single files."""
    fewest_layers: ClassVar[int] = 1
    """Of a text encoder, those that must stay beside the ones that `model.clip_skip` leaves out."""

    narrower: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """What makes the configurations of the shipped tiny model still smaller, by part."""

    single: SingleFile | None = None
    vae: OtherVae | None = None
    whole_depth: tuple[int, ...] = ()
    overlay: Overlay | None = None

    @classmethod
    def of(cls, settings: ModelSettings, seed: int = 0) -> Self:
        """See ModelFiles. Raises WeightsError E1401, E1406, E1409 and E1411 to E1415."""
        files = cls._in_one_file(settings, seed) if settings.path.is_file() else cls._in_folder(settings, seed)
        if settings.over:
            files = replace(files, overlay=Overlay(settings.path, settings.over, settings.config))
        if settings.vae is not None:
            files = files._with_vae(settings.vae)
        if settings.depth is not None:
            files = files._with_depth(settings.depth)
        files.require_layers(settings.clip_skip)
        return files

    def original_names(self, part: str, names: Collection[str]) -> Mapping[str, str]:
        """See ModelFiles."""
        return {entry.ours[0]: entry.foreign for entry in base.unet(list(names))} if part == "denoiser" else {}

    @classmethod
    def described(cls, settings: ModelSettings) -> Self:
        """See ModelFiles."""
        config = settings.config if settings.path.is_file() else None
        update = {"weights": "random", "vae": None, "path": settings.described_by, "config": config}
        return cls.of(with_values(settings, update))

    @classmethod
    def tiny(cls, seed: int = 0) -> Self:
        """See ModelFiles."""
        files = super().tiny(seed)
        configs = {part: config | dict(cls.narrower.get(part, {})) for part, config in files.configs.items()}
        return replace(files, configs=configs)

    def component(self, part: str) -> str:
        """The folder of a part, by name."""
        return self.spec.folders[part]

    def where(self, part: str) -> Path:
        """The configuration's file of a part."""
        if part == "vae" and self.vae is not None:
            return self.vae.where
        return super().where(part)

    def network(self, part: str, form: WeightForm = FLOAT32) -> nn.Module:
        """See ModelFiles. Raises WeightsError E1402 to E1409."""
        network, config, where = self.spec.networks[part], self.configs[part], self.where(part)
        if self.is_drawn(part):
            return low_bit.converted(components.draw(network, config, self.seed, part, where=where), form)
        left_out = self._left_out() if part == "denoiser" and self.whole_depth else ()
        stored = self.vae.stored if part == "vae" and self.vae is not None else self._stored(part)
        return components.load(network, config, stored, form, where=where, left_out=left_out)

    def _left_out(self) -> list[str]:
        """The file's names of the transformer layers that `model.depth` leaves out."""
        config, where = self.configs["denoiser"], self.where("denoiser")
        whole = config | {"transformer_layers_per_block": list(self.whole_depth)}
        kept = components.shapes("unet", config, where=where)
        return [name for name in components.shapes("unet", whole, where=where) if name not in kept]

    def is_drawn(self, part: str) -> bool:
        """Whether a part's weights are random: with `model.weights=random` all are but an autoencoder that is named."""
        return self.settings.weights == "random" and (part != "vae" or self.vae is None)

    def kept(self, part: str) -> Replaced | None:
        """A part as it is to be written when it is not trained, where the folder's files are not simply copied."""
        if part == "vae" and self.vae is not None:
            tensors = self.vae.tensors()
        elif part == "denoiser" and self.whole_depth:
            tensors = self.network(part).state_dict()
        else:
            stored = self._stored(part)
            if isinstance(stored, Path):
                return None
            tensors = stored.everything()
        return Replaced(self.spec.networks[part], tensors, self.configs[part], keep_types=True)

    def _stored(self, part: str) -> ComponentInFile | OverlaidComponent | Path:
        if self.overlay is not None and self.overlay.touches(self.component(part)):
            return self.overlay.component(self.component(part))
        return self.single.component(self.component(part)) if self.single is not None else self.weights_of(part).path

    def fingerprint(self, part: str) -> str:
        """See ModelFiles. "schedule" is what the scheduler's file means to training."""
        if part == "schedule":
            table = Schedule.from_config(self.scheduler).alpha_bar.numpy().tobytes()
            return fingerprint.of_values({"alpha_bar": table.hex(), "prediction": self.prediction})
        if part == "tokenizer":
            prints = {encoder: self.tokenizer_fingerprint(encoder) for encoder in self.text_parts}
            return fingerprint.of_values(prints) if len(prints) > 1 else next(iter(prints.values()))
        if part not in self.configs:
            return fingerprint.of_values({"absent": part})
        if self.is_drawn(part):
            return self._fingerprint(part, self.configs[part])
        if part == "vae" and self.vae is not None:
            weights = self.vae.weights()
        elif self.single is not None:
            weights = self.single.component(self.component(part)).digest()
        else:
            weights = fingerprint.of_file(self.weights_of(part).path)
        is_own = self.overlay is None or (part == "vae" and self.vae is not None)
        over = [] if is_own or self.overlay is None else self.overlay.digests(self.component(part))
        return self._fingerprint(part, self.configs[part], weights=weights, **({"over": over} if over else {}))

    def media_identity(self) -> str:
        """See ModelFiles."""
        scale, shift = self.scaling
        return f"sd-media-1 vae={self.fingerprint('vae')} scale={scale!r} shift={shift!r} tiling=off"

    def description(self, title: str) -> Description | None:
        """See ModelFiles."""
        return described(self.folder, self.prediction, title)

    @property
    def scaling(self) -> tuple[float, float]:
        """Factor and shift between the VAE's latents and the model's."""
        vae, where = self.configs["vae"], self.where("vae")
        scale = components.number_of(vae, "scaling_factor", self.spec.latent_scale, where=where)
        if scale <= 0:
            raise WeightsError(f"{where}: scaling_factor must be above 0, got {scale}; take another copy", code="E1409")
        return scale, components.number_of(vae, "shift_factor", 0.0, where=where)

    def notes(self, parts: Collection[str]) -> Iterator[str]:
        """What was met in the files of these parts that the reader should know."""
        if self.vae is not None and "vae" in parts:
            yield f"vae: {self.vae.path} takes the place of the model's own"
        if self.overlay is not None:
            yield from self.overlay.notes()
        if self.whole_depth:
            layers = sorted({match[0] for name in self._left_out() if (match := _LAYER.match(name))}, key=_natural)
            if layers:  # a depth may also be that of the files
                yield f"denoiser: model.depth leaves out {len(layers)} transformer layers: {', '.join(layers)}"
        if self.settings.weights == "random":
            if "vae" in parts and self.vae is None and plain_vae.fits(self.configs["vae"]):
                yield "vae: not random but set by hand to carry colours; details finer than a latent's pixels are lost"
            return
        if self.single is not None:
            yield from self.single.notes()
            return
        for part in parts:
            variant = self.weights_of(part).variant if part != "vae" or self.vae is None else ""
            if variant:
                yield (
                    f"{self.component(part)}: only weights of the variant {variant} are there; they were read as "
                    "float32"
                )

    @classmethod
    def _in_folder(cls, settings: ModelSettings, seed: int) -> Self:
        """Opens a folder and checks, from its small files, that it is a model of the family."""
        root = settings.described_by
        kinds.refuse_adapter(root)
        guess = kinds.of_path(root) if root.exists() else None
        if guess is not None:
            seems = "is" if guess.startswith("a folder without") else "looks like"
            raise WeightsError(
                f"{root}: {seems} {guess}; family {cls.spec.name} needs a complete folder in diffusers' layout, of "
                f"{cls.spec.trains}",
                code="E1406",
            )
        return cls._opened(open_folder(root), settings, seed)

    @classmethod
    def _in_one_file(cls, settings: ModelSettings, seed: int) -> Self:
        """Opens a model in one file: its weights from there, configurations and tokenizer from a folder that fits."""
        single = open_single(
            settings.path,
            cls.layout,
            config=settings.config,
            averaged=settings.ema_weights == "use",
            prediction=settings.prediction,
        )
        files = cls._opened(single.folder, settings, seed)
        if single.layout.networks.keys() != {files.component(part) for part in files.parts}:
            raise WeightsError(
                f"{settings.path}: holds {', '.join(sorted(single.layout.networks))}, and the configurations in "
                f"{single.folder.root} are of another model; write model.config=FOLDER with its own",
                code="E1414",
            )
        return replace(files, single=single, scheduler=single.scheduler(files.scheduler))

    @classmethod
    def _opened(cls, folder: ModelFolder, settings: ModelSettings, seed: int) -> Self:
        root, spec = folder.root, cls.spec
        unet = folder.config("unet") if (root / "unet" / "config.json").is_file() else {}
        other = kinds.of_index(folder.index, unet, spec.name)
        if other is not None:
            better = kinds.other_family(folder.index, unet, spec.name) or kinds.family_at(root)
            better = None if better == spec.name else better
            what = f"looks like {other}" if better is None else f"is {other}: write model.family={better}"
            raise WeightsError(f"{root}: {what}; family {spec.name} trains {spec.trains}", code="E1406")
        configs = configs_in(folder, spec, cls.absent(folder))
        cls._require_match(root, configs)
        return cls(settings, seed, root, folder, configs, folder.config("scheduler", "scheduler_config.json"))

    @classmethod
    def _require_match(cls, root: Path, configs: Configs) -> None:
        """The networks must fit each other, by their configurations."""
        unet, vae = configs["denoiser"], configs["vae"]
        cls._require_equal(
            root,
            (
                *cls.constraints(configs),
                ("the denoiser takes latents of channels", unet.get("in_channels", 4), vae.get("latent_channels", 4)),
                ("the denoiser gives latents of channels", unet.get("out_channels", 4), vae.get("latent_channels", 4)),
            ),
        )

    def require_layers(self, clip_skip: int) -> None:
        """Raises WeightsError E1409 when `model.clip_skip` leaves nothing of a text encoder."""
        require_layers({part: self.configs[part] for part in self.text_parts}, clip_skip, self.fewest_layers)

    def _with_vae(self, path: Path) -> Self:
        vae = open_vae(path, self.configs["vae"], self.where("vae"))
        configs = dict(self.configs) | {"vae": vae.config}
        self._require_match(vae.where.parent, configs)
        return replace(self, configs=configs, vae=vae)

    def _with_depth(self, depth: tuple[int, ...]) -> Self:
        """A denoiser of fewer transformer layers. Raises WeightsError E1079 for another number of levels, or more
        layers than there are."""
        config = self.configs["denoiser"]
        levels = len(config["block_out_channels"])
        layers = config.get("transformer_layers_per_block", 1)
        whole = (layers,) * levels if isinstance(layers, int) else tuple(layers)
        if len(depth) != levels or any(few > all_ for few, all_ in zip(depth, whole, strict=False)) or 0 in depth:
            raise WeightsError(
                f"model.depth: {list(depth)} does not fit a denoiser of {list(whole)} transformer layers a level; "
                f"write {levels} numbers from 1 up to these",
                code="E1079",
            )
        shallow = config | {"transformer_layers_per_block": list(depth)}
        return replace(self, configs=dict(self.configs) | {"denoiser": shallow}, whole_depth=whole)

    def tokenizer(self, part: str) -> Any:
        """The tokenizer of a text encoder. Its files are looked at first: the library makes an empty vocabulary where
        they lack. Raises WeightsError E1409."""
        return clip_tokenizer(self.root / self.spec.tokenizers[part], int(self.configs[part]["vocab_size"]))


def require_layers(encoders: Configs, clip_skip: int, fewest: int) -> None:
    """Raises WeightsError E1409 when `model.clip_skip` leaves less than `fewest` layers of a text encoder."""
    for config in encoders.values():
        layers = config.get("num_hidden_layers", 12)
        if not isinstance(layers, int):
            raise WeightsError(f"num_hidden_layers of a text encoder is {layers!r:.40}, no whole number", code="E1409")
        if clip_skip > layers - fewest:
            raise WeightsError(
                f"model.clip_skip: {clip_skip} leaves nothing of a text encoder of {layers} layers; "
                f"write at most {layers - fewest}",
                code="E1409",
            )


def _natural(name: str) -> list[str]:
    """Numbers in a name in their own order."""
    return [part.zfill(6) for part in re.split(r"(\d+)", name)]
