"""Sample prompts of a command or its file, as `run.preview` and `sample`."""

from __future__ import annotations

from collections.abc import Mapping

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.sample_prompts import Common, PromptKeys, SamplePrompt, read_prompts, set_common, set_interval
from mezzotint.compat.musubi._model import animates, count_images
from mezzotint.compat.musubi._scripts import TrainingScript
from mezzotint.settings.sections.conditions import FIRST_FRAME

_SIDE, _STEPS, _CELL = 256, 20, 8
_TEXTS = ("image_path", "end_image_path", "control_video_path", "one_frame")
_CONTROL, _FIRST = "control_image_path", "image_path"
KEYS = PromptKeys(
    options={
        "w": "width", "h": "height", "f": "frame_count", "d": "seed", "s": "sample_steps", "g": "guidance_scale",
        "fs": "discrete_flow_shift", "l": "cfg_scale", "n": "negative_prompt", "i": "image_path",
        "ei": "end_image_path", "cn": "control_video_path", "ci": _CONTROL, "of": "one_frame",
    },
    kinds={
        "prompt": str, "negative_prompt": str, "width": int, "height": int, "frame_count": int, "seed": int,
        "sample_steps": int, "guidance_scale": float, "discrete_flow_shift": float, "cfg_scale": float,
        _CONTROL: list, **dict.fromkeys(_TEXTS, str),
    },
)  # fmt: skip
"""The options after a prompt, and the keys of .toml and .json files."""
_UNUSED = {
    "guidance_scale": "embedded guidance", "discrete_flow_shift": "a flow shift of single prompts",
    **dict.fromkeys(_TEXTS, "condition images"),
}  # fmt: skip
"""Keys that previews do not use."""
_GUIDANCE: Mapping[str, tuple[str, float]] = {
    "wan": ("cfg_scale", 5.0), "qwen-image": ("cfg_scale", 4.0), "z-image": ("cfg_scale", 4.0),
    "flux": ("guidance_scale", 2.5), "flux2": ("cfg_scale", 4.0),
}  # fmt: skip
"""The key of a prompt's scale, and the scale of prompts that have none."""


def set_previews(draft: Draft, script: TrainingScript) -> None:
    """Sets `run.preview` and the prompts of `sample`."""
    flag = "sample_prompts"
    if not draft.is_given(flag) or not set_interval(draft, flag):
        return
    prompts = read_prompts(draft, flag, KEYS)
    if not prompts:
        return
    _, most = count_images(draft, script)
    own = {_CONTROL} if most else {_FIRST} if animates(draft, script) else set()
    for key, words in {**_UNUSED, _CONTROL: "condition images"}.items():
        if key not in {*own, _GUIDANCE[script.family][0]} and any(key in prompt.options for prompt in prompts):
            draft.note(flag, f"{words} ({key}) have no effect on previews")
    draft.set("sample.prompts", [prompt.text for prompt in prompts], flag)
    _set_common(draft, script, prompts)
    if most:
        _set_images(draft, script, prompts)
    if animates(draft, script):
        _set_first_frames(draft, prompts)


def _set_common(draft: Draft, script: TrainingScript, prompts: list[SamplePrompt]) -> None:
    """Sets what all prompts have in common."""
    flag, (scale, usual) = "sample_prompts", _GUIDANCE[script.family]
    values: dict[str, Common] = {
        "sample.size": ("sizes", _size),
        "sample.seed": ("seeds", lambda one: one.options.get("seed", -1)),
        "sample.steps": ("steps", lambda one: one.options.get("sample_steps", _STEPS)),
        "sample.guidance": ("scales", lambda one: [one.options.get(scale, usual)]),
    }
    if any(one.options.get("negative_prompt") for one in prompts):
        texts = ("negative prompts", lambda one: one.options.get("negative_prompt", ""))
        values["sample.negative_prompt"] = texts
    if script.family == "wan":
        values["sample.clip.frames"] = ("lengths", lambda one: (one.options.get("frame_count", 1) - 1) // 4 * 4 + 1)
    set_common(draft, flag, prompts, values)


def _set_images(draft: Draft, script: TrainingScript, prompts: list[SamplePrompt]) -> None:
    """Sets the control images of previews."""
    flag, files = "sample_prompts", [list(prompt.options.get(_CONTROL, ())) for prompt in prompts]
    least, most = count_images(draft, script)
    files = [every[:most] for every in files]  # of too many the scripts use the first
    if any(len(every) < least for every in files):
        message = f"has a prompt without --ci, and {script.name}.py trains a model that edits images"
        draft.refuse(flag, message, "write --ci FILE after each prompt", "E1017")
        return
    if len({len(every) for every in files}) > 1:
        draft.refuse_until("previews with and without control images", flag, "write as many --ci after each prompt")
        return
    for index, every in enumerate(zip(*files, strict=True)):
        value = every[0] if len(set(every)) == 1 else list(every)
        draft.set(f"sample.conditions.source{f'_{index + 1}' if index else ''}", value, flag)


def _set_first_frames(draft: Draft, prompts: list[SamplePrompt]) -> None:
    """Sets the images that previews continue."""
    flag, task = "sample_prompts", draft.text("task")
    files = [prompt.options.get(_FIRST, "") for prompt in prompts]
    if not all(files):
        draft.refuse(flag, f"has a prompt without --i, and {task} continues an image", "write --i FILE", "E1017")
    elif prompts[0].options.get("frame_count", 1) < 5:
        draft.refuse(flag, f"has no length, and {task} continues an image", "write --f 81, or another 4n + 1", "E1017")
    else:
        draft.set(f"sample.conditions.{FIRST_FRAME}", files[0] if len(set(files)) == 1 else files, flag)


def _size(prompt: SamplePrompt) -> list[int]:
    """Width and height, as the scripts round them."""
    return [max(_CELL, side - side % _CELL) for side in (prompt.options.get(key, _SIDE) for key in ("width", "height"))]
