"""The dialect `kohya`: translates command lines and settings files of sd-scripts' training scripts to recipes.

`_scripts.py` has the scripts, `_rows.py` and `_data_rows.py` their options. `_datasets.py` and `_prompts.py` set the
data and the previews, the other files what else depends on several options.
"""

from __future__ import annotations

from mezzotint.compat.kit.dialect import Dialect, Draft
from mezzotint.compat.kohya import _command, _datasets, _model, _objective, _optim, _prompts, _run
from mezzotint.compat.kohya._dataset_file import GENERAL, SUBSET
from mezzotint.compat.kohya._rows import ROWS, has_option
from mezzotint.compat.kohya._scripts import CHROMA, OTHER_SCRIPTS, SCRIPTS, Script
from mezzotint.compat.kohya._writing import WRITING


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
    if script.is_flux and draft.text("model_type") == "chroma":
        if script.name != CHROMA.name:
            draft.refuse("model_type", f"{script.name}.py trains FLUX.1 only", f"use {CHROMA.name}.py")
            return
        script = CHROMA
    draft.apply("train_batch_size")
    _model.set_model(draft, script)
    _objective.set_objective(draft, script)
    _optim.set_update(draft, script)
    _run.set_run(draft, script)
    _datasets.set_data(draft, script)
    _prompts.set_previews(draft, script)


def _refuse_foreign_options(draft: Draft, script: Script) -> None:
    """Refuses options that act in other scripts only."""
    for flag in sorted(draft.named):
        if draft.rows[flag].outcome in ("mapped", "computed") and not has_option(script, flag):
            names = [f"{one.name}.py" for one in SCRIPTS.values() if has_option(one, flag)]
            remedy = f"it is an option of {', '.join(names[:4])}; leave it out"
            draft.refuse(flag, f"{script.name}.py has no such option", remedy, "E1016")


DIALECT = Dialect(
    name="kohya",
    about="sd-scripts' training scripts of Stable Diffusion, SDXL, SD3, FLUX.1 and Chroma, with their TOML files",
    rows=ROWS,
    compute=compute,
    scripts=tuple(f"{name}.py" for name in SCRIPTS),
    other_scripts=OTHER_SCRIPTS,
    config="config_file",
    other_keys=(*GENERAL, *SUBSET, "datasets", "subsets"),
    marks={
        ("pretrained_model_name_or_path", "output_dir", "max_resolution"): "is a settings file of the kohya_ss GUI, "
        "for --as kohya without another option",
        ("pretrained_model_name_or_path", "output_dir"): "is a file of options of sd-scripts, for --as kohya "
        "with --config_file",
        ("datasets", "subsets"): "is a data set file of sd-scripts, for --as kohya with --dataset_config",
    },
    flat_config=True,
    expand=_command.parse_command,
    write=WRITING,
)
