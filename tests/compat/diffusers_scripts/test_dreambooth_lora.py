"""The dialect `diffusers-dreambooth-lora`: a subject as an adapter."""

from __future__ import annotations

from dialect_cases.diffusers_dreambooth import LINES as WHOLE
from dialect_cases.diffusers_dreambooth import PRIOR
from dialect_cases.diffusers_dreambooth_lora import LINES
from foreign_lines import flat


def test_differs_from_full_training_only_in_the_adapter() -> None:
    words = [*PRIOR, "--seed=3", "--learning_rate=1e-4", "--output_dir=x", "--train_text_encoder"]
    whole, lora = (flat(one.translate(*words).settings) for one in (WHOLE, LINES))
    assert {path for path in whole.keys() & lora.keys() if whole[path] != lora[path]} == {"data.resize"}
    more = {path for path in lora.keys() - whole.keys() if not path.startswith("model.adapter.")}
    assert more == {"run.export.adapter"}


def test_dropout_and_rank_are_those_of_the_adapter() -> None:
    recipe = LINES.recipe("--rank=8", "--lora_dropout=0.25", "--train_text_encoder")
    assert (recipe.model.adapter.rank, recipe.model.adapter.dropout) == (8, 0.25)
    assert recipe.model.train == ("denoiser", "text_encoder")
