"""Parquet and Arrow files with images in a column."""

from __future__ import annotations

import builtins
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def png(shade: int, size: tuple[int, int] = (70, 60)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (shade, 7, 9)).save(file, "PNG")
    return file.getvalue()


def images(*shades: int) -> list[dict[str, Any]]:
    return [{"bytes": png(shade), "path": f"{shade}.png"} for shade in shades]


def write(path: Path, columns: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> Path:
    """A parquet or arrow file by its ending; a column `image` holds embedded images unless the schema says more."""
    kinds = {"image": IMAGE, **(schema or {})}
    table = pa.table({name: pa.array(values, kinds.get(name)) for name, values in columns.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=3)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=3)
    return path


def catalogue(root: Path, index: Path, **values: Any) -> Catalogue:
    settings = {"path": [root], "format": "metadata", "resolution": 64, "buckets": {"step": 8}, **values}
    return build(DataSettings.model_validate(settings), index)


def error_of(root: Path, index: Path, **values: Any) -> DatasetError:
    with pytest.raises(DatasetError) as caught:
        catalogue(root, index, **values)
    return caught.value


def kept(index: Path) -> list[str]:
    """Names of the images that are kept beside the index."""
    return sorted(path.name for path in index.glob("*/images/*/*"))


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Imports as on a machine where the package is not installed."""
    real = builtins.__import__

    def imported(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", imported)
    for name in [name for name in sys.modules if name.startswith("mezzotint.data.formats.shared._")]:
        if name.endswith(("_arrow", "_hub")):
            monkeypatch.delitem(sys.modules, name)
    formats = sys.modules["mezzotint.data.formats.shared"]
    for name in ("_arrow", "_hub"):
        if hasattr(formats, name):
            monkeypatch.delattr(formats, name)
