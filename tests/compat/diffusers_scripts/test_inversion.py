"""The dialects of textual inversion: the learned token, and the caption templates around it."""

from __future__ import annotations

import pytest
from dialect_cases import diffusers_textual_inversion, diffusers_textual_inversion_sdxl
from foreign_lines import Lines

every_line = pytest.mark.parametrize(
    "lines", [diffusers_textual_inversion.LINES, diffusers_textual_inversion_sdxl.LINES], ids=lambda lines: lines.name
)


@every_line
@pytest.mark.parametrize(
    ("kind", "count", "first"),
    [("object", 27, "a photo of a {trigger}"), ("style", 19, "a painting in the style of {trigger}")],
)
def test_captions_are_sampled_templates_around_the_token(lines: Lines, kind: str, count: int, first: str) -> None:
    captions = lines.recipe(f"--learnable_property={kind}").data.captions
    template = captions.template
    templates = template.removeprefix("{").removesuffix("}").split("|")
    assert (len(templates), templates[0]) == (count, first)
    assert {caption_template.count("{trigger}") for caption_template in templates} == {1}
    assert captions.wildcards


@every_line
def test_token_is_initialized_from_another(lines: Lines) -> None:
    recipe = lines.recipe("--placeholder_token=<fox>", "--initializer_token=animal", "--num_vectors=2")
    assert recipe.model.tokens.words == {"<fox>": "animal"}
    assert recipe.model.tokens.vectors == 2
    assert recipe.data.captions.trigger == "<fox>"
    assert recipe.model.train == ("tokens",)


@every_line
def test_steps_override_epochs(lines: Lines) -> None:
    assert lines.recipe("--num_train_epochs=3").run.steps == 5000
    assert "--max_train_steps is used" in lines.notes_text("--num_train_epochs=3")
