"""A model folder in diffusers' layout: `model_index.json`, and a folder of configuration and weights per component.

Reading finds files and parses JSON. No class, script or address that a folder names is ever imported or fetched.
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
"""Folders of a run, ours or of diffusers' scripts, in which the finished model lies, too."""


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """A component's weights. path: a safetensors file or an index of shards. variant: "fp16" and the like when only
    such a file is there, else ""."""

    path: Path
    variant: str = ""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with its parsed `model_index.json`."""

    root: Path
    index: Mapping[str, Any]

    def config(self, component: str, name: str = "config.json") -> dict[str, Any]:
        """A component's configuration, without the path it was made at. Raises WeightsError E1409."""
        return {k: v for k, v in read_json(self.root / component / name).items() if k != "_name_or_path"}

    def weights(self, component: str) -> StoredWeights | None:
        """Where a component's weights lie, or None when it has none. Raises WeightsError E1408 for pickled ones."""
        return find_weights(self.root / component)

    def has(self, component: str) -> bool:
        """Whether the component's folder is there."""
        return (self.root / component).is_dir()

    def components(self) -> list[str]:
        """The folders of the model, sorted: hidden ones and what training leaves beside a model are none."""
        folders = (path.name for path in self.root.iterdir() if path.is_dir() and not path.name.startswith("."))
        return sorted(name for name in folders if name in self.index or not _OF_TRAINING.fullmatch(name))


def open_folder(root: Path) -> ModelFolder:
    """Opens a model folder. Raises WeightsError E1401 when there is none, E1409 for a damaged model_index.json."""
    if not root.exists():
        raise WeightsError(f"model.path: {_not_there(root)}", code="E1401")
    return ModelFolder(root, read_json(root / "model_index.json"))


def _not_there(root: Path) -> str:
    """Where a path of a recipe was looked for in vain, and what to write instead."""
    if root.is_absolute():
        return f"{root} is not there; write the path of a model's folder or file"
    looked = f"looked beside the recipe, in {Path.cwd()}, and among what `mezzotint ls models` lists"
    hub = "models of the hub are not fetched: `hf download OWNER/NAME` does it and prints the folder"
    return f"{root} is not there ({looked}); write the path of a model's folder or file; {hub}"


def shipped_names() -> tuple[str, ...]:
    """Names of the models that travel with the package."""
    return tuple(sorted(p.name for p in MODELS.iterdir() if (p / "model_index.json").is_file()))


def shipped(name: str) -> Path:
    """The folder of a model that travels with the package. Raises WeightsError E1401 listing those there are."""
    if name not in shipped_names():
        raise WeightsError(f"no model called {name!r} ships; there are: {', '.join(shipped_names())}", code="E1401")
    return MODELS / name


def read_json(path: Path) -> dict[str, Any]:
    """A JSON table. Raises WeightsError E1409 naming the file and what is wrong with it."""
    try:
        value = outside.read_json(path)
    except outside.NoPlainFile as error:
        what = f"{path}: {error.strerror}, so not a configuration; take another copy"
        raise WeightsError(what, code="E1409") from error
    except OSError as error:
        raise WeightsError(
            f"{path}: cannot be read ({error.strerror}); the model folder is incomplete", code="E1409"
        ) from error
    except ValueError as error:
        raise WeightsError(f"{path}: not JSON ({error}); take another copy", code="E1409") from error
    if not isinstance(value, dict):
        raise WeightsError(f"{path}: must hold a table in braces", code="E1409")
    return value


def find_weights(folder: Path) -> StoredWeights | None:
    """The safetensors weights in a component's folder: the plain file, else an index of shards, else a
    variant's single file.

    Raises WeightsError E1401 where a pipe or a device has such a name, E1408 when there are only pickled ones.
    """
    for stem in _STEMS:
        for name in (f"{stem}.safetensors", f"{stem}.safetensors.index.json"):
            path = folder / name
            if path.is_file():
                return StoredWeights(path)
            if what := outside.said_of(path):
                raise WeightsError(f"{path}: cannot be read ({what}); take another copy", code="E1401")
    for stem in _STEMS:
        for path in sorted(folder.glob(f"{stem}.*.safetensors")):
            return StoredWeights(path, path.name.removeprefix(f"{stem}.").split(".")[0])
    pickled = [p.name for p in sorted(folder.glob("*")) if p.suffix in _PICKLED]
    if pickled:
        raise WeightsError(
            f"{folder}: has only {pickled[0]}, a pickle file, which is not opened here; "
            "take the safetensors files of the model, or convert its folder: mezzotint convert FOLDER NEW_FOLDER",
            code="E1408",
        )
    return None


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes a JSON table, making the folder it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def copy_component(source: Path, target: Path) -> None:
    """Copies a component's files byte for byte.

    Left out: programs; pickled weights where safetensors are there; hidden files and folders inside it. Weights that
    are there as a variant alone take the plain name, so that readers find them without being told. A configuration
    that tells a path of this machine is written without it.
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
            alone = weights is not None and weights.variant and path == weights.path and path.suffix == ".safetensors"
            name = path.name.replace(f".{weights.variant}.", ".") if weights is not None and alone else path.name
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
    """Before a library reads a tokenizer's files by itself, without a look at what they are. Raises WeightsError E1409
    for a pipe or a device among them, and for a text of hundreds of megabytes."""
    for path in sorted([*folder.iterdir(), *folder.glob("additional_chat_templates/*")]):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise WeightsError(f"{path}: is no plain file; take another copy of the model", code="E1409")
        if path.suffix in _TEXTS and path.is_file() and path.stat().st_size > outside.LISTED:
            raise WeightsError(
                f"{path}: is larger than {outside.LISTED:,} bytes; take another copy of the model", code="E1409"
            )


def tokenizer_files(folder: Path) -> dict[str, Path]:
    """The files of a tokenizer's folder by name. Models that ship share one vocabulary, CLIP's, which lies elsewhere
    and is among them here."""
    paths = {path.name: path for path in sorted(folder.glob("*")) if path.is_file() and not path.name.startswith(".")}
    if "merges.txt" not in paths and "tokenizer.json" not in paths and folder.is_relative_to(MODELS):
        paths |= {name: ASSETS / "tokenizers" / "clip" / name for name in ("merges.txt", "vocab.json")}
    return paths


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder beside `folder`, to be filled. At the end it gets that name and is complete on the disk; when the block
    fails it is removed. Raises WeightsError E1410 when `folder` is there, StorageError E1701."""
    _refuse_there(folder)
    with replacing(folder) as aside:
        aside.mkdir(parents=True)
        yield aside
        _refuse_there(folder)  # it may have come meanwhile


def _refuse_there(folder: Path) -> None:
    if folder.exists():
        raise WeightsError(f"{folder}: is already there; an export does not write over anything", code="E1410")
