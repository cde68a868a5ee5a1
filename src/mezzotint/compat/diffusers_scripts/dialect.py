"""The dialects of diffusers' training scripts, `diffusers-NAME` for each of `SCRIPTS`: translate command lines to
recipes.

`_scripts.py` has an entry for each script, `_flags.py` the flags of all of them, `_steps.py` settings that depend on
several flags, and `_notes.py` the differences.
"""

from __future__ import annotations

from functools import partial

from mezzotint.compat.diffusers_scripts import _steps
from mezzotint.compat.diffusers_scripts._flags import BNB_FILE, flags_of
from mezzotint.compat.diffusers_scripts._scripts import SCRIPTS, ExampleScript, other_scripts
from mezzotint.compat.kit.dialect import Dialect


def _build_dialect(script: ExampleScript) -> Dialect:
    rows = flags_of(script)
    return Dialect(
        name=f"diffusers-{script.name}",
        about=f"diffusers' {script.file}: {script.about}",
        rows=rows,
        compute=partial(_steps.compute, script=script),
        scripts=(script.file,),
        other_scripts=other_scripts(script),
        published_loss=script.published_loss,
        tables=tuple(table for table in (BNB_FILE,) if table.flag in {row.flag for row in rows}),
    )


DIALECTS = {f"diffusers-{script.name}": _build_dialect(script) for script in SCRIPTS}
