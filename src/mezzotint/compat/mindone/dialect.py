"""The dialect `mindone-sdxl`: translates command lines and YAML files of MindONE's SDXL example (`train.py`, its launch
scripts, its conversion, merging and sampling tools) to recipes and commands. Where a default differs between releases,
that of the summer of 2024 is used.

Not copied, each with a note: runs that continue to the end of an epoch, updates from non-finite gradients, a last step
that is not saved, images of any aspect ratio at any size.
"""

from __future__ import annotations

from pathlib import Path

from mezzotint import outside
from mezzotint.assets import ASSETS
from mezzotint.compat.kit import setting_files, timestep_bias
from mezzotint.compat.kit.dialect import Dialect, Draft
from mezzotint.compat.mindone import _data, _launch, _model, _optim, _run
from mezzotint.compat.mindone._config import Config
from mezzotint.compat.mindone._rows import FLAGS, NO_CONFIG
from mezzotint.compat.mindone._targets import CONTROLNET, DREAMBOOTH, INVERSION, TARGETS
from mezzotint.compat.mindone._tools import TOOLS
from mezzotint.errors import RecipeError

SCRIPT = "train.py"
SHIPPED = ASSETS / "mindone"
"""Own versions of the YAML files that the documents name."""


def compute(draft: Draft) -> None:
    """Sets what depends on the YAML or on several flags, and adds notes."""
    if not draft.check_bounds("gradient_accumulation_steps"):
        return
    config = _read_config(draft)
    if config is None:
        return
    sections = {"version", "model", "optim", "data"}
    for key in sorted(config.tree.keys() - sections):
        config.refuse((key,), "unknown section", f"known sections: {', '.join(sorted(sections))}", "E1016")
    _model.model(config)
    section = _data.data(config)
    _optim.optim(config, _run.batch_size(config, section))
    _run.run(draft, section)
    draft.apply("timestep_bias_strategy", "snr_gamma")
    timestep_bias.notes(draft)


def _read_config(draft: Draft) -> Config | None:
    """The YAML of --config: the file, or, if it does not exist, the shipped file of its name."""
    name = draft.text("config")
    path = Path(name).expanduser()
    if file_kind := outside.describe_file_kind(path):
        draft.refuse("config", f"{name}: {file_kind}", "give a YAML file", "E1017")
        return None
    if not path.is_file():
        shipped = SHIPPED / f"{_stem(name)}.yaml"
        if not shipped.is_file():
            _refuse_config(draft, name)
            return None
        draft.note("config", f"there is no {name} here; the file of that name that ships with Mezzotint is read")
        path = shipped
    try:
        return Config(draft, name, path, TARGETS)
    except RecipeError as error:
        draft.problems += error.problems
        if not error.problems:
            draft.refuse("config", error.message, code="E1017")
        return None


def _stem(name: str) -> str:
    """The name of a shipped file: `_fa` may be on either side of the card's name."""
    stem = setting_files.file_name(name).removesuffix(".yaml").removesuffix(".yml")
    return {"sd_xl_base_finetune_fa_910b": "sd_xl_base_finetune_910b_fa"}.get(stem, stem)


def _refuse_config(draft: Draft, name: str) -> None:
    shipped_names = ", ".join(sorted(path.stem for path in SHIPPED.glob("*.yaml")))
    if not draft.is_given("config"):
        draft.refuse(
            "config", f"is missing; its default, {NO_CONFIG}, is for LoRA", f"these ship: {shipped_names}", "E1017"
        )
        return
    kinds = {"lora": "LoRA", "dreambooth": "DreamBooth", "controlnet": "ControlNet", "textual_inversion": "inversion"}
    kind = next((kind for word, kind in kinds.items() if word in name), "")
    if kind:
        draft.refuse(
            "config", f"{name} does not exist, and {kind} is not supported yet", f"these ship: {shipped_names}"
        )
    else:
        draft.refuse("config", f"{name} does not exist", f"these ship: {shipped_names}", "E1017")


DIALECT = Dialect(
    name="mindone-sdxl",
    about="MindONE's SDXL example: train.py with its YAML files, its launch scripts, its tools",
    rows=FLAGS,
    compute=compute,
    scripts=(SCRIPT,),
    expand=_launch.expand,
    accumulation="gradient_accumulation_steps",
    tools=TOOLS,
    other_scripts={
        "train_dreambooth.py": DREAMBOOTH,
        "train_textual_inversion.py": INVERSION,
        "train_controlnet.py": CONTROLNET,
    },
)
