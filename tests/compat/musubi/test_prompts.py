"""Sample prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
