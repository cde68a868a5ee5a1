"""Metadata in the header of single files, by the ModelSpec (version 1.0.0), github.com/Stability-AI/ModelSpec.

Readers choose the prediction type and the image size by it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

VERSION = "1.0.0"
IMPLEMENTATION = "https://github.com/Stability-AI/generative-models"
"""The program whose tensor names the file uses, as in the specification's examples."""

_START = "modelspec."
_HASH = "modelspec.hash_sha256"
LEGACY_HASH = "sshs_model_hash"
"""kohya's key of the same hash, without `0x`, by which programs identify an adapter."""
OPEN = "0x" + "0" * 64
_OLDER_HASH = "sshs_legacy_hash"
"""The hash of older programs, of some bytes in the middle of the file."""
_PRESERVED = ("title", "description", "author", "license", "usage_hint", "tags", "category", "thumbnail", "merged_from")


Prediction = Literal["epsilon", "v", "edm", "v-edm", "epsilon-unscaled"]
Version = Literal["1", "2", "xl-base", "xl-refiner"]


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a model in a file's header. version: of Stable Diffusion. prediction: one of `Prediction`.
    resolution: side of the images, in pixels."""

    version: Version
    prediction: str
    resolution: int
    title: str

    @property
    def architecture(self) -> str:
        """The specification's identifier. Version 2 has one for epsilon at 512 pixels and one for v at 768."""
        if self.version == "2":
            return "stable-diffusion-v2-768-v" if self.prediction == "v" else "stable-diffusion-v2-512"
        return "stable-diffusion-v1" if self.version == "1" else f"stable-diffusion-xl-v1-{self.version[3:]}"

    def metadata(self, before: Mapping[str, str]) -> dict[str, str]:
        """The header's entries. before: the header of the file that the model came from, whose author, licence and
        similar entries are kept, as are those outside the specification.

        The hash is a placeholder: `seal` sets it when the file is written.
        """
        others = {k: v for k, v in before.items() if not k.startswith(_START) and k != "format"}
        preserved = {_START + name: before[_START + name] for name in _PRESERVED if _START + name in before}
        entries = {
            "sai_model_spec": VERSION,
            "architecture": self.architecture,
            "implementation": IMPLEMENTATION,
            "resolution": f"{self.resolution}x{self.resolution}",
            "prediction_type": self.prediction,
        }
        start = others | {"format": "pt", _HASH: OPEN, f"{_START}title": self.title} | preserved
        return start | {_START + name: value for name, value in entries.items()}


def prediction_of(metadata: Mapping[str, str]) -> Prediction | None:
    """What the model predicts, by its file's header; None if the header does not contain it."""
    match metadata.get(_START + "prediction_type", ""):
        case "v" | "v_prediction":
            return "v"
        case "epsilon" | "eps":
            return "epsilon"
        case "edm" | "v-edm" | "epsilon-unscaled" as ours:
            return ours
    match metadata.get(_START + "architecture", ""):
        case "stable-diffusion-v2-768-v":
            return "v"
        case "stable-diffusion-v2-512":
            return "epsilon"
        case _:
            return None


def with_open_hashes(metadata: Mapping[str, str]) -> dict[str, str]:
    """The metadata of another file with placeholders for its hashes, for `seal`."""
    entries = {key: value for key, value in metadata.items() if key != _OLDER_HASH}
    return entries | {key: value for key, value in ((_HASH, OPEN), (LEGACY_HASH, OPEN[2:])) if key in entries}


def is_open(metadata: Mapping[str, str]) -> bool:
    """Whether a header has a placeholder for a hash."""
    return metadata.get(_HASH) == OPEN or metadata.get(LEGACY_HASH) == OPEN[2:]


def seal(path: Path) -> None:
    """Replaces the placeholders in a file by the SHA-256 of all tensor content, the bytes after the header.

    Entries, which the library writes in any order, are sorted: equal models give equal files.
    """
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        assert is_open(header["__metadata__"]), path
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        hashes = {_HASH: f"0x{digest}", LEGACY_HASH: digest}
        entries = header["__metadata__"] | {key: each for key, each in hashes.items() if key in header["__metadata__"]}
        sealed = header | {"__metadata__": dict(sorted(entries.items()))}
        text = json.dumps(sealed, separators=(",", ":"), ensure_ascii=False).encode()
        assert len(text) <= length, path  # the same entries in another order; the format pads with spaces
        file.seek(8)
        file.write(text.ljust(length))
