"""Files of adapters, read from diffusers' and kohya's layouts and written in either.

diffusers' layout is that of its `save_lora_weights`, with the settings of peft in the header; kohya's that of
sd-scripts' and LyCORIS' networks, whose alphas are tensors. What is read is held against the layers of the model at
hand, name by name and shape by shape: a file of another model is told apart before anything is changed.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import torch
from torch import Tensor

from mezzotint import outside
from mezzotint.adapters.modules import LEAVES, MAGNITUDE, AdapterModule, Kind
from mezzotint.adapters.names import LayerName, LayerNames
from mezzotint.errors import WeightsError
from mezzotint.weights.files import pickled, tensor_files

Layout = Literal["diffusers", "kohya"]
DIFFUSERS_NAME = "pytorch_lora_weights.safetensors"
"""What diffusers calls the file in a folder."""
SETTINGS_KEY = "lora_adapter_metadata"
"""Entry of the header under which diffusers keeps rank, alpha and kind."""

_DOTTED = re.compile(
    r"(?:base_model\.model\.)?(unet|transformer|text_encoder(?:_\d)?)\.(.+?)\."
    r"(?:(?:lora|lora_linear_layer)\.(down|up)\.weight|lora_([AB])(?:\.default)?\.weight|(lora_magnitude_vector)(?:\.weight)?)"
)
_FIRST_FORM = re.compile(r"(.+)\.processor\.(to_[qkv]|to_out)_lora\.(down|up)\.weight")
"""How diffusers wrote the attention of a denoiser before it had peft."""
_ATTENTION = re.compile(r"\.(to_[qkv]|to_out\.0|[qkv]_proj|out_proj)$")
_KIND_OF: dict[str, Kind] = {leaf: kind for kind, leaves in LEAVES.items() for leaf in leaves}
_OTHER_MODELS = {
    r"lora_te2_|text_encoder_2\.|input_blocks_[78]_1_|\.transformer_blocks\.[1-9]\.|_transformer_blocks_[1-9]_": "SDXL",
    r"lora_te_|_attentions_0_transformer_blocks_0_|\.attentions\.0\.transformer_blocks\.0\.": "Stable Diffusion 1 or 2",
    r"double_blocks|single_blocks|single_transformer_blocks": "FLUX",
    r"joint_blocks": "Stable Diffusion 3",
}
"""What a file seems to be of, by a pattern that some name in it has; the first that fits."""


@dataclass(frozen=True)
class Adapter:
    """What a file of an adapter holds.

    modules: by layer of the model. metadata: the texts of its header. layout: of the file. notes: what a user should
    know of it, in sentences.
    """

    modules: Mapping[LayerName, AdapterModule]
    metadata: Mapping[str, str] = field(default_factory=dict)
    layout: Layout = "diffusers"
    notes: tuple[str, ...] = ()

    @property
    def components(self) -> tuple[str, ...]:
        """The components that it changes, in the order of their names."""
        return tuple(sorted({layer.component for layer in self.modules}))

    @property
    def parameters(self) -> int:
        """How many numbers it holds."""
        return sum(module.parameters for module in self.modules.values())

    def of(self, component: str) -> dict[str, AdapterModule]:
        """The modules of one component, by path."""
        return {layer.path: module for layer, module in self.modules.items() if layer.component == component}


def is_adapter(names: Iterable[str]) -> bool:
    """Whether a file with these names of tensors is an adapter rather than a model."""
    return any(_reads_flat(name) or _reads_dotted(name) for name in names)


def file_at(path: Path) -> Path:
    """The file that a path means: itself; in a folder the one of diffusers' name, or the only one."""
    if not path.is_dir() or (path / DIFFUSERS_NAME).exists():
        return path / DIFFUSERS_NAME if path.is_dir() else path
    there = sorted(path.glob("*.safetensors"))
    return there[0] if len(there) == 1 else path / DIFFUSERS_NAME


def read(path: Path, names: LayerNames, store: Path | None = None) -> Adapter:
    """Reads an adapter for the model with these layers; a pickled one by way of a process that can do no harm. path:
    the file, or a folder with diffusers' name of one. store: for copies of pickles; None is the usual one.

    Raises WeightsError: E1401, E1402, E1403 as any file of tensors, E1411 for a pickle that is no plain weights; E1430
    when it holds no adapter; E1431 when it is of another model, E1432 naming a layer whose shape does not fit; E1433
    for a layer that lacks a tensor; E1434 for settings in its header that cannot be read.
    """
    file = file_at(path)
    source = pickled.readable(file, store)
    try:
        return _read(source, names)
    except WeightsError as error:
        if source == file:
            raise
        raise WeightsError(error.message.replace(str(source), str(file)), code=error.code) from error


def _read(file: Path, names: LayerNames) -> Adapter:
    header = tensor_files.read_header(file)
    if not is_adapter(header):
        raise WeightsError(
            f"{file}: holds no adapter; its {tensor_files.listed(header, 2)} are those of a model or of another "
            "kind of file. A model is given as `model.path`",
            code="E1430",
        )
    metadata = tensor_files.read_metadata(file)
    tensors = tensor_files.read(file)
    dotted = any(_reads_dotted(name) for name in header)
    grouped, unknown = _grouped(file, tensors, names)
    if unknown:
        _refuse_other(file, header, unknown, names)
    settings = _settings(file, metadata) if dotted else {}
    modules = {layer: _module(file, layer, leaves, settings) for layer, leaves in grouped.items()}
    for layer, module in modules.items():
        if not module.fits(names.weights[layer]):
            _refuse_shape(file, layer, module, names)
    return Adapter(
        modules, metadata, "diffusers" if dotted else "kohya", tuple(_notes(modules, metadata, tensors, dotted))
    )


def write(
    adapter: Adapter,
    path: Path,
    names: LayerNames,
    layout: Layout,
    *,
    metadata: Mapping[str, str] | None = None,
    dtype: torch.dtype | None = None,
    seal: Callable[[Path], None] | None = None,
) -> tuple[str, ...]:
    """Writes an adapter in a layout; returns sentences about what readers of it are known to drop or misread.

    names: layers of the model that it is for. metadata: further texts of the header. dtype: of the tensors; None keeps
    each one's. seal: see `tensor_files.write`. Raises WeightsError E1435 for what the layout has no place for, and as
    `tensor_files.write`.
    """
    if dtype is not None:  # alphas stay as exact as they are
        adapter = replace(adapter, modules={layer: module.to(dtype) for layer, module in adapter.modules.items()})
    if layout == "diffusers":
        tensors, words = _dotted_tensors(path, adapter), {SETTINGS_KEY: _settings_text(adapter)}
    else:
        tensors, words = flat_tensors(adapter, names), {}
    everything = {"format": "pt"} | dict(metadata or {}) | words
    tensor_files.write(tensors, path, everything, seal=seal)
    return tuple(_warnings(adapter, layout))


def flat_tensors(adapter: Adapter, names: LayerNames) -> dict[str, Tensor]:
    """The tensors of a file in kohya's layout, by name; each module has its alpha."""
    tensors: dict[str, Tensor] = {}
    for layer, module in adapter.modules.items():
        start = names.flat[layer]
        tensors |= {f"{start}.{leaf}": tensor for leaf, tensor in module.tensors.items()}
        tensors[f"{start}.alpha"] = torch.tensor(module.plain_alpha)
    return tensors


# --- reading ----------------------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """Where a tensor belongs. start: a flat name, or component and path."""

    start: str | tuple[str, str]
    leaf: str


def _reads_flat(name: str) -> _Place | None:
    start, _, leaf = name.partition(".")
    known = leaf in _KIND_OF or leaf in (MAGNITUDE, "alpha")
    return _Place(start, leaf) if known and start.startswith("lora_") else None


def _reads_dotted(name: str) -> _Place | None:
    first = _FIRST_FORM.fullmatch(name)
    if first is not None:
        projection = "to_out.0" if first[2] == "to_out" else first[2]
        name = f"{first[1]}.{projection}.lora.{first[3]}.weight"
    match = _DOTTED.fullmatch(name)
    if match is None:
        return None
    leaf = MAGNITUDE if match[5] else f"lora_{match[3] or {'A': 'down', 'B': 'up'}[match[4]]}.weight"
    return _Place((match[1], match[2]), leaf)


def _grouped(
    file: Path, tensors: Mapping[str, Tensor], names: LayerNames
) -> tuple[dict[LayerName, dict[str, Tensor]], list[str]]:
    """The tensors of each layer by leaf, and the names that are of no layer of the model. Raises WeightsError E1433."""
    grouped: dict[LayerName, dict[str, Tensor]] = defaultdict(dict)
    unknown = []
    for name, tensor in tensors.items():
        place = _reads_flat(name) or _reads_dotted(name)
        if place is None:
            unknown.append(name)
            continue
        layer = names.by_flat.get(place.start) if isinstance(place.start, str) else names.find(*place.start)
        if layer is None:
            unknown.append(name)
        elif place.leaf in grouped[layer]:
            raise WeightsError(
                f"{file}: {layer} has {place.leaf} under two names, of which one is {name}; take another copy",
                code="E1433",
            )
        else:
            grouped[layer][place.leaf] = tensor
    return dict(grouped), unknown


def _module(file: Path, layer: LayerName, leaves: dict[str, Tensor], settings: Mapping[str, Any]) -> AdapterModule:
    tensors = dict(leaves)
    alpha = tensors.pop("alpha", None)
    kinds = {_KIND_OF[leaf] for leaf in tensors if leaf in _KIND_OF}
    if len(kinds) != 1:
        raise WeightsError(f"{file}: {layer} has {sorted(leaves)}, which make no adapter", code="E1433")
    (kind,) = kinds
    lacking = _lacking(kind, tensors)
    if lacking:
        raise WeightsError(
            f"{file}: {layer} has {', '.join(sorted(tensors))} and lacks {lacking}; the file is not whole",
            code="E1433",
        )
    if not all(tensor.is_floating_point() for tensor in tensors.values()):
        raise WeightsError(
            f"{file}: {layer} has tensors of whole numbers, of which no adapter is made; take another copy",
            code="E1433",
        )
    if any(0 in tensor.shape for tensor in tensors.values()) or (alpha is not None and alpha.numel() != 1):
        raise WeightsError(
            f"{file}: {layer} has a tensor without numbers (rank 0), or an alpha that is not one number; "
            "take another copy",
            code="E1433",
        )
    if MAGNITUDE in tensors and tensors[MAGNITUDE].ndim == 1:
        tensors[MAGNITUDE] = tensors[MAGNITUDE][:, None]
    if kind == "lora" and MAGNITUDE in tensors and tensors[MAGNITUDE].ndim == 4 and tensors[MAGNITUDE].shape[0] == 1:
        rows = tensors["lora_up.weight"].shape[0]
        if tensors[MAGNITUDE].shape[1] == rows:  # peft keeps a convolution's as (1, out, 1, 1)
            tensors[MAGNITUDE] = tensors[MAGNITUDE].reshape(rows, 1, 1, 1)
    if alpha is not None:
        return AdapterModule(kind, tensors, float(alpha))
    own = {key.removeprefix(f"{layer.component}."): value for key, value in settings.items()}
    if not settings or "lora_alpha" not in own:
        return AdapterModule(kind, tensors)
    stated = _by_pattern(own.get("alpha_pattern"), layer.path, own["lora_alpha"])
    return AdapterModule(kind, tensors, stated, bool(own.get("use_rslora")))


_NEEDED: dict[Kind, tuple[tuple[str, ...], ...]] = {
    "lora": (("lora_down.weight",), ("lora_up.weight",)),
    "loha": (("hada_w1_a",), ("hada_w1_b",), ("hada_w2_a",), ("hada_w2_b",)),
    "lokr": (
        ("lokr_w1", "lokr_w1_a"), ("lokr_w1", "lokr_w1_b"), ("lokr_w2", "lokr_w2_a"), ("lokr_w2", "lokr_w2_b"),
    ),
}  # fmt: skip
"""Of each group a module of the kind has one."""


def _lacking(kind: Kind, tensors: Mapping[str, Tensor]) -> str:
    """What a module of a kind needs and has not; empty when it is whole."""
    return next((" or ".join(either) for either in _NEEDED[kind] if not tensors.keys() & set(either)), "")


def _settings(file: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """What diffusers wrote about the adapter, keys with their component in front; nothing where it wrote nothing."""
    text = metadata.get(SETTINGS_KEY)
    if text is None:
        return {}
    try:
        settings = outside.parse_json(text)
        numbers = [value for key, value in settings.items() if key.endswith("lora_alpha")]
        tables = [value for key, value in settings.items() if key.endswith("_pattern") and value is not None]
        numbers += [value for table in tables for value in table.values()]
        if not all(type(value) in (int, float) and math.isfinite(value) for value in numbers):
            raise ValueError("a strength that is no number")
    except (ValueError, AttributeError, TypeError) as error:
        raise WeightsError(
            f"{file}: the settings in its header ({SETTINGS_KEY}) cannot be read ({error}), so that the strength of "
            "the adapter is not known; write it anew, or take the entry out to have it read with alpha = rank",
            code="E1434",
        ) from error
    return dict(settings)


def _by_pattern(patterns: Mapping[str, float] | None, path: str, otherwise: float) -> float:
    """The value of the pattern that a path ends in. Patterns are taken as plain names, which is what files have."""
    for pattern, value in (patterns or {}).items():
        plain = pattern.removeprefix("^").removesuffix("$").replace("\\.", ".")
        if path == plain or path.endswith(f".{plain}"):
            return value
    return otherwise


def _notes(
    modules: Mapping[LayerName, AdapterModule], metadata: Mapping[str, str], tensors: Mapping[str, Tensor], dotted: bool
) -> Iterable[str]:
    without = sum(m.alpha is None and not {"lokr_w1", "lokr_w2"} <= m.tensors.keys() for m in modules.values())
    if without and not dotted:
        yield f"{without} of {len(modules)} layers have no alpha; they are read with alpha = rank, as every reader does"
    if dotted and SETTINGS_KEY not in metadata:
        yield (
            "the file does not say its alpha; it is read with alpha = rank, as diffusers reads it. If it was trained "
            "with another alpha, its strength is alpha / rank"
        )
    if any(MAGNITUDE in m.tensors and m.tensors[MAGNITUDE].shape[0] == 1 < m.tensors[MAGNITUDE].numel()
           for m in modules.values()):  # fmt: skip
        yield "its DoRA has a length for each column (older LyCORIS) instead of each row; it is computed so"


def _refuse_other(file: Path, header: Iterable[str], unknown: Sequence[str], names: LayerNames) -> NoReturn:
    """Says what the file seems to be of."""
    everything = "\n".join(header)
    seems = next((name for pattern, name in _OTHER_MODELS.items() if re.search(pattern, everything)), "")
    raise WeightsError(
        f"{file}: {len(unknown)} of its tensors belong to no layer of this model ({', '.join(unknown[:2])}, …)"
        + (f"; it looks like an adapter of {seems}, and the model is {_described(names)}" if seems else "")
        + ". Give the model that it was made for",
        code="E1431",
    )


def _refuse_shape(file: Path, layer: LayerName, module: AdapterModule, names: LayerNames) -> NoReturn:
    shapes = ", ".join(f"{leaf} {tuple(tensor.shape)}" for leaf, tensor in sorted(module.tensors.items()))
    raise WeightsError(
        f"{file}: {layer} does not fit: {shapes}, and the layer's weight is {names.weights[layer]}. The adapter is of "
        f"another model than {_described(names)}, or the file is spoilt",
        code="E1432",
    )


def _described(names: LayerNames) -> str:
    if names.is_sdxl:
        return "SDXL"
    width = names.weights.get(LayerName("unet", "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k"), (0, 0))[
        1
    ]
    return {768: "Stable Diffusion 1", 1024: "Stable Diffusion 2"}.get(width, "one with other layers")


# --- writing ----------------------------------------------------------------------------------------------------------


def _dotted_tensors(path: Path, adapter: Adapter) -> dict[str, Tensor]:
    """Names as `save_lora_weights` of diffusers writes them; where a denoiser has other layers than attention's, peft's
    for all of it: diffusers goes by the first name alone, and drops those of another spelling."""
    tensors: dict[str, Tensor] = {}
    plain = all(e.component.startswith("text_encoder") or _ATTENTION.search(f".{e.path}") for e in adapter.modules)
    for layer, module in adapter.modules.items():
        reason = _unwritable(module)
        if reason:
            raise WeightsError(
                f"{path}: diffusers' layout has no place for {reason} ({layer}); write kohya's layout", code="E1435"
            )
        denoiser = not layer.component.startswith("text_encoder")
        is_old = _ATTENTION.search(f".{layer.path}") and (plain or not denoiser)
        inner = ("lora" if denoiser else "lora_linear_layer") if is_old else ""
        down, up = (f"{inner}.down", f"{inner}.up") if inner else ("lora_A", "lora_B")
        tensors[f"{layer}.{down}.weight"] = module.tensors["lora_down.weight"]
        tensors[f"{layer}.{up}.weight"] = module.tensors["lora_up.weight"]
        if module.is_dora:
            lengths = module.tensors[MAGNITUDE]
            tensors[f"{layer}.lora_magnitude_vector"] = (
                lengths.reshape(1, -1, 1, 1) if lengths.ndim == 4 else lengths.reshape(-1)
            )
    return tensors


def _unwritable(module: AdapterModule) -> str:
    """What of a module diffusers has no names for; empty when it has."""
    if module.kind != "lora":
        return {"loha": "LoHa", "lokr": "LoKr"}[module.kind]
    if "lora_mid.weight" in module.tensors:
        return "a convolution in three factors"
    if module.is_dora and module.tensors[MAGNITUDE].shape[0] == 1 < module.tensors["lora_up.weight"].shape[0]:
        return "a DoRA with lengths of columns"
    return ""


def _settings_text(adapter: Adapter) -> str:
    """Rank, alpha and kind of each component as peft's settings, for diffusers to read back.

    Layers are named by the ends of their paths: encoders of newer transformers lack the level `text_model`.
    """
    settings: dict[str, object] = {}
    for component in adapter.components:
        modules = {_ending(path): module for path, module in adapter.of(component).items()}
        stabilized = all(module.rank_stabilized for module in modules.values())
        alphas = {
            p: float(m.rank if m.alpha is None else m.alpha if stabilized else m.plain_alpha)
            for p, m in modules.items()
        }
        rank = Counter(module.rank for module in modules.values()).most_common(1)[0][0]
        alpha = Counter(alphas.values()).most_common(1)[0][0]
        words = {
            "peft_type": "LORA",
            "r": rank,
            "lora_alpha": _whole(alpha),
            "rank_pattern": {p: m.rank for p, m in modules.items() if m.rank != rank},
            "alpha_pattern": {p: _whole(value) for p, value in alphas.items() if value != alpha},
            "target_modules": sorted(modules),
            "use_rslora": stabilized,
            "use_dora": any(module.is_dora for module in modules.values()),
            "lora_dropout": 0.0,
            "bias": "none",
            "init_lora_weights": True,
        }
        settings |= {f"{component}.{key}": value for key, value in words.items()}
    return json.dumps(settings, indent=2, sort_keys=True)


def _whole(number: float) -> float | int:
    return int(number) if number == int(number) else number


def _ending(path: str) -> str:
    return path.removeprefix("text_model.").removeprefix("encoder.")


def _warnings(adapter: Adapter, layout: Layout) -> Iterable[str]:
    modules = adapter.modules.values()
    if layout == "kohya" and any(module.is_dora for module in modules):
        yield "diffusers drops the lengths of a DoRA in kohya's layout; for diffusers write its own layout"
    alphas = {module.plain_alpha for module in modules}
    if layout == "kohya" and len(alphas) > 1 and all(module.kind == "lora" for module in modules):
        yield "diffusers takes the commonest alpha of kohya's layout for all attention layers; give it its own layout"
    if layout == "kohya" and any(module.kind != "lora" for module in modules):
        yield "diffusers does not read LoHa and LoKr; ComfyUI, A1111 and Forge do"
    if layout == "diffusers":
        yield "ComfyUI and A1111 do not read diffusers' names of a denoiser; for them write kohya's layout"
