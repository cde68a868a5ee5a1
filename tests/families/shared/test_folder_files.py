"""Model folders of any family: parts, their locations, and the tokenizer files that determine text embeddings."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mezzotint import registry
from mezzotint.families.shared.folder_files import FolderFiles
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.folder.model_folder import shipped_folder
from support.messages import refused

FLOW = Path(__file__).parents[2] / "parity" / "data" / "flow"
MODELS = {"sd": shipped_folder("tiny-sd"), "sd3": FLOW / "sd3" / "model", "qwen-image": FLOW / "qwen_image" / "model"}


def described(family: str, folder: Path) -> FolderFiles:
    files = registry.find("families", family).Files.from_configs(ModelSettings(family=family, path=folder))
    assert isinstance(files, FolderFiles)
    return files


@pytest.mark.parametrize("family", MODELS)
def test_parts_are_read_from_their_own_folders(family: str) -> None:
    files = described(family, MODELS[family])
    assert files.parts == tuple(part for part in files.spec.parts if part in files.configs)
    assert set(files.text_parts) < set(files.parts)
    for part in files.parts:
        assert files.where(part).is_file()
        assert files.shapes(part)


@pytest.mark.parametrize("family", MODELS)
def test_identity_of_text_depends_on_the_tokenizer_files(family: str, tmp_path: Path) -> None:
    root = Path(shutil.copytree(MODELS[family], tmp_path / "model"))
    folder = root / described(family, root).spec.tokenizers["text_encoder"]
    before = described(family, root).tokenizer_fingerprint("text_encoder")
    (folder / "README.md").write_text("a word")
    assert described(family, root).tokenizer_fingerprint("text_encoder") == before
    (folder / "special_tokens_map.json").write_text('{"pad_token": "!!"}')
    assert described(family, root).tokenizer_fingerprint("text_encoder") != before


def test_part_without_weights_is_named() -> None:
    files = described("sd", MODELS["sd"])
    with refused("E1407", "unet: has a configuration but no weights"):
        files.weights_of("denoiser")
