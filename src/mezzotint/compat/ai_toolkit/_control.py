"""Control images: those of data sets, as `data.conditions`, and those of samples, as `sample.conditions`."""

from __future__ import annotations

import re
from typing import Any

from mezzotint.compat.ai_toolkit._keys import Keys
from mezzotint.compat.ai_toolkit._model import ANIMATING, CONTROLS, Arch, Control
from mezzotint.compat.ai_toolkit._rows import OWN
from mezzotint.settings.sections.conditions import FIRST_FRAME

FOLDERS = ("control_path", "control_path_1", "control_path_2", "control_path_3")
FILES = ("ctrl_img", "ctrl_img_1", "ctrl_img_2", "ctrl_img_3")
_OPTION = re.compile(r"\s--(ctrl_img(?:_[123])?)\s+(\S.*?)(?=\s--|\s*$)")
Files = dict[int, str]
"""Control images of a prompt, by their number."""


def _name(index: int) -> str:
    """The name of a condition: `source`, as edited images are called, then `source_2` and so on."""
    return f"source_{index + 1}" if index else "source"


def read_folders(one: Keys, process: Keys, arch: Arch) -> dict[str, tuple[Any, str]]:
    """The conditions of a data set, values and keys by path inside `data`; refuses what the model does not take."""
    written = [(key, folder) for key in FOLDERS for folder in one.texts(key)]
    control = CONTROLS.get(arch.name)
    if control is None:
        if written:
            one.refuse(written[0][0], *_refusal(arch))
        return {}
    if control.is_required and not written:
        remedy = "name the folder of the images before the edits"
        one.refuse(FOLDERS[0], f"is missing; {arch.name} edits images", remedy, "E1017")
    if len(written) > control.most:
        one.refuse(written[control.most][0], f"{arch.name} takes one control image", "leave it out")
    if written and control.align == "own" and not process["model.model_kwargs.match_target_res"]:
        text = "control images are resized to about the area of the resolution; in ai-toolkit, only above 1024 × 1024"
        one.note(written[0][0], f"{text} pixels")
    conditions: dict[str, tuple[Any, str]] = {}
    for index, (key, folder) in enumerate(written):
        conditions[f"conditions.{_name(index)}.folder"] = folder, key
        if control.align != "target":
            conditions[f"conditions.{_name(index)}.align"] = control.align, key
    return conditions


def _refusal(arch: Arch) -> tuple[str, str]:
    if arch.name in ANIMATING:
        return f"{arch.name} continues the first frame of each clip and takes no control images", "leave it out"
    message = f"{arch.name} generates from text alone and takes no control images"
    return message, f"leave it out, or choose {', '.join(CONTROLS)}"


def needs_images(arch: Arch) -> bool:
    """Whether nothing can be generated without a control image."""
    control = _of_samples(arch)
    return control is not None and control.is_required


def _of_samples(arch: Arch) -> Control | None:
    """The control images of samples."""
    return Control(1, "target", True) if arch.name in ANIMATING else CONTROLS.get(arch.name)


def split_prompt(prompt: str) -> tuple[str, Files]:
    """A prompt without its options for control images, and these."""
    files = {number: file for key, file in _OPTION.findall(prompt) for number in [_number(key)]}
    return _OPTION.sub("", prompt), files


def read_files(one: Keys) -> Files:
    """The control images of an entry of `sample.samples`."""
    return {_number(key): one.text(key) for key in FILES if one.text(key)}


def _number(key: str) -> int:
    """ctrl_img is the default of ctrl_img_1."""
    return max(1, FILES.index(key))


def set_files(process: Keys, arch: Arch, prompts: list[tuple[str, Files]]) -> None:
    """Sets the control images of previews. prompts: the flag and the images of each."""
    control, first = _of_samples(arch), next((one for one in prompts if one[1]), prompts[0])
    numbers = {tuple(sorted(files)) for _, files in prompts}
    if control is None:
        if first[1]:
            process.draft.refuse(first[0], *_refusal(arch))
    elif len(numbers) > 1:
        process.draft.refuse_until(OWN, first[0], "give each prompt as many control images")
    elif len(first[1]) > control.most:
        process.draft.refuse(first[0], f"{arch.name} takes one control image, got {len(first[1])}", "leave others out")
    for index, number in enumerate(sorted(first[1])):
        every = [files.get(number, "") for _, files in prompts]
        value = every[0] if len(set(every)) == 1 else every
        name = FIRST_FRAME if arch.name in ANIMATING else _name(index)
        process.draft.set(f"sample.conditions.{name}", value, first[0])
