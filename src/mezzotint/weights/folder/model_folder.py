"""A model folder in diffusers' layout: `model_index.json`, and a folder of configuration and weights per component.

Reading finds files and parses JSON. No class, script or URL that a folder names is ever imported or fetched.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.assets import ASSETS, MODELS
from mezzotint.errors import WeightsError
from mezzotint.weights.files.tensor_files import replacing

_STEMS = ("diffusion_pytorch_model", "model")
_PICKLED = (".bin", ".ckpt", ".pt", ".pth", ".pkl", ".msgpack", ".h5")

_TEXTS = (".json", ".jinja", ".txt")

_OF_TRAINING = re.compile(r"checkpoints|exports|logs|samples|checkpoint-\d+")
"""Folders that a training run leaves next to its finished model."""


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """A component's weights. path: a safetensors file or an index of shards. variant: such as "fp16", when only a
    variant's file exists, else ""."""

    path: Path
    variant: str = ""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with its parsed `model_index.json`."""

    root: Path
    index: Mapping[str, Any]

    def config(self, component: str, name: str = "config.json") -> dict[str, Any]:
        """A component's configuration, without `_name_or_path`. Raises WeightsError E1409."""
        return {k: v for k, v in read_json(self.root / component / name).items() if k != "_name_or_path"}

    def weights(self, component: str) -> StoredWeights | None:
        """A component's weights, or None when it has none. Raises WeightsError E1408 for pickled ones."""
        return find_weights(self.root / component)

    def has(self, component: str) -> bool:
        """Whether the component's folder exists."""
        return (self.root / component).is_dir()

    def components(self) -> list[str]:
        """The folders of the model, sorted, without hidden ones and those that training leaves next to a model."""
        folders = (path.name for path in self.root.iterdir() if path.is_dir() and not path.name.startswith("."))
        return sorted(name for name in folders if name in self.index or not _OF_TRAINING.fullmatch(name))


def open_folder(root: Path) -> ModelFolder:
    """Opens a model folder. Raises WeightsError E1401 when it does not exist, E1409 for a damaged model_index.json."""
    if not root.exists():
        raise WeightsError(f"model.path: {_describe_missing(root)}", code="E1401")
    return ModelFolder(root, read_json(root / "model_index.json"))


def _describe_missing(root: Path) -> str:
    """Where a path of a recipe was searched, and what to write instead."""
    if root.is_absolute():
        return f"{root} does not exist; give the path of a model's folder or file"
    searched = f"searched next to the recipe, in {Path.cwd()}, and among the models of `mezzotint ls models`"
    hub = "models on the hub are not downloaded: `hf download OWNER/NAME` downloads one and prints its folder"
    return f"{root} does not exist ({searched}); give the path of a model's folder or file; {hub}"


def shipped_names() -> tuple[str, ...]:
    """Names of the models that ship with the package."""
    return tuple(sorted(p.name for p in MODELS.iterdir() if (p / "model_index.json").is_file()))


def shipped_folder(name: str) -> Path:
    """The folder of a model that ships with the package. Raises WeightsError E1401 with the available names."""
    if name not in shipped_names():
        raise WeightsError(f"there is no shipped model {name!r}; available: {', '.join(shipped_names())}", code="E1401")
    return MODELS / name


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object. Raises WeightsError E1409 with the file and the problem."""
    try:
        value = outside.read_json(path)
    except outside.NotRegularFile as error:
        message = f"{path}: {error.strerror}, so not a configuration; get another copy"
        raise WeightsError(message, code="E1409") from error
    except OSError as error:
        raise WeightsError(
            f"{path}: cannot be read ({error.strerror}); the model folder is incomplete", code="E1409"
        ) from error
    except ValueError as error:
        raise WeightsError(f"{path}: not JSON ({error}); get another copy", code="E1409") from error
    if not isinstance(value, dict):
        raise WeightsError(f"{path}: must contain a JSON object", code="E1409")
    return value


def find_weights(folder: Path) -> StoredWeights | None:
    """The safetensors weights in a component's folder: the plain file, else an index of shards, else a variant's single
    file.

    Raises WeightsError E1401 where a pipe or device has such a name, E1408 when all are pickled.
    """
    for stem in _STEMS:
        for name in (f"{stem}.safetensors", f"{stem}.safetensors.index.json"):
            path = folder / name
            if path.is_file():
                return StoredWeights(path)
            if kind := outside.describe_file_kind(path):
                raise WeightsError(f"{path}: cannot be read ({kind}); get another copy", code="E1401")
    for stem in _STEMS:
        for path in sorted(folder.glob(f"{stem}.*.safetensors")):
            return StoredWeights(path, path.name.removeprefix(f"{stem}.").split(".")[0])
    pickled = [p.name for p in sorted(folder.glob("*")) if p.suffix in _PICKLED]
    if pickled:
        raise WeightsError(
            f"{folder}: has only {pickled[0]}, a pickle file, which is not opened; "
            "use the safetensors files of the model, or convert its folder: mezzotint convert FOLDER NEW_FOLDER",
            code="E1408",
        )
    return None


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes a JSON object, and creates its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def copy_component(source: Path, target: Path) -> None:
    """Copies a component's files byte for byte.

    Left out: programs; pickled weights if there are safetensors; hidden files and subfolders. Weights that exist only
    as a variant get the plain name, so readers find them without `variant`. A configuration that contains a path of
    this machine is written without it.
    """
    target.mkdir(parents=True)
    files = sorted(p for p in source.iterdir() if p.is_file() and not p.name.startswith("."))
    safe = any(p.suffix == ".safetensors" for p in files)
    weights = find_weights(source) if safe else None
    for path in files:
        if path.suffix == ".py" or (safe and path.suffix in _PICKLED):
            continue
        table = read_json(path) if path.name in ("config.json", "tokenizer_config.json") else {}
        if "_name_or_path" in table or "name_or_path" in table:
            write_json(target / path.name, {k: v for k, v in table.items() if not k.endswith("name_or_path")})
        else:
            is_only = weights is not None and weights.variant and path == weights.path and path.suffix == ".safetensors"
            name = path.name.replace(f".{weights.variant}.", ".") if weights is not None and is_only else path.name
            shutil.copyfile(path, target / name)
    for name, path in tokenizer_files(source).items() if source.name.startswith("tokenizer") else ():
        if path.parent != source:
            shutil.copyfile(path, target / name)


def complete_tokenizer(folder: Path) -> None:
    """Writes vocab.json and merges.txt, which older readers need, where a tokenizer folder has only tokenizer.json."""
    if (folder / "vocab.json").is_file() or not (folder / "tokenizer.json").is_file():
        return
    model = read_json(folder / "tokenizer.json").get("model", {})
    if "merges" not in model:  # such as T5's, which has no pairs
        return
    merges = [m if isinstance(m, str) else " ".join(m) for m in model.get("merges", ())]
    write_json(folder / "vocab.json", model.get("vocab", {}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{m}\n" for m in merges), encoding="utf-8")


def require_plain(folder: Path) -> None:
    """Checks a tokenizer's files before a library opens them unchecked. Raises WeightsError E1409 for a pipe or device
    among them, and for text files of hundreds of megabytes."""
    for path in sorted([*folder.iterdir(), *folder.glob("additional_chat_templates/*")]):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise WeightsError(f"{path}: is not a regular file; get another copy of the model", code="E1409")
        if path.suffix in _TEXTS and path.is_file() and path.stat().st_size > outside.LISTED:
            raise WeightsError(
                f"{path}: is larger than {outside.LISTED:,} bytes; get another copy of the model", code="E1409"
            )


def tokenizer_files(folder: Path) -> dict[str, Path]:
    """The files of a tokenizer's folder by name. Shipped models share the vocabularies of CLIP and T5, which are stored
    elsewhere and included."""
    paths = {path.name: path for path in sorted(folder.glob("*")) if path.is_file() and not path.name.startswith(".")}
    if "merges.txt" not in paths and "tokenizer.json" not in paths and folder.is_relative_to(MODELS):
        is_t5 = read_json(folder / "tokenizer_config.json").get("tokenizer_class") == "T5Tokenizer"
        kind, names = ("t5", ("tokenizer.json",)) if is_t5 else ("clip", ("merges.txt", "vocab.json"))
        paths |= {name: ASSETS / "tokenizers" / kind / name for name in names}
    return paths


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder next to `folder`, to be filled. At the end it is synced and renamed to `folder`; when the
    block fails it is removed. Raises WeightsError E1410 when `folder` exists, StorageError E1701."""
    _refuse_existing(folder)
    with replacing(folder) as aside:
        aside.mkdir(parents=True)
        yield aside
        _refuse_existing(folder)  # another process may have created it meanwhile


def _refuse_existing(folder: Path) -> None:
    if folder.exists():
        raise WeightsError(
            f"{folder}: already exists, and an export overwrites nothing; choose another folder", code="E1410"
        )
