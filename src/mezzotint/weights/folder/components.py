"""The networks of diffusers' model folders: builds a network from a configuration and a weights file, and writes both.

Uses the classes of diffusers and transformers, but not their loaders, which download, guess and open pickles.
"""

from __future__ import annotations

import importlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from mezzotint.errors import WeightsError
from mezzotint.weights.files import tensor_files
from mezzotint.weights.files.tensor_files import Stored, TensorInfo
from mezzotint.weights.folder import plain_vae, state, t5
from mezzotint.weights.folder.model_folder import write_json
from mezzotint.weights.kinds import describe_tensors
from mezzotint.weights.low_bit import FLOAT32, WeightForm

Network = str
"""The kind of a component's network: one that this module builds, or a family's own. A dotted name is a library's
class."""
DTypeName = Literal["fp32", "fp16", "bf16"]
Value = TypeVar("Value")
Built = TypeVar("Built")

DTYPES: dict[DTypeName, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
"""Data types of weights by their names in recipes."""

_IGNORED_TEXT = ("architectures", "model_type", "torch_dtype", "dtype", "transformers_version")
_MOST, _MOST_LAYERS = 100_000_000, 1000
"""Upper bounds of a configuration's numbers, and of those that count layers; the largest in practice is a vocabulary
of 256,000."""
_OF_LAYERS = re.compile(r"layers|num_res_blocks|num_blocks")
PREFIXES = {"clip_text": "text_model.", "clip_vision": "vision_model."}
"""The level of tensor names that transformers 5 drops, and files have."""
_PROJECTION = "visual_projection.weight"
"""What files of CLIP's image encoder may have besides it."""
_LANGUAGE_MODEL = "model.language_model."
_HEAD = re.compile(r"^lm_head\.")
_NO_ENCODER = re.compile(r"(^|\.)(lm_head|visual|vision_tower|multi_modal_projector)\.")
_ENCODER = re.compile(r"^(model\.)?(language_model\.)?(model\.)?")
_CLIP = ("clip_text", "clip_text_projected", "clip_vision")
_T5 = ("t5_text", "umt5_text")
_SEEMS = dict.fromkeys(_CLIP, "a standalone text encoder") | {"vae": "a standalone autoencoder (VAE)"}
"""`kinds.describe_tensors` of the networks' files."""
_OLD_ATTENTION = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}


def load(
    network: Network,
    config: Mapping[str, Any],
    stored: Stored | Path,
    form: WeightForm = FLOAT32,
    *,
    where: Path,
    left_out: Sequence[str] = (),
) -> nn.Module:
    """A network with stored weights: in `form`, on the CPU, eval mode.

    stored: a file, or stored tensors under a file's names; `left_out` are not read. where: the configuration's file,
    for messages. Raises WeightsError E1409 for an invalid configuration, E1402, E1403 and E1405 for weights that cannot
    be read, are damaged, or do not fit.
    """
    stored = tensor_files.InFile(stored) if isinstance(stored, Path) else stored
    require_bounded(config, where, tensors=len(stored.header()))
    module = _checked_build(lambda: _build_on_meta(network, config), where)
    kind = describe_tensors(stored.header())
    guess = f"the file looks like {kind}" if kind != _SEEMS.get(network) else ""
    stored, rename = (stored_as(network, stored), str) if "." in network else (stored, _file_names(network))
    state.load_into(module, stored, form, rename=rename, ignorable=("position_ids", _PROJECTION, *left_out), kind=guess)
    if network in _CLIP:  # a buffer that is not part of the weights
        inner = getattr(module, "vision_model" if network == "clip_vision" else "text_model", module)
        positions = cast(nn.Embedding, inner.embeddings.position_embedding).num_embeddings  # type: ignore[union-attr]
        inner.embeddings.position_ids = torch.arange(positions).expand((1, -1))  # type: ignore[union-attr]
    assert form.is_deferred or not any(t.is_meta for t in (*module.parameters(), *module.buffers())), network
    return module


@dataclass(frozen=True, slots=True)
class StoredAs:
    """Stored tensors under the names of a library's network, without those that it does not use. names: the stored
    names, by the network's."""

    stored: Stored
    names: Mapping[str, str]

    @property
    def path(self) -> Path:
        """See Stored."""
        return self.stored.path

    def header(self) -> dict[str, TensorInfo]:
        """See Stored."""
        header = self.stored.header()
        return {name: header[stored] for name, stored in self.names.items()}

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        """See Stored."""
        tensors = self.stored.read([self.names[name] for name in names])
        return {name: tensors[self.names[name]] for name in names}

    def iterate(self, names: Collection[str], *, parts: bool = False) -> Iterator[tuple[str, Tensor]]:
        """See IterableStored."""
        ours = {self.names[name]: name for name in names}
        return (
            (ours[stored], tensor) for stored, tensor in tensor_files.iterate_stored(self.stored, ours, parts=parts)
        )


def stored_as(network: Network, stored: Stored) -> Stored:
    """Stored tensors under the network's own names. The files of a text encoder may contain the complete language or
    vision-language model that it comes from."""
    names = [name for name in stored.header() if not name.endswith("position_ids")]
    if network.startswith("transformers."):
        if _sees_images(_library_class(network)):
            return StoredAs(stored, {_with_vision(name): name for name in names if not _HEAD.search(name)})
        names = [name for name in names if not _NO_ENCODER.search(name)]
        return StoredAs(stored, {_ENCODER.sub("", name): name for name in names})
    rename = _file_names(network)
    return StoredAs(stored, {rename(name): name for name in names})


def shapes(network: Network, config: Mapping[str, Any], *, where: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a network's tensors, as its files name them. Allocates no memory for values. Raises
    WeightsError E1409."""
    require_bounded(config, where)
    text = json.dumps({k: v for k, v in config.items() if not k.startswith("_")}, sort_keys=True)
    return dict(_checked_build(lambda: _shapes(network, text), where))


@lru_cache(maxsize=16)
def _shapes(network: Network, config: str) -> Mapping[str, tuple[int, ...]]:
    module = _build_on_meta(network, json.loads(config))
    return {_file_name_of(network, name): tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def modern_names(network: Network, tensors: Mapping[str, Value]) -> dict[str, Value]:
    """A component's tensors under the names that `write` uses: current ones for attention, with the level `text_model`
    or `vision_model` in an encoder of CLIP, without buffers that are not weights."""
    rename = _file_names(network)
    return {
        _file_name_of(network, rename(name)): tensor
        for name, tensor in tensors.items()
        if not name.endswith("position_ids")
    }


def _file_name_of(network: Network, name: str) -> str:
    prefix = PREFIXES.get(network, "")
    return name if name.startswith(prefix) else prefix + name


def random_network(network: Network, config: Mapping[str, Any], seed: int, part: str, *, where: Path) -> nn.Module:
    """A network with random weights, a function of (configuration, seed, part): float32, on the CPU, eval mode.

    A VAE that fits `plain_vae` gets its weights instead, which preserve colours, so that samples show something.
    """
    require_bounded(config, where)
    module = _checked_build(lambda: state.build_random(partial(find_builder(network), config), seed, part), where)
    if network == "vae" and plain_vae.fits(config):
        plain_vae.arrange(module)
    return module


def write(
    network: Network, tensors: Mapping[str, Tensor], config: Mapping[str, Any], target: Path, dtype: DTypeName | None
) -> None:
    """Writes a component's folder: config.json and its weights in `dtype` (None: each keeps its own), under the names
    that other readers expect.

    transformers 5 drops a level of the names in CLIP's encoders; older readers need it, so it is added again.
    transformers also opens a model in the dtype of its configuration, or else of its file, while diffusers uses float32
    by default: the configuration of these encoders names float32, so both agree for any dtype of the file. The
    language model of a vision-language model is written under its names in that model, without the rest. The
    configuration contains no path of this machine.
    """
    start = ""
    if "text_config" in config:
        start = "model." if _sees_images(_library_class(network)) else _LANGUAGE_MODEL
    prefixed = {start + _file_name_of(network, name): tensor for name, tensor in tensors.items()}
    target.mkdir(parents=True, exist_ok=True)
    tensor_files.write(prefixed, target / file_name(network), dtype=None if dtype is None else DTYPES[dtype])
    write_config(network, config, target)


def write_config(network: Network, config: Mapping[str, Any], target: Path) -> None:
    """Writes config.json into a component's folder; see `write`."""
    values = {k: v for k, v in config.items() if k != "_name_or_path"}
    if network in _CLIP:
        values |= {key: "float32" for key in ("torch_dtype", "dtype") if key in values} or {"torch_dtype": "float32"}
    write_json(target / "config.json", values)


def file_name(network: Network) -> str:
    """The plain name of a network's weights file."""
    return "model.safetensors" if _is_of_transformers(network) else "diffusion_pytorch_model.safetensors"


def _is_of_transformers(network: Network) -> bool:
    return network in (*_CLIP, *_T5) or network.startswith("transformers.")


def _build_on_meta(network: Network, config: Mapping[str, Any]) -> nn.Module:
    """A network without memory for its parameters. Buffers that a library's class computes have values."""
    build = partial(find_builder(network), config)
    if "." not in network:
        return state.build_on_meta(build)
    with state.EmptyOnMeta():
        return build()


def find_builder(network: Network) -> Callable[[Mapping[str, Any]], nn.Module]:
    """Returns a function that builds a network from its configuration. This call imports the library's module, which
    may take seconds, outside any device or seed context of the build."""
    match network:
        case "unet":
            from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel

            return lambda config: cast(nn.Module, UNet2DConditionModel.from_config(_plain(config)))
        case "vae":
            from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

            return lambda config: cast(nn.Module, AutoencoderKL.from_config(_plain(config)))
        case "clip_text" | "clip_text_projected":
            from transformers.models.clip import configuration_clip, modeling_clip

            is_plain = network == "clip_text"
            kind = modeling_clip.CLIPTextModel if is_plain else modeling_clip.CLIPTextModelWithProjection
            return lambda config: cast(nn.Module, kind(configuration_clip.CLIPTextConfig(**_of_text(_plain(config)))))
        case "clip_vision":
            from transformers.models.clip import configuration_clip, modeling_clip

            vision = modeling_clip.CLIPVisionModel
            return lambda config: cast(
                nn.Module, vision(configuration_clip.CLIPVisionConfig(**_of_text(_plain(config))))
            )
        case "t5_text" | "umt5_text":
            return lambda config: t5.construct(config, Path("config.json"), network.removesuffix("_text"))
    assert "." in network, f"{network} is built by its family"
    library = _library_class(network)
    if network.startswith("diffusers."):
        return lambda config: cast(nn.Module, library.from_config(_plain(config)))

    def build(config: Mapping[str, Any]) -> nn.Module:
        plain = _plain(config)
        own = plain if _sees_images(library) else plain.get("text_config") or plain  # of a vision-language model
        return cast(nn.Module, library(library.config_class(**_of_text(own))))

    return build


def _library_class(network: Network) -> Any:
    module, _, name = network.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _sees_images(library: Any) -> bool:
    """Whether a class of transformers is a complete vision-language model: a vision tower and a language model."""
    config = library.config_class()
    return config.get_text_config() is not config


def _with_vision(name: str) -> str:
    """The name of a tensor in a vision-language model without a head; older files name its two parts differently."""
    plain = _ENCODER.sub("", name)
    return plain if plain.startswith("visual.") else f"language_model.{plain}"


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without private entries."""
    return {k: v for k, v in config.items() if not k.startswith("_")}


def _of_text(config: Mapping[str, Any]) -> dict[str, Any]:
    """A text encoder's configuration without entries that do not affect the network."""
    return {k: v for k, v in config.items() if k not in _IGNORED_TEXT}


def require_bounded(config: Mapping[str, Any], where: Path, *, tensors: int | None = None) -> None:
    """Checks a configuration before its network is built: absurd numbers would take hours or all memory. tensors: the
    number of tensors in the weights, of which each layer needs one. Raises WeightsError E1409."""
    for key, value in config.items():
        numbers = list(_numbers(value))
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            raise WeightsError(f"{where}: {key} is not a finite number ({value}); get another copy", code="E1409")
        most = _MOST_LAYERS if _OF_LAYERS.search(key) else _MOST
        if len(numbers) > _MOST_LAYERS or any(abs(number) > most for number in numbers):
            raise WeightsError(f"{where}: {key} is {str(value)[:60]}, the limit is {most:,}", code="E1409")
        if tensors is not None and most == _MOST_LAYERS and sum(number for number in numbers) > tensors:
            conflict = f"{key} is {str(value)[:60]}, but the weights have only {tensors:,} tensors"
            raise WeightsError(f"{where}: {conflict}; they are of different models", code="E1409")


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def number_of(config: Mapping[str, Any], key: str, usual: float, *, where: Path) -> float:
    """A number of a configuration; `usual` if it is missing. Raises WeightsError E1409 for anything else."""
    value = config.get(key)
    if value is None:
        return usual
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise WeightsError(f"{where}: {key} must be a number, got {value!r}; get another copy", code="E1409")
    return float(value)


def _checked_build(build: Callable[[], Built], where: Path) -> Built:
    try:
        return build()
    except (WeightsError, MemoryError):
        raise
    except Exception as error:  # diffusers and transformers raise many types
        is_of_torch = isinstance(error, RuntimeError) and not isinstance(error, (NotImplementedError, RecursionError))
        if is_of_torch and "negative dimension" not in str(error):
            raise  # possibly out of memory
        raise WeightsError(
            f"{where}: no network can be built from it ({error}); get another copy", code="E1409"
        ) from error


def _file_names(network: Network) -> state.Rename:
    """Returns a function from a file's tensor name to the network's."""
    if network in PREFIXES:
        return str if _has_prefix() else lambda name: name.removeprefix(PREFIXES[network])
    return _modern_attention if network == "vae" else str


@cache
def _has_prefix() -> bool:
    """Whether encoders of the installed transformers have the levels of `PREFIXES`: in its first 5.x releases."""
    small = {
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "vocab_size": 8,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 1,
    }
    names = state.build_on_meta(partial(find_builder("clip_text"), small)).state_dict()
    return any(name.startswith(PREFIXES["clip_text"]) for name in names)


def _modern_attention(name: str) -> str:
    """The current name of an attention projection that diffusers before 0.18 has saved under its old name."""
    head, dot, last = name.rpartition(".")
    stem, _, projection = head.rpartition(".")
    if dot and ".attentions." in f".{stem}." and projection in _OLD_ATTENTION:
        return f"{stem}.{_OLD_ATTENTION[projection]}.{last}"
    return name
