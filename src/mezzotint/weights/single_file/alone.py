"""One part of a model in a file or a folder of its own, an autoencoder or a text encoder, in the place of the model's
own: as ComfyUI has them (`models/vae`, `models/text_encoders`), beside a file of the denoiser."""

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
from mezzotint.weights.single_file.original import FilePart, TensorRows

_T5 = ("t5_text", "umt5_text")
_CLIP = "text_model."
"""What names of CLIP's text encoder begin with in most files, and not in all."""


@dataclass(frozen=True, slots=True)
class Described:
    """A part by its configuration. where: the configuration's file. shapes: by the names of files in diffusers' layout.
    start: what its names begin with where a file of the model's makers has more than it."""

    network: Network
    config: Mapping[str, Any]
    where: Path
    shapes: Mapping[str, Shape]
    start: str = ""


@dataclass(frozen=True, slots=True)
class PartAlone:
    """place: what the recipe names. file: of the weights. stored: these, under the names of files in diffusers' layout.
    config, where: of the network, and its file."""

    place: Path
    file: Path
    stored: Stored
    config: Mapping[str, Any]
    where: Path

    def digest(self) -> str:
        """A name for the weights."""
        return fingerprint.of_file(self.file)


def open_vae(path: Path, own: Described, *, what: str) -> PartAlone:
    """An autoencoder as `model.vae` names it: its folder, another model's folder, or a file under diffusers' names or
    those of its makers, which is of the model's own configuration. what: the model's name, for messages.

    Raises WeightsError E1401 for a path that is not there, E1406 for something else, E1407 for a folder without
    weights, E1478 for a file that is no such autoencoder, or one that diffusers does not convert.
    """
    _require_there(path, "model.vae")
    if path.is_dir():
        return _of_folder(path, path / "vae" if (path / "vae" / "config.json").is_file() else path, own)
    _require_safetensors(path, "model.vae")
    header = tensor_files.read_header(path)
    original.refuse_scaled(path, header)
    if not own.shapes.keys() <= header.keys() and not original.converts(own.network):
        raise WeightsError(
            f"model.vae: {path}: diffusers converts no autoencoder's file of the makers of {what}; give a folder in "
            "diffusers' layout, or leave model.vae out, and the model's own is read",
            code="E1478",
        )
    try:
        places = _places(own, {name: info.shape for name, info in header.items()})
    except original.NOT_CONVERTED as error:
        raise _no_such_vae(path, what, kinds.of_tensors(header)) from error
    differing = [name for name, shape in own.shapes.items() if name not in places or places[name].shape != shape]
    if differing:
        raise _no_such_vae(path, what, f"lacks {tensor_files.listed(differing)}, or has them in other sizes")
    chosen = {name: places[name] for name in own.shapes}
    return PartAlone(path, path, original.OriginalPart(path, header, chosen), own.config, own.where)


def _places(own: Described, shapes: Mapping[str, Shape]) -> Mapping[str, TensorRows]:
    """By the network's names, where its tensors lie. Conversions look for them behind `own.start`, which files of an
    autoencoder alone may leave out."""
    if own.shapes.keys() <= shapes.keys():
        own = replace(own, start="")
    added = "" if any(name.startswith(own.start) for name in shapes) else own.start
    behind = {added + name: shape for name, shape in shapes.items()}
    start = FilePart(own.start, keeps_start=True)
    places = original.places_of(own.network, own.config, behind, start, own.shapes.keys())
    return {
        name: replace(rows, pieces=tuple((there.removeprefix(added), low, high) for there, low, high in rows.pieces))
        for name, rows in places.items()
    }


def _no_such_vae(path: Path, what: str, why: str) -> WeightsError:
    return WeightsError(
        f"model.vae: {path}: is not the autoencoder of {what} as this model's configuration has it: {why}; give that "
        "one, or leave model.vae out, and the model's own is read",
        code="E1478",
    )


def _of_folder(path: Path, folder: Path, own: Described) -> PartAlone:
    config, kind = read_json(folder / "config.json"), own.config.get("_class_name")
    if config.get("_class_name", kind) != kind:
        raise WeightsError(
            f"model.vae: {folder} holds {config['_class_name']}, and this model has {kind}; give the folder of one",
            code="E1406",
        )
    weights = find_weights(folder)
    if weights is None:
        raise WeightsError(
            f"model.vae: {folder} has a configuration and no weights; fetch the whole autoencoder", code="E1407"
        )
    return PartAlone(path, weights.path, InFile(weights.path), config, folder / "config.json")


def open_encoder(path: Path, encoders: Mapping[str, Described], *, what: str) -> tuple[str, PartAlone]:
    """A text encoder in a file of its own, under the names that transformers gives its tensors: which part it is, by
    names and sizes of its tensors, and that part. encoders: by part, those that the model has.

    Raises WeightsError E1401, E1402, E1406, E1478 for a file of none of them.
    """
    _require_there(path, "model.over")
    _require_safetensors(path, "model.over")
    header = tensor_files.read_header(path)
    original.refuse_scaled(path, header)
    lacking: dict[str, list[str]] = {}
    for part, own in encoders.items():
        stored = _under_own_names(own, path)
        present = stored.header()
        lacking[part] = [n for n, shape in own.shapes.items() if n not in present or present[n].shape != shape]
        if not lacking[part]:
            file = StoredAs(stored, {name: name for name in own.shapes})
            return part, PartAlone(path, path, file, own.config, own.where)
    nearest = min(lacking, key=lambda part: len(lacking[part]) / len(encoders[part].shapes))
    why = f"it is {kinds.of_tensors(header)}"
    if 2 * len(lacking[nearest]) < len(encoders[nearest].shapes):
        why = f"of {nearest} it lacks {tensor_files.listed(lacking[nearest])}, or has them in other sizes"
    raise WeightsError(
        f"model.over: {path}: is none of the text encoders of {what} ({', '.join(encoders)}): {why}; leave it out, and "
        "those of the folder are read",
        code="E1478",
    )


def _under_own_names(own: Described, path: Path) -> Stored:
    if own.network in _T5:
        return t5.EncoderOnly(path, (path,))
    stored = InFile(path)
    if "." in own.network:
        return components.stored_as(own.network, stored)
    return StoredAs(stored, {name if name in own.shapes else _CLIP + name: name for name in stored.header()})


def _require_there(path: Path, setting: str) -> None:
    if not path.exists():
        raise WeightsError(f"{setting}: {path} is not there (looked in {Path.cwd()}); check the path", code="E1401")


def _require_safetensors(path: Path, setting: str) -> None:
    if path.is_dir() or path.suffix != ".safetensors":
        raise WeightsError(f"{setting}: {path} is no .safetensors file; give one", code="E1406")
