"""Learned tokens: expansion of captions, and unchanged embeddings of all other tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mezzotint.errors import WeightsError
from mezzotint.families import sd, sdxl
from mezzotint.families.shared.learned_tokens import LearnedTokens, names_of

CAPTIONS = ["a photo of a dog", "<toy> on a table", "two of <toy>, <toy>", ""]


def with_words(family: Any, words: dict[str, str], vectors: int = 1) -> Any:
    family.add_learned_tokens(words, vectors, {})
    return family


def test_longest_learned_token_is_expanded_to_its_vectors() -> None:
    words = LearnedTokens({"<toy>": 2, "<toy>x": 3, "one": 1}, {"text_encoder": torch.zeros(6, 4)})
    assert words.expand_caption("a <Toy>, one <toy>x") == "a <Toy> <Toy>_1, one <toy>x <toy>x_1 <toy>x_2"
    assert words.token_strings == ("<toy>", "<toy>_1", "<toy>x", "<toy>x_1", "<toy>x_2", "one")
    assert names_of("w", 1) == ["w"]


@pytest.mark.parametrize("module", [sd, sdxl])
def test_learned_token_starts_as_its_initial_word(module: Any) -> None:
    """Its caption is bit-identical to that of the initial word, and other captions are unchanged. So is the pooled text
    of SDXL, which is read at the end token and not at the highest number."""
    plain, added = module.Family.tiny(), module.Family.tiny()
    with_words(added, {"<toy>": "dog"})
    with torch.no_grad():
        before, after = plain.encode_text(["a dog", ""]), added.encode_text(["a dog", ""])
        initial, learned = plain.encode_text(["see dog there"]), added.encode_text(["see <toy> there"])
    for expected, actual in ((before, after), (initial, learned)):
        assert torch.equal(expected.states, actual.states)
        assert expected.pooled is None or (actual.pooled is not None and torch.equal(expected.pooled, actual.pooled))
    assert set(added.parts()) == {*plain.parts(), "tokens"}


def test_pooled_text_is_unchanged_with_an_old_eos_token_id() -> None:
    """With `eos_token_id` 2, as in the files of SDXL, the pooled text must not be read at the learned token."""
    family = sdxl.Family.tiny()
    for module in family.parts()["text_encoder_2"].modules():
        if hasattr(module, "eos_token_id"):
            module.eos_token_id = 2
    with torch.no_grad():
        before = family.encode_text(["a dog there"]).pooled
        with_words(family, {"<toy>": "dog"})
        after, learned = (family.encode_text([f"a {word} there"]).pooled for word in ("dog", "<toy>"))
    assert before is not None
    assert after is not None
    assert learned is not None
    assert torch.equal(before, after)
    assert torch.equal(learned, after)


def test_only_learned_rows_have_a_gradient() -> None:
    family = sd.Family.tiny()
    family.parts()["text_encoder"].requires_grad_(False)
    with_words(family, {"<toy>": "a dog"}, vectors=3)
    family.encode_text(CAPTIONS).states.sum().backward()
    rows = family.parts()["tokens"].get_parameter("text_encoder")
    assert rows.shape[0] == 3
    assert rows.grad is not None
    assert bool((rows.grad.abs().amax(1) > 0).all())
    assert all(p.grad is None for p in family.parts()["text_encoder"].parameters())
    assert family.lost_tokens(["<toy> " * 26])[0] > 0 == family.lost_tokens(["<toy> " * 25])[0]
    assert family.learned_embeddings({})["<toy>"]["text_encoder"].shape == rows.shape


@pytest.mark.parametrize("word", ["dog", "a"])
def test_learned_token_that_is_in_the_vocabulary_is_refused(word: str) -> None:
    family = sd.Family.tiny()
    with pytest.raises(WeightsError, match=f"model.tokens: {word} is already a token") as caught:
        with_words(family, {word: "a"})
    assert caught.value.code == "E1470"


def test_embeddings_of_another_model_are_refused() -> None:
    family = sd.Family.tiny()
    with pytest.raises(WeightsError, match="a model of its kind") as caught:
        family.add_learned_tokens({}, 1, {"<toy>": {"text_encoder": torch.zeros(1, 7)}})
    assert caught.value.code == "E1472"
