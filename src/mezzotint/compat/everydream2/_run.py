"""Settings of an EveryDream2 run: its folder, its start or resume, when it saves, generates samples and measures."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mezzotint.compat.everydream2._optimizer import note_steps
from mezzotint.compat.kit.derived import safe_name
from mezzotint.compat.kit.dialect import Draft

STAMP = "{stamp}"
"""Placeholder for the start time in the name of a run folder."""

CONVERTED = Path("ckpt_cache")
"""The folder of EveryDream2's converted models, by name."""

_MINUTES = 20
_ALL = 1_000_000
"""More images than any data set holds out."""


def run(draft: Draft) -> None:
    """Sets what depends on several flags in `run` and `sample`."""
    folder = _set_folder(draft)
    _set_start(draft, folder)
    _set_seed(draft)
    _set_saving(draft)
    _set_logging(draft)
    _set_validation(draft)
    _set_live(draft)


def _set_folder(draft: Draft) -> str:
    """Sets and returns the run folder, with the placeholder of the start time."""
    project = safe_name(draft.text("project_name"))
    if project != draft.text("project_name"):
        draft.note("project_name", f"is changed to {project}, which is valid in names of folders and files")
    folder = f"{draft.text('logdir').rstrip('/')}/{project}-{STAMP}"
    draft.set("run.name", project, "project_name")
    if draft.values["wandb"]:
        draft.set("run.wandb.mode", "online", "wandb")
        draft.set("run.wandb.project", project, "project_name")
    draft.set("run.folder", folder, "project_name", "logdir")
    draft.set("run.export.link", "ckpts", "logdir")
    draft.set("run.schedule_file", bool(draft.values["write_schedule"]), "write_schedule")
    if draft.values["write_schedule"]:
        draft.set("run.schedule_place", "run", "write_schedule")
    draft.set("run.tensorboard", True, "logdir")
    return folder


def _set_start(draft: Draft, folder: str) -> None:
    """Sets the start from a model, or the newest run of the project."""
    model = draft.text("resume_ckpt")
    resumes = model == "findlast"
    converted = CONVERTED / Path(model).name
    if not resumes and not Path(model).expanduser().exists() and converted.is_dir():
        draft.note("resume_ckpt", f"{model} is {converted}")
        model = str(converted)
    values = {"model.path": folder if resumes else model, "run.resume": "latest" if resumes else "never"}
    draft.set_all(values, "resume_ckpt")
    if resumes:
        shown = folder.replace(STAMP, "*")
        draft.note("resume_ckpt", f"resumes the newest run of {shown}, with optimizer, average and order")
    elif draft.is_given("resume_ckpt"):
        draft.note("resume_ckpt", "starts a new run; a run folder of Mezzotint would be resumed")
    else:
        draft.note("resume_ckpt", f"not given; {model} is used")
    start = draft.text("ema_resume_model")
    if not start or (draft.values["ema_decay_rate"] is None and draft.values["ema_strength_target"] is None):
        return
    if start == "findlast" and resumes:
        draft.note("ema_resume_model", "the average is part of the resumed run")
    else:
        draft.set("optim.ema.start", folder if start == "findlast" else start, "ema_resume_model")


def _set_seed(draft: Draft) -> None:
    seed = draft.integer("seed")
    if seed < -1:
        draft.refuse("seed", f"must be -1, which selects a random one, or 0 and more, got {seed}", code="E1017")
    else:
        draft.set_all({"run.seed": seed, "sample.seed": seed, "data.epoch_seed": "add"}, "seed")


def _set_saving(draft: Draft) -> None:
    """Sets intervals of checkpoints and models, by epoch and by minutes."""
    epochs, minutes = draft.values["save_every_n_epochs"], draft.values["ckpt_every_n_minutes"]
    if epochs is None and minutes is None:
        minutes = _MINUTES
    counts = ((epochs, "epochs"), (minutes, "minutes"))
    every = [f"{count} {unit}" for count, unit in counts if isinstance(count, int) and count >= 1]
    if len(every) == 2:
        draft.note("ckpt_every_n_minutes", "save_every_n_epochs is given, too: both save")
    if not every:
        draft.note("save_every_n_epochs", "below 1 is never: a model is saved at the end, a checkpoint also on signals")
    draft.set_all({"run.save.every": every, "run.export.every": every}, "save_every_n_epochs", "ckpt_every_n_minutes")
    draft.set("run.export.from_epoch", max(0, draft.integer("save_ckpts_from_n_epochs")), "save_ckpts_from_n_epochs")
    draft.apply("no_prepend_last")
    draft.set("run.export.when_stopped", True, "save_every_n_epochs")
    draft.apply("no_save_ckpt", "save_full_precision", "save_ckpt_dir")
    for flag in ("logdir", "save_ckpt_dir"):
        path = draft.text(flag)
        if os.sep == "/" and re.match(r"[A-Za-z]:[\\/]", path):
            draft.note(flag, f"{path} is a Windows path: on this system it is a folder of that name in the current one")


def _set_logging(draft: Draft) -> None:
    """Sets intervals of logging and samples."""
    for flag in ("log_step", "sample_steps"):
        draft.apply(flag)
        if draft.integer(flag) > 1:
            note_steps(draft, flag)
    name = draft.text("sample_prompts")
    if draft.is_given("sample_prompts") or Path(name).expanduser().is_file():
        draft.set("sample.prompt_file", name, "sample_prompts")
    else:
        draft.note("sample_prompts", f"there is no {name} here: samples use captions of the data set")
    draw = {"sample.steps": 30, "sample.guidance": [7.0, 4.0, 1.01], "sample.solver": "ddim"}
    draft.set_all(draw, "sample_prompts")
    draft.set("sample.batch_size", max(1, draft.integer("batch_size") // 2), "batch_size")


def _set_validation(draft: Draft) -> None:
    """Sets what is held out and measured."""
    before, name = "validation:", "validation_config"
    values = {key.removeprefix(before): value for key, value in draft.values.items() if key.startswith(before)}
    if draft.values[name] is None or values["validate_training"] is False:
        draft.set("run.validation.every", None, name, "validation:validate_training")
        return
    extra = values["extra_manual_datasets"]
    folders = dict(str(text).partition("=")[::2] for text in extra) if isinstance(extra, tuple) else {}
    match values["val_split_mode"]:
        case "automatic":
            share, old = values["auto_split_proportion"], values["val_split_proportion"]
            share = share if draft.is_given("validation:auto_split_proportion") or old is None else old
            flags = ("validation:auto_split_proportion", "validation:val_split_proportion")
            draft.set("data.holdout.fraction", share, *flags)
        case "manual":
            root = values["manual_data_root"] or values["val_data_root"]
            if root:
                folders["val"] = str(root)
            else:
                draft.refuse("validation:manual_data_root", "is missing, and val_split_mode is manual", code="E1017")
    flag = "validation:extra_manual_datasets"
    for key, path in folders.items():
        if re.fullmatch(r"[A-Za-z0-9_-]{1,50}", key):
            draft.set(f"data.holdout.path.{key}", path, flag if key != "val" else "validation:manual_data_root", flag)
        else:
            draft.refuse(flag, f"{key!r} is not a name of a curve", "letters, digits, - and _ are allowed", "E1017")
    if values["stabilize_training_loss"]:
        share = values["stabilize_split_proportion"]
        draft.set("run.validation.training_fraction", share, "validation:stabilize_split_proportion")
    draft.set("data.holdout.max_samples", _ALL, name)
    _set_validation_interval(draft, draft.number("validation:every_n_epochs"))


def _set_validation_interval(draft: Draft, epochs: float) -> None:
    flag, whole = "validation:every_n_epochs", max(1, round(epochs))
    if epochs <= 0:
        draft.refuse(flag, f"must be above 0, got {epochs:g}", code="E1017")
        return
    draft.set("run.validation.every", f"{whole} epochs", flag)
    if whole != epochs:
        more = "; run.validation.every takes steps, too" if epochs < 1 else ""
        draft.note(flag, f"Mezzotint counts whole epochs: {whole} is used{more}")


def _set_live(draft: Draft) -> None:
    """Sets the reading of train.json at each epoch; the command line overrides it."""
    flag = "load_settings_every_epoch"
    if draft.values[flag] and draft.values["config"] is None:
        draft.note(flag, "without --config there is no file to read")
    elif draft.values[flag]:
        live = {"path": draft.text("config"), "dialect": "everydream2", "line": list(draft.line)}
        draft.set_all({f"run.live.{key}": value for key, value in live.items()}, flag)
