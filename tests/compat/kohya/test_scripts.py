"""The training scripts, their selectors, and which scripts have an option."""

from __future__ import annotations

import pytest
from kohya_commands import recipe, refusal, settings

from mezzotint.compat.kohya._rows import _GROUPS, ROWS, SCRIPTS_OF, has_option
from mezzotint.compat.kohya._scripts import OTHER_SCRIPTS, SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_script_gives_a_recipe_of_its_family(script: str) -> None:
    read = recipe(script)
    assert read.model.family == SCRIPTS[script].family
    assert read.model.has_adapter == (SCRIPTS[script].method == "adapter")
    assert read.model.train[0] == ("tokens" if SCRIPTS[script].method == "embeddings" else "denoiser")


def test_each_selector_matches_a_script_and_each_flag_has_one_row() -> None:
    assert all(any(script.is_one_of(selector) for script in SCRIPTS.values()) for selector, _ in _GROUPS)
    assert len({row.flag for row in ROWS}) == len(ROWS)
    assert {*SCRIPTS_OF} <= {row.flag for row in ROWS}


@pytest.mark.parametrize(
    ("script", "word", "other"),
    [
        ("train_network", "--ae=a", "flux_train_network.py"),
        ("flux_train", "--network_module=networks.lora", "train_network.py"),
        ("sdxl_train", "--learning_rate_te=1e-6", "train_db.py"),
        ("sdxl_train_network", "--stop_text_encoder_training=1", "train_db.py"),
        ("train_db", "--token_string=a", "train_textual_inversion.py"),
    ],
)
def test_option_of_another_script_is_refused(script: str, word: str, other: str) -> None:
    flag = word.partition("=")[0]
    assert refusal(script, word) == [(flag, "E1016", f"{script}.py has no such option")]
    assert has_option(SCRIPTS[other.removesuffix(".py")], flag.lstrip("-"))


def test_other_scripts_are_not_supported_ones() -> None:
    assert not {name.removesuffix(".py") for name in OTHER_SCRIPTS} & SCRIPTS.keys()


def test_textual_inversion_trains_the_token() -> None:
    expected = {
        "model.tokens.words": {"<fox>": "fox"}, "model.tokens.vectors": 4, "data.captions.trigger": ["<fox>"],
        "model.train": ["tokens"], "optim.lr": 2e-6,
    }  # fmt: skip
    words = ("--num_vectors_per_token=4", "--use_object_template")
    translated = settings("train_textual_inversion", *words)
    translated |= {"model.tokens.words": {"<fox>": translated.get("model.tokens.words.<fox>")}}
    assert {path: translated[path] for path in expected} == expected
    assert "|a rendering of a {trigger}|" in translated["data.captions.template"][0]
    style = settings("train_textual_inversion", "--use_style_template")
    assert "in the style of {trigger}" in style["data.captions.template"][0]
    assert "model.tokens.files" not in translated
    assert settings("train_textual_inversion", "--weights=a.pt")["model.tokens.files.<fox>"] == "a.pt"
    assert refusal("train_textual_inversion", "--use_style_template", "--use_object_template")[0][1] == "E1017"
