"""Other trainers' names of settings, for mistyped recipes, for `explain` and for hints.

Whole command lines of other trainers are read by `dialects`; this is for single names. The tables are modules of the
group `mezzotint.settings.setting_names`: `NAMES`, a `Foreign` by its name in lower case with underscores; `VALUES`, by
our setting the value for a foreign one in lower case with hyphens; `UNREAD`, see `unsupported_trainer`; `FILES`, see
`file_marks`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from mezzotint import registry

FOLDER = "settings/setting_names"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A name of other trainers. path: our setting or section, None if there is none. origins: the trainers that use it.
    note: how the values differ, or what to do instead; a sentence without its full stop, "" if nothing differs."""

    path: str | None
    origins: tuple[str, ...]
    note: str = ""

    @property
    def origin(self) -> str:
        """`kohya`, `kohya and diffusers`, `kohya, diffusers and OneTrainer`."""
        *most, last = self.origins
        return f"{', '.join(most)} and {last}" if most else last


def meaning_of(name: str) -> Foreign | None:
    """The meaning of another trainer's name, or None. name: with or without dashes, in any spelling: `--learning_rate`,
    `learning-rate`, `learningRate`."""
    spelled = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name.lstrip("-")).lower().replace("-", "_")
    return foreign_names().get(spelled)


def value_of(setting: str, value: object) -> str | None:
    """Our value for another trainer's value of a setting, or None: `fp32` for run.precision=no."""
    word = re.sub(r"[\s_]+", "-", str(value).strip().lower())
    return next((table.VALUES[setting][word] for table in _tables() if word in table.VALUES.get(setting, {})), None)


def unsupported_trainer(trainer: str) -> str | None:
    """A sentence on a trainer whose setting names are known but whose command lines are not read; None for any other.
    trainer: its name in any spelling."""
    spelled = re.sub(r"[^a-z]", "", trainer.lower())
    return next((table.UNREAD[spelled] for table in _tables() if spelled in table.UNREAD), None)


def file_marks() -> Mapping[tuple[str, ...], str]:
    """A sentence on each kind of file of trainers whose files are not read, by the keys that only such files have."""
    return {mark: text for table in _tables() for mark, text in table.FILES.items()}


@functools.cache
def foreign_names() -> Mapping[str, Foreign]:
    """All known names."""
    return {name: foreign for table in _tables() for name, foreign in table.NAMES.items()}


def _tables() -> list[ModuleType]:
    return [registry.find(FOLDER, name) for name in registry.names(FOLDER, skip_unimported=True)]
