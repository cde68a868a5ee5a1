"""Writes the tokenizer of mezzotint-mini: CLIP's structure, a vocabulary of its own.

    python tools/mini/make_tokenizer.py FOLDER

Byte-level like CLIP's, so that any text can be written in it. Every word of the world's captions is one token: its
merges come first. After them come merges of ordinary English words, so that a user's captions are not spelled letter
by letter; what is in neither list falls into pieces. Last come the merges of `wug`, a token that the training never
uses: a word that a lesson teaches should be one, as in DreamBooth (arXiv:2208.12242), since a word in three pieces
moves all words after it to other places of the caption. Nothing is downloaded, and running the tool again writes the
same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from make_tiny_sd_assets import END, START, WORD_END, WORD_LIST, byte_symbols, learn_merges, write_json
from mini import world

LENGTH = 24
"""Tokens of a caption, start and end included; the world's longest takes 16."""

MERGES = 540
"""Pairs of symbols that are joined: the world's words whole, the rest for ordinary English."""

_SCENES = 2000  # of these the captions are read: every word of the grammar is among them many times


def world_words() -> list[str]:
    """Every word and sign of the captions of scenes, sorted."""
    said = (text for index in range(_SCENES) for text in world.captions(world.scene(index, 0)))
    return sorted({word for text in said for word in text.replace(",", " , ").split()})


def merges() -> list[tuple[str, str]]:
    """MERGES pairs, in the order in which they are applied."""
    ours = world_words()
    first = learn_merges(ours, MERGES)
    known = set(first)
    others = [word for word in dict.fromkeys(WORD_LIST.split()) if word not in ours]
    later = [pair for pair in learn_merges(others, MERGES) if pair not in known]
    kept = [pair for pair in learn_merges([world.WUG], MERGES) if pair not in known]
    return (first + later)[: MERGES - len(kept)] + kept


def vocabulary(pairs: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Token → number: 256 bytes, the same at a word's end, the merged pieces, start and end."""
    symbols = byte_symbols()
    pieces = ("".join(pair) for pair in pairs)
    tokens = [*symbols, *(symbol + WORD_END for symbol in symbols), *pieces, START, END]
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def write_tokenizer(folder: Path) -> dict[str, int]:
    """Writes the four files that every version of CLIPTokenizer reads. Returns the vocabulary."""
    pairs = merges()
    numbers = vocabulary(pairs)
    special = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": END}
    settings = {
        "tokenizer_class": "CLIPTokenizer",
        "model_max_length": LENGTH,
        "do_lower_case": True,
        "add_prefix_space": False,
        "errors": "replace",
    }
    write_json(folder / "vocab.json", numbers, indent=None)
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in pairs), encoding="utf-8")
    write_json(folder / "special_tokens_map.json", special)
    write_json(folder / "tokenizer_config.json", special | settings)
    return numbers


if __name__ == "__main__":
    write_tokenizer(Path(sys.argv[1]))
