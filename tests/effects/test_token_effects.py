"""Rows of the section `model.tokens`: new tokens, their initialisation, and that no other weight changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import CLIPTokenizer

from mezzotint.errors import RecipeError
from mezzotint.families.shared import learned_tokens
from mezzotint.settings.families.base import family_spec
from mezzotint.settings.reading.read import read_text
from support.contradictions import contradiction

Prepare = Callable[..., Any]
WORDS = {
    "model__train": "[tokens]", "model__tokens__words": {"<toy>": "red"}, "data__cache__text": False,
    "data__captions__prefix": "<toy> ",
}  # fmt: skip
ROWS = "tokens/text_encoder"


# breaks if a new token is not initialised from its words, or the table is trained
@pytest.mark.effect("model.tokens.words")
def test_learned_tokens_start_from_words_and_only_they_train(prepare: Prepare) -> None:
    ready = prepare(**WORDS)
    encoder = ready.family.parts()["text_encoder"]
    table = encoder.get_input_embeddings().weight
    before = {name: p.clone() for part in ready.family.parts().values() for name, p in part.named_parameters()}
    step = ready.step()
    red = CLIPTokenizer.from_pretrained(str(ready.recipe.model.path / "tokenizer"))(
        "red", add_special_tokens=False
    ).input_ids
    assert torch.equal(step.before[ROWS], table[red[:1]])
    assert set(step.after) == {ROWS}
    assert step.largest("tokens") > 0
    after = {name: p for part in ready.family.parts().values() for name, p in part.named_parameters()}
    moved = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    assert moved == {"text_encoder"}, "the rows, and no other bit of the model"


# breaks if a word always has one token
@pytest.mark.effect("model.tokens.vectors")
def test_vectors_is_the_number_of_tokens_per_word(prepare: Prepare) -> None:
    ready = prepare(**WORDS, model__tokens__vectors=3)
    assert ready.trainer.model.trained[ROWS].shape == (3, 32)
    tokens: list[torch.Tensor] = []
    encoder = ready.family.parts()["text_encoder"]
    encoder.register_forward_pre_hook(lambda module, inputs: tokens.append(inputs[0]))
    ready.family.encode_text(["<toy>"])
    assert tokens[0][0, 1:4].diff().tolist() == [1, 1]


# breaks if training does not start from the rows of the file
@pytest.mark.effect("model.tokens.files")
def test_token_files_load_learned_tokens(prepare: Prepare, tmp_path: Path) -> None:
    rows = torch.linspace(-1, 1, 64).reshape(2, 32)
    save_file({"<toy>": rows}, tmp_path / "toy.safetensors")
    settings = {name: value for name, value in WORDS.items() if name != "model__tokens__words"}
    brought = settings | {"model__tokens__files": {"<toy>": str(tmp_path / "toy.safetensors")}}
    assert torch.equal(prepare(**brought).step().before[ROWS], rows)
    ready = prepare(**brought | {"model__train": "[denoiser]"})
    step = ready.step()
    assert not any(name.startswith("tokens/") for name in step.after), "and they do not change if they are not trained"
    assert torch.equal(ready.family.parts()["tokens"].get_parameter("text_encoder"), rows)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["model.train=[tokens]"], "has no learned token"),
        (['model.tokens.words={"<a>": b}'], "are new and not trained"),
        (['model.tokens.words={"<a b>": b}', "model.train=[tokens]"], "is not a token name"),
        (['model.tokens.words={"<a>": " "}', "model.train=[tokens]"], "has no initial word"),
        (["model.tokens.vectors=2"], "leave it out"),
        (['model.tokens.words={"<a>": b}', "model.train=[tokens]", "data.cache.text=true"], "data.cache.text"),
        (['model.tokens.words={"<a>": b}', "model.train=[tokens]", "model.adapter.kind=lora"], "does not train tokens"),
        (['model.tokens.words={"<a>": b}', 'model.tokens.files={"<a>": f}', "model.train=[tokens]"], "both define"),
        (
            ['model.tokens.words={"<a>": b}', "model.train=[tokens]", "run.export.parts=trained"],
            "exports parts of a model",
        ),
    ],
)
def test_conflicting_token_settings_are_refused(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)


def test_learned_token_missing_from_captions_is_refused(prepare: Prepare) -> None:
    with pytest.raises(RecipeError, match="no caption contains <toy>") as caught:
        prepare(**WORDS | {"data__captions__prefix": ""})
    assert caught.value.code == "E1474"


def test_family_without_token_embeddings_is_refused(tmp_path: Path) -> None:
    text = f'schema: 1\nmodel:\n  family: flux\n  tokens:\n    files: {{"<a>": "{tmp_path}"}}\n'
    recipe = read_text(text).recipe
    flux: Any = SimpleNamespace(spec=family_spec("flux"))
    with pytest.raises(RecipeError, match="does not support learned tokens, only sd and sdxl do") as caught:
        learned_tokens.add_to(flux, recipe.model)
    assert caught.value.code == "E1473"
