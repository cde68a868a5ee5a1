"""Files of learned tokens: every layout of other programs is read, and other files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mezzotint.errors import WeightsError
from mezzotint.weights.files import learned_tokens

ONE, TWO = ("text_encoder",), ("text_encoder", "text_encoder_2")


def rows(number: int, width: int) -> torch.Tensor:
    return torch.arange(number * width, dtype=torch.float32).reshape(number, width) / 7


@pytest.mark.parametrize("encoders", [ONE, TWO])
def test_written_embeddings_are_read_in_both_layouts(tmp_path: Path, encoders: tuple[str, ...]) -> None:
    own = {part: rows(2, 8 + 4 * number) for number, part in enumerate(encoders)}
    written = learned_tokens.write(tmp_path, {"<red toy>": own}, torch.float32, {"format": "pt"})
    names = {str(file.relative_to(tmp_path)) for file in written}
    assert names == {*learned_tokens.DIFFUSERS_NAMES[: len(encoders)], "embeddings/red-toy.safetensors"}
    for place in (tmp_path, tmp_path / "embeddings" / "red-toy.safetensors"):
        read = learned_tokens.read(place, encoders)
        assert all(torch.equal(read[part], own[part]) for part in encoders)
    assert list(load_file(tmp_path / "learned_embeds.safetensors")) == ["<red toy>"]
    assert learned_tokens.fingerprint_of(tmp_path) != learned_tokens.fingerprint_of(
        tmp_path / "learned_embeds.safetensors"
    )


def test_several_tokens_have_separate_folders(tmp_path: Path) -> None:
    words = {word: {"text_encoder": rows(1, 8)} for word in ("<a>", "<b>")}
    learned_tokens.write(tmp_path, words, torch.float16, {"format": "pt"})
    there = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.safetensors")}
    assert there == {
        "a/learned_embeds.safetensors", "b/learned_embeds.safetensors", "embeddings/a.safetensors",
        "embeddings/b.safetensors",
    }  # fmt: skip
    assert load_file(tmp_path / "embeddings" / "a.safetensors")["emb_params"].dtype == torch.float16


def test_tokens_next_to_an_adapter_are_found_with_their_files(tmp_path: Path) -> None:
    adapter = tmp_path / "fox.safetensors"
    assert learned_tokens.tokens_next_to(adapter) == {}
    learned_tokens.write(tmp_path, {"<a b>": {"text_encoder": rows(1, 8)}}, torch.float32, {"format": "pt"})
    brought = {"<a b>": tmp_path / "embeddings" / "a-b.safetensors"}
    assert learned_tokens.tokens_next_to(adapter) == learned_tokens.tokens_next_to(tmp_path) == brought
    (tmp_path / "c").mkdir()
    save_file({"<c>": rows(1, 8)}, tmp_path / "c" / "learned_embeds.safetensors")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "learned_embeds.safetensors").write_bytes(b"nothing")
    assert learned_tokens.tokens_next_to(tmp_path) == brought | {"<c>": tmp_path / "c" / "learned_embeds.safetensors"}


@pytest.mark.usefixtures("pickles_read_here")
def test_files_of_other_programs_are_read(tmp_path: Path) -> None:
    a1111 = {"string_to_token": {"*": 265}, "string_to_param": {"*": rows(3, 8)}, "name": "toy", "step": 500,
             "sd_checkpoint": None, "sd_checkpoint_name": None}  # fmt: skip
    torch.save(a1111, tmp_path / "toy.pt")
    save_file({"<toy>": rows(1, 8)[0]}, tmp_path / "flat.safetensors")
    save_file({"clip_g": rows(2, 12), "clip_l": rows(2, 8)}, tmp_path / "xl.safetensors")
    assert torch.equal(learned_tokens.read(tmp_path / "toy.pt", ONE)["text_encoder"], rows(3, 8))
    assert learned_tokens.read(tmp_path / "flat.safetensors", ONE)["text_encoder"].shape == (1, 8)
    read = learned_tokens.read(tmp_path / "xl.safetensors", TWO)
    assert {part: tuple(own.shape) for part, own in read.items()} == {"text_encoder": (2, 8), "text_encoder_2": (2, 12)}


def test_files_without_a_learned_token_are_refused(tmp_path: Path) -> None:
    save_file({"a": rows(1, 8), "b": rows(1, 8)}, tmp_path / "two.safetensors")
    save_file({"a": rows(1, 8)}, tmp_path / "one.safetensors")
    save_file({"clip_g": rows(1, 12), "clip_l": rows(2, 8)}, tmp_path / "odd.safetensors")
    for path, encoders, why in (
        (tmp_path / "two.safetensors", ONE, r"contains 2 tensors \(a, b\)"),
        (tmp_path / "one.safetensors", TWO, "for a model with 1 text encoder, this one has 2"),
        (tmp_path / "odd.safetensors", TWO, "different number of rows"),
        (tmp_path, ONE, "has no learned_embeds.safetensors"),
    ):
        with pytest.raises(WeightsError, match=why) as caught:
            learned_tokens.read(path, encoders)
        assert caught.value.code == "E1471"
    save_file({"a": torch.full((1, 8), torch.nan)}, tmp_path / "nan.safetensors")
    with pytest.raises(WeightsError, match=r"not finite|NaN|nan"):
        learned_tokens.read(tmp_path / "nan.safetensors", ONE)
