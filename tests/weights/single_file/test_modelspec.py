"""The metadata in the header of a single file, and the hash of its content."""

from __future__ import annotations

from pathlib import Path

from mezzotint.weights.files.tensor_files import read_metadata
from mezzotint.weights.single_file import modelspec
from support.model_export import is_sealed


def test_header_describes_the_model(sd1: Path, sd2: tuple[Path, Path]) -> None:
    metadata = read_metadata(sd1)
    assert metadata["modelspec.sai_model_spec"] == "1.0.0"
    assert metadata["modelspec.architecture"] == "stable-diffusion-v1"
    assert metadata["modelspec.prediction_type"] == "epsilon"
    assert metadata["modelspec.resolution"] == "64x64"
    assert metadata["modelspec.title"] == "sd1"
    assert read_metadata(sd2[1])["modelspec.architecture"] == "stable-diffusion-v2-512"
    assert modelspec.Description("2", "v", 768, "").architecture == "stable-diffusion-v2-768-v"


def test_hash_covers_all_tensor_content(sd1: Path, tmp_path: Path) -> None:
    assert is_sealed(sd1)
    content = bytearray(sd1.read_bytes())
    content[-1] ^= 1
    (tmp_path / "x.safetensors").write_bytes(content)
    assert not is_sealed(tmp_path / "x.safetensors")


def test_metadata_of_the_source_is_kept() -> None:
    before = {"modelspec.author": "someone", "modelspec.title": "Theirs", "modelspec.prediction_type": "v", "x": "y"}
    metadata = modelspec.Description("1", "epsilon", 512, "new").metadata(before)
    assert metadata["x"] == "y"
    assert metadata["modelspec.author"] == "someone"
    assert metadata["modelspec.title"] == "Theirs"
    assert metadata["modelspec.prediction_type"] == "epsilon"
