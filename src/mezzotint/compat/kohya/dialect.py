"""The dialect `kohya`: translates command lines and settings files of sd-scripts' training scripts to recipes.

`_scripts.py` has the scripts, `_rows.py` and `_data_rows.py` their options. `_datasets.py` and `_prompts.py` set the
data and the previews, the other files what else depends on several options.
"""

from __future__ import annotations

from mezzotint.compat.kit.dialect import Dialect, Draft
from mezzotint.compat.kohya import _command, _datasets, _prompts
from mezzotint.compat.kohya._rows import ROWS
from mezzotint.compat.kohya._scripts import OTHER_SCRIPTS, SCRIPTS


def compute(draft: Draft) -> None:
    """Sets what depends on several options, and adds notes."""
    script = SCRIPTS.get(draft.text("script"))
    if script is None:
        draft.refuse(
            "script",
            "the script's name decides what is trained, and the command has none",
            f"put it before the options, or write --script=NAME: {', '.join(SCRIPTS)}",
            "E1017",
        )
        return
    _datasets.set_data(draft, script)
    _prompts.set_previews(draft, script)


DIALECT = Dialect(
    name="kohya",
    about="sd-scripts' training scripts of Stable Diffusion, SDXL, SD3 and FLUX.1, with their TOML files",
    rows=ROWS,
    compute=compute,
    scripts=tuple(f"{name}.py" for name in SCRIPTS),
    other_scripts=OTHER_SCRIPTS,
    expand=_command.parse_command,
)
