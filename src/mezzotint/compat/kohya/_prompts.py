"""Sample prompt files (.txt, .toml, .json), and when they are sampled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.compat.kit import setting_files
from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.setting_files import SettingsFile
from mezzotint.compat.kohya._data_rows import SAMPLERS
from mezzotint.compat.kohya._scripts import Script
from mezzotint.errors import RecipeError, did_you_mean
from mezzotint.sampling import prompt_file
from mezzotint.settings.reading.yaml_rules import KeyPath

_LIMIT = 4_000_000
_SIDE = 512
_LEAST_SIDE = 64
_NEVER = "1000000 epochs"
"""An interval of which only step 0 is reached."""
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
}


@dataclass(frozen=True, slots=True)
class SamplePrompt:
    """A prompt with its options, by the keys of .toml and .json files."""

    text: str
    options: Mapping[str, Any] = field(default_factory=dict)


def set_previews(draft: Draft, script: Script) -> None:
    """Sets `run.preview` and the prompts of `sample`."""
    flag = "sample_prompts" if draft.is_given("sample_prompts") else "prompt"
    if not draft.is_given(flag) or not _set_interval(draft, flag):
        return
    try:
        prompts, notes = _read(draft, flag)
    except RecipeError as error:
        draft.refuse(flag, error.message, code="E1017")
        return
    for note in notes:
        draft.note(flag, note)
    if not prompts:
        draft.refuse(flag, "has no prompt", "write one prompt a line", "E1017")
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


def _set_interval(draft: Draft, flag: str) -> bool:
    """Sets when images are sampled; returns whether they are."""
    steps, epochs = "sample_every_n_steps", "sample_every_n_epochs"
    if not draft.check_bounds(steps) or not draft.check_bounds(epochs):
        return False
    if draft.values[epochs] is not None:
        draft.set("run.preview.every", f"{draft.integer(epochs)} epochs", epochs)
        if draft.is_given(steps):
            draft.note(steps, f"has no effect with --{epochs}, as in the scripts")
    elif draft.values[steps] is not None:
        draft.set("run.preview.every", f"{draft.integer(steps)} steps", steps)
    elif draft.values["sample_at_first"]:
        draft.set("run.preview.every", _NEVER, "sample_at_first")
    else:
        draft.note(flag, f"nothing is sampled without --{steps} or --{epochs}")
        return False
    if not draft.values["sample_at_first"]:
        draft.note(flag, "images are sampled before the first step, too, as with --sample_at_first")
    return True


def _read(draft: Draft, flag: str) -> tuple[list[SamplePrompt], list[str]]:
    """Prompts and notes. Raises RecipeError."""
    if flag == "prompt":
        lines = draft.values[flag]
        assert isinstance(lines, tuple)
        return _read_lines([(number, str(line)) for number, line in enumerate(lines, 1)], "prompt")
    name = draft.text(flag)
    if Path(name).suffix.lower() in (".toml", ".json"):
        return read_table(setting_files.load(name)), []
    return _read_lines(list(enumerate(_read_text(name).splitlines(), 1)), setting_files.file_name(name))


def _read_text(name: str) -> str:
    try:
        return outside.read_text(Path(name).expanduser(), limit=_LIMIT, encoding="utf-8-sig")
    except outside.NotRegularFile as error:
        raise RecipeError(f"{name} is no text file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RecipeError(f"{name} cannot be read: it is not UTF-8") from None
    except OSError as error:
        raise RecipeError(f"{name} cannot be read: {error.strerror}; write a text file, one prompt a line") from None


def _read_lines(lines: list[tuple[int, str]], name: str) -> tuple[list[SamplePrompt], list[str]]:
    prompts, notes = [], []
    for number, line in lines:
        if line.strip() and not line.startswith("#"):
            prompt, dropped = read_line(line.strip())
            prompts.append(prompt)
            notes += [f"{name} line {number}: --{one} is dropped, as in the scripts" for one in dropped]
    return prompts, notes


def read_line(line: str) -> tuple[SamplePrompt, list[str]]:
    """A prompt and its options, and the options that the scripts do not read."""
    text, *parts = line.split(" --")
    options: dict[str, Any] = {}
    dropped = []
    for part in parts:
        name, _, written = part.strip().partition(" ")
        key = _OPTIONS.get(name.lower())
        value = None if key is None else _parse(_KINDS[key], written.strip())
        if key is None or value is None:
            dropped.append(part.strip())
        else:
            options[key] = min(1000, max(1, value)) if key == "sample_steps" else value
    return SamplePrompt(text.strip(), options), dropped


def _parse(kind: type, text: str) -> Any:
    """A value of an option, None if it is none. Text after a number is not read, as in the scripts."""
    if kind is str:
        return text or None
    match = re.match(r"\d{1,18}" if kind is int else r"\d{0,9}\.?\d{0,9}", text)
    try:
        return kind(match[0]) if match else None
    except ValueError:
        return None


def read_table(file: SettingsFile) -> list[SamplePrompt]:
    """The prompts of a .toml or .json file. Raises RecipeError with the key and its line."""
    if file.kind == "TOML":
        common, subsets = file.at(("prompt",)), file.at(("prompt", "subset"))
        if not isinstance(common, dict) or not isinstance(subsets, list) or not subsets:
            raise RecipeError(f"{file.name} has no prompts; write [[prompt.subset]] with prompt = '…' for each")
        shared = _checked(file, ("prompt",), {key: value for key, value in common.items() if key != "subset"})
        home: KeyPath = ("prompt", "subset")
    else:
        if not isinstance(file.tree, list):
            raise RecipeError(f'{file.name} is not a list of prompts; write [{{"prompt": "…"}}, …]')
        subsets, shared, home = file.tree, {}, ()
    return [_entry(file, (*home, number), one, shared) for number, one in enumerate(subsets)]


def _entry(file: SettingsFile, key_path: KeyPath, raw: Any, shared: Mapping[str, Any]) -> SamplePrompt:
    if isinstance(raw, str):
        return read_line(raw)[0]
    if not isinstance(raw, dict):
        raise RecipeError(f"{file.where(key_path)} must be an object with a prompt")
    options = {**shared, **_checked(file, key_path, raw)}
    return SamplePrompt(options.pop("prompt", ""), options)


def _checked(file: SettingsFile, key_path: KeyPath, table: Mapping[str, Any]) -> dict[str, Any]:
    """A table whose keys are known and whose values have their types."""
    for key, value in table.items():
        line = file.line_near((*key_path, key))
        where = file.where((*key_path, key)) + (f", line {line}" if line else "")
        if key not in _KINDS:
            raise RecipeError(f"{where}: unknown key; {did_you_mean(key, _KINDS, 'the scripts do not read it')}")
        kind = _KINDS[key]
        fits = type(value) in (int, float) if kind is float else type(value) is kind
        if not fits:
            words = {str: "a text", int: "an integer", float: "a number"}
            raise RecipeError(f"{where}: must be {words[kind]}, got {value!r:.40}")
    return dict(table)


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
    values: dict[str, tuple[str, Callable[[SamplePrompt], Any]]] = {
        "sample.size": ("sizes", lambda one: list(_size(one, defaults.cell))),
        "sample.seed": ("seeds", lambda one: one.options.get("seed", -1)),
        "sample.steps": ("steps", lambda one: one.options.get("sample_steps", defaults.steps)),
        "sample.guidance": ("scales", lambda one: [float(one.options.get(defaults.key, defaults.guidance))]),
        "sample.negative_prompt": ("negative prompts", lambda one: one.options.get("negative_prompt", "")),
    }
    for path, (name, value_of) in values.items():
        every = [value_of(prompt) for prompt in prompts]
        draft.set(path, every[0], flag)
        if any(value != every[0] for value in every):
            draft.note(flag, f"has several {name}; those of the first prompt are used for all")


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
    if script.family != "flux" and any("guidance_scale" in prompt.options for prompt in prompts):
        draft.note(flag, "guidance_scale (--g) is for FLUX.1")
    if not script.is_flow and any(_WEIGHTED.search(prompt.text) for prompt in prompts):
        draft.note(flag, "brackets and weights such as (word:1.2) are read as text")
