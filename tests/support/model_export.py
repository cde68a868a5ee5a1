"""Tiny models with the files they were loaded from, as an export needs them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import pytest
from torch import Tensor

from mezzotint.diffusion.parameterization import Parameterization
from mezzotint.families.base import ModelFamily
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.files.tensor_files import TensorInfo, kind_of
from mezzotint.weights.folder import components
from mezzotint.weights.folder.model_folder import ModelFolder
from mezzotint.weights.keymap import KeyMap
from mezzotint.weights.model_files import ModelFiles
from mezzotint.weights.single_file import planned
from mezzotint.weights.single_file.extras import Extras

AnyFamily = TypeVar("AnyFamily", bound=ModelFamily)
_FILES: WeakKeyDictionary[ModelFamily, ModelFiles] = WeakKeyDictionary()


def load_model(
    kind: type[AnyFamily], settings: ModelSettings, only: Collection[str] | None = None, *, seed: int = 0
) -> AnyFamily:
    """A model whose files are remembered for `export_model`."""
    return _loaded(kind, kind.files.of(settings, seed), only)


def tiny_model(kind: type[AnyFamily], seed: int = 0) -> AnyFamily:
    """`Family.tiny`, with its files."""
    return _loaded(kind, kind.files.tiny(seed), None)


def files_of(family: ModelFamily) -> ModelFiles:
    """The files of a model that came from here."""
    return _FILES[family]


def export_model(
    family: ModelFamily,
    folder: Path,
    weights: Mapping[str, Tensor] | None = None,
    *,
    prediction: str = "",
    **changed: Any,
) -> Path:  # fmt: skip
    """Writes a model that came from here as a folder: in float32 and as it was trained, where nothing else is given."""
    form = Parameterization(prediction or family.prediction)
    arguments = {"dtype": "fp32", "schedule": family.schedule, "trained_form": form} | changed
    family.export(folder, files_of(family), weights=weights or {}, **arguments)
    return folder


def _loaded(kind: type[AnyFamily], files: ModelFiles, only: Collection[str] | None) -> AnyFamily:
    family = kind.load(files, only)
    _FILES[family] = files
    return family


@dataclass(frozen=True)
class InMemory:
    """Tensors at hand: `files.Stored`."""

    tensors: Mapping[str, Tensor]
    path: Path = Path("memory")

    def header(self) -> dict[str, TensorInfo]:
        return {name: TensorInfo(kind_of(t.dtype), tuple(t.shape)) for name, t in self.tensors.items()}

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        return {name: self.tensors[name] for name in names}


def in_one_file(layout: KeyMap, folder: ModelFolder, held: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors of a single file. held: by component, under our names."""
    configs = {name: folder.config(name) for name in held}
    shapes = {name: {n: tuple(t.shape) for n, t in tensors.items()} for name, tensors in held.items()}
    stored = {name: InMemory(tensors) for name, tensors in held.items()}
    return dict(planned.read_in_order(stored, planned.plan_layout(layout, configs, shapes, stored, Extras())))


def counted_portions(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """The bytes of each portion that files are merged in from now on. most: of a portion."""
    portions: list[int] = []
    plain = planned.read_portion

    def counted(stored: Any, portion: Any) -> Iterator[tuple[str, Tensor]]:
        portions.append(sum(one.bytes for one in portion))
        return plain(stored, portion)

    monkeypatch.setattr(planned, "read_portion", counted)
    monkeypatch.setattr(planned, "CHUNK", most)
    return portions


def is_sealed(path: Path) -> bool:
    """Whether a file's tensor content is what its header says. False when it says nothing."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        written = str(header.get("__metadata__", {}).get("modelspec.hash_sha256", ""))
        return written == f"0x{hashlib.file_digest(file, 'sha256').hexdigest()}"


def second_version(first: Path, folder: Path) -> Path:
    """A small SD2 folder beside one of SD1."""
    shutil.copytree(first, folder)
    networks: dict[str, components.Network] = {"unet": "unet", "text_encoder": "clip_text"}
    for name, changes in {"unet": {"use_linear_projection": True}, "text_encoder": {"hidden_act": "gelu"}}.items():
        path = folder / name / "config.json"
        config = json.loads(path.read_text()) | changes
        module = components.random_network(networks[name], config, 5, name, where=path)
        components.write(networks[name], module.state_dict(), config, folder / name, "fp32")
    return folder
