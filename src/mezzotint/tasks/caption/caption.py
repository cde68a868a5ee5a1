"""`mezzotint caption FOLDER --with='COMMAND {image}'` or `--model=FOLDER`: writes captions of images that have none, in
the format that is there, as edits that can be undone. Each is marked for review (`mezzotint.jsonl`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.editing.editor import DataEditor
from mezzotint.data.files.listing import is_remote
from mezzotint.data.formats.shared.captions import MAX_BYTES
from mezzotint.errors import DatasetError, escape_line
from mezzotint.settings.base import with_values
from mezzotint.settings.counting import format_count, format_names
from mezzotint.settings.reading.read import resolve_paths
from mezzotint.settings.sections.data import DataSettings
from mezzotint.tasks.caption.errors import CaptionError
from mezzotint.tasks.caption.programs import Program
from mezzotint.tasks.doctor import doctor
from mezzotint.tasks.reading import command_line
from mezzotint.tasks.reading.command_line import CommandLine

Captioner = Callable[[Catalogue, int], str]
"""The caption of a row's image. Raises CaptionError."""

_WRITE_SECONDS = 10.0
"""Seconds between two edits that write what is done: a killed command loses at most the captions of this time."""


def run(arguments: Sequence[str]) -> int:
    """Writes captions and prints what was done.

    Raises RecipeError E1012 for a command line that is not valid; DatasetError: E1260 for data whose captions cannot be
    edited, E1266 if images were left without a caption, E1267 for a model that cannot be used; and what reading the
    data set raises.
    """
    line = command_line.parse(arguments, "caption")
    program, model = line.get("--with"), line.get_path("--model")
    if (program is None) == (model is None):
        raise line.usage_error("write --with='COMMAND {image}' or --model=FOLDER, one of the two")
    for option, needed in (("--prompt", "--model"), ("--timeout", "--with")):
        if option in line and needed not in line:
            raise line.usage_error(f"{option} needs {needed}")
    if program is not None:
        command = Program.of(program, line, seconds=line.get_integer("--timeout", 1) or 120)
    settings = _data_of(line)
    catalogue = catalogues.build(settings, settings.cache.path.expanduser() / "catalogues")
    captioning = _Captioning(catalogue, DataEditor(catalogue.roots[0], settings), again="--again" in line)
    if captioning.rows:
        if model is None:
            captioner: Captioner = command.caption
        else:
            from mezzotint.tasks.caption.models import VisionLanguageModel  # transformers takes seconds

            captioner = VisionLanguageModel.open(model, settings, prompt=line.get("--prompt")).caption
        captioning.write_all(captioner)
    return captioning.finish()


def _data_of(line: CommandLine) -> DataSettings:
    """The settings of the folder and its format. Raises RecipeError E1012 for more than one folder, DatasetError
    E1260 for data that are not in a folder of this machine."""
    folders = [word for word in line.plain if not command_line.is_setting(word)]
    if len(folders) != 1:
        raise line.usage_error(f"write the folder of one data set, got {len(folders)}")
    if is_remote(folders[0]) or not Path(folders[0]).expanduser().is_dir():
        raise DatasetError(
            f"{folders[0]} is not a folder on this machine; captions are written into the folder of the images",
            code="E1260",
        )
    settings = resolve_paths(doctor.read(line.plain)).data
    return with_values(settings, {"captions.missing": "empty"})


@dataclass(slots=True)
class _Captioning:
    """The rows to caption, and what has become of them. before: the captions of their keys. group: of its edits, which
    are undone together."""

    catalogue: Catalogue
    editor: DataEditor
    again: bool
    rows: list[int] = field(init=False)
    before: dict[str, str | None] = field(init=False)
    failed: dict[str, str] = field(default_factory=dict)
    written: int = 0
    group: str = field(default_factory=lambda: f"caption {time.time_ns()}")

    def __post_init__(self) -> None:
        keys = list(self.catalogue.keys())
        self.before = self.editor.captions(keys)
        settings = self.editor.settings_of(keys)
        self.rows = [
            row for row, key in enumerate(keys) if not self.before[key] or (self.again and not settings[key].review)
        ]

    def write_all(self, captioner: Captioner) -> None:
        """Captions all rows; what is done is written every few seconds, and at the end or a stop."""
        pending: dict[str, str] = {}
        with self._progress() as report:
            try:
                last = time.monotonic()
                for number, row in enumerate(self.rows, start=1):
                    key = self.catalogue.key(row)
                    try:
                        pending[key] = _checked(captioner(self.catalogue, row))
                    except CaptionError as error:
                        self.failed[key] = str(error)
                    report(number)
                    if time.monotonic() - last >= _WRITE_SECONDS:
                        self._write(pending)
                        last = time.monotonic()
            finally:
                self._write(pending)

    def _write(self, pending: dict[str, str]) -> None:
        if not pending:
            return
        changed = self.editor.write_captions(pending, shown=self.before, label="caption", group=self.group)
        self.failed |= dict.fromkeys(changed, "its caption was changed meanwhile, and is left as it is")
        self.written += len(pending) - len(changed)
        pending.clear()

    @contextmanager
    def _progress(self) -> Iterator[Callable[[int], None]]:
        """A line of progress on a terminal."""
        is_shown = sys.stderr.isatty()

        def report(number: int) -> None:
            if is_shown:
                print(f"\rcaptions: {number:,} of {len(self.rows):,}", end="", file=sys.stderr, flush=True)

        try:
            yield report
        finally:
            if is_shown:
                print(file=sys.stderr)

    def finish(self) -> int:
        """Prints what was done. Raises DatasetError E1266 if images were left without a caption."""
        kept = len(self.catalogue) - len(self.rows)
        print(
            f"{format_count(self.written, 'caption')} written in {escape_line(os.fspath(self.editor.root))}, to be "
            f"reviewed on the page Data (mezzotint board); {format_count(kept, 'image')} left as before"
        )
        if self.failed:
            examples = format_names([f"{key}: {reason}" for key, reason in self.failed.items()], 5)
            raise DatasetError(
                f"{format_count(len(self.failed), 'image')} without a new caption: {examples}; the same command again "
                "tries only those",
                code="E1266",
            )
        return 0


def _checked(text: str) -> str:
    """A caption as one line. Raises CaptionError for one that cannot be written."""
    caption = " ".join(text.split())
    if not caption:
        raise CaptionError("no text was given")
    if "\0" in caption or len(caption.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise CaptionError(f"the text has more than {MAX_BYTES:,} bytes, or NUL")
    return caption
