"""The dialect `mindone-sdxl`: what several flags decide together."""

from __future__ import annotations

from typing import Any

import pytest
from dialect_cases.mindone_sdxl import BAREST, LINES
from foreign_lines import ALONE

from mezzotint.compat.mindone.dialect import DIALECT, SHIPPED
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Launched
from mezzotint.tasks.reading import foreign

EIGHT = Launched(8, None, "torchrun")

translate, changed, notes, refusal = LINES.translate, LINES.changed, LINES.notes_text, LINES.refusal


def test_minimal_command_is_a_recipe() -> None:
    recipe = foreign.read_command_line("mindone-sdxl", BAREST, (), ALONE).recipe
    assert (recipe.model.weights, recipe.model.depth, recipe.run.device_prefetch) == ("files", None, None)
    assert recipe.run.start.step == 0
    assert recipe.objective.timesteps == (0, 1000)


def test_use_bias_false_is_accepted() -> None:
    assert changed("--timestep_bias_strategy=none") == {}


def test_clipping_is_per_tensor_unless_gradients_accumulate() -> None:
    both = translate("--clip_grad=True", "--gradient_accumulation_steps=2").settings["optim"]["clip"]
    assert both == {"norm": 1.0, "scope": "all"}
    assert "without --clip_grad True nothing is clipped" in notes("--max_grad_norm=2")


def test_documented_advice_becomes_notes() -> None:
    assert "sdxl-vae-fp16-fix" in notes("--param_fp16=True")
    assert "a non-finite step never changes weights" in notes()
    assert "never changes weights" not in notes("--ms_amp_level=O0")
    assert "each tensor is clipped separately" in notes("--clip_grad=True")
    assert "all exported models in weights/ are kept" in notes("--max_num_ckpt=2")
    assert "without --data_sink True it has no effect" in notes("--sink_size=100")
    assert "the run ends at this step; MindONE's at the end of an epoch" in notes()


def test_latents_and_text_can_be_cached_separately() -> None:
    assert "only this is cached" in notes("--cache_latent=True")
    both = ["--cache_latent=True", "--cache_text_embedding=True"]
    assert "only this is cached" not in notes(*both)
    assert "nothing is cached" in notes("--cache_path=x")
    assert translate("--task=cache", *both).command == "cache"
    assert translate(*both).command == "train"
    assert refusal("--task=cache") == [("--task", "E1017")]


def test_folder_cached_by_mindone_is_trained_directly(tmp_path: Any) -> None:
    (tmp_path / "latent_cache").mkdir()
    words = ["--cache_latent=True", "--cache_text_embedding=True", f"--cache_path={tmp_path}"]
    data = translate(*words).settings["data"]
    assert (data["format"], data["path"]) == ("mindone-cache", str(tmp_path))
    assert "its age is unknown" in notes(*words)
    read = foreign.read_command_line("mindone-sdxl", [*BAREST, *words], (), ALONE).recipe.data
    assert (read.cache.latents, read.cache.text, read.cache.content, read.crop) == (True, True, "sample", "center")
    data = translate(f"--data_path={tmp_path}").settings["data"]
    assert (data["format"], data["path"]) == ("mindone-cache", str(tmp_path)), "the plain script on a cache folder"


def test_command_without_a_yaml_lists_those_that_ship() -> None:
    with pytest.raises(RecipeError, match=r"is for LoRA; these ship: sd_xl_base_finetune_910b, "):
        DIALECT.translate(["--data_path=x"], ALONE)
    for path in SHIPPED.glob("sd_xl_base_finetune*.yaml"):
        reading = foreign.read_command_line(
            "mindone-sdxl", [f"--config=elsewhere/{path.name}", "--data_path=x"], (), ALONE
        )
        assert any(f"there is no elsewhere/{path.name} here" in note for note in reading.notes)


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("train_dreambooth.py", "DreamBooth"),
        ("train_textual_inversion.py", "textual inversion"),
        ("train_controlnet.py", "ControlNet"),
    ],
)
def test_other_scripts_are_refused(script: str, word: str) -> None:
    with pytest.raises(RecipeError, match=f"{script} trains {word}, which is not supported yet"):
        DIALECT.translate(["python", script, *BAREST], ALONE)
