"""The shipped tokenizer: any text can be written in it, and common words are one token."""

from __future__ import annotations

import json
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.clip.tokenization_clip import CLIPTokenizer

from mezzotint.weights.folder.model_folder import shipped

FOLDER = shipped("tiny-sd") / "tokenizer"
TOOL = Path(__file__).parents[2] / "tools" / "make_tiny_sd_assets.py"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return CLIPTokenizer.from_pretrained(str(FOLDER), local_files_only=True)


def _bytes_of_symbols() -> dict[str, int]:
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(hidden)}


def _spelled(tokenizer: Any, text: str) -> str:
    """What the tokens spell, without word ends."""
    table = _bytes_of_symbols()
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(text, verbose=False).input_ids)[1:-1]
    return bytes(table[c] for token in tokens for c in token.replace("</w>", "")).decode()


def test_all_printable_ascii_is_spelled_back(tokenizer: Any) -> None:
    text = string.printable + "A photo of 3 CATS, 50% off (really!) 'quoted' <b>"
    assert _spelled(tokenizer, text) == "".join(text.lower().split())


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=40))
def test_any_text_becomes_known_tokens(text: str) -> None:
    tokenizer = CLIPTokenizer.from_pretrained(str(FOLDER), local_files_only=True)
    ids = tokenizer(text, verbose=False).input_ids
    assert ids[0] == tokenizer.bos_token_id
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.unk_token_id not in ids[1:-1]


@pytest.mark.parametrize("word", ["red", "circle", "photograph", "a", "the", "background", "astronaut"])
def test_common_words_are_one_token(tokenizer: Any, word: str) -> None:
    assert len(tokenizer(word).input_ids) == 3


def test_vocabulary_and_encoder_agree() -> None:
    vocabulary = json.loads((FOLDER / "vocab.json").read_text())
    config = json.loads((FOLDER.parent / "text_encoder" / "config.json").read_text())
    assert config["vocab_size"] == len(vocabulary) == max(vocabulary.values()) + 1
    assert config["bos_token_id"] == vocabulary["<|startoftext|>"]
    assert config["eos_token_id"] == vocabulary["<|endoftext|>"]


def test_the_tool_writes_what_ships(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(TOOL), str(tmp_path)], check=True, capture_output=True)
    made = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    ships = {p.relative_to(FOLDER.parent): p.read_bytes() for p in FOLDER.parent.rglob("*") if p.is_file()}
    assert made == ships
