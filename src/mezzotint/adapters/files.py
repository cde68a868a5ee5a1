"""Reading adapter files in diffusers', kohya's and ComfyUI's layouts, with every prefix that programs write.

Names and shapes are checked against the layers of the model: a file for another model is rejected before anything is
changed.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

from torch import Tensor

from mezzotint import outside
from mezzotint.adapters import fused
from mezzotint.adapters.modules import LEAVES, MAGNITUDE, AdapterModule, Kind
from mezzotint.adapters.names import LayerName, LayerNames, OriginalLayer
from mezzotint.errors import WeightsError
from mezzotint.weights.files import pickled, tensor_files

Layout = Literal["diffusers", "kohya", "comfy"]
DIFFUSERS_NAME = "pytorch_lora_weights.safetensors"
"""diffusers' name for the file in a folder."""
SETTINGS_KEY = "lora_adapter_metadata"
"""Header entry in which diffusers stores rank, alpha and kind."""
ALPHA_KEY = "mezzotint.alpha"
"""Header entry with the alphas that were multiplied into a diffusers file, as JSON by component and layer."""
UNDER_KEY = "mezzotint.under"
"""Header entry with the adapters under the run (`model.under`), as a JSON list of name, SHA-256 and strength."""
DENOISER_KEY = "mezzotint.denoiser"
"""Header entry with the component of the denoiser's names, for models with two denoisers."""
HIGH_NOISE, LOW_NOISE = "_high_noise", "_low_noise"
"""Suffixes of the two file names for a model with two denoisers."""

_KIND_OF: dict[str, Kind] = {leaf: kind for kind, leaves in LEAVES.items() for leaf in leaves}
_LEAVES: dict[str, str] = {
    **{leaf: leaf for leaf in (*_KIND_OF, MAGNITUDE, "alpha")},
    **{f"{name}.{ours}.weight": f"lora_{ours}.weight"
       for name in ("lora", "lora_linear_layer") for ours in ("down", "up")},
    **{f"lora_{letter}{adapter}.weight": f"lora_{ours}.weight"
       for letter, ours in (("A", "down"), ("B", "up")) for adapter in ("", ".default")},
    "oft_R.default.weight": "oft_R.weight",
    **{f"lora_magnitude_vector{ending}": MAGNITUDE for ending in ("", ".weight", ".default", ".default.weight")},
}  # fmt: skip
"""Our name of a tensor by the suffix of its name in a file."""
_NAME = re.compile(rf"(?P<stem>.+?)\.(?P<leaf>{'|'.join(re.escape(leaf) for leaf in _LEAVES)})")
_ATTENTION_PROCESSOR = re.compile(r"(.+)\.processor\.(to_[qkv]|to_out)_lora\.(down|up)\.weight")
"""diffusers' names of attention layers before it used peft."""
_OTHER_MODELS = {
    r"lora_te2_|text_encoder_2\.|input_blocks_[78]_1_|\.transformer_blocks\.[1-9]\.|_transformer_blocks_[1-9]_": "SDXL",
    r"lora_te_|_attentions_0_transformer_blocks_0_|\.attentions\.0\.transformer_blocks\.0\.": "Stable Diffusion 1 or 2",
    r"double_blocks|single_blocks|single_transformer_blocks": "FLUX",
    r"joint_blocks": "Stable Diffusion 3",
    r"blocks[._]\d+[._](self|cross)_attn": "Wan",
}
"""The likely model of a file, by a pattern of its tensor names; the first match counts."""


@dataclass(frozen=True)
class Adapter:
    """The contents of an adapter file.

    modules: by layer of the model. metadata: the entries of its header. layout: of the file. notes: sentences for the
    user.
    """

    modules: Mapping[LayerName, AdapterModule]
    metadata: Mapping[str, str] = field(default_factory=dict)
    layout: Layout = "diffusers"
    notes: tuple[str, ...] = ()

    @property
    def components(self) -> tuple[str, ...]:
        """The components that it changes, sorted by name."""
        return tuple(sorted({layer.component for layer in self.modules}))

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(module.parameters for module in self.modules.values())

    def of(self, component: str) -> dict[str, AdapterModule]:
        """The modules of one component, by path."""
        return {layer.path: module for layer, module in self.modules.items() if layer.component == component}


def is_adapter(names: Iterable[str]) -> bool:
    """Whether a file with these tensor names is an adapter, not a model."""
    return any(leaf in _KIND_OF or (leaf and stem.startswith("lora_")) for stem, leaf in map(split_name, names))


def split_name(name: str) -> tuple[str, str]:
    """The layer's name in the file and our name of the tensor, which is empty if the tensor belongs to no adapter."""
    first = _ATTENTION_PROCESSOR.fullmatch(name)
    if first is not None:
        projection = "to_out.0" if first[2] == "to_out" else first[2]
        return f"{first[1]}.{projection}", f"lora_{first[3]}.weight"
    match = _NAME.fullmatch(name)
    return (match["stem"], _LEAVES[match["leaf"]]) if match else (name, "")


def files_at(path: Path) -> tuple[Path, ...]:
    """The adapter files at a path: the file itself; in a folder the one with diffusers' name, or the only one, or the
    two of a model with two denoisers."""
    if not path.is_dir():
        return (path,)
    files = {file.stem: file for file in sorted(path.glob("*.safetensors"))}
    usual = Path(DIFFUSERS_NAME).stem
    stems = {stem.removesuffix(HIGH_NOISE).removesuffix(LOW_NOISE) for stem in files}
    stem = usual if usual in stems or len(stems) != 1 else stems.pop()
    if stem in files:
        return (files[stem],)
    pair = tuple(files[stem + ending] for ending in (HIGH_NOISE, LOW_NOISE) if stem + ending in files)
    return pair or (path / DIFFUSERS_NAME,)


def read(path: Path, names: LayerNames, store: Path | None = None, *, denoiser: str | None = None) -> Adapter:
    """Reads an adapter for the model with these layers; pickles are read in a sandboxed process.

    path: the file, or a folder, see `files_at`. store: for copies of pickles; None is the default. denoiser: the
    component of a file that does not specify one of two denoisers; None decides by the file's name.

    Raises WeightsError: E1401, E1402, E1403 as for any tensor file, E1411 for a pickle that is not plain weights; E1430
    if it contains no adapter; E1431 if it is for another model, E1432 naming a layer whose shape does not fit; E1433
    for a layer with a missing or duplicate tensor; E1434 for unreadable settings in its header.
    """
    adapters = [_read_one(file, names, store, denoiser) for file in files_at(path)]
    if len(adapters) == 1:
        return adapters[0]
    first, second = adapters
    duplicates = first.modules.keys() & second.modules.keys()
    if duplicates:
        raise WeightsError(f"{path}: {min(duplicates)} is in two files of this folder; give one file", code="E1433")
    return Adapter({**first.modules, **second.modules}, first.metadata, first.layout, (*first.notes, *second.notes))


def _read_one(file: Path, names: LayerNames, store: Path | None, denoiser: str | None) -> Adapter:
    source = pickled.readable(file, store)
    try:
        return _read(source, names, denoiser, file)
    except WeightsError as error:
        if source == file:
            raise
        raise WeightsError(error.message.replace(str(source), str(file)), code=error.code) from error


def _read(file: Path, names: LayerNames, denoiser: str | None, named: Path) -> Adapter:
    header = tensor_files.read_header(file)
    if not is_adapter(header):
        raise WeightsError(
            f"{file}: contains no adapter; its {tensor_files.summary(header, 2)} belong to a model or another kind of "
            "file. Set `model.path` to give a model",
            code="E1430",
        )
    metadata = tensor_files.read_metadata(file)
    tensors = tensor_files.read(file)
    component, guess = _denoiser(names, metadata, header, named, denoiser)
    lookup = names.lookup(component)
    grouped, unknown = _group_by_layer(file, tensors, lookup)
    if unknown:
        _refuse_other(file, header, unknown, names)
    settings = read_settings(metadata, file)
    modules: dict[LayerName, AdapterModule] = {}
    for target, leaves in grouped.items():
        for layer, module in _modules(file, target, leaves, settings, names).items():
            if layer in modules:
                raise WeightsError(f"{file}: {layer} occurs twice, once as part of a fused layer", code="E1433")
            modules[layer] = module
    modules = _restore_alphas(file, modules, metadata)
    notes = (*guess, *_notes(modules, tensors, settings), *_notes_on_under(metadata))
    return Adapter(modules, metadata, layout_of(header), notes)


def read_under_records(headers: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The header entry with all adapters that lay under the trained ones of these headers; empty if there were none."""
    records: dict[str, dict[str, Any]] = {}
    for header in headers:
        try:
            listed = outside.parse_json(header.get(UNDER_KEY, "[]"))
            records |= {f"{one['sha256']} {one['strength']} {one['name']}": dict(one) for one in listed}
        except (ValueError, TypeError, KeyError):  # an entry of another program
            continue
    return {UNDER_KEY: json.dumps(list(records.values()))} if records else {}


def _notes_on_under(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """What it was trained on, besides the model."""
    listed = json.loads(read_under_records([metadata]).get(UNDER_KEY, "[]"))
    names = ", ".join(str(one["name"]) for one in listed)
    return (f"trained with {names} under it, and made to be used without",) if names else ()


def layout_of(names: Iterable[str]) -> Layout:
    """The layout of a file with these tensor names."""
    stems = [split_name(name)[0] for name in names]
    if any(stem.startswith("diffusion_model.") for stem in stems):
        return "comfy"
    return "kohya" if any(stem.startswith(("lora_", "lycoris_")) for stem in stems) else "diffusers"


def _denoiser(
    names: LayerNames, metadata: Mapping[str, str], header: Iterable[str], file: Path, expected: str | None
) -> tuple[str, tuple[str, ...]]:
    """The component of the denoiser's names, and a note if it is a guess."""
    if len(names.denoisers) < 2:
        return (names.denoisers or ("",))[0], ()
    first, second = names.denoisers
    stated = metadata.get(DENOISER_KEY)
    if stated in names.denoisers:
        return stated, ()
    if any(name.startswith(f"{second}.") for name in header):
        return first, ()
    if expected is not None:
        return expected, ()
    stem = file.stem.lower()
    for component, word in ((second, "low"), (first, "high")):
        if re.search(rf"(?<![a-z]){word}(?![a-z])|{word}[-_ ]?noise", stem):
            return component, ()
    return first, (
        "the file does not specify one of the two denoisers; using it for high noise. Put low_noise in its name for "
        "the other one",
    )


def _group_by_layer(
    file: Path, tensors: Mapping[str, Tensor], lookup: Mapping[str, LayerName | OriginalLayer]
) -> tuple[dict[LayerName | OriginalLayer, dict[str, Tensor]], list[str]]:
    """The tensors of each layer by our names, and the names that match no layer of the model. Raises WeightsError
    E1433."""
    grouped: dict[LayerName | OriginalLayer, dict[str, Tensor]] = defaultdict(dict)
    unknown = []
    for name, tensor in tensors.items():
        stem, leaf = split_name(name)
        layer = lookup.get(stem)
        if layer is None or not leaf:
            unknown.append(name)
        elif leaf in grouped[layer]:
            raise WeightsError(
                f"{file}: {_display_name(layer)} has {leaf} twice, once as {name}; use another copy", code="E1433"
            )
        else:
            grouped[layer][leaf] = tensor
    return dict(grouped), unknown


def _display_name(layer: LayerName | OriginalLayer) -> str:
    return layer.path if isinstance(layer, OriginalLayer) else str(layer)


def _modules(
    file: Path, target: LayerName | OriginalLayer, leaves: dict[str, Tensor], settings: Mapping[str, Any],
    names: LayerNames,
) -> dict[LayerName, AdapterModule]:  # fmt: skip
    """The modules of the model's layers that a layer of a file covers. Raises WeightsError E1432, E1433."""
    if isinstance(target, LayerName):
        module = make_module(file, target, leaves, settings)
        if not module.fits(names.weights[target]):
            _refuse_shape(file, target, module, names.weights[target], names)
        return {target: module}
    rows = [names.weights[layer][0] for layer in target.parts]
    shape = (sum(rows), *names.weights[target.parts[0]][1:])
    module = make_module(file, target.parts[0], leaves, settings)
    if not module.fits(shape):
        _refuse_shape(file, target, module, shape, names)
    if target.is_swapped:
        return {target.parts[0]: fused.swap_halves(module, shape)}
    parts = fused.split(module, rows)
    return {layer: part for layer, part in zip(target.parts, parts, strict=True) if part is not None}


def make_module(
    file: Path | str, layer: LayerName, leaves: Mapping[str, Tensor], settings: Mapping[str, Any]
) -> AdapterModule:
    """The module of a layer's tensors, by our names, including `alpha`. settings: of the header, see `read_settings`.
    Raises WeightsError E1433 for an incomplete one."""
    tensors = dict(leaves)
    alpha = tensors.pop("alpha", None)
    kinds = {_KIND_OF[leaf] for leaf in tensors if leaf in _KIND_OF}
    if len(kinds) != 1:
        listed = ", ".join(sorted(leaves))
        raise WeightsError(f"{file}: {layer} has {listed}, which is not a supported kind of adapter", code="E1433")
    (kind,) = kinds
    missing = _missing_tensor(kind, tensors)
    if missing:
        raise WeightsError(
            f"{file}: {layer} has {', '.join(sorted(tensors))} and lacks {missing}; the file is incomplete",
            code="E1433",
        )
    if not all(tensor.is_floating_point() for tensor in tensors.values()):
        raise WeightsError(
            f"{file}: {layer} has integer tensors; an adapter needs floating-point ones",
            code="E1433",
        )
    if any(0 in tensor.shape for tensor in tensors.values()) or (alpha is not None and alpha.numel() != 1):
        raise WeightsError(
            f"{file}: {layer} has an empty tensor (rank 0), or an alpha that is not a single number; use another copy",
            code="E1433",
        )
    if MAGNITUDE in tensors and tensors[MAGNITUDE].ndim == 1:
        tensors[MAGNITUDE] = tensors[MAGNITUDE][:, None]
    if kind == "lora" and MAGNITUDE in tensors and tensors[MAGNITUDE].ndim == 4 and tensors[MAGNITUDE].shape[0] == 1:
        rows = tensors["lora_up.weight"].shape[0]
        if tensors[MAGNITUDE].shape[1] == rows:  # peft stores a convolution's magnitude as (1, out, 1, 1)
            tensors[MAGNITUDE] = tensors[MAGNITUDE].reshape(rows, 1, 1, 1)
    if alpha is not None:
        return AdapterModule(kind, tensors, float(alpha))
    # as in diffusers, a file for the second of two denoisers calls it `transformer`
    starts = (f"{layer.component}.", "transformer." if layer.component.startswith("transformer") else "")
    of_layer = {key.removeprefix(starts[0]).removeprefix(starts[1]): value for key, value in settings.items()}
    if not settings or "lora_alpha" not in of_layer:
        return AdapterModule(kind, tensors)
    stated = _by_pattern(of_layer.get("alpha_pattern"), layer.path, of_layer["lora_alpha"])
    return AdapterModule(kind, tensors, stated, bool(of_layer.get("use_rslora")))


_NEEDED: dict[Kind, tuple[tuple[str, ...], ...]] = {
    "lora": (("lora_down.weight",), ("lora_up.weight",)),
    "loha": (("hada_w1_a",), ("hada_w1_b",), ("hada_w2_a",), ("hada_w2_b",)),
    "lokr": (
        ("lokr_w1", "lokr_w1_a"), ("lokr_w1", "lokr_w1_b"), ("lokr_w2", "lokr_w2_a"), ("lokr_w2", "lokr_w2_b"),
    ),
    "oft": (("oft_R.weight",),),
}  # fmt: skip
"""A module of the kind has one tensor of each group."""


def _missing_tensor(kind: Kind, tensors: Mapping[str, Tensor]) -> str:
    """A required tensor that is missing; empty if the module is complete."""
    return next((" or ".join(either) for either in _NEEDED[kind] if not tensors.keys() & set(either)), "")


def read_settings(metadata: Mapping[str, str], file: Path | str = "the file") -> dict[str, Any]:
    """diffusers' settings of the adapter, with the component as key prefix; empty if there are none. Raises
    WeightsError E1434."""
    text = metadata.get(SETTINGS_KEY)
    if text is None:
        return {}
    try:
        settings = outside.parse_json(text)
        numbers = [value for key, value in settings.items() if key.endswith("lora_alpha")]
        tables = [value for key, value in settings.items() if key.endswith("_pattern") and value is not None]
        numbers += [value for table in tables for value in table.values()]
        if not all(type(value) in (int, float) and math.isfinite(value) for value in numbers):
            raise ValueError("a strength is not a number")
    except (ValueError, AttributeError, TypeError) as error:
        raise WeightsError(
            f"{file}: the settings in its header ({SETTINGS_KEY}) cannot be read ({error}), so the adapter's strength "
            "is unknown; write the file again, or remove the entry to use alpha = rank",
            code="E1434",
        ) from error
    return dict(settings)


def _by_pattern(patterns: Mapping[str, float] | None, path: str, default: float) -> float:
    """The value of the pattern that a path ends with. Patterns are treated as plain names, as they occur in files."""
    for pattern, value in (patterns or {}).items():
        plain = pattern.removeprefix("^").removesuffix("$").replace("\\.", ".")
        if path == plain or path.endswith(f".{plain}"):
            return value
    return default


def _restore_alphas(
    file: Path, modules: Mapping[LayerName, AdapterModule], metadata: Mapping[str, str]
) -> dict[LayerName, AdapterModule]:
    """The modules with the alphas that were multiplied into a diffusers file restored; the weight changes stay the
    same. Raises WeightsError E1434."""
    text = metadata.get(ALPHA_KEY)
    if text is None:
        return dict(modules)
    try:
        alphas = {key: float(value) for key, value in outside.parse_json(text).items()}
        if not all(math.isfinite(alpha) and alpha for alpha in alphas.values()):
            raise ValueError("an alpha is 0 or not finite")
    except (ValueError, AttributeError, TypeError) as error:
        raise WeightsError(
            f"{file}: {ALPHA_KEY} in its header cannot be read ({error}); use another copy", code="E1434"
        ) from error
    return {layer: _restore_alpha(module, alphas.get(str(layer), alphas.get(layer.component)))
            for layer, module in modules.items()}  # fmt: skip


def _restore_alpha(module: AdapterModule, alpha: float | None) -> AdapterModule:
    if alpha is None or module.kind != "lora" or module.scale != 1:
        return module
    up = module.tensors["lora_up.weight"]
    return replace(module, tensors={**module.tensors, "lora_up.weight": up / (alpha / module.rank)}, alpha=alpha)


def _notes(
    modules: Mapping[LayerName, AdapterModule], tensors: Mapping[str, Tensor], settings: Mapping[str, Any]
) -> Iterable[str]:
    without = sum(
        m.alpha is None and m.kind != "oft" and not {"lokr_w1", "lokr_w2"} <= m.tensors.keys() for m in modules.values()
    )
    if without and not settings:
        strength = (
            "; if it was trained with another alpha, its strength is alpha / rank" if without == len(modules) else ""
        )
        yield (
            f"{without} of {len(modules)} layers have no alpha; using alpha = rank, as every program does" + strength
        )
    if any(MAGNITUDE in m.tensors and m.tensors[MAGNITUDE].shape[0] == 1 < m.tensors[MAGNITUDE].numel()
           for m in modules.values()):  # fmt: skip
        yield "the DoRA has a magnitude for each column (older LyCORIS) instead of each row; using it per column"
    if any(m.rows is not None for m in modules.values()):
        yield "the file has LoKr for fused layers; to train it further, convert it to a LoRA with `mezzotint resize`"


def _refuse_other(file: Path, header: Iterable[str], unknown: Sequence[str], names: LayerNames) -> NoReturn:
    """Raises WeightsError E1431 with the model that the file is probably for."""
    everything = "\n".join(header)
    seems = next((name for pattern, name in _OTHER_MODELS.items() if re.search(pattern, everything)), "")
    raise WeightsError(
        f"{file}: {len(unknown)} of its tensors match no layer of this model ({', '.join(unknown[:2])}, …)"
        + (f"; it looks like an adapter for {seems}, but the model is {_model_name(names)}" if seems else "")
        + ". Use the model that it was trained for",
        code="E1431",
    )


def _refuse_shape(
    file: Path, layer: LayerName | OriginalLayer, module: AdapterModule, shape: Sequence[int], names: LayerNames
) -> NoReturn:
    shapes = ", ".join(f"{leaf} {tuple(tensor.shape)}" for leaf, tensor in sorted(module.tensors.items()))
    raise WeightsError(
        f"{file}: {_display_name(layer)} does not fit: {shapes}, but the layer's weight is {tuple(shape)}. The adapter "
        f"is for another model than {_model_name(names)}, or the file is damaged",
        code="E1432",
    )


def _model_name(names: LayerNames) -> str:
    if names.is_sdxl:
        return "SDXL"
    width = names.weights.get(LayerName("unet", "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k"), (0, 0))[
        1
    ]
    return {768: "Stable Diffusion 1", 1024: "Stable Diffusion 2"}.get(width, "one with other layers")
