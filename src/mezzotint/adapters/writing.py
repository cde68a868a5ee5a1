"""Writing adapter files: one layout for diffusers, two for image generation programs.

| layout | names of the denoiser | tensors | strength |
|---|---|---|---|
| diffusers | `transformer.` or `unet.` + diffusers' path | `lora_A`, `lora_B` | in `lora_B`: alpha = rank |
| kohya | `lora_unet_` + original path (SD 1 and 2: diffusers' path), flattened | `lora_down`, `lora_up` | `.alpha` |
| comfy | `diffusion_model.` + original path | `lora_A`, `lora_B` | `.alpha` |

Layers that are fused in original-format checkpoints are joined (exactly, see `fused.py`). ComfyUI's layout keeps them
separate under diffusers' names if every version that supports the family reads those, or if they cannot be joined.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from mezzotint.adapters import fused
from mezzotint.adapters.files import ALPHA_KEY, DENOISER_KEY, HIGH_NOISE, LOW_NOISE, SETTINGS_KEY, Adapter, Layout
from mezzotint.adapters.modules import MAGNITUDE, AdapterModule
from mezzotint.adapters.names import LayerName, LayerNames, OriginalLayer
from mezzotint.adapters.trainers import Spelling
from mezzotint.errors import WeightsError
from mezzotint.weights.files import tensor_files

_ATTENTION = (".to_q", ".to_k", ".to_v", ".to_out.0", ".q_proj", ".k_proj", ".v_proj", ".out_proj")
_PEFT = {"lora_down.weight": "lora_A.weight", "lora_up.weight": "lora_B.weight"}
_LAYOUT_ENTRIES = (SETTINGS_KEY, ALPHA_KEY, DENOISER_KEY)
"""Header entries that belong to one layout and are not copied to another."""


@dataclass(frozen=True, slots=True)
class WrittenAdapter:
    """The files of an adapter, and notes about what programs are known to drop or misread."""

    files: tuple[Path, ...]
    notes: tuple[str, ...]


def write(
    adapter: Adapter,
    path: Path,
    names: LayerNames,
    layout: Layout | Spelling,
    *,
    metadata: Mapping[str, str] | None = None,
    dtype: torch.dtype | None = None,
    seal: Callable[[Path], None] | None = None,
) -> WrittenAdapter:
    """Writes an adapter in a layout. An adapter for two denoisers becomes two files, with names ending in `_high_noise`
    and `_low_noise`.

    names: layers of its model. layout: by name, or as another trainer spells it. metadata: further header entries.
    dtype: of the tensors; None keeps their dtypes. seal: see `tensor_files.write`. Raises WeightsError E1435 for an
    adapter that the layout cannot represent, and what `tensor_files.write` raises.
    """
    spelling = layout if isinstance(layout, Spelling) else Spelling(layout)
    if spelling.joins_fused:
        names = replace(names, has_split_names=False)
    if spelling.uses_diffusers_paths:
        names = replace(names, originals={}, swapped=frozenset())
    written, notes = [], list(_warnings(adapter, spelling.layout))
    for denoiser, file in files_for(adapter, path, names).items():
        others = set(names.denoisers) - {denoiser}
        modules = {layer: m for layer, m in adapter.modules.items() if layer.component not in others}
        tensors, header = _tensors(Adapter(modules), file, names, spelling.layout, denoiser)
        tensors = _respell(tensors, spelling)
        if dtype is not None:  # alphas stay exact
            tensors = {n: t if n.endswith(".alpha") else t.to(dtype) for n, t in tensors.items()}
        if len(names.denoisers) > 1:
            header[DENOISER_KEY] = denoiser
        entries = {key: text for key, text in (metadata or {}).items() if key not in _LAYOUT_ENTRIES}
        tensor_files.write(tensors, file, {"format": "pt"} | entries | header, seal=seal)
        written.append(file)
    return WrittenAdapter(tuple(written), tuple(notes))


def files_for(adapter: Adapter, path: Path, names: LayerNames) -> dict[str, Path]:
    """The file of each denoiser that an adapter changes."""
    changed = [component for component in names.denoisers if component in adapter.components]
    if len(changed) < 2:
        return dict.fromkeys(changed or names.denoisers[:1] or ("",), path)
    return {c: path.with_stem(path.stem + end) for c, end in zip(changed, (HIGH_NOISE, LOW_NOISE), strict=True)}


def _tensors(
    adapter: Adapter, file: Path, names: LayerNames, layout: Layout, denoiser: str
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file by name, and entries of its header. denoiser: the model's denoiser that the file is for."""
    match layout:
        case "diffusers":
            tensors = diffusers_tensors(adapter, file, names, denoiser)
            header = {SETTINGS_KEY: _settings_text(adapter, names)} | _alphas(adapter)
        case "kohya":
            tensors, header = kohya_tensors(adapter, names, file), {}
        case "comfy":
            tensors, header = comfy_tensors(adapter, names, file), {}
    return tensors, header


def _respell(tensors: dict[str, Tensor], spelling: Spelling) -> dict[str, Tensor]:
    """The tensors of a layout with another prefix of the denoiser, and with the strength in `lora_B` if asked for."""
    if not spelling.has_alpha:
        for name in [name for name in tensors if name.endswith(".lora_B.weight")]:
            stem = name.removesuffix(".lora_B.weight")
            alpha, rank = float(tensors.pop(f"{stem}.alpha")), tensors[f"{stem}.lora_A.weight"].shape[0]
            tensors[name] = _scale(tensors[name], alpha / rank)
    own = {"diffusers": "transformer.", "kohya": "lora_unet_", "comfy": "diffusion_model."}[spelling.layout]
    if not spelling.prefix:
        return tensors
    return {
        spelling.prefix + name.removeprefix(own) if name.startswith(own) else name: t for name, t in tensors.items()
    }


# --- kohya and ComfyUI ------------------------------------------------------------------------------------------------


def kohya_tensors(adapter: Adapter, names: LayerNames, file: Path = Path("adapter")) -> dict[str, Tensor]:
    """The tensors of a file in kohya's layout, by name; each module has its alpha. Raises WeightsError E1435."""
    tensors: dict[str, Tensor] = {}
    _refuse_oft(adapter, file)
    for target, module in _original_modules(adapter, names):
        if module is None:
            raise WeightsError(
                f"{file}: kohya's layout has one matrix for {', '.join(p.path for p in _parts(target))}; LoHa, LoKr "
                "and a DoRA of only some of them cannot be joined into it; write ComfyUI's layout",
                code="E1435",
            )
        start = names.kohya[_parts(target)[0]]
        tensors |= {f"{start}.{leaf}": tensor for leaf, tensor in module.tensors.items()}
        tensors[f"{start}.alpha"] = torch.tensor(module.plain_alpha)
    return tensors


def comfy_tensors(adapter: Adapter, names: LayerNames, file: Path = Path("adapter")) -> dict[str, Tensor]:
    """The tensors of a file in ComfyUI's layout, by name; each module has its alpha. Text encoders have kohya's names.
    Raises WeightsError E1435 for a model without known original names."""
    tensors: dict[str, Tensor] = {}
    _refuse_oft(adapter, file)
    for target, module in _original_modules(adapter, names):
        layer = _parts(target)[0]
        if layer.component not in names.denoisers:
            assert module is not None
            start, leaves = names.kohya[layer], {leaf: leaf for leaf in module.tensors}
            tensors |= _name_tensors(start, module, leaves)
        elif not isinstance(target, OriginalLayer):
            raise WeightsError(
                f"{file}: ComfyUI does not support this model; choose the layout `diffusers`", code="E1435"
            )
        elif module is None or (len(target.parts) > 1 and names.has_split_names):
            for part in target.parts:
                if part in adapter.modules:
                    _require_whole(file, part, adapter.modules[part])
                    tensors |= _name_tensors(f"transformer.{part.path}", adapter.modules[part], _PEFT)
        else:
            tensors |= _name_tensors(f"diffusion_model.{target.path}", module, _PEFT)
    return tensors


def _refuse_oft(adapter: Adapter, file: Path) -> None:
    if any(module.kind == "oft" for module in adapter.modules.values()):
        raise WeightsError(
            f"{file}: kohya's and ComfyUI's layouts have no OFT that rotates the inputs of layers; write diffusers' "
            "layout, which has peft's names, or merge it into the model with `mezzotint merge`",
            code="E1435",
        )


def _require_whole(file: Path, layer: LayerName, module: AdapterModule) -> None:
    if module.rows is not None:
        raise WeightsError(
            f"{file}: {layer} is part of a fused LoKr whose other parts are missing; convert it with `mezzotint "
            "resize`",
            code="E1435",
        )


def _name_tensors(start: str, module: AdapterModule, leaves: Mapping[str, str]) -> dict[str, Tensor]:
    tensors = {f"{start}.{leaves.get(leaf, leaf)}": tensor for leaf, tensor in module.tensors.items()}
    return {**tensors, f"{start}.alpha": torch.tensor(module.plain_alpha)}


def _parts(target: LayerName | OriginalLayer) -> tuple[LayerName, ...]:
    return target.parts if isinstance(target, OriginalLayer) else (target,)


def _original_modules(
    adapter: Adapter, names: LayerNames
) -> Iterator[tuple[LayerName | OriginalLayer, AdapterModule | None]]:
    """The original-format layers that an adapter changes, with the module of each; None if parts cannot be joined.
    Layers without an original name are yielded unchanged."""
    done = set()
    for layer, module in adapter.modules.items():
        original = names.original_layers.get(layer)
        if original is None:
            yield layer, module
        elif original not in done:
            done.add(original)
            rows = [names.weights[part][0] for part in original.parts]
            if original.is_swapped:
                yield original, fused.swap_halves(module, names.weights[layer])
            elif len(original.parts) == 1:
                yield original, module
            else:
                yield original, fused.join([adapter.modules.get(part) for part in original.parts], rows)


# --- diffusers --------------------------------------------------------------------------------------------------------


def diffusers_tensors(adapter: Adapter, file: Path, names: LayerNames, denoiser: str) -> dict[str, Tensor]:
    """The tensors of a file for `load_lora_weights`, by name. Raises WeightsError E1435.

    The strength is multiplied into `lora_B`, because other programs do not read the header. Stable Diffusion and SDXL
    use the names of diffusers' training scripts if only attention changes; diffusers decides by a file's first name.
    """
    tensors: dict[str, Tensor] = {}
    of_scripts = "unet" in names.shapes and all(
        f".{layer.path}".endswith(_ATTENTION) for layer in adapter.modules if layer.component == "unet"
    )
    for layer, module in adapter.modules.items():
        reason = _unsupported_feature(module)
        if reason:
            other = "kohya's" if "unet" in names.shapes else "ComfyUI's"
            raise WeightsError(
                f"{file}: diffusers' layout does not support {reason} ({layer}); write {other} layout", code="E1435"
            )
        is_text = layer.component.startswith("text_encoder")
        start = f"{layer.component}.{layer.path}"
        if is_text:
            start = f"{layer.component}.{_with_text_model(layer.path)}"
        elif layer.component == denoiser != "unet":
            start = f"transformer.{layer.path}"
        if module.kind == "oft":
            tensors |= {f"{start}.{leaf}": tensor for leaf, tensor in module.tensors.items()}
            continue
        down, up = "lora_A", "lora_B"
        if f".{layer.path}".endswith(_ATTENTION) and "unet" in names.shapes and (is_text or of_scripts):
            inner = "lora_linear_layer" if is_text else "lora"
            down, up = f"{inner}.down", f"{inner}.up"
        tensors[f"{start}.{down}.weight"] = module.tensors["lora_down.weight"]
        factor = module.tensors["lora_up.weight"]
        tensors[f"{start}.{up}.weight"] = _scale(factor, module.scale)
        if module.is_dora:
            lengths = module.tensors[MAGNITUDE]
            tensors[f"{start}.lora_magnitude_vector"] = (
                lengths.reshape(1, -1, 1, 1) if lengths.ndim == 4 else lengths.reshape(-1)
            )
    return tensors


def _scale(factor: Tensor, scale: float) -> Tensor:
    return factor if scale == 1 else (factor.float() * scale).to(factor.dtype)


def _with_text_model(path: str) -> str:
    """CLIP's path with the level `text_model`, which some of its files lack and ComfyUI expects."""
    return f"text_model.{path}" if path.startswith("encoder.layers.") else path


def _unsupported_feature(module: AdapterModule) -> str:
    """The feature of a module that diffusers' layout does not support; empty if there is none."""
    if module.kind != "lora":
        return {"loha": "LoHa", "lokr": "LoKr", "oft": ""}[module.kind]
    if "lora_mid.weight" in module.tensors:
        return "a convolution with three factors"
    if module.is_dora and module.tensors[MAGNITUDE].shape[0] == 1 < module.tensors["lora_up.weight"].shape[0]:
        return "a DoRA with magnitudes of columns"
    return ""


def _settings_text(adapter: Adapter, names: LayerNames) -> str:
    """Ranks and kind of each component as peft's settings, which diffusers reads; alpha is the rank.

    Layers are named by path suffixes: encoders of newer transformers lack the level `text_model`.
    """
    settings: dict[str, object] = {}
    for component in adapter.components:
        modules = {_suffix(path): module for path, module in adapter.of(component).items()}
        rank = Counter(module.rank for module in modules.values()).most_common(1)[0][0]
        others = {path: module.rank for path, module in modules.items() if module.rank != rank}
        entries: dict[str, object] = {
            "peft_type": "LORA",
            "r": rank,
            "lora_alpha": rank,
            "rank_pattern": others,
            "alpha_pattern": others,
            "target_modules": sorted(modules),
            "use_rslora": False,
            "use_dora": any(module.is_dora for module in modules.values()),
            "lora_dropout": 0.0,
            "bias": "none",
            "init_lora_weights": True,
        }
        if any(module.kind == "oft" for module in modules.values()):
            entries = {"peft_type": "OFT", "r": 0, "oft_block_size": rank, "target_modules": sorted(modules)}
        start = "transformer" if component in names.denoisers and component != "unet" else component
        settings |= {f"{start}.{key}": value for key, value in entries.items()}
    return json.dumps(settings, indent=2, sort_keys=True)


def _alphas(adapter: Adapter) -> dict[str, str]:
    """The header entry with the alphas that were multiplied in, for continued training; empty if they equal the
    ranks."""
    alphas: dict[str, float] = {}
    for component in adapter.components:
        stated = {path: m.plain_alpha for path, m in adapter.of(component).items() if m.alpha is not None}
        if all(module.scale == 1 for module in adapter.of(component).values()):
            continue
        common = Counter(stated.values()).most_common(1)[0][0]
        modules = adapter.of(component)
        alphas[component] = common
        alphas |= {f"{component}.{path}": stated.get(path, float(module.rank)) for path, module in modules.items()
                   if stated.get(path, float(module.rank)) != common}  # fmt: skip
    return {ALPHA_KEY: json.dumps(alphas, sort_keys=True)} if alphas else {}


def _suffix(path: str) -> str:
    return path.removeprefix("text_model.").removeprefix("encoder.")


def _warnings(adapter: Adapter, layout: Layout) -> Iterable[str]:
    modules = adapter.modules.values()
    if layout != "diffusers" and any(module.is_dora for module in modules):
        yield "diffusers drops the magnitudes of a DoRA in this layout; write diffusers' layout for it"
    alphas = {module.plain_alpha for module in modules}
    if layout == "kohya" and len(alphas) > 1 and all(module.kind == "lora" for module in modules):
        yield "diffusers uses the most common alpha of kohya's layout for all attention layers; write its layout for it"
    if layout != "diffusers" and any(module.kind != "lora" for module in modules):
        yield "diffusers does not read LoHa and LoKr; ComfyUI does, and for SD and SDXL also A1111 and Forge"
    if any(module.kind == "oft" for module in modules):
        yield (
            "diffusers and programs that generate images do not read OFT; peft does, by these names; merge it into a "
            "model with `mezzotint merge`"
        )
    elif layout == "diffusers":
        yield "ComfyUI reads only part of this layout, A1111 none of it; `mezzotint check-adapter` lists the layers"
