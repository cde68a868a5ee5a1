"""Lengths of captions in tokens, by the tokenizer of a run's model. They are counted in a separate process, because it
needs torch, which the page does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from mezzotint import outside, startup
from mezzotint.board.reading.tails import make_printable
from mezzotint.errors import MezzotintError

_SECONDS = 600


def of_run(run: Path) -> tuple[list[int], int] | str:
    """Token counts of the first captions of a run's samples, at most 20,000 evenly spread ones, and the limit of its
    text encoder; or the reason why they are not counted."""
    line = [sys.executable, "-P", "-m", "mezzotint.board.reading.token_counts", str(run / "recipe.yaml")]
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_SECONDS, cwd=run
        )
        answer = outside.parse_json(done.stdout.decode("utf-8").splitlines()[-1])
        return str(answer["why"]) if "why" in answer else ([int(n) for n in answer["counts"]], int(answer["limit"]))
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return "the process that counts tokens ended with an error"


def count(recipe_file: str) -> tuple[tuple[int, ...], int] | str:
    """As `of_run`, in this process."""
    from mezzotint.data.catalogue import catalogue as catalogues
    from mezzotint.settings.reading.read import read, resolve_paths
    from mezzotint.tasks import assemble
    from mezzotint.tasks.prompts.long_captions import token_lengths

    try:
        recipe = resolve_paths(read(recipe_file))
        catalogue = catalogues.build(recipe.data, recipe.data.cache.path.expanduser() / "catalogues")
        family = assemble.family_class(recipe).load(assemble.open_files(recipe), only=[])
        lengths = token_lengths(family, catalogue, recipe.data.captions)
    except MezzotintError as error:
        return f"no tokenizer is available: {make_printable(str(error))[:200]}"
    return lengths or "the model has no tokenizer"


if __name__ == "__main__":
    startup.limit_spinning(os.environ, is_torch_loaded="torch" in sys.modules)
    lengths = count(sys.argv[1])
    print(json.dumps({"why": lengths} if isinstance(lengths, str) else {"counts": lengths[0], "limit": lengths[1]}))
