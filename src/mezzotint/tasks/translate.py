"""The command `translate`: prints the recipe for a foreign command line, and a note for each option that is not simply
carried over. The notes are comments: the whole output is a recipe.

Reads no weights and no data: `check` and `train` report missing files.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from mezzotint.runtimes.shared.launch import Launch
from mezzotint.settings.reading.translation import Translation
from mezzotint.settings.reading.writing import as_yaml
from mezzotint.tasks.reading import command_line, foreign


def run(arguments: Sequence[str]) -> int:
    """`mezzotint translate --as NAME [--processes=N] -- …`. Raises RecipeError: E1012 for unknown words, and as
    `Dialect.translate`."""
    line = command_line.parse(arguments, "translate")
    if line.dialect is None:
        raise line.usage_error(f"name the dialect; write mezzotint translate {line.command.form}")
    launched = foreign.launch_facts(Launch.read(), line.get_integer("--processes", 1))
    print(text(foreign.translate(line.dialect, line.foreign, launched), line.dialect), end="")
    return 0


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
