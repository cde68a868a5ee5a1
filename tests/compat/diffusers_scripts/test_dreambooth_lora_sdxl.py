"""The dialect `diffusers-dreambooth-lora-sdxl`: a subject as an adapter of SDXL."""

from __future__ import annotations

from pathlib import Path

import pytest
from dialect_cases.diffusers_dreambooth import PRIOR
from dialect_cases.diffusers_dreambooth_lora_sdxl import LINES
from foreign_lines import ALONE

from mezzotint.errors import RecipeError
from mezzotint.tasks.reading import foreign

TABLE = ("--pretrained_model_name_or_path=sdxl", "--instance_prompt=sks", "--dataset_name=images")


def test_table_has_its_own_captions_or_the_prompt_for_all(tmp_path: Path) -> None:
    def read(*words: str) -> dict[str, object]:
        recipe = foreign.read_command_line(LINES.name, [*TABLE, *words], (), ALONE).recipe.data
        kept = {"format": recipe.format, "path": str(recipe.path), "image": recipe.columns.image}
        return kept | {"caption": recipe.columns.caption, "word": recipe.captions.trigger}

    assert read() == {
        "format": "metadata", "path": "images", "image": "image", "caption": "text", "word": "sks",
    }  # fmt: skip
    assert read("--caption_column=words", "--image_column=file") == {
        "format": "metadata", "path": "images", "image": "file", "caption": "words", "word": "",
    }  # fmt: skip
    more = foreign.read_command_line(
        LINES.name, [*TABLE, "--dataset_config_name=c", f"--cache_dir={tmp_path}"], (), ALONE
    ).recipe.data
    assert (more.hub_config, more.hub_cache) == ("c", tmp_path)


def test_one_of_folder_and_table_is_needed() -> None:
    with pytest.raises(RecipeError) as caught:
        LINES.dialect.translate([word for word in LINES.barest if "instance_data_dir" not in word], ALONE)
    assert [(problem.where, problem.code) for problem in caught.value.problems] == [("--instance_data_dir", "E1017")]


def test_options_without_effect_are_noted() -> None:
    for words, message in (
        (["--image_column=x"], "--image_column: without --dataset_name it has no effect"),
        (["--text_encoder_lr=1"], "--text_encoder_lr: without --train_text_encoder it has no effect"),
        (["--prodigy_beta3=0.9"], "--prodigy_beta3: without --optimizer=prodigy it has no effect"),
        (["--optimizer=prodigy", "--use_8bit_adam"], "--use_8bit_adam: without AdamW it has no effect"),
        ([*PRIOR], "in the script, half of them with the other one"),
    ):
        assert message in LINES.notes_text(*words), words
    assert LINES.recipe("--image_column=x").data.columns.image == "image"


def test_prodigy_trains_all_parts_at_one_rate() -> None:
    optim = LINES.recipe("--train_text_encoder", "--optimizer=Prodigy", "--learning_rate=1").optim
    assert not optim.part_lr
    assert {part: one.kind for part, one in optim.part_optimizer.items()} == {
        "text_encoder": "prodigy", "text_encoder_2": "prodigy",
    }  # fmt: skip
    assert {one.weight_decay for one in optim.part_optimizer.values()} == {1e-3}
