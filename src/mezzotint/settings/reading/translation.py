"""The interface of a compatibility layer: a `Translator`, which turns a command line of another trainer into a tree of
our settings. The layers in `compat/` are found through the registry, under "dialects"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mezzotint.settings.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Launched:
    """The processes of a launch. processes: their number, now or later. mixed_precision: the launcher's ("no", "fp16",
    "bf16"), None if it passes none. launcher: its name for messages."""

    processes: int = 1
    mixed_precision: str | None = None
    launcher: str = "none"


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence for the user about a flag that changes its meaning or has no effect. flag: without dashes. file: the
    file that contains it, "" for the command line."""

    flag: str
    text: str
    file: str = ""

    def __str__(self) -> str:
        return f"{flag_name(self.flag, self.file)}: {self.text}" if self.flag else self.text


@dataclass(frozen=True, slots=True)
class Translation:
    """command: our command for the line. settings: a recipe as a tree. origin: recipe path → the flag it comes from.
    notes: what is changed or dropped. lines: (server, line to type) if the line starts several processes that do not
    run yet; the server is "" if there is only one."""

    command: str
    settings: Mapping[str, Any]
    origin: Mapping[str, str]
    notes: tuple[Note, ...]
    lines: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenRecipe:
    """A recipe in another trainer's words. line: its command. files: the texts of the settings files that the command
    names, by their names in it. notes: a sentence for each setting that is lost."""

    line: tuple[str, ...]
    files: Mapping[str, str]
    notes: tuple[str, ...]


class Translator(Protocol):
    """`DIALECT` of a module in the group `mezzotint.dialects`, or the one with this name in its `DIALECTS`."""

    @property
    def name(self) -> str:
        """As in `--as NAME`."""

    @property
    def about(self) -> str:
        """What it reads, in a few words."""

    @property
    def published_loss(self) -> float | None:
        """The loss after 101 steps that a published benchmark of its lines requires; None without one."""

    @property
    def config(self) -> str:
        """The option, without dashes, for a file of settings that a run may read again at each epoch (`run.live`); ""
        without one."""

    def translate(self, arguments: Sequence[str], launched: Launched, *, ahead: bool = False) -> Translation:
        """Translates a command line, with or without its launcher and script. ahead: treat a line that starts several
        processes as if they were running, and list the lines to type. Raises RecipeError with every problem in the
        user's own words."""

    def translate_tool(
        self, command: str, arguments: Sequence[str]
    ) -> tuple[list[str], tuple[Note, ...], dict[str, str]]:
        """The command line of another program of the trainer's project, as arguments of our command; notes; and the
        flag that each of our options, settings or file names comes from."""

    def write_recipe(self, recipe: Recipe, launched: Launched) -> WrittenRecipe:
        """The trainer's own command and files for a recipe. Raises RecipeError E1026 for a recipe that it cannot run,
        and for a trainer whose files are only read."""


def flag_name(flag: str, file: str) -> str:
    """A flag as messages name it: `--flag`, or `key in train.json`."""
    return f"{flag.rpartition(':')[2]} in {file}" if file else f"--{flag}"
