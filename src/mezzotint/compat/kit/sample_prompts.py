"""Sample prompts of kohya's trainers: texts with options such as `--w 512`, TOML or JSON; when they are sampled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.compat.kit import setting_files
from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.setting_files import SettingsFile
from mezzotint.errors import RecipeError, did_you_mean
from mezzotint.settings.reading.yaml_rules import KeyPath

_LIMIT = 4_000_000
_FITTING: Mapping[type, tuple[type, ...]] = {float: (int, float), list: (str, list)}
"""Types of values in files, where they are not only the option's own."""
NEVER = "1000000 epochs"
"""An interval of which only step 0 is reached."""


@dataclass(frozen=True, slots=True)
class PromptKeys:
    """What a trainer reads. options: the keys of the options after a prompt. kinds: types of values by key; `list` is
    one text or several, from an option that may be repeated."""

    options: Mapping[str, str]
    kinds: Mapping[str, type]


@dataclass(frozen=True, slots=True)
class SamplePrompt:
    """A prompt with its options, by the keys of .toml and .json files."""

    text: str
    options: Mapping[str, Any] = field(default_factory=dict)


Common = tuple[str, Callable[[SamplePrompt], Any]]


def set_interval(draft: Draft, flag: str) -> bool:
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
        draft.set("run.preview.every", NEVER, "sample_at_first")
    else:
        draft.note(flag, f"nothing is sampled without --{steps} or --{epochs}")
        return False
    if not draft.values["sample_at_first"]:
        draft.note(flag, "images are sampled before the first step, too, as with --sample_at_first")
    return True


def read_prompts(draft: Draft, flag: str, keys: PromptKeys) -> list[SamplePrompt]:
    """The prompts of a flag, a list or a file of them, with notes; none, with a problem of the draft, if they cannot be
    read."""
    try:
        prompts, notes = _read_prompts(draft, flag, keys)
    except RecipeError as error:
        draft.refuse(flag, error.message, code="E1017")
        return []
    for note in notes:
        draft.note(flag, note)
    if not prompts:
        draft.refuse(flag, "has no prompt", "write one prompt a line", "E1017")
    return prompts


def set_common(draft: Draft, flag: str, prompts: Sequence[SamplePrompt], values: Mapping[str, Common]) -> None:
    """Sets what all prompts have in common: by recipe path, a plural name and the value of a prompt. The first prompt's
    is used for all."""
    for path, (name, value_of) in values.items():
        every = [value_of(prompt) for prompt in prompts]
        draft.set(path, every[0], flag)
        if any(value != every[0] for value in every):
            draft.note(flag, f"has several {name}; those of the first prompt are used for all")


def _read_prompts(draft: Draft, flag: str, keys: PromptKeys) -> tuple[list[SamplePrompt], list[str]]:
    if flag == "prompt":
        lines = draft.values[flag]
        assert isinstance(lines, tuple)
        return _read_lines([(number, str(line)) for number, line in enumerate(lines, 1)], "prompt", keys)
    name = draft.text(flag)
    if Path(name).suffix.lower() in (".toml", ".json"):
        return read_table(setting_files.load(name), keys), []
    return _read_lines(list(enumerate(_read_text(name).splitlines(), 1)), setting_files.file_name(name), keys)


def _read_text(name: str) -> str:
    try:
        return outside.read_text(Path(name).expanduser(), limit=_LIMIT, encoding="utf-8-sig")
    except outside.NotRegularFile as error:
        raise RecipeError(f"{name} is no text file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RecipeError(f"{name} cannot be read: it is not UTF-8") from None
    except OSError as error:
        raise RecipeError(f"{name} cannot be read: {error.strerror}; write a text file, one prompt a line") from None


def _read_lines(lines: list[tuple[int, str]], name: str, keys: PromptKeys) -> tuple[list[SamplePrompt], list[str]]:
    prompts, notes = [], []
    for number, line in lines:
        if line.strip() and not line.startswith("#"):
            prompt, dropped = read_line(line.strip(), keys)
            prompts.append(prompt)
            notes += [f"{name} line {number}: --{one} is dropped, as in the scripts" for one in dropped]
    return prompts, notes


def read_line(line: str, keys: PromptKeys) -> tuple[SamplePrompt, list[str]]:
    """A prompt and its options, and the options that the scripts do not read."""
    text, *parts = line.split(" --")
    options: dict[str, Any] = {}
    dropped = []
    for part in parts:
        name, _, written = part.strip().partition(" ")
        key = keys.options.get(name.lower())
        value = None if key is None else _parse(keys.kinds[key], written.strip())
        if key is None or value is None:
            dropped.append(part.strip())
        else:
            value = min(1000, max(1, value)) if key == "sample_steps" else value
            options[key] = [*options.get(key, ()), value] if keys.kinds[key] is list else value
    return SamplePrompt(text.strip(), options), dropped


def _parse(kind: type, text: str) -> Any:
    """A value of an option, None if it is none. Text after a number is not read, as in the scripts."""
    if kind in (str, list):
        return text or None
    match = re.match(r"\d{1,18}" if kind is int else r"\d{0,9}\.?\d{0,9}", text)
    try:
        return kind(match[0]) if match else None
    except ValueError:
        return None


def read_table(file: SettingsFile, keys: PromptKeys) -> list[SamplePrompt]:
    """The prompts of a .toml or .json file. Raises RecipeError with the key and its line."""
    if file.kind == "TOML":
        common, subsets = file.at(("prompt",)), file.at(("prompt", "subset"))
        if not isinstance(common, dict) or not isinstance(subsets, list) or not subsets:
            raise RecipeError(f"{file.name} has no prompts; write [[prompt.subset]] with prompt = '…' for each")
        shared = _checked(file, ("prompt",), {key: value for key, value in common.items() if key != "subset"}, keys)
        home: KeyPath = ("prompt", "subset")
    else:
        if not isinstance(file.tree, list):
            raise RecipeError(f'{file.name} is not a list of prompts; write [{{"prompt": "…"}}, …]')
        subsets, shared, home = file.tree, {}, ()
    return [_entry(file, (*home, number), one, shared, keys) for number, one in enumerate(subsets)]


def _entry(
    file: SettingsFile, key_path: KeyPath, raw: Any, shared: Mapping[str, Any], keys: PromptKeys
) -> SamplePrompt:
    if isinstance(raw, str):
        return read_line(raw, keys)[0]
    if not isinstance(raw, dict):
        raise RecipeError(f"{file.where(key_path)} must be an object with a prompt")
    options = {**shared, **_checked(file, key_path, raw, keys)}
    return SamplePrompt(options.pop("prompt", ""), options)


def _checked(file: SettingsFile, key_path: KeyPath, table: Mapping[str, Any], keys: PromptKeys) -> dict[str, Any]:
    """A table whose keys are known and whose values have their types."""
    for key, value in table.items():
        line = file.line_near((*key_path, key))
        where = file.where((*key_path, key)) + (f", line {line}" if line else "")
        if key not in keys.kinds:
            raise RecipeError(f"{where}: unknown key; {did_you_mean(key, keys.kinds, 'the scripts do not read it')}")
        kind = keys.kinds[key]
        fits = type(value) in _FITTING.get(kind, (kind,))
        if not fits:
            words = {str: "a text", int: "an integer", float: "a number", list: "a text or a list of texts"}
            raise RecipeError(f"{where}: must be {words[kind]}, got {value!r:.40}")
    return {key: [value] if keys.kinds[key] is list and type(value) is str else value for key, value in table.items()}
