"""Prompt files with EveryDream2's keys mean the same as those with ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mezzotint.errors import RecipeError
from mezzotint.sampling import prompt_file
from mezzotint.sampling.prompt_file import Line


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def to(content: Any) -> Path:
        path: Path = tmp_path / "prompts.json"
        path.write_text(json.dumps(content, indent=2), "utf-8")
        return path

    return to


def test_json_has_common_and_individual_keys(write: Any) -> None:
    file = prompt_file.read(
        write(
            {
                "resolution": 768, "cfgs": [7, 4, 1.01], "batch_size": 3, "scheduler": "euler_a",
                "num_inference_steps": 30, "seed": 555, "show_progress_bars": True, "negative_prompt": "text",
                "generate_pretrain_samples": False, "generate_samples_every_n_steps": 200,
                "samples": [
                    {"prompt": "a fox", "negative_prompt": "", "seed": -1, "size": [512, 640]},
                    {"prompt": "a hen", "aspect_ratio": 1.5, "cfgs": 5, "scheduler": "dpm++_2m", "steps": 4},
                    {"random_caption": True, "size": [64, 64], "aspect_ratio": 2},
                ],
            }
        )
    )  # fmt: skip
    assert file.settings == {
        "size": (768, 768), "guidance": (7.0, 4.0, 1.01), "batch_size": 3, "solver": "euler-a", "steps": 30,
        "seed": 555, "negative_prompt": "text",
    }  # fmt: skip
    assert (file.at_start, file.batches, file.notes) == (False, 200, ())
    assert file.lines == (
        Line("a fox", negative="", seed=-1, width=512, height=640),
        Line("a hen", aspect=1.5, guidance=(5.0,), solver="dpm++", steps=4),
        Line("", width=64, height=64, random_caption=True),
    )


def test_our_own_keys_have_precedence(write: Any) -> None:
    theirs = {"cfgs": [2], "scheduler": "kdpm2", "num_inference_steps": 9, "resolution": 64}
    ours = {"guidance": [2], "solver": "dpm2", "steps": 9, "size": [64, 64]}
    assert prompt_file.read(write({"resolution": 512} | ours)).settings == prompt_file.read(write(ours)).settings
    assert prompt_file.read(write(theirs)).settings == prompt_file.read(write(ours)).settings


def test_missing_solver_is_replaced_by_the_nearest_with_a_note(write: Any) -> None:
    file = prompt_file.read(write({"scheduler": "dpm++_sde_k", "samples": [{"prompt": "a", "scheduler": "dpm++_2s"}]}))
    assert (file.settings["solver"], file.lines[0].solver) == ("dpm++-sde", "dpm++-single")
    assert [note.partition(": ")[2] for note in file.notes] == [
        "dpm++_sde is not available; dpm++-sde is used instead",
        "dpm++_sde_k uses the timesteps of sample.timestep_spacing",
    ]


@pytest.mark.parametrize(
    ("change", "line", "expected"),
    [
        ({"cfg": 7}, 2, "cfg unknown key; did you mean cfgs?"),
        ({"cfgs": []}, 2, "cfgs is empty"),
        ({"scheduler": "eulr_k"}, 2, "scheduler there is no solver 'eulr_k'; did you mean euler?"),
        ({"resolution": 500}, 2, "resolution is 500; write a multiple of 8 of at least 8"),
        ({"num_inference_steps": 0}, 2, "num_inference_steps is 0; write a whole number of at least 1 and at most"),
        ({"generate_pretrain_samples": 1}, 2, "generate_pretrain_samples is 1; write true or false"),
        ({"samples": [{"prompt": "a", "show_progress_bars": True}]}, 5, "samples[0].show_progress_bars unknown key"),
    ],
)
def test_error_names_the_key_as_written(write: Any, change: Any, line: int, expected: str) -> None:
    with pytest.raises(RecipeError) as caught:
        prompt_file.read(write(change))
    assert f"prompts.json line {line}: {expected}" in caught.value.message
