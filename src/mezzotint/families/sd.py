"""Stable Diffusion 1.x and 2.x, epsilon and v, from model folders in diffusers' layout and single files, to folders.

The networks are diffusers' UNet2DConditionModel and AutoencoderKL and transformers' CLIPTextModel; their files are read
by `weights`, by header first, so that nothing is fetched and nothing runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import torch
from torch import Tensor, nn
from transformers.models.clip.tokenization_clip import CLIPTokenizer

from mezzotint import probes
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import WeightsError
from mezzotint.families.base import Grid, ModelFamily, Prediction
from mezzotint.recipe.model import ModelSettings
from mezzotint.stages import Batch, Condition, Noised, TextEmbedding
from mezzotint.weights import components, fingerprint, kinds, plain_vae, scheduler_file
from mezzotint.weights.export import Replaced, write_model
from mezzotint.weights.folder import FoundWeights, ModelFolder, open_folder, read_json, shipped, tokenizer_files
from mezzotint.weights.layouts import sd
from mezzotint.weights.remains import drop_average, remains_of
from mezzotint.weights.single_file import SingleFile, open_single

_COMPONENTS = {"denoiser": "unet", "text_encoder": "text_encoder", "vae": "vae"}
_NETWORKS: dict[str, components.Network] = {"denoiser": "unet", "text_encoder": "clip_text", "vae": "vae"}
_TOKENIZER_FILES = (
    "vocab.json",
    "merges.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
_TINY: dict[str, dict[str, Any]] = {
    "denoiser": {"block_out_channels": [16, 16, 32, 32], "cross_attention_dim": 32, "sample_size": 8},
    "text_encoder": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "projection_dim": 32},
    "vae": {"block_out_channels": [16, 16, 16, 16], "sample_size": 64},
}


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a model comes from: its folder, the configurations of its parts, and how weights come about. single: the
    file that holds all weights, when there is one; the folder then has the configurations alone."""

    folder: ModelFolder
    configs: Mapping[str, dict[str, Any]]
    scheduler: dict[str, Any]
    weights: Literal["files", "random"]
    seed: int
    single: SingleFile | None = None

    def where(self, part: str) -> Path:
        return self.folder.root / _COMPONENTS[part] / "config.json"

    def found(self, part: str) -> FoundWeights:
        found = self.folder.weights(_COMPONENTS[part])
        if found is None:
            raise WeightsError(
                f"{self.where(part).parent}: has a configuration and no weights; give the path of a complete model, "
                "or write model.weights=random to train from nothing",
                code="E1407",
            )
        return found

    def network(self, part: str) -> nn.Module:
        if self.weights == "random":
            return components.draw(_NETWORKS[part], self.configs[part], self.seed, part, where=self.where(part))
        stored = self.single.component(_COMPONENTS[part]) if self.single is not None else self.found(part).path
        return components.load(_NETWORKS[part], self.configs[part], stored, where=self.where(part))

    def tensors(self, part: str) -> dict[str, Tensor]:
        """A part's tensors in the types of the single file, under the names of the network."""
        assert self.single is not None
        return self.single.component(_COMPONENTS[part]).everything()

    def fingerprint(self, part: str) -> str:
        told = {k: v for k, v in self.configs[part].items() if not k.startswith("_") and k != "transformers_version"}
        if self.weights == "random":
            drawn = {"weights": "random", "seed": self.seed, "part": part, "torch": torch.__version__.split("+")[0]}
            return fingerprint.of_values({"config": told, **drawn})
        if self.single is not None:
            weights = self.single.component(_COMPONENTS[part]).digest()
        else:
            weights = fingerprint.of_file(self.found(part).path)
        return fingerprint.of_values({"config": told, "weights": weights})


class Family(ModelFamily):
    """Stable Diffusion 1.x or 2.x. `notes`: what was met in the files that the reader should know, in words."""

    trainable: ClassVar[tuple[str, ...]] = ("denoiser", "text_encoder")

    def __init__(
        self, source: _Source, parts: Mapping[str, nn.Module], *, prediction: Prediction, clip_skip: int
    ) -> None:
        vae = source.configs["vae"]
        self.schedule = Schedule.from_config(source.scheduler)
        self.prediction = prediction
        self.grid = Grid(channels=int(vae.get("latent_channels", 4)), pixels=2 ** (len(vae["block_out_channels"]) - 1))
        self.notes = tuple(_notes(source, parts))
        self._source = source
        self._parts = dict(parts)
        self._clip_skip = clip_skip
        self._scale, self._shift = _scaling(vae)

    @classmethod
    def load(cls, settings: ModelSettings, only: Collection[str] | None = None, *, seed: int = 0) -> Self:
        """See ModelFamily. Half-precision files are widened. Raises WeightsError E1401 to E1409."""
        source = _source(settings, seed)
        assert only is None or set(only) <= _COMPONENTS.keys(), only
        parts = {part: source.network(part) for part in _COMPONENTS if only is None or part in only}
        return cls(source, parts, prediction=_prediction(source, settings), clip_skip=settings.clip_skip)

    @classmethod
    def tiny(cls, seed: int = 0) -> Self:
        """The shipped tiny-sd, narrowed to under a million parameters, with random weights."""
        source = _read(shipped("tiny-sd"), "random", seed)
        configs = {part: source.configs[part] | _TINY[part] for part in _COMPONENTS}
        narrow = _Source(source.folder, configs, source.scheduler, "random", seed)
        parts = {part: narrow.network(part) for part in _COMPONENTS}
        return cls(narrow, parts, prediction="epsilon", clip_skip=0)

    def parts(self) -> Mapping[str, nn.Module]:
        """See ModelFamily: of "denoiser", "text_encoder" and "vae", those that were loaded."""
        return self._parts

    @classmethod
    def fingerprint(cls, settings: ModelSettings, part: str, *, seed: int = 0) -> str:
        """See ModelFamily. Of random weights: of the configuration, the seed and torch's version. Also of "schedule",
        what the scheduler's file means to training, and of "tokenizer"."""
        source = _source(settings, seed)
        if part == "schedule":
            table = Schedule.from_config(source.scheduler).alpha_bar.numpy().tobytes()
            return fingerprint.of_values({"alpha_bar": table.hex(), "prediction": _prediction(source, settings)})
        return _tokenizer_fingerprint(source) if part == "tokenizer" else source.fingerprint(part)

    @classmethod
    def text_identity(cls, settings: ModelSettings, *, seed: int = 0) -> str:
        """See ModelFamily."""
        source = _source(settings, seed)
        encoder, tokenizer = source.fingerprint("text_encoder"), _tokenizer_fingerprint(source)
        return (
            f"sd-text-1 encoder={encoder} tokenizer={tokenizer} clip_skip={settings.clip_skip} tokens={_length(source)}"
        )

    @classmethod
    def media_identity(cls, settings: ModelSettings, *, seed: int = 0) -> str:
        """See ModelFamily."""
        source = _source(settings, seed)
        scale, shift = _scaling(source.configs["vae"])
        return f"sd-media-1 vae={source.fingerprint('vae')} scale={scale!r} shift={shift!r} tiling=off"

    @torch.no_grad()
    def encode_media(self, pixels: Tensor) -> Tensor:
        """See ModelFamily. Runs in the type and on the device of the VAE's parameters."""
        vae = self._part("vae")
        if not len(pixels):
            height, width = (side // self.grid.pixels for side in pixels.shape[-2:])
            return pixels.new_empty((0, 2 * self.grid.channels, height, width), dtype=torch.float32)
        posterior = vae.encode(_like_parameters(pixels, vae)).latent_dist
        mean, std = posterior.mean.float(), posterior.std.float()
        return torch.cat(((mean - self._shift) * self._scale, std * self._scale), dim=1)

    @torch.no_grad()
    def decode_media(self, latents: Tensor) -> Tensor:
        """See ModelFamily. Runs in the type and on the device of the VAE's parameters."""
        vae = self._part("vae")
        raw = latents.float() / self._scale + self._shift
        return cast(Tensor, vae.decode(_like_parameters(raw, vae)).sample).float().clamp(-1.0, 1.0)

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: (B, 77, D), without a mask, as these models are trained. Captions that are too long lose
        their end; `lost_tokens` says how much."""
        encoder = self._part("text_encoder")
        if not captions:
            width = int(self._source.configs["text_encoder"]["hidden_size"])
            return TextEmbedding(next(encoder.parameters()).new_empty((0, _length(self._source), width)))
        ids = self._tokens(captions).to(next(encoder.parameters()).device)
        if self._clip_skip == 0:
            return TextEmbedding(encoder(ids).last_hidden_state)
        states = encoder(ids, output_hidden_states=True).hidden_states[-(self._clip_skip + 1)]
        inner = getattr(encoder, "text_model", encoder)  # the level that transformers 5 dropped
        return TextEmbedding(inner.final_layer_norm(states))

    def skip_layers(self, count: int) -> None:
        """See ModelFamily."""
        _require_layers(self._source, count)
        self._clip_skip = count

    def condition(self, text: TextEmbedding, batch: Batch | None) -> Condition:
        """See ModelFamily: these models are told the text and nothing else."""
        return Condition(text)

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily."""
        unet = self._part("denoiser")
        states = _like_parameters(condition.text.states, unet)
        model_input = _like_parameters(noised.model_input, unet)
        return cast(Tensor, unet(model_input, noised.model_t, encoder_hidden_states=states, return_dict=False)[0])

    def blocks(self) -> Iterator[tuple[nn.Module, ...]]:
        """See ModelFamily: of the denoiser, each residual block with the attention beside it, as they are run."""
        unet = self._part("denoiser")
        for block in unet.down_blocks:
            yield from _pairs(block)
        first, *others = unet.mid_block.resnets
        yield (first,)
        yield from zip(getattr(unet.mid_block, "attentions", ()), others, strict=True)
        for block in unet.up_blocks:
            yield from _pairs(block)

    def lost_tokens(self, captions: Sequence[str]) -> tuple[int, ...]:
        """How many tokens of each caption do not fit and are cut off; 0 where all fit."""
        room = _length(self._source)
        ids = self._tokenizer(list(captions), verbose=False).input_ids if captions else []
        return tuple(max(0, len(i) - room) for i in ids)

    def export(
        self,
        folder: Path,
        *,
        settings: ModelSettings,
        weights: Mapping[str, Tensor],
        dtype: Literal["fp32", "fp16", "bf16"],
        schedule: Schedule,
        prediction: Prediction,
    ) -> None:
        """See ModelFamily. Opens with StableDiffusionPipeline.from_pretrained(folder, local_files_only=True).

        Raises WeightsError E1410 when the folder is there, E1403 when a weight is not finite, StorageError E1701.
        """
        probes.reach("export.begin")
        config = scheduler_file.corrected(
            self._source.scheduler, prediction=prediction, zero_terminal=schedule.zero_terminal
        )
        changed = [part for part in _COMPONENTS if self._source.weights == "random" or _of_part(weights, part)]
        replaced = {_COMPONENTS[part]: self._replaced(part, _of_part(weights, part)) for part in changed}
        single = self._source.single if self._source.weights == "files" else None
        if single is not None:
            for part in _COMPONENTS.keys() - set(changed):
                told = self._source.configs[part]
                replaced[_COMPONENTS[part]] = Replaced(_NETWORKS[part], self._source.tensors(part), told, True)
        besides = remains_of(single).write if single is not None else drop_average
        write_model(folder, self._source.folder, replaced, scheduler=config, dtype=dtype, besides=besides)
        probes.reach("export.renamed")

    @cached_property
    def _tokenizer(self) -> Any:
        return _tokenizer(self._source)

    def _tokens(self, captions: Sequence[str]) -> Tensor:
        length = _length(self._source)
        told = self._tokenizer(
            list(captions), padding="max_length", max_length=length, truncation=True, return_tensors="pt"
        )
        return cast(Tensor, told.input_ids)

    def _replaced(self, part: str, trained: Mapping[str, Tensor]) -> Replaced:
        module = self._parts.get(part) or self._source.network(part)
        base = module.state_dict()
        if any(t.is_floating_point() and t.dtype != torch.float32 for t in base.values()):
            base = self._source.network(part).state_dict()  # what is not trained keeps every bit of the file
        assert trained.keys() <= base.keys(), sorted(trained.keys() - base.keys())
        return Replaced(_NETWORKS[part], {**base, **trained}, self._source.configs[part])

    def _part(self, name: str) -> Any:
        assert name in self._parts, f"{name} was not loaded"
        return self._parts[name]


def _source(settings: ModelSettings, seed: int) -> _Source:
    source = _read_single(settings, seed) if settings.path.is_file() else _read(settings.path, settings.weights, seed)
    _require_layers(source, settings.clip_skip)
    return source


def _require_layers(source: _Source, clip_skip: int) -> None:
    layers = int(source.configs["text_encoder"].get("num_hidden_layers", 12))
    if clip_skip >= layers:
        raise WeightsError(
            f"model.clip_skip: {clip_skip} leaves nothing of a text encoder of {layers} layers; "
            f"write at most {layers - 1}",
            code="E1409",
        )


def _read(root: Path, weights: Literal["files", "random"], seed: int) -> _Source:
    """Opens a folder and checks, from its small files, that it is a model of this family."""
    guess = kinds.of_path(root) if root.exists() else None
    if guess is not None:
        raise WeightsError(
            f"{root}: looks like {guess}; family sd needs a complete Stable Diffusion 1.x or 2.x folder in "
            "diffusers' layout",
            code="E1406",
        )
    return _of_folder(open_folder(root), weights, seed)


def _read_single(settings: ModelSettings, seed: int) -> _Source:
    """Opens a model in one file: its weights from there, configurations and tokenizer from a folder that fits."""
    single = open_single(
        settings.path,
        sd.LAYOUT,
        config=settings.config,
        averaged=settings.ema_weights == "use",
        prediction=settings.prediction,
    )
    source = _of_folder(single.folder, settings.weights, seed)
    scheduler = single.scheduler(source.scheduler)
    return replace(source, single=single, scheduler=scheduler)


def _of_folder(opened: ModelFolder, weights: Literal["files", "random"], seed: int) -> _Source:
    root = opened.root
    unet = opened.config("unet") if (root / "unet" / "config.json").is_file() else {}
    other = kinds.of_index(opened.index, unet)
    if other is not None:
        raise WeightsError(
            f"{root}: looks like {other}; family sd trains Stable Diffusion 1.x and 2.x, text to image", code="E1406"
        )
    lacking = [name for name in (*_COMPONENTS.values(), "tokenizer", "scheduler") if not opened.has(name)]
    if lacking:
        raise WeightsError(f"{root}: lacks {', '.join(n + '/' for n in lacking)}; fetch the whole model", code="E1409")
    configs = {part: opened.config(component) for part, component in _COMPONENTS.items()}
    _require_match(root, configs)
    return _Source(opened, configs, opened.config("scheduler", "scheduler_config.json"), weights, seed)


def _require_match(root: Path, configs: Mapping[str, Mapping[str, Any]]) -> None:
    """The three networks must fit each other, by their configurations."""
    unet, text, vae = configs["denoiser"], configs["text_encoder"], configs["vae"]
    for what, one, two in (
        ("the denoiser takes text of width", unet.get("cross_attention_dim"), text.get("hidden_size")),
        ("the denoiser takes latents of channels", unet.get("in_channels", 4), vae.get("latent_channels", 4)),
        ("the denoiser gives latents of channels", unet.get("out_channels", 4), vae.get("latent_channels", 4)),
    ):
        if one != two:
            raise WeightsError(
                f"{root}: {what} {one}, the other part says {two}; its components are of different models",
                code="E1409",
            )


def _prediction(source: _Source, settings: ModelSettings) -> Prediction:
    """What the recipe says, else what the scheduler's file says."""
    if settings.prediction is not None:
        return settings.prediction
    match source.scheduler.get("prediction_type", "epsilon"):
        case "epsilon":
            return "epsilon"
        case "v_prediction":
            return "v"
        case other:
            raise WeightsError(
                f"{source.folder.root / 'scheduler' / 'scheduler_config.json'}: prediction_type is {other!r}; "
                "family sd knows epsilon and v_prediction, write model.prediction to choose",
                code="E1409",
            )


def _notes(source: _Source, parts: Collection[str]) -> Iterator[str]:
    if source.weights == "random":
        if "vae" in parts and plain_vae.fits(source.configs["vae"]):
            yield "vae: not random but set by hand to carry colours; details finer than a latent's pixels are lost"
        return
    if source.single is not None:
        yield from source.single.notes()
        return
    for part in parts:
        variant = source.found(part).variant
        if variant:
            yield f"{_COMPONENTS[part]}: only weights of the variant {variant} are there; they were read as float32"


def _tokenizer_fingerprint(source: _Source) -> str:
    found = tokenizer_files(source.folder.root / "tokenizer")
    return fingerprint.of_files([found[name] for name in _TOKENIZER_FILES if name in found])


def _tokenizer(source: _Source) -> Any:
    """The folder's tokenizer. Its files are looked at first: the library makes an empty vocabulary where they lack."""
    root = source.folder.root / "tokenizer"
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
    known = int(source.configs["text_encoder"]["vocab_size"])
    if len(tokenizer) > known:
        raise WeightsError(
            f"{root}: has {len(tokenizer)} tokens, the text encoder knows {known}; they are of different models",
            code="E1409",
        )
    return tokenizer


def _parted_tokenizer(found: Mapping[str, Path]) -> Any:
    """A tokenizer whose vocabulary lies elsewhere than its settings, which the library cannot read by itself."""
    merges = found["merges.txt"].read_text(encoding="utf-8").splitlines()[1:]
    told = read_json(found["tokenizer_config.json"])
    told.pop("tokenizer_class", None)
    return CLIPTokenizer(vocab=read_json(found["vocab.json"]), merges=[tuple(m.split()) for m in merges], **told)


def _pairs(block: Any) -> Iterator[tuple[nn.Module, ...]]:
    """A block's residual blocks, each with the attention that follows it, where there is any."""
    attentions = getattr(block, "attentions", None)
    yield from zip(block.resnets, attentions, strict=True) if attentions else ((resnet,) for resnet in block.resnets)


def _scaling(vae: Mapping[str, Any]) -> tuple[float, float]:
    """Factor and shift between the VAE's latents and the model's; 0.18215 where an old file does not say."""
    return float(vae.get("scaling_factor") or 0.18215), float(vae.get("shift_factor") or 0.0)


def _length(source: _Source) -> int:
    """Tokens of a caption, start and end included."""
    return int(source.configs["text_encoder"].get("max_position_embeddings", 77))


def _of_part(weights: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{part}/"): t for name, t in weights.items() if name.startswith(f"{part}/")}


def _like_parameters(tensor: Tensor, module: nn.Module) -> Tensor:
    """The tensor on the device and in the type of a network's parameters."""
    like = next(module.parameters())
    return tensor.to(like.device, like.dtype)
