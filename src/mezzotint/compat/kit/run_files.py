"""Folders, exported files, checkpoints and logs of a run, by the flags of kohya's trainers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mezzotint.compat.kit.derived import safe_name
from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.setting_files import file_name
from mezzotint.settings.base import Every

PRECISIONS = {"no": "fp32", "fp16": "fp16", "bf16": "bf16"}
"""Our number types by the words of `mixed_precision`."""


def set_length(draft: Draft) -> None:
    """Sets the length of the run and its seed, which is a random one unless `seed` is given."""
    by_epochs = draft.values["max_train_epochs"] is not None
    draft.apply("max_train_epochs" if by_epochs else "max_train_steps")
    if by_epochs and draft.is_given("max_train_steps"):
        draft.note("max_train_steps", "--max_train_epochs is used, as in the scripts")
    seed = draft.values["seed"]
    draft.check_bounds("seed")
    draft.set("run.seed", -1 if seed is None else seed, "seed")


def set_precision(draft: Draft) -> str:
    """Sets and returns the type of arithmetic: the option's, otherwise the launcher's."""
    launched, is_given = draft.launched.mixed_precision, draft.is_given("mixed_precision")
    word = (draft.text("mixed_precision") if is_given else launched) or "no"
    precision = PRECISIONS[word]
    draft.set("run.precision", precision, "mixed_precision")
    if launched and not is_given:
        draft.origin["run.precision"] = f"the launcher ({draft.launched.launcher})"
        draft.note("mixed_precision", f"not given; {precision}, as the launcher sets")
    elif launched and word != launched:
        draft.note("mixed_precision", f"{precision}; the option overrides the launcher's {launched}")
    return precision


def set_folder(draft: Draft) -> str:
    """Sets the folders of the run and of its finished model, and returns the run's name."""
    folder, written = draft.text("output_dir"), draft.text("output_name") or "last"
    name = safe_name(written)
    if not folder:
        draft.refuse("output_dir", "is missing; it is the folder of the results", code="E1017")
    if name != written:
        draft.note("output_name", f"is changed to {name}, which is valid in names of folders and files")
    path = folder.rstrip("/\\")
    draft.set("run.name", name, "output_name")
    draft.set("run.folder", f"{path}/{name}", "output_dir", "output_name")
    return name


def set_exports(draft: Draft, method: str, name: str, dtype: str, *flags_of_dtype: str, kind: str = "") -> None:
    """Sets `run.export`. method: adapter, weights or embeddings. name: of the run. kind: of `save_model_as`, if the
    trainer has it."""
    kind_flag = "save_model_as" if kind else "output_name"
    every = [(flag, unit) for flag, unit in (("save_every_n_epochs", "epochs"), ("save_every_n_steps", "steps"))
             if draft.values[flag] is not None and draft.check_bounds(flag)]  # fmt: skip
    intervals = [f"{draft.integer(flag)} {unit}" for flag, unit in every]
    flags = tuple(flag for flag, _ in every)
    draft.set("run.export.every", intervals, *flags or ("save_every_n_epochs",))
    is_kept = bool(draft.values["save_state"])
    draft.set("run.save.every", intervals if is_kept else [], "save_state", *flags)
    by_steps = any(unit == "steps" for _, unit in every)
    pattern = "{name}-step{step:08}" if by_steps else "{name}-{epoch:06}"
    draft.set("run.export.name", pattern, "output_name", *flags)
    draft.set("run.export.dtype", dtype, *flags_of_dtype)
    if kind in ("ckpt", "pt"):
        draft.note("save_model_as", f"{kind} files are programs that run when they are loaded; safetensors is written")
    folder = draft.text("output_dir").rstrip("/\\") or "."
    if method == "weights":
        is_file = not kind.startswith("diffusers")
        draft.set("run.export.single_file", is_file, kind_flag)
        if is_file:
            draft.set("run.export.single_file_folder", folder, "output_dir")
        else:
            draft.set("run.export.folder", draft.settings["run"]["folder"], "output_dir", "output_name")
        text = "the finished model has the number of its last epoch or step in its name; in the script, it has none"
        draft.note("output_name", text)
        return
    draft.set("run.export.folder", folder, "output_dir")
    if method == "adapter":
        draft.set("run.export.adapter", "kohya", kind_flag)
        text = f"the finished adapter is {name}.safetensors in --output_dir; earlier ones are in {name}/exports"
        draft.note("output_name", text)
    else:
        text = (
            "the file is called learned_embeds.safetensors; embeddings/ has one by the token's name for other programs"
        )
        draft.note("output_name", text)


def set_resume(draft: Draft) -> None:
    """Sets `run.resume`; states of the scripts are refused."""
    folder = draft.text("resume")
    draft.set("run.resume", folder or "never", "resume")
    if re.search(r"-state$", file_name(folder.rstrip("/\\"))):
        message = "is a state of the scripts, which Mezzotint cannot read"
        draft.refuse("resume", message, "leave it out, and start from the model or adapter that was saved with it")


def set_logs(draft: Draft, project: str) -> None:
    """Sets TensorBoard and Weights & Biases. project: its name unless `log_tracker_name` is given."""
    tracker, folder = draft.text("log_with"), draft.text("logging_dir")
    curves = bool(folder) and tracker != "wandb"
    draft.set("run.tensorboard", curves or tracker in ("tensorboard", "all"), "logging_dir", "log_with")
    if tracker in ("wandb", "all"):
        draft.set("run.wandb.mode", "online", "log_with")
        draft.set("run.wandb.project", draft.text("log_tracker_name") or project, "log_tracker_name", "log_with")


def split_intervals(prefix: str, intervals: Sequence[Every | None]) -> dict[str, int | None]:
    """The options of intervals in steps and in epochs."""
    counts = {one.unit: int(one.count) for one in intervals if one is not None and one.count == int(one.count)}
    return {f"{prefix}_{unit}": counts.get(unit) for unit in ("steps", "epochs")}
