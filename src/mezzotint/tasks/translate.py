"""The verb `translate`: prints the recipe that a foreign command line amounts to, and a note for each option that is
not simply carried over. The notes are comments, so that the whole output is a recipe.

Reads no weights and no data: what is not there is told by `check` and `train`.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from mezzotint.dialects.base import Translation
from mezzotint.dialects.shared.writing import as_yaml
from mezzotint.errors import RecipeError
from mezzotint.runtimes.shared.launch import Launch
from mezzotint.tasks.reading import foreign
from mezzotint.tasks.reading.arguments import FOREIGN, process_count, take

FLAGS = {
    "--as=NAME": "the dialect of the line after `--`; `mezzotint ls dialects` lists them",
    "--processes=N": "as N processes would share the batches",
}


def run(arguments: Sequence[str]) -> int:
    """`mezzotint translate --as NAME [--processes=N] -- …`. Raises RecipeError: E1012 for words it does not know, and
    as `Dialect.translate`."""
    asked = take(arguments, "translate")
    if asked.dialect is None:
        raise RecipeError(f"mezzotint translate: name the dialect; write {FOREIGN.format('translate')}", code="E1012")
    unknown = [*asked.words, *(flag for flag in asked.given if flag != "--processes")]
    if unknown:
        what = f"{unknown[0]!r} is not understood; it takes --as NAME, --processes=N, and the foreign line after --"
        raise RecipeError(f"mezzotint translate: {what}", code="E1012")
    place = foreign.launched(Launch.read(), process_count(asked, "translate"))
    print(text(foreign.translation(asked.dialect, asked.foreign, place), asked.dialect), end="")
    return 0


def text(found: Translation, name: str) -> str:
    """The recipe as YAML, then the notes as comments. Before it the lines that start its processes, where the foreign
    line starts several."""
    lines = [f"# from a command line of {name}"]
    for server, line in found.lines:
        lines.append(f"# start it on {server} with" if server else "# start it with")
        lines += [f"#   {part}" for part in line.splitlines()]
    lines = [*lines, as_yaml(found.settings, found.origin).rstrip("\n")]
    for note in found.notes:
        first, *rest = wrap(str(note), 112) or [""]
        lines += [f"# note  {first}", *(f"#       {line}" for line in rest)]
    return "\n".join(lines) + "\n"
