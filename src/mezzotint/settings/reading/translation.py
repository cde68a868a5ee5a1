"""What a compatibility layer gives to the commands: a `Translator`, which turns a command line of another trainer into
a tree of our settings. The layers in `compat/` are found through the registry, under "dialects"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Launched:
    """What is known of the processes. processes: how many there are, or will be. mixed_precision: what the launcher
    passes on ("no", "fp16", "bf16"), None when it passes nothing. launcher: its name for messages."""

    processes: int = 1
    mixed_precision: str | None = None
    launcher: str = "none"


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence for the user about a flag whose meaning changes or that has no effect. flag: without dashes. file:
    the file it is written in, "" for the command line."""

    flag: str
    text: str
    file: str = ""

    def __str__(self) -> str:
        return f"{flag_name(self.flag, self.file)}: {self.text}" if self.flag else self.text


@dataclass(frozen=True, slots=True)
class Translation:
    """command: the command of ours that the line stands for. settings: a recipe as a tree. origin: recipe path → the
    flag that it comes from. notes: what is changed or dropped. lines: (server, line to type) when the line starts
    several processes that do not run yet; the server is "" when there is only one."""

    command: str
    settings: Mapping[str, Any]
    origin: Mapping[str, str]
    notes: tuple[Note, ...]
    lines: tuple[tuple[str, str], ...] = ()


class Translator(Protocol):
    """`DIALECT` of a module in the group `mezzotint.dialects`, or of its `DIALECTS` the one with the name."""

    @property
    def name(self) -> str:
        """As in `--as NAME`."""

    @property
    def about(self) -> str:
        """What it reads, in a few words."""

    @property
    def published_loss(self) -> float | None:
        """The loss that a published benchmark of its lines asks for after 101 steps; None where there is none."""

    @property
    def config(self) -> str:
        """The option, without dashes, that names a file of settings which a run may read anew at each epoch
        (`run.live`); "" where there is none."""

    def translate(self, arguments: Sequence[str], launched: Launched, *, ahead: bool = False) -> Translation:
        """Translates a command line, with or without its launcher and script. ahead: read a line that starts several
        processes as if they were running, and list the lines to type. Raises RecipeError with every problem in the
        user's own words."""

    def words(self, command: str, arguments: Sequence[str]) -> tuple[list[str], tuple[Note, ...], dict[str, str]]:
        """The line of another program of the trainer's project, as the words behind our command; notes; and by our
        switch, setting or file name the flag it comes from."""


def flag_name(flag: str, file: str) -> str:
    """How a message names a flag: `--flag`, or `key in train.json`."""
    return f"{flag.rpartition(':')[2]} in {file}" if file else f"--{flag}"
