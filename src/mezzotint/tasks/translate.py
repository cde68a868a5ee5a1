"""The command `translate`: prints the recipe for a foreign command line, and a note for each option that is not simply
carried over. The notes are comments: the whole output is a recipe. With `--to`, the other way round: a recipe as the
file or command line of another trainer; its notes go to the error stream.

Reads no weights and no data: `check` and `train` report missing files.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from mezzotint import durable
from mezzotint.runtimes.shared.launch import Launch
from mezzotint.settings.reading.read import Reading, with_model_defaults
from mezzotint.settings.reading.translation import Translation, WrittenRecipe
from mezzotint.settings.reading.writing import as_yaml
from mezzotint.tasks.reading import command_line, continuing, foreign
from mezzotint.tasks.reading.command_line import CommandLine
from mezzotint.tasks.reading.commands import REPLACE


def run(arguments: Sequence[str]) -> int:
    """`mezzotint translate --as NAME [--processes=N] -- …`, or `mezzotint translate RECIPE --to=NAME`. Raises
    RecipeError: E1012 for unknown words, and as `Dialect.translate` and `Dialect.write_recipe`."""
    line = command_line.parse(arguments, "translate")
    launched = foreign.launch_facts(Launch.read(), line.get_integer("--processes", 1))
    target = line.get("--to")
    if target is not None:
        dialect, out = foreign.find_dialect(target), line.get_path("--out")
        reading = _read(line)
        written = dialect.write_recipe(with_model_defaults(reading.recipe, reading), launched)
        if out is not None and not is_one_file(written):
            written = _write_files(written, out, replaces=REPLACE.name in line)
            out = None
        elif out is not None:
            durable.refuse_taken(out, replaces=REPLACE.name in line)
        _put_out(format_written(written, reading.name, target), written.notes, out)
        return 0
    if line.dialect is None or line.plain or line.get("--out") is not None:
        problem = "name the dialect" if line.dialect is None else "--as has no recipe and no --out without --to"
        raise line.usage_error(f"{problem}; write mezzotint translate {line.command.form}")
    print(text(foreign.translate(line.dialect, line.foreign, launched), line.dialect), end="")
    return 0


def _read(line: CommandLine) -> Reading:
    """The recipe of a command with `--to`: a file, the name of a shipped one, or the line of another trainer."""
    if line.dialect is not None:
        launched = foreign.launch_facts(Launch.read(), line.get_integer("--processes", 1))
        return foreign.read_command_line(line.dialect, line.foreign, line.plain, launched)
    if not line.plain or "=" in line.plain[0]:
        raise line.usage_error("no recipe is given; write mezzotint translate RECIPE --to=NAME")
    return continuing.read_source(line.plain[0], line.plain[1:])


def _put_out(output: str, notes: Sequence[str], out: Path | None) -> None:
    """Prints or writes a result, and prints its notes as errors are, so that the output can be redirected."""
    if out is None:
        print(output, end="")
    else:
        durable.write_file(out, output)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def _write_files(written: WrittenRecipe, folder: Path, *, replaces: bool) -> WrittenRecipe:
    """Writes the files into a folder. Returns the command with their paths, and no files."""
    paths = {name: folder / name for name in written.files}
    if not folder.is_dir():
        durable.refuse_taken(folder)
    for path in paths.values():
        durable.refuse_taken(path, replaces=replaces)
    with durable.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        durable.write_file(path, written.files[name])
    words = (word.partition("=") for word in written.line)
    line = tuple(f"{flag}={paths[name]}" if name in paths else f"{flag}{sign}{name}" for flag, sign, name in words)
    return WrittenRecipe(line, {}, written.notes)


def is_one_file(written: WrittenRecipe) -> bool:
    """Whether a file has everything, and the command only names it."""
    return len(written.files) == 1 and len(written.line) == 2


def format_written(written: WrittenRecipe, source: str, name: str) -> str:
    """The only file of a foreign command, which has no other options; otherwise the command, then its files. source:
    the recipe, name: the trainer, for the first comment."""
    files = list(written.files.items())
    start = f"# from {source}, by mezzotint translate --to={name}"
    if is_one_file(written):
        return f"{start}; start it with: python {written.line[0]} FILE\n{files[0][1]}"
    parts = [f"{start}\n{shlex.join(written.line)}\n", *(f"\n# {name}\n{content}" for name, content in files)]
    return "".join(parts)


def text(translated: Translation, name: str) -> str:
    """The recipe as YAML, then the notes as comments. Before it the command lines that start its processes, if the
    foreign line starts several."""
    lines = [f"# from a command line of {name}"]
    for server, line in translated.lines:
        lines.append(f"# start it on {server} with" if server else "# start it with")
        lines += [f"#   {part}" for part in line.splitlines()]
    lines = [*lines, as_yaml(translated.settings, translated.origin).rstrip("\n")]
    for note in translated.notes:
        first, *rest = wrap(str(note), 112) or [""]
        lines += [f"# note  {first}", *(f"#       {line}" for line in rest)]
    return "\n".join(lines) + "\n"
