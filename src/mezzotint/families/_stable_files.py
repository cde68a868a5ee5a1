"""Where a model of Stable Diffusion's kin comes from: a folder in diffusers' layout, or one file, opened by headers.

Nothing is fetched and nothing runs. What the models of these families share is here and in `_stable.py`; what sets one
family apart from the other it says in its `Kin`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from transformers.models.clip.tokenization_clip import CLIPTokenizer

from mezzotint import outside
from mezzotint.errors import WeightsError
from mezzotint.families.base import Prediction
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.weights import kinds
from mezzotint.weights.files import fingerprint, tensor_files
from mezzotint.weights.files.tensor_files import Stored, TensorInfo
from mezzotint.weights.folder import components, plain_vae, scheduler_file
from mezzotint.weights.folder.components import Network
from mezzotint.weights.folder.export import Replaced
from mezzotint.weights.folder.model_folder import (
    FoundWeights,
    ModelFolder,
    open_folder,
    read_json,
    require_plain,
    tokenizer_files,
)
from mezzotint.weights.folder.other_vae import OtherVae, open_vae
from mezzotint.weights.keymap import Family, KeyMap
from mezzotint.weights.single_file.overlay import Overlay
from mezzotint.weights.single_file.single_file import SingleFile, open_single

Configs = Mapping[str, Mapping[str, Any]]
Joint = tuple[str, Any, Any]
"""Something that two parts must agree on: in words, with what the one says and what the other says."""

_LAYER = re.compile(r".+\.transformer_blocks\.\d+(?=\.)")
_TOKENIZER_FILES = (
    "vocab.json",
    "merges.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)


@dataclass(frozen=True, slots=True)
class Kin:
    """What a family's models are made of.

    name: the family's. trains: what it trains, in words. components: folder of each part. networks: what each part is.
    tokenizers: folder of the tokenizer of each text encoder. layout: of single files. scale: between the VAE's latents
    and the model's, where an old file does not say. fewest_layers: of a text encoder that must stay beside those that
    `model.clip_skip` leaves out. absent: parts that a model of the family may lack, told from its small files. joints:
    what parts must agree on, from their configurations.
    """

    name: Family
    trains: str
    components: Mapping[str, str]
    networks: Mapping[str, Network]
    tokenizers: Mapping[str, str]
    layout: KeyMap
    scale: float
    fewest_layers: int
    absent: Callable[[ModelFolder], Collection[str]]
    joints: Callable[[Configs], Iterator[Joint]]


@dataclass(frozen=True, slots=True)
class Source:
    """A model's folder, the configurations of its parts, and how weights come about. single: the file that holds all
    weights, when there is one; the folder then has the configurations alone. vae: the autoencoder that takes the place
    of the model's own, whose configuration is then among `configs`. whole_depth: transformer layers by level in the
    files, where `model.depth` takes fewer. overlay: files whose tensors take the place of the model's own."""

    kin: Kin
    folder: ModelFolder
    configs: Mapping[str, dict[str, Any]]
    scheduler: dict[str, Any]
    weights: Literal["files", "random"]
    seed: int
    single: SingleFile | None = None
    vae: OtherVae | None = None
    whole_depth: tuple[int, ...] = ()
    overlay: Overlay | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that this model has, in the family's order."""
        return tuple(self.configs)

    @property
    def text_parts(self) -> tuple[str, ...]:
        """Of these, the text encoders."""
        return tuple(part for part in self.kin.tokenizers if part in self.configs)

    def component(self, part: str) -> str:
        """The folder of a part, by name."""
        return self.kin.components[part]

    def where(self, part: str) -> Path:
        """The configuration's file of a part."""
        if part == "vae" and self.vae is not None:
            return self.vae.where
        return self.folder.root / self.component(part) / "config.json"

    def found(self, part: str) -> FoundWeights:
        """The weights of a part in the folder. Raises WeightsError E1407 when it has none."""
        found = self.folder.weights(self.component(part))
        if found is None:
            raise WeightsError(
                f"{self.where(part).parent}: has a configuration and no weights; give the path of a complete model, "
                "or write model.weights=random to train from nothing",
                code="E1407",
            )
        return found

    def network(self, part: str) -> nn.Module:
        """A part with its weights: float32, on the CPU, eval mode. Raises WeightsError E1402 to E1409."""
        network, config, where = self.kin.networks[part], self.configs[part], self.where(part)
        if self.is_drawn(part):
            return components.draw(network, config, self.seed, part, where=where)
        stored = self._stored(part)
        if part == "denoiser" and self.whole_depth:
            stored = _Shallower(
                tensor_files.InFile(stored) if isinstance(stored, Path) else stored, frozenset(self._left_out())
            )
        return components.load(network, config, stored, where=where)

    def _left_out(self) -> list[str]:
        """The file's names of the transformer layers that `model.depth` leaves out."""
        config, where = self.configs["denoiser"], self.where("denoiser")
        whole = config | {"transformer_layers_per_block": list(self.whole_depth)}
        kept = components.shapes("unet", config, where=where)
        return [name for name in components.shapes("unet", whole, where=where) if name not in kept]

    def is_drawn(self, part: str) -> bool:
        """Whether a part's weights are random: with `model.weights=random` all are but an autoencoder that is named."""
        return self.weights == "random" and (part != "vae" or self.vae is None)

    def kept(self, part: str) -> Replaced | None:
        """A part as it is to be written when it is not trained, where the folder's files are not simply copied."""
        if part == "vae" and self.vae is not None:
            tensors = self.vae.tensors()
        elif part == "denoiser" and self.whole_depth:
            tensors = self.network(part).state_dict()
        elif self.overlay is not None and self.overlay.touches(self.component(part)):
            tensors = self.overlay.component(self.component(part)).everything()
        elif self.single is not None:
            tensors = self.single.component(self.component(part)).everything()
        else:
            return None
        return Replaced(self.kin.networks[part], tensors, self.configs[part], keep_types=True)

    def _stored(self, part: str) -> Stored | Path:
        if part == "vae" and self.vae is not None:
            return self.vae.stored
        if self.overlay is not None and self.overlay.touches(self.component(part)):
            return self.overlay.component(self.component(part))
        return self.single.component(self.component(part)) if self.single is not None else self.found(part).path

    def fingerprint(self, part: str) -> str:
        """Of a part's configuration and weights; of a part that this model does not have, of that."""
        if part not in self.configs:
            return fingerprint.of_values({"absent": part})
        told = {k: v for k, v in self.configs[part].items() if not k.startswith("_") and k != "transformers_version"}
        if self.is_drawn(part):
            drawn = {"weights": "random", "seed": self.seed, "part": part, "torch": torch.__version__.split("+")[0]}
            return fingerprint.of_values({"config": told, **drawn})
        if part == "vae" and self.vae is not None:
            weights = self.vae.weights()
        elif self.single is not None:
            weights = self.single.component(self.component(part)).digest()
        else:
            weights = fingerprint.of_file(self.found(part).path)
        is_own = self.overlay is None or (part == "vae" and self.vae is not None)
        over = [] if is_own or self.overlay is None else self.overlay.digests(self.component(part))
        return fingerprint.of_values({"config": told, "weights": weights, **({"over": over} if over else {})})

    def tokenizer_fingerprint(self, part: str) -> str:
        """Of the tokenizer's files that belong to a text encoder."""
        found = tokenizer_files(self.folder.root / self.kin.tokenizers[part])
        return fingerprint.of_files([found[name] for name in _TOKENIZER_FILES if name in found])

    def length(self, part: str) -> int:
        """Tokens of a caption for a text encoder, start and end included."""
        return int(self.configs[part].get("max_position_embeddings", 77))

    @property
    def scaling(self) -> tuple[float, float]:
        """Factor and shift between the VAE's latents and the model's."""
        vae = self.configs["vae"]
        return float(vae.get("scaling_factor") or self.kin.scale), float(vae.get("shift_factor") or 0.0)

    def prediction(self, settings: ModelSettings) -> Prediction:
        """What the recipe says, else what the scheduler's file says. Raises WeightsError E1409."""
        if settings.prediction is not None:
            return settings.prediction
        found = scheduler_file.prediction_of(self.scheduler)
        if found is None:
            raise WeightsError(
                f"{self.folder.root / 'scheduler' / 'scheduler_config.json'}: prediction_type is "
                f"{self.scheduler.get('prediction_type')!r}; family {self.kin.name} knows epsilon and v_prediction, "
                "write model.prediction to choose",
                code="E1409",
            )
        return cast(Prediction, found)

    def notes(self, parts: Collection[str]) -> Iterator[str]:
        """What was met in the files of these parts that the reader should know."""
        if self.vae is not None and "vae" in parts:
            yield f"vae: {self.vae.path} takes the place of the model's own"
        if self.overlay is not None:
            yield from self.overlay.notes()
        if self.whole_depth:
            layers = sorted({found[0] for name in self._left_out() if (found := _LAYER.match(name))}, key=_natural)
            yield f"denoiser: model.depth leaves out {len(layers)} transformer layers: {', '.join(layers)}"
        if self.weights == "random":
            if "vae" in parts and self.vae is None and plain_vae.fits(self.configs["vae"]):
                yield "vae: not random but set by hand to carry colours; details finer than a latent's pixels are lost"
            return
        if self.single is not None:
            yield from self.single.notes()
            return
        for part in parts:
            variant = self.found(part).variant if part != "vae" or self.vae is None else ""
            if variant:
                yield (
                    f"{self.component(part)}: only weights of the variant {variant} are there; they were read as "
                    "float32"
                )


def open_source(kin: Kin, settings: ModelSettings, seed: int) -> Source:
    """Opens what a recipe names. Raises WeightsError E1401, E1406, E1409 and E1411 to E1415."""
    source = (
        _read_single(kin, settings, seed)
        if settings.path.is_file()
        else read_folder(kin, settings.described_by, settings.weights, seed)
    )
    if settings.over:
        source = replace(source, overlay=Overlay(settings.path, settings.over, settings.config))
    if settings.vae is not None:
        source = _with_vae(source, settings.vae)
    if settings.depth is not None:
        source = _with_depth(source, settings.depth)
    require_layers(source, settings.clip_skip)
    return source


def require_layers(source: Source, clip_skip: int) -> None:
    """Raises WeightsError E1409 when `model.clip_skip` leaves nothing of a text encoder."""
    for part in source.text_parts:
        layers = int(source.configs[part].get("num_hidden_layers", 12))
        most = layers - source.kin.fewest_layers
        if clip_skip > most:
            raise WeightsError(
                f"model.clip_skip: {clip_skip} leaves nothing of a text encoder of {layers} layers; "
                f"write at most {most}",
                code="E1409",
            )


def _with_depth(source: Source, depth: tuple[int, ...]) -> Source:
    """A denoiser of fewer transformer layers. Raises WeightsError E1079 for another number of levels, or more layers
    than there are."""
    config = source.configs["denoiser"]
    levels = len(config["block_out_channels"])
    whole = _depth_of(config)
    if len(depth) != levels or any(asked > there for asked, there in zip(depth, whole, strict=False)) or 0 in depth:
        raise WeightsError(
            f"model.depth: {list(depth)} does not fit a denoiser of {list(whole)} transformer layers a level; write "
            f"{levels} numbers from 1 up to these",
            code="E1079",
        )
    told = config | {"transformer_layers_per_block": list(depth)}
    return replace(source, configs=dict(source.configs) | {"denoiser": told}, whole_depth=whole)


def _depth_of(config: Mapping[str, Any]) -> tuple[int, ...]:
    told = config.get("transformer_layers_per_block", 1)
    return (told,) * len(config["block_out_channels"]) if isinstance(told, int) else tuple(told)


@dataclass(frozen=True, slots=True)
class _Shallower:
    """Stored weights of a denoiser without the transformer layers that `model.depth` leaves out."""

    stored: Stored
    left_out: frozenset[str]

    @property
    def place(self) -> Path:
        return self.stored.place

    def header(self) -> dict[str, TensorInfo]:
        return {name: info for name, info in self.stored.header().items() if name not in self.left_out}

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        return self.stored.read(names)


def _natural(name: str) -> list[str]:
    """Numbers in a name in their own order."""
    return [part.zfill(6) for part in re.split(r"(\d+)", name)]


def _with_vae(source: Source, path: Path) -> Source:
    vae = open_vae(path, source.configs["vae"], source.where("vae"))
    configs = dict(source.configs) | {"vae": vae.config}
    _require_match(source.kin, vae.where.parent, configs)
    return replace(source, configs=configs, vae=vae)


def read_folder(kin: Kin, root: Path, weights: Literal["files", "random"], seed: int) -> Source:
    """Opens a folder and checks, from its small files, that it is a model of the family."""
    guess = kinds.of_path(root) if root.exists() else None
    if guess is not None:
        seems = "is" if guess.startswith("a folder without") else "looks like"
        raise WeightsError(
            f"{root}: {seems} {guess}; family {kin.name} needs a complete folder in diffusers' layout, of {kin.trains}",
            code="E1406",
        )
    return _of_folder(kin, open_folder(root), weights, seed)


def open_tokenizer(source: Source, part: str) -> Any:
    """The tokenizer of a text encoder. Its files are looked at first: the library makes an empty vocabulary where they
    lack. Raises WeightsError E1409."""
    root = source.folder.root / source.kin.tokenizers[part]
    require_plain(root)
    found = tokenizer_files(root)
    if "tokenizer.json" not in found and "merges.txt" not in found:
        raise WeightsError(f"{root}: lacks merges.txt; fetch the whole tokenizer", code="E1409")
    read_json(found.get("vocab.json", root / "vocab.json") if "merges.txt" in found else found["tokenizer.json"])
    try:
        tokenizer = (
            _parted_tokenizer(found)
            if "merges.txt" in found and found["merges.txt"].parent != root
            else (CLIPTokenizer.from_pretrained(str(root), local_files_only=True))
        )
    except Exception as error:  # the tokenizers library raises nothing narrower
        raise WeightsError(f"{root}: makes no tokenizer ({error}); take another copy", code="E1409") from error
    known = int(source.configs[part]["vocab_size"])
    if len(tokenizer) > known:
        raise WeightsError(
            f"{root}: has {len(tokenizer)} tokens, the text encoder knows {known}; they are of different models",
            code="E1409",
        )
    return tokenizer


def of_part(weights: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Of tensors by `part/parameter`, those of one part, by the parameter's name."""
    return {name.removeprefix(f"{part}/"): t for name, t in weights.items() if name.startswith(f"{part}/")}


def _read_single(kin: Kin, settings: ModelSettings, seed: int) -> Source:
    """Opens a model in one file: its weights from there, configurations and tokenizer from a folder that fits."""
    single = open_single(
        settings.path,
        kin.layout,
        config=settings.config,
        averaged=settings.ema_weights == "use",
        prediction=settings.prediction,
    )
    source = _of_folder(kin, single.folder, settings.weights, seed)
    if single.layout.networks.keys() != {source.component(part) for part in source.parts}:
        raise WeightsError(
            f"{settings.path}: holds {', '.join(sorted(single.layout.networks))}, and the configurations in "
            f"{single.folder.root} are of another model; write model.config=FOLDER with its own",
            code="E1414",
        )
    return replace(source, single=single, scheduler=single.scheduler(source.scheduler))


def _of_folder(kin: Kin, opened: ModelFolder, weights: Literal["files", "random"], seed: int) -> Source:
    root = opened.root
    unet = opened.config("unet") if (root / "unet" / "config.json").is_file() else {}
    other = kinds.of_index(opened.index, unet, kin.name)
    if other is not None:
        better = kinds.other_family(opened.index, unet, kin.name)
        remedy = f"; write model.family={better}" if better is not None else ""
        raise WeightsError(f"{root}: looks like {other}; family {kin.name} trains {kin.trains}{remedy}", code="E1406")
    absent = kin.absent(opened)
    parts = [part for part in kin.components if part not in absent]
    tokenizers = [folder for part, folder in kin.tokenizers.items() if part not in absent]
    wanted = (*(kin.components[part] for part in parts), *tokenizers, "scheduler")
    lacking = [name for name in wanted if not opened.has(name)]
    if lacking:
        raise WeightsError(f"{root}: lacks {', '.join(n + '/' for n in lacking)}; fetch the whole model", code="E1409")
    configs = {part: opened.config(kin.components[part]) for part in parts}
    _require_match(kin, root, configs)
    return Source(kin, opened, configs, opened.config("scheduler", "scheduler_config.json"), weights, seed)


def _require_match(kin: Kin, root: Path, configs: Configs) -> None:
    """The networks must fit each other, by their configurations."""
    unet, vae = configs["denoiser"], configs["vae"]
    for what, one, two in (
        *kin.joints(configs),
        ("the denoiser takes latents of channels", unet.get("in_channels", 4), vae.get("latent_channels", 4)),
        ("the denoiser gives latents of channels", unet.get("out_channels", 4), vae.get("latent_channels", 4)),
    ):
        if one != two:
            raise WeightsError(
                f"{root}: {what} {one}, the other part says {two}; its components are of different models",
                code="E1409",
            )


def _parted_tokenizer(found: Mapping[str, Path]) -> Any:
    """A tokenizer whose vocabulary lies elsewhere than its settings, which the library cannot read by itself."""
    merges = outside.read_text(found["merges.txt"]).splitlines()[1:]
    told = read_json(found["tokenizer_config.json"])
    told.pop("tokenizer_class", None)
    return CLIPTokenizer(vocab=read_json(found["vocab.json"]), merges=[tuple(m.split()) for m in merges], **told)
