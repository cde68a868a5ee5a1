"""The header of single files: what a file says about itself under the names of the ModelSpec (version 1.0.0).

github.com/Stability-AI/ModelSpec. Readers choose the prediction type and the size of pictures by it.
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
"""The program whose names the tensors carry, as the specification's examples write it."""

_START = "modelspec."
_HASH = "modelspec.hash_sha256"
LEGACY_HASH = "sshs_model_hash"
"""The same hash in kohya's words, without `0x`: by it programs know an adapter again."""
OPEN = "0x" + "0" * 64
_OLDER_HASH = "sshs_legacy_hash"
"""Of some bytes in the middle of the file, which older programs took."""
_KEPT = ("title", "description", "author", "license", "usage_hint", "tags", "category", "thumbnail", "merged_from")


Prediction = Literal["epsilon", "v", "edm", "v-edm", "epsilon-unscaled"]
Version = Literal["1", "2", "xl-base", "xl-refiner"]


@dataclass(frozen=True, slots=True)
class Description:
    """What a file's header says of its model. version: of Stable Diffusion. prediction: of `Prediction`. resolution:
    side of the pictures, in pixels."""

    version: Version
    prediction: str
    resolution: int
    title: str

    @property
    def architecture(self) -> str:
        """The specification's word. Version 2 has one for the noise at 512 pixels and one for the velocity at 768."""
        if self.version == "2":
            return "stable-diffusion-v2-768-v" if self.prediction == "v" else "stable-diffusion-v2-512"
        return "stable-diffusion-v1" if self.version == "1" else f"stable-diffusion-xl-v1-{self.version[3:]}"

    def metadata(self, before: Mapping[str, str]) -> dict[str, str]:
        """The header's entries. before: the header of the file that the model came from, whose words about author,
        licence and so on are kept, and those that are not of the specification.

        The hash is still open: `seal` puts it in when the file is written.
        """
        others = {k: v for k, v in before.items() if not k.startswith(_START) and k != "format"}
        kept = {_START + name: before[_START + name] for name in _KEPT if _START + name in before}
        words = {
            "sai_model_spec": VERSION,
            "architecture": self.architecture,
            "implementation": IMPLEMENTATION,
            "resolution": f"{self.resolution}x{self.resolution}",
            "prediction_type": self.prediction,
        }
        start = others | {"format": "pt", _HASH: OPEN, f"{_START}title": self.title} | kept
        return start | {_START + name: value for name, value in words.items()}


def prediction_of(metadata: Mapping[str, str]) -> Prediction | None:
    """What a file's header says it predicts; None when it says nothing."""
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


def opened(metadata: Mapping[str, str]) -> dict[str, str]:
    """The header's words of another file with its hashes left open, for `seal`."""
    words = {key: value for key, value in metadata.items() if key != _OLDER_HASH}
    return words | {key: value for key, value in ((_HASH, OPEN), (LEGACY_HASH, OPEN[2:])) if key in words}


def is_open(metadata: Mapping[str, str]) -> bool:
    """Whether a hash is to be put into a header."""
    return metadata.get(_HASH) == OPEN or metadata.get(LEGACY_HASH) == OPEN[2:]


def seal(path: Path) -> None:
    """Puts the SHA-256 of all tensor content, the bytes after the header, into a file that `describe` left open.

    The entries, which the library writes in any order, are sorted: equal models are equal files.
    """
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        assert is_open(header["__metadata__"]), path
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        hashes = {_HASH: f"0x{digest}", LEGACY_HASH: digest}
        words = header["__metadata__"] | {key: each for key, each in hashes.items() if key in header["__metadata__"]}
        sealed = header | {"__metadata__": dict(sorted(words.items()))}
        text = json.dumps(sealed, separators=(",", ":"), ensure_ascii=False).encode()
        assert len(text) <= length, path  # the same entries in another order; the format pads with spaces
        file.seek(8)
        file.write(text.ljust(length))
