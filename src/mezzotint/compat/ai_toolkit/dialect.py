"""The dialect `ai-toolkit`: translates YAML and JSON files of training jobs of ostris/ai-toolkit (`run.py FILE`).

Not copied, each with a note where it matters: sums of gradients over micro-batches (they are averaged), images that are
not enlarged, mirrored copies of images (they are drawn), 8-bit floats (they are 8-bit integers).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mezzotint.compat.ai_toolkit import _data, _model, _run, _train
from mezzotint.compat.ai_toolkit._keys import Keys
from mezzotint.compat.ai_toolkit._model_rows import DATASETS, MODEL
from mezzotint.compat.ai_toolkit._rows import FLAGS, JOB, SAMPLES, TRAINING
from mezzotint.compat.ai_toolkit._writing import WRITING
from mezzotint.compat.kit import foreign, launchers, setting_files
from mezzotint.compat.kit.dialect import Dialect, Draft, FileTable
from mezzotint.compat.kit.launchers import ParsedCommand
from mezzotint.errors import Problem, RecipeError, did_you_mean

SCRIPT = "run.py"
_PROCESS = ("config", "process", 0)
_SHORT = {"-n": "--name", "-l": "--log", "-r": "--recover"}
_WITH_VALUE = ("--name", "--log", "--config_file")
_FOLDERS = ("", "config/")
_SUFFIXES = ("", ".yaml", ".yml", ".json")

_JOBS = {
    "extract": "makes an adapter from two models; `mezzotint extract` does that",
    "generate": "generates images; `mezzotint sample` does that",
    "mod": "rescales an adapter; `mezzotint merge` writes one with another strength",
    "merge": "merges models; `mezzotint merge` does that",
}
"""Jobs other than training, with what they do."""

_TYPES = ("sd_trainer", "ui_trainer", "diffusion_trainer")
_SLIDER = "trains a concept slider, which Mezzotint does not have yet"
_OTHER_TYPES = {
    **dict.fromkeys(("slider", "slider_old", "concept_slider", "reference_slider"), _SLIDER),
    "vae": "trains an autoencoder, which Mezzotint does not do",
    "esrgan": "trains an upscaler, which Mezzotint does not do",
    "rescale_sd": "changes the size of a model, which Mezzotint does not do",
    "fine_tune": "is an older trainer; write type: sd_trainer",
    "lora_hack": "is an older trainer; write type: sd_trainer",
}  # fmt: skip


def expand(arguments: Sequence[str]) -> ParsedCommand | None:
    """The command with its file as an option. Raises RecipeError for jobs other than a training."""
    command = launchers.strip_launcher(arguments, (SCRIPT,))
    files, options = [], list[str]()
    rest = list(command.arguments)
    while rest:
        word = rest.pop(0)
        word = _SHORT.get(word, word)
        if not word.startswith("-"):
            files.append(word)
            continue
        options.append(word)
        is_unknown = word not in _WITH_VALUE and word != "--recover" and "=" not in word
        if rest and (word in _WITH_VALUE or (is_unknown and not setting_files.has_known_suffix(rest[0]))):
            options.append(rest.pop(0))
    if len(files) > 1:
        raise RecipeError(f"--as ai-toolkit reads one file, got {' '.join(files)}; start each on its own", code="E1018")
    if not any(word.startswith("--config_file") for word in options):
        if not files and not options:
            raise RecipeError("the command names no file of a job; write run.py FILE.yaml", code="E1017")
        options[:0] = [f"--config_file={_find_file(name)}" for name in files]
    _check_job(options, bool(files))
    return replace(command, arguments=options)


def _find_file(name: str) -> str:
    """The path of a job file: as given, or by its name in config/."""
    candidates = [Path(f"{folder}{name}{suffix}") for folder in _FOLDERS for suffix in _SUFFIXES]
    return next((str(path) for path in candidates if path.expanduser().is_file()), name)


def _check_job(options: Sequence[str], is_word: bool) -> None:
    """Refuses a file with another job before its keys are read, and one that cannot be read. is_word: whether the
    command names it without `--config_file`; others that cannot be read are reported later."""
    name = next((word.partition("=")[2] for word in options if word.startswith("--config_file=")), "")
    try:
        file = setting_files.load(name)
    except RecipeError as error:
        if is_word:
            unreadable = Problem(name, error.message.removeprefix(f"{name} "), "", "E1017")
            raise RecipeError("the line of ai-toolkit", problems=[unreadable]) from None
        return
    problem = _find_job_problem(file) if isinstance(file.tree, dict) else None
    if problem:
        raise RecipeError("the line of ai-toolkit", problems=[problem])


def _find_job_problem(file: setting_files.SettingsFile) -> Problem | None:
    job, process = file.at(("job",)), file.at(("config", "process"))
    if not isinstance(job, str) or not isinstance(process, list):
        message = foreign.describe_file(file.tree, ("job", "config"))
        if message:
            return Problem(file.name, message, "", "E1017")
        if not isinstance(job, str):
            return file.problem(("job",), _describe_problem(job, "a text"), "write job: extension", "E1017")
        remedy = "write a list with one entry of type: sd_trainer"
        return file.problem(("config", "process"), _describe_problem(process, "a list"), remedy, "E1017")
    if job in _JOBS:
        return file.problem(("job",), f"{job} {_JOBS[job]}")
    if job not in ("extension", "train"):
        known = ("extension", "train", *_JOBS)
        return file.problem(("job",), f"{job} is not a job", did_you_mean(job, known, "write extension"), "E1017")
    if len(process) != 1:
        message = f"has {len(process)} entries, and a run is one training"
        return file.problem(("config", "process"), message, "put each into a file of its own")
    where = (*_PROCESS, "type")
    kind = file.at(where)
    if kind in _TYPES:
        return _find_model_problem(file)
    if str(kind) in _OTHER_TYPES:
        return file.problem(where, f"{kind} {_OTHER_TYPES[str(kind)]}", called="config.process.0.type")
    hint = did_you_mean(str(kind), _TYPES, f"known: {', '.join(_TYPES)}")
    message = "is missing" if kind is None else f"{kind} is not a trainer that is read"
    return file.problem(where, message, hint, "E1018" if kind else "E1017")


def _describe_problem(value: object, form: str) -> str:
    return "is missing" if value is None else f"is not {form}"


def _find_model_problem(file: setting_files.SettingsFile) -> Problem | None:
    """A model of a kind that Mezzotint lacks: its own keys are not known either."""
    model = file.at((*_PROCESS, "model"))
    name, key = _model.find_name(model if isinstance(model, dict) else {})
    message, remedy = _model.explain_missing(name)
    code = "E1018" if message.startswith("needs") else "E1017"
    return file.problem((*_PROCESS, "model", key), message, remedy, code, called=f"model.{key}") if message else None


def compute(draft: Draft) -> None:
    """Sets what depends on several keys, and adds notes."""
    job, process = Keys(draft, "job:"), Keys(draft, "process:")
    if not job.is_given("job"):
        return  # there is no readable file
    if not process.is_given("model.name_or_path"):
        process.refuse("model.name_or_path", "is missing", "name a model: a folder, a file or a hub id", "E1017")
    if not process.check():
        return
    name = _name(draft, job)
    arch = _model.find_arch(process)
    _model.set_model(process, arch)
    _data.set_data(process, arch)
    _train.set_update(process, arch)
    _train.set_objective(process, arch)
    _run.set_run(process, arch, name)


def _name(draft: Draft, job: Keys) -> str:
    """The name of the run. [name] stands for --name, or for the name in the file."""
    written = job.text("config.name")
    name = draft.text("name") or written
    if not written or name == "[name]":
        job.refuse("config.name", "is missing", "write a name, or give --name NAME", "E1017")
    for flag, value in draft.values.items():
        if isinstance(value, str) and "[name]" in value:
            draft.values = {**draft.values, flag: value.replace("[name]", name)}
        elif isinstance(value, tuple) and any("[name]" in str(one) for one in value):
            texts = tuple(str(one).replace("[name]", name) for one in value)
            draft.values = {**draft.values, flag: texts}
    return re.sub(r"\[name\]", name, written)


DIALECT = Dialect(
    name="ai-toolkit",
    about="ai-toolkit's run.py: files of training jobs, YAML and JSON",
    rows=FLAGS,
    compute=compute,
    scripts=(SCRIPT,),
    other_scripts={
        "run_modal.py": "starts jobs on Modal; give the job's file",
        "flux_train_ui.py": "is a page that writes a job's file; give that file",
    },
    expand=expand,
    tables=(
        FileTable("config_file", "job:", JOB),
        FileTable("config_file", "process:", (*TRAINING, *MODEL), at=_PROCESS),
        FileTable("config_file", "datasets:", DATASETS, at=(*_PROCESS, "datasets"), each="datasets"),
        FileTable("config_file", "samples:", SAMPLES, at=(*_PROCESS, "sample", "samples"), each="sample.samples"),
    ),
    write=WRITING,
    marks={("job", "config"): "is a job of ai-toolkit, for --as ai-toolkit"},
)
