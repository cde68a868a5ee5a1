"""The shipped tokenizer: it encodes any text, and common words are one token."""

from __future__ import annotations

import json
import shutil
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers.models.clip.tokenization_clip import CLIPTokenizer

from mezzotint.errors import WeightsError
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.folder.model_folder import shipped_folder
from support.sd_folder import FOLDER, edit

WORDS = shipped_folder("tiny-sd") / "tokenizer"
TOOL = Path(__file__).parents[3] / "tools" / "make_tiny_sd_assets.py"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return CLIPTokenizer.from_pretrained(str(WORDS), local_files_only=True)


def _bytes_of_symbols() -> dict[str, int]:
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(hidden)}


def _spelled(tokenizer: Any, text: str) -> str:
    """The text of the tokens, without end-of-word marks."""
    table = _bytes_of_symbols()
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(text, verbose=False).input_ids)[1:-1]
    return bytes(table[c] for token in tokens for c in token.replace("</w>", "")).decode()


def test_all_printable_ascii_is_spelled_back(tokenizer: Any) -> None:
    text = string.printable + "A photo of 3 CATS, 50% off (really!) 'quoted' <b>"
    assert _spelled(tokenizer, text) == "".join(text.lower().split())


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=40))
def test_any_text_becomes_tokens_of_the_vocabulary(text: str) -> None:
    tokenizer = CLIPTokenizer.from_pretrained(str(WORDS), local_files_only=True)
    ids = tokenizer(text, verbose=False).input_ids
    assert ids[0] == tokenizer.bos_token_id
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.unk_token_id not in ids[1:-1]


@pytest.mark.parametrize("word", ["red", "circle", "photograph", "a", "the", "background", "astronaut"])
def test_common_words_are_one_token(tokenizer: Any, word: str) -> None:
    assert len(tokenizer(word).input_ids) == 3


def test_vocabulary_and_encoder_agree() -> None:
    vocabulary = json.loads((WORDS / "vocab.json").read_text())
    config = json.loads((WORDS.parent / "text_encoder" / "config.json").read_text())
    assert config["vocab_size"] == len(vocabulary) == max(vocabulary.values()) + 1
    assert config["bos_token_id"] == vocabulary["<|startoftext|>"]
    assert config["eos_token_id"] == vocabulary["<|endoftext|>"]


def test_the_tool_writes_what_ships(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(TOOL), str(tmp_path)], check=True, capture_output=True)
    written = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    ships = {p.relative_to(WORDS.parent): p.read_bytes() for p in WORDS.parent.rglob("*") if p.is_file()}
    assert written == ships


def test_only_half_precision_variant_is_read_and_reported(copy: Path, family: Family) -> None:
    plain = copy / "unet" / "diffusion_pytorch_model.safetensors"
    save_file({k: v.half() for k, v in load_file(plain).items()}, plain.with_suffix(".fp16.safetensors"))
    plain.with_suffix(".fp16.safetensors").rename(copy / "unet" / "diffusion_pytorch_model.fp16.safetensors")
    plain.unlink()
    half = Family.of(ModelSettings(path=copy), only=["denoiser"])
    assert any("variant fp16" in note for note in half.notes)
    assert not family.notes
    for a, b in zip(half.parts()["denoiser"].parameters(), family.parts()["denoiser"].parameters(), strict=True):
        assert torch.equal(a, b.half().float())


def test_fingerprint_depends_on_content_and_not_on_the_path(copy: Path) -> None:
    here, there = ModelSettings(path=FOLDER), ModelSettings(path=copy)
    parts = ("denoiser", "text_encoder", "vae")
    assert len({Family.files.of(here).fingerprint(part) for part in parts}) == 3
    assert all(Family.files.of(here).fingerprint(part) == Family.files.of(there).fingerprint(part) for part in parts)
    edit(copy / "vae" / "config.json", _name_or_path="/somewhere", _diffusers_version="9.9")
    assert Family.files.of(here).fingerprint("vae") == Family.files.of(there).fingerprint("vae")
    edit(copy / "vae" / "config.json", scaling_factor=0.5)
    assert Family.files.of(here).fingerprint("vae") != Family.files.of(there).fingerprint("vae")
    assert Family.files.of(here).media_identity() != Family.files.of(there).media_identity()
    assert Family.files.of(here).text_identity() == Family.files.of(there).text_identity()


def test_folder_without_weights_is_refused_unless_random_is_set() -> None:
    with pytest.raises(WeightsError, match=r"model\.weights=random") as caught:
        Family.of(ModelSettings(path=shipped_folder("tiny-sd")))
    assert caught.value.code == "E1407"


@pytest.mark.parametrize(
    ("name", "values", "words", "code"),
    [
        ("unet/config.json", {"in_channels": 9}, "of another shape: ", "E1405"),
        ("unet/config.json", {"in_channels": 5}, "depth-to-image", "E1406"),
        ("unet/config.json", {"cross_attention_dim": 2048}, "SDXL", "E1406"),
        ("model_index.json", {"text_encoder_2": ["transformers", "CLIPTextModel"]}, "SDXL", "E1406"),
        ("text_encoder/config.json", {"hidden_size": 48}, "text of width 32, the other part has 48", "E1409"),
        ("vae/config.json", {"latent_channels": 16}, "different models", "E1409"),
        ("unet/config.json", {"layers_per_block": 1}, "unexpected: ", "E1405"),
        ("unet/config.json", {"block_out_channels": [16, 32, 32, 64]}, "of another shape: ", "E1405"),
        ("unet/config.json", {"down_block_types": ["NoSuchBlock"] * 4}, "no network can be built", "E1409"),
    ],
)
def test_model_of_another_kind_is_refused_by_name(
    copy: Path, name: str, values: dict[str, Any], words: str, code: str
) -> None:
    edit(copy / name, **values)
    with pytest.raises(WeightsError, match=words) as caught:
        Family.of(ModelSettings(path=copy))
    assert caught.value.code == code
    assert str(copy) in caught.value.message


def test_path_without_a_model_is_refused_by_name(copy: Path, tmp_path: Path) -> None:
    cases = {
        tmp_path / "nowhere": ("E1401", "does not exist"),
        copy / "vae": ("E1406", "autoencoder"),
        copy / "unet" / "diffusion_pytorch_model.safetensors": ("E1406", "a standalone denoiser"),
        tmp_path: ("E1406", "without model_index.json"),
    }
    for path, (code, words) in cases.items():
        with pytest.raises(WeightsError, match=words) as caught:
            Family.of(ModelSettings(path=path))
        assert caught.value.code == code


@pytest.mark.parametrize("component", ["unet", "vae", "text_encoder", "tokenizer", "scheduler"])
def test_missing_component_is_named(copy: Path, component: str) -> None:
    shutil.rmtree(copy / component)
    with pytest.raises(WeightsError, match=f"lacks {component}/") as caught:
        Family.of(ModelSettings(path=copy), only=["denoiser"])
    assert caught.value.code == "E1409"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("merges.txt", None, "lacks merges.txt"),
        ("vocab.json", None, "vocab.json"),
        ("vocab.json", "{", "not JSON"),
        ("vocab.json", '{"a": 0}', "tokenizer cannot be used"),
    ],
)
def test_damaged_tokenizer_is_named(copy: Path, name: str, content: str | None, words: str) -> None:
    path = copy / "tokenizer" / name
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(WeightsError, match=words) as caught:
        Family.of(ModelSettings(path=copy), only=["text_encoder"]).encode_text(["a"])
    assert caught.value.code == "E1409"


def test_tokenizer_of_another_model_is_refused(copy: Path) -> None:
    path = copy / "tokenizer" / "vocab.json"
    edit(path, **{f"new{i}": 713 + i for i in range(7)})
    with pytest.raises(WeightsError, match="720 tokens, the text encoder has 713"):
        Family.of(ModelSettings(path=copy), only=["text_encoder"]).encode_text(["a"])


def test_clip_skip_that_leaves_no_layer_is_refused() -> None:
    with pytest.raises(WeightsError, match="at most 2") as caught:
        Family.of(ModelSettings(path=FOLDER, clip_skip=3))
    assert caught.value.code == "E1409"
