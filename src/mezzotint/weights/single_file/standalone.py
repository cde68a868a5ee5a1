"""Standalone component files and folders: an autoencoder or a text encoder that replaces the model's own.

Fixed autoencoders are published in this way (SDXL's own overflows in half precision), and ComfyUI stores components in
this way (`models/vae`, `models/text_encoders`), next to a file of the denoiser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mezzotint.errors import WeightsError
from mezzotint.weights import kinds
from mezzotint.weights.files import fingerprint, tensor_files
from mezzotint.weights.files.tensor_files import InFile, Stored
from mezzotint.weights.folder import components, t5
from mezzotint.weights.folder.components import Network, StoredAs
from mezzotint.weights.folder.model_folder import find_weights, read_json
from mezzotint.weights.keymap import Shape
from mezzotint.weights.single_file import original
from mezzotint.weights.single_file.original import FilePart, OriginalPart, TensorRows

_T5 = ("t5_text", "umt5_text")


@dataclass(frozen=True, slots=True)
class ExpectedPart:
    """A part as the model's configuration describes it. where: the configuration's file. shapes: by the names of files
    in diffusers' layout. start: the prefix of its names in an original-format checkpoint of the complete model."""

    network: Network
    config: Mapping[str, Any]
    where: Path
    shapes: Mapping[str, Shape]
    start: str = ""


@dataclass(frozen=True, slots=True)
class StandalonePart:
    """path: in the recipe. file: of the weights. stored: the weights under the names of files in diffusers'
    layout, older ones too where a folder has them. config, where: of the network, and its file."""

    path: Path
    file: Path
    stored: Stored
    config: Mapping[str, Any]
    where: Path

    def digest(self) -> str:
        """64 hexadecimal digits that identify the weights, independent of the file's path."""
        return self.stored.digest() if isinstance(self.stored, OriginalPart) else fingerprint.of_file(self.file)


def open_vae(path: Path, expected: ExpectedPart, *, model_name: str) -> StandalonePart:
    """Opens the autoencoder that `model.vae` names, by headers.

    path: an autoencoder's folder (config.json and weights), a model's folder with such a folder `vae`, or a safetensors
    file with diffusers' or the original names. A file has no configuration and must fit the model's. expected: the
    model's autoencoder. model_name: the model's, for messages. Raises WeightsError E1401 for a path that does not
    exist, E1406 for something other than an autoencoder's folder or a safetensors file, E1407 and E1408 for a folder
    without readable weights, E1478 for a file of another network, or with names that diffusers does not convert.
    """
    _require_exists(path, "model.vae")
    if path.is_dir():
        return _open_folder(path, path / "vae" if (path / "vae" / "config.json").is_file() else path, expected)
    if path.suffix != ".safetensors":
        raise WeightsError(
            f"model.vae: {path} is not a folder or a .safetensors file; give an autoencoder's folder or its "
            ".safetensors file",
            code="E1406",
        )
    header = tensor_files.read_header(path)
    original.refuse_scaled(path, header)
    shapes = {name: info.shape for name, info in header.items()}
    rows_by_name = _map_rows_in_diffusers_layout(expected, shapes)
    if rows_by_name is None and not original.can_convert(expected.network):
        raise WeightsError(
            f"model.vae: {path}: diffusers cannot convert an original-format autoencoder of {model_name}; give a "
            "folder in diffusers' layout, or leave model.vae out to use the model's own",
            code="E1478",
        )
    try:
        rows_by_name = rows_by_name or _map_rows_in_original_format(expected, shapes)
    except original.NOT_CONVERTED as error:
        raise _wrong_network_error(
            path, expected, model_name, f"it looks like {kinds.describe_tensors(header)}"
        ) from error
    differing = [
        name for name, shape in expected.shapes.items() if name not in rows_by_name or rows_by_name[name].shape != shape
    ]
    if differing:
        looks = "" if len(differing) < len(expected.shapes) else f"; it looks like {kinds.describe_tensors(header)}"
        listed = f"{tensor_files.summary(differing)} are missing or have another shape{looks}"
        raise _wrong_network_error(path, expected, model_name, listed)
    chosen = {name: rows_by_name[name] for name in expected.shapes}
    left = _find_unused(expected, header.keys(), chosen)
    if left:
        raise _wrong_network_error(path, expected, model_name, f"it also has {tensor_files.summary(left)}")
    return StandalonePart(path, path, OriginalPart(path, header, chosen), expected.config, expected.where)


def _map_rows_in_diffusers_layout(
    expected: ExpectedPart, shapes: Mapping[str, Shape]
) -> Mapping[str, TensorRows] | None:
    """Where the tensors are in a file with diffusers' names, current or old; None for a file of other names."""
    current = components.modern_names(expected.network, {name: name for name in shapes})
    if not expected.shapes.keys() <= current.keys():
        return None
    return {name: original.all_rows(stored, shapes[stored]) for name, stored in current.items()}


def _map_rows_in_original_format(expected: ExpectedPart, shapes: Mapping[str, Shape]) -> Mapping[str, TensorRows]:
    """By the network's names, where its tensors are in an original-format file. diffusers' conversion expects the
    prefix `expected.start`, which files of a single component may lack."""
    added = "" if any(name.startswith(expected.start) for name in shapes) else expected.start
    prefixed = {added + name: shape for name, shape in shapes.items()}
    start = FilePart(expected.start, keeps_start=True)
    rows_by_name = original.map_rows(expected.network, expected.config, prefixed, start, expected.shapes.keys())
    return {
        name: replace(rows, pieces=tuple((stored.removeprefix(added), low, high) for stored, low, high in rows.pieces))
        for name, rows in rows_by_name.items()
    }


def _find_unused(expected: ExpectedPart, names: Any, rows_by_name: Mapping[str, TensorRows]) -> list[str]:
    """Names in the file that share a first component with this network's names but that it does not have."""
    used = {stored for rows in rows_by_name.values() for stored, *_ in rows.pieces}
    roots = {name.partition(".")[0] for name in expected.shapes}
    start = expected.start if any(name.startswith(expected.start) for name in names) else ""
    unused = (name for name in names if name not in used and name.startswith(start))
    return [name for name in unused if name.removeprefix(start).partition(".")[0] in roots]


def _wrong_network_error(path: Path, expected: ExpectedPart, model_name: str, why: str) -> WeightsError:
    return WeightsError(
        f"model.vae: {path} is not the autoencoder of {model_name} that {expected.where} describes: {why}; give that "
        "autoencoder, or leave model.vae out to use the model's own",
        code="E1478",
    )


def _open_folder(path: Path, folder: Path, expected: ExpectedPart) -> StandalonePart:
    config = {key: value for key, value in read_json(folder / "config.json").items() if key != "_name_or_path"}
    kind = expected.config.get("_class_name")
    if kind is not None and config.get("_class_name", kind) != kind:
        raise WeightsError(
            f"model.vae: {folder} contains {config['_class_name']}, this model has {kind}; give the folder of one",
            code="E1406",
        )
    weights = find_weights(folder)
    if weights is None:
        raise WeightsError(
            f"model.vae: {folder} has a configuration but no weights; download the complete autoencoder", code="E1407"
        )
    return StandalonePart(path, weights.path, InFile(weights.path), config, folder / "config.json")


def open_encoder(path: Path, encoders: Mapping[str, ExpectedPart], *, model_name: str) -> tuple[str, StandalonePart]:
    """Opens a standalone text or image encoder file with transformers' tensor names. Returns which part it is, by the
    names and shapes of its tensors, and that part. encoders: those of the model, by part.

    Raises WeightsError E1401, E1402, E1406, E1478 for a file of another network.
    """
    _require_exists(path, "model.over")
    if path.is_dir() or path.suffix != ".safetensors":
        raise WeightsError(f"model.over: {path} is not a .safetensors file; give one", code="E1406")
    header = tensor_files.read_header(path)
    original.refuse_scaled(path, header)
    missing: dict[str, list[str]] = {}
    for part, expected in encoders.items():
        stored = _under_network_names(expected, path)
        present = stored.header()
        missing[part] = [n for n, shape in expected.shapes.items() if n not in present or present[n].shape != shape]
        if not missing[part]:
            file = StoredAs(stored, {name: name for name in expected.shapes})
            return part, StandalonePart(path, path, file, expected.config, expected.where)
    nearest = min(missing, key=lambda part: len(missing[part]) / len(encoders[part].shapes))
    why = f"it is {kinds.describe_tensors(header)}"
    if 2 * len(missing[nearest]) < len(encoders[nearest].shapes):
        why = f"{tensor_files.summary(missing[nearest])} of {nearest} are missing or have another shape"
    raise WeightsError(
        f"model.over: {path} is not one of the encoders of {model_name} ({', '.join(encoders)}): {why}; leave it "
        "out to use those in the model's folder",
        code="E1478",
    )


def _under_network_names(expected: ExpectedPart, path: Path) -> Stored:
    if expected.network in _T5:
        return t5.EncoderOnly(path, (path,))
    stored = InFile(path)
    if "." in expected.network:
        return components.stored_as(expected.network, stored)
    prefix = components.PREFIXES.get(expected.network, components.PREFIXES["clip_text"])  # which some files lack
    return StoredAs(stored, {name if name in expected.shapes else prefix + name: name for name in stored.header()})


def _require_exists(path: Path, setting: str) -> None:
    if not path.exists():
        raise WeightsError(f"{setting}: {path} does not exist (looked in {Path.cwd()}); check the path", code="E1401")
