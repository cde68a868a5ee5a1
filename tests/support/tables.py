"""Image folders with metadata tables."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mezzotint.errors import DatasetError
from support import data_sets

read = partial(data_sets.read, format="metadata", repeats=1.5)


def table(root: Path, *rows: Any, name: str = "metadata.jsonl") -> None:
    """Lines of JSON; what is text already stands as it is."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    data_sets.put(root, name, text="".join(f"{line}\n" for line in lines))


def row(name: str, text: Any = "a thing") -> dict[str, Any]:
    return {"file_name": name, "text": text}


def error_of(root: Path, **values: Any) -> DatasetError:
    with pytest.raises(DatasetError) as caught:
        read(root, **values)
    return caught.value


def copy_with_table(images: Path, folder: Path) -> None:
    """A folder of images once more, with a metadata.jsonl of the first six."""
    shutil.copytree(images, folder)
    lines = [{"file_name": f"000{n}.png", "text": f"shape number {n}"} for n in range(6)]
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
