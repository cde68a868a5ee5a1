"""Sample prompts of a command or its file, as `run.preview` and `sample`."""

from __future__ import annotations

from collections.abc import Mapping

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.sample_prompts import Common, PromptKeys, SamplePrompt, read_prompts, set_common, set_interval
from mezzotint.compat.musubi._scripts import TrainingScript

_SIDE, _STEPS, _CELL = 256, 20, 8
_TEXTS = ("image_path", "end_image_path", "control_video_path", "control_image_path", "one_frame")
KEYS = PromptKeys(
    options={
        "w": "width", "h": "height", "f": "frame_count", "d": "seed", "s": "sample_steps", "g": "guidance_scale",
        "fs": "discrete_flow_shift", "l": "cfg_scale", "n": "negative_prompt", "i": "image_path",
        "ei": "end_image_path", "cn": "control_video_path", "ci": "control_image_path", "of": "one_frame",
    },
    kinds={
        "prompt": str, "negative_prompt": str, "width": int, "height": int, "frame_count": int, "seed": int,
        "sample_steps": int, "guidance_scale": float, "discrete_flow_shift": float, "cfg_scale": float,
        **dict.fromkeys(_TEXTS, str),
    },
)  # fmt: skip
"""The options after a prompt, and the keys of .toml and .json files."""
_UNUSED = {
    "guidance_scale": "embedded guidance", "discrete_flow_shift": "a flow shift of single prompts",
    **dict.fromkeys(_TEXTS, "condition images"),
}  # fmt: skip
"""Keys that previews do not use."""
_GUIDANCE: Mapping[str, float] = {"wan": 5.0, "qwen-image": 4.0, "z-image": 4.0, "flux2": 4.0}
"""Scales of prompts that have none."""


def set_previews(draft: Draft, script: TrainingScript) -> None:
    """Sets `run.preview` and the prompts of `sample`."""
    flag = "sample_prompts"
    if not draft.is_given(flag) or not set_interval(draft, flag):
        return
    prompts = read_prompts(draft, flag, KEYS)
    if not prompts:
        return
    for key, words in _UNUSED.items():
        if any(key in prompt.options for prompt in prompts):
            draft.note(flag, f"{words} ({key}) have no effect on previews")
    draft.set("sample.prompts", [prompt.text for prompt in prompts], flag)
    _set_common(draft, script, prompts)


def _set_common(draft: Draft, script: TrainingScript, prompts: list[SamplePrompt]) -> None:
    """Sets what all prompts have in common."""
    flag = "sample_prompts"
    values: dict[str, Common] = {
        "sample.size": ("sizes", _size),
        "sample.seed": ("seeds", lambda one: one.options.get("seed", -1)),
        "sample.steps": ("steps", lambda one: one.options.get("sample_steps", _STEPS)),
        "sample.guidance": ("scales", lambda one: [one.options.get("cfg_scale", _GUIDANCE[script.family])]),
    }
    if any(one.options.get("negative_prompt") for one in prompts):
        texts = ("negative prompts", lambda one: one.options.get("negative_prompt", ""))
        values["sample.negative_prompt"] = texts
    if script.family == "wan":
        values["sample.clip.frames"] = ("lengths", lambda one: (one.options.get("frame_count", 1) - 1) // 4 * 4 + 1)
    set_common(draft, flag, prompts, values)


def _size(prompt: SamplePrompt) -> list[int]:
    """Width and height, as the scripts round them."""
    return [max(_CELL, side - side % _CELL) for side in (prompt.options.get(key, _SIDE) for key in ("width", "height"))]
