"""Sample prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from musubi_commands import notes, problems, settings

EACH = ("--sample_every_n_epochs=1", "--sample_prompts=p.txt")


def sampled(script: str, text: str, name: str = "p.txt") -> dict[str, Any]:
    Path(name).write_text(text, "utf-8")
    words = ("--sample_every_n_epochs=1", f"--sample_prompts={name}")
    values = settings(script, *words)
    return {path.removeprefix("sample."): value for path, value in values.items() if path.startswith("sample.")}


def test_scripts_have_their_defaults() -> None:
    assert sampled("wan_train_network", "a fox") == {
        "prompts": ["a fox"], "size": [256, 256], "seed": -1, "steps": 20, "guidance": [5.0], "clip.frames": 1,
    }  # fmt: skip
    assert "clip.frames" not in sampled("zimage_train", "a fox")


def test_options_follow_a_prompt() -> None:
    values = sampled("wan_train_network", "# x\na --w 645 --h 480 --f 27 --d 3 --s 8 --l 6 --n bad\nb --w 320\n")
    assert values == {
        "prompts": ["a", "b"], "size": [640, 480], "seed": 3, "steps": 8, "guidance": [6.0], "clip.frames": 25,
        "negative_prompt": "bad",
    }  # fmt: skip
    assert "several sizes" in notes("wan_train_network", *EACH)


def test_table_and_unused_options() -> None:
    text = '[prompt]\nwidth = 512\n[[prompt.subset]]\nprompt = "a"\nimage_path = "x.png"\n'
    assert sampled("qwen_image_train", text, "p.toml")["size"] == [512, 256]
    words = ("--sample_every_n_epochs=1", "--sample_prompts=p.toml")
    assert "condition images (image_path) have no effect" in notes("qwen_image_train", *words)
    Path("p.toml").write_text(text.replace("width", "widht"), "utf-8")
    [problem] = problems("qwen_image_train", *words)
    assert "did you mean width" in problem.message


def test_empty_file_is_refused() -> None:
    Path("p.txt").write_text("# nothing\n", "utf-8")
    assert [one.message for one in problems("zimage_train", *EACH)] == ["has no prompt"]


def test_control_images_follow_prompts() -> None:
    values = sampled("flux_kontext_train_network", "a --ci a.png --ci x.png --g 3\nb --ci b.png --g 3\n")
    assert (values["conditions.source"], values["guidance"]) == (["a.png", "b.png"], [3.0])
    assert sampled("flux_kontext_train_network", "a --ci a.png\n")["guidance"] == [2.5]
    values = sampled("flux_2_train_network", "a --ci a.png --ci s.png\nb --ci b.png --ci s.png\n")
    assert (values["conditions.source"], values["conditions.source_2"]) == (["a.png", "b.png"], "s.png")
    table = '[{"prompt": "a", "control_image_path": ["a.png", "s.png"]}]'
    assert sampled("flux_2_train_network", table, "p.json")["conditions.source_2"] == "s.png"
    sampled("zimage_train", "a --ci a.png\n")
    assert "condition images (control_image_path) have no effect" in notes("zimage_train", *EACH)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("flux_kontext_train_network", "has a prompt without --ci, and flux_kontext_train_network.py trains"),
        ("flux_2_train_network", "needs previews with and without control images"),
    ],
)  # fmt: skip
def test_prompt_without_its_control_image_is_refused(script: str, words: str) -> None:
    Path("p.txt").write_text("a --ci a.png\nb\n", "utf-8")
    [problem] = problems(script, *EACH)
    assert words in problem.message
