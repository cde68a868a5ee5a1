"""Entries of one identity: their folder, and `layout.json` with their shape."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from mezzotint import durable, outside
from mezzotint.data.cache.store import Store, write_error
from mezzotint.errors import CacheError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_MAX_SIZE = 1 << 20

Layout = TypeVar("Layout", bound="DataclassInstance")


class EntryFolder(ABC, Generic[Layout]):
    """Entries of one identity. root: `data.cache.path`, resolved. kind: the folder below it. dependencies: everything
    that the numbers depend on besides sample and settings of a visit."""

    def __init__(self, root: Path, kind: str, layout_type: type[Layout], **dependencies: str | int) -> None:
        self.root = root
        self.identity = json.dumps(dependencies, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        self.folder = root / kind / hashlib.sha256(self.identity.encode()).hexdigest()[:16]
        self.layout: Layout | None = None
        self._layout_type: type[Layout] = layout_type

    @property
    @abstractmethod
    def stores(self) -> tuple[Store, ...]:
        """The stores opened so far."""

    def refresh(self) -> None:
        """Reads entries that other processes have added."""
        self.layout = self.layout or self._stored_layout()
        for store in self.stores:
            store.refresh()

    def define(self, layout: Layout) -> None:
        """Sets the layout of entries before the first one is written. Raises CacheError E1305 if the folder has another
        layout."""
        if self.layout not in (None, layout):
            raise CacheError(
                f"{self.folder}: its entries have another shape ({self.layout}) than the model's ({layout}) although "
                "both are from the same encoder; delete this folder",
                code="E1305",
            )
        if self.layout is None:
            text = json.dumps({"identity": self.identity, "layout": asdict(layout)}, indent=1, sort_keys=True)
            write_durably(self.folder / "layout.json", text.encode())
        self.layout = layout

    def _stored_layout(self) -> Layout | None:
        try:
            layout = outside.read_json(self.folder / "layout.json")["layout"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        names = {field.name for field in fields(self._layout_type)}
        needed = {field.name for field in fields(self._layout_type) if field.default is MISSING}
        has_fields = isinstance(layout, dict) and needed <= layout.keys() <= names
        is_valid = has_fields and all(_is_valid_size(name, size) for name, size in layout.items())
        return self._layout_type(**layout) if is_valid else None


def _is_valid_size(name: str, size: object) -> bool:
    """Whether a field of a layout may have this value."""
    least = 1 if name in ("channels", "pixels", "length", "width") else 0
    return isinstance(size, int) and isinstance(size, bool) == (name == "mask") and least <= size <= _MAX_SIZE


def write_durably(path: Path, data: bytes) -> None:
    """Writes a small file atomically. Raises CacheError E1301 or StorageError E1708 if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.sweep(path.parent, path.name)
        with durable.replace_atomically(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise write_error(path.parent, error, len(data)) from error
