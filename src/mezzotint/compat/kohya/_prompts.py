"""Sample prompt files (.txt, .toml, .json), and when they are sampled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.sample_prompts import Common, PromptKeys, SamplePrompt, read_prompts, set_common, set_interval
from mezzotint.compat.kohya._data_rows import SAMPLERS
from mezzotint.compat.kohya._scripts import Script
from mezzotint.errors import RecipeError
from mezzotint.sampling import prompt_file
from mezzotint.settings.sections.sample import SampleSettings

_SIDE = 512
_LEAST_SIDE = 64
_WEIGHTED = re.compile(r"(?<!\\)[(\[]")

_OPTIONS = {
    "w": "width", "h": "height", "d": "seed", "s": "sample_steps", "l": "scale", "g": "guidance_scale",
    "n": "negative_prompt", "ss": "sample_sampler", "cn": "controlnet_image", "ctr": "cfg_trunc_ratio",
    "rcfg": "renorm_cfg", "fs": "flow_shift",
}  # fmt: skip
"""The keys of the options after a prompt."""
_KINDS: Mapping[str, type] = {
    "prompt": str, "negative_prompt": str, "width": int, "height": int, "seed": int, "sample_steps": int,
    "scale": float, "guidance_scale": float, "sample_sampler": str, "controlnet_image": str, "cfg_trunc_ratio": float,
    "renorm_cfg": float, "flow_shift": float,
}  # fmt: skip
KEYS = PromptKeys(_OPTIONS, _KINDS)
_UNUSED = {
    "controlnet_image": "control images", "cfg_trunc_ratio": "the range of guidance",
    "renorm_cfg": "renormalised guidance", "flow_shift": "a flow shift of single prompts",
}  # fmt: skip
"""Keys that previews do not use."""
_PLAIN = frozenset(("prompt", "negative_prompt", "width", "height", "seed", "sample_steps", "scale"))
"""Keys that Mezzotint reads in the lines of a text file."""


@dataclass(frozen=True, slots=True)
class _Defaults:
    """What the scripts sample with unless a prompt has it. cell: sides are rounded down to multiples of it. key: of the
    guidance scale."""

    steps: int
    guidance: float
    cell: int = 8
    key: str = "scale"


_DEFAULTS = {
    "sd": _Defaults(30, 7.5),
    "sdxl": _Defaults(30, 7.5),
    "sd3": _Defaults(30, 7.5, 16),
    "flux": _Defaults(20, 3.5, 16, "guidance_scale"),
    "chroma": _Defaults(20, 1.0, 16),
}


def set_previews(draft: Draft, script: Script) -> None:
    """Sets `run.preview` and the prompts of `sample`."""
    flag = "sample_prompts" if draft.is_given("sample_prompts") else "prompt"
    if not draft.is_given(flag) or not set_interval(draft, flag):
        return
    prompts = read_prompts(draft, flag, KEYS)
    if not prompts:
        return
    defaults = _DEFAULTS[script.family]
    _set_solver(draft, script, prompts, flag)
    _note_unused(draft, script, prompts, flag)
    if flag == "sample_prompts" and _is_readable(draft.text(flag), prompts, defaults):
        draft.set("sample.prompt_file", draft.text(flag), flag)
        prompts = [SamplePrompt("")]
    else:
        draft.set("sample.prompts", [prompt.text for prompt in prompts], flag)
    _set_common(draft, prompts, defaults, flag)


# --- settings of sampling -------------------------------------------------------------------------------------------


def _size(prompt: SamplePrompt, cell: int) -> tuple[int, int]:
    """Width and height, as the scripts round them."""
    sides = (prompt.options.get(key, _SIDE) for key in ("width", "height"))
    width, height = (max(_LEAST_SIDE, side - side % cell) for side in sides)
    return width, height


def _is_readable(name: str, prompts: list[SamplePrompt], defaults: _Defaults) -> bool:
    """Whether Mezzotint reads a file itself with the same result."""
    plain = _PLAIN if defaults.key == "scale" else _PLAIN - {"scale"}
    if any(prompt.options.keys() - plain for prompt in prompts) or Path(name).suffix.lower() in (".toml", ".json"):
        return False
    for prompt in prompts:
        if _size(prompt, defaults.cell) != tuple(prompt.options.get(key, _SIDE) for key in ("width", "height")):
            return False
    try:
        return len(prompt_file.read(Path(name)).lines) == len(prompts)
    except RecipeError:
        return False


def _set_common(draft: Draft, prompts: list[SamplePrompt], defaults: _Defaults, flag: str) -> None:
    """Sets what all prompts have in common."""
    values: dict[str, Common] = {
        "sample.size": ("sizes", lambda one: list(_size(one, defaults.cell))),
        "sample.seed": ("seeds", lambda one: one.options.get("seed", -1)),
        "sample.steps": ("steps", lambda one: one.options.get("sample_steps", defaults.steps)),
        "sample.guidance": ("scales", lambda one: [float(one.options.get(defaults.key, defaults.guidance))]),
        "sample.negative_prompt": ("negative prompts", lambda one: one.options.get("negative_prompt", "")),
    }
    set_common(draft, flag, prompts, values)


def _set_solver(draft: Draft, script: Script, prompts: list[SamplePrompt], flag: str) -> None:
    own = {prompt.options.get("sample_sampler") for prompt in prompts}
    if script.is_flow:
        if draft.is_given("sample_sampler") or own != {None}:
            draft.note("sample_sampler", "flow-matching models are sampled with Euler, as in the scripts")
        return
    name = draft.text("sample_sampler")
    written = own.pop()
    if written is not None and not own and written.strip() in SAMPLERS:
        name = written.strip()
    elif own or written is not None:
        draft.note(flag, f"has samplers of single prompts; {name} is used for all")
    draft.set("sample.solver", SAMPLERS[name], "sample_sampler", flag)
    if name == "dpmsolver":
        draft.note("sample_sampler", "dpmsolver++ is used")


def _note_unused(draft: Draft, script: Script, prompts: list[SamplePrompt], flag: str) -> None:
    for key, words in _UNUSED.items():
        if any(key in prompt.options for prompt in prompts):
            draft.note(flag, f"{words} ({key}) have no effect on previews")
    if script.family == "flux" and any(prompt.options.get("scale", 1.0) != 1.0 for prompt in prompts):
        text = "is classifier-free guidance (before July 2025 it was what --g is now), which FLUX.1 does not have here"
        draft.note(flag, f"scale (--l) {text}")
    if script.family != "flux" and any(prompt.options.get("guidance_scale") for prompt in prompts):
        draft.note(flag, "guidance_scale (--g) is for FLUX.1")
    if not script.is_flow and any(_WEIGHTED.search(prompt.text) for prompt in prompts):
        draft.note(flag, "brackets and weights such as (word:1.2) are read as text")


# --- writing ----------------------------------------------------------------------------------------------------------


def find_sampler(solver: str) -> str | None:
    """The scripts' name of a solver."""
    return next((name for name, ours in SAMPLERS.items() if ours == solver), None)


def write_lines(sample: SampleSettings, script: Script, side: int) -> list[str]:
    """Each prompt with its options, but not those that a line cannot have. side: of images whose size is not set."""
    width, height = sample.size or (side, side)
    options = {
        "n": _one_line(sample.negative_prompt) or None, "w": width, "h": height,
        "d": sample.seed if sample.seed >= 0 else None, "s": sample.steps,
        ("g" if script.family == "flux" else "l"): f"{sample.guidance[0]:g}",
        "ss": find_sampler(sample.solver) if not script.is_flux else None,
    }  # fmt: skip
    end = "".join(f" --{name} {value}" for name, value in options.items() if value is not None)
    return [text + end for text in map(_one_line, sample.prompts) if text and not text.startswith(("#", "--"))]


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace(" --", " -")
