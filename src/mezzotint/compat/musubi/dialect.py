"""The dialect `musubi`: translates command lines and settings files of musubi-tuner's training scripts to recipes.

`_scripts.py` has the scripts, `_rows.py` their options; the other files set what depends on several options.
"""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint.compat.kit import launchers, script_names
from mezzotint.compat.kit.dialect import Dialect, Draft
from mezzotint.compat.kit.launchers import ParsedCommand
from mezzotint.compat.musubi import _datasets, _model, _objective, _optim, _prompts, _run
from mezzotint.compat.musubi._dataset_file import DATASET, SOURCES
from mezzotint.compat.musubi._rows import ROWS, SCRIPTS_OF, has_option
from mezzotint.compat.musubi._scripts import NEEDLESS, OTHER_SCRIPTS, SCRIPTS, TrainingScript


def parse_command(arguments: Sequence[str]) -> ParsedCommand:
    """Splits a command into its launcher and the options of the script, whose name becomes the option `--script`."""
    command = launchers.strip_launcher(arguments, [f"{name}.py" for name in SCRIPTS])
    return script_names.add_script(command, SCRIPTS, (*OTHER_SCRIPTS, *NEEDLESS))


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
    _refuse_foreign_options(draft, script)
    _model.set_model(draft, script)
    _objective.set_objective(draft, script)
    _optim.set_update(draft, script)
    _run.set_run(draft, script)
    _datasets.set_data(draft, script)
    _prompts.set_previews(draft, script)


def _refuse_foreign_options(draft: Draft, script: TrainingScript) -> None:
    """Refuses options that act in other scripts only."""
    for flag in sorted(draft.named):
        if draft.rows[flag].outcome in ("mapped", "computed") and not has_option(script, flag):
            names = [f"{one.name}.py" for one in SCRIPTS.values() if one.is_one_of(SCRIPTS_OF[flag])]
            remedy = f"it is an option of {', '.join(names)}; leave it out"
            draft.refuse(flag, f"{script.name}.py has no such option", remedy, "E1016")


DIALECT = Dialect(
    name="musubi",
    about="musubi-tuner's training scripts of Wan, Qwen-Image, Z-Image, FLUX.1 Kontext and FLUX.2 Klein, with their "
    "TOML files",
    rows=ROWS,
    compute=compute,
    scripts=tuple(f"{name}.py" for name in SCRIPTS),
    other_scripts=OTHER_SCRIPTS,
    needless=NEEDLESS,
    config="config_file",
    other_keys=(*DATASET, "datasets"),
    marks={
        ("dit", "dataset_config"): "is a file of options of musubi-tuner, for --as musubi with --config_file",
        **dict.fromkeys(
            [("datasets", source) for source in SOURCES],
            "is a data set file of musubi-tuner, for --as musubi with --dataset_config",
        ),
    },
    flat_config=True,
    expand=parse_command,
)
