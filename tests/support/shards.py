"""WebDataset shards of small images."""

from __future__ import annotations

import io
import json
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from mezzotint.data.catalogue.catalogue import Catalogue, build
from support import data_sets


def image_bytes(shade: int, size: tuple[int, int] = (40, 32), kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (shade, 7, 9)).save(file, kind)
    return file.getvalue()


def shard(path: Path, *fields: tuple[str, bytes | str | dict[str, Any]], format: int = tarfile.PAX_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=format) as archive:
        for name, content in fields:
            data = json.dumps(content) if isinstance(content, dict) else content
            data = data.encode() if isinstance(data, str) else data
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


settings_of = partial(data_sets.settings_of, format="webdataset")


def opened(path: Path, index: Path, **values: Any) -> Catalogue:
    return build(settings_of(path, **values), index, workers=1)
