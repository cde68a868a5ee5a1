"""The command line: `mezzotint VERB …`. Finds the verb's page, runs it, prints errors, returns the exit status.

Each verb is one entry of `VERBS`; its module is imported when it is used and not before, so that `--help` answers at
once and a mistyped recipe is refused before torch is loaded.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mezzotint import __version__, fault_injection, quiet, threads
from mezzotint.errors import MezzotintError, OutOfMemory, RecipeError, Stopped, StorageError, most_alike

INTERRUPTED = 130
"""Exit status of Ctrl-C outside a run: 128 + SIGINT."""

_TOOLS = ("sample", "convert", "merge")
"""Verbs without a recipe that take foreign lines all the same: MindONE's example has tools of its own for each."""

_LESS_MEMORY = "close others, or take smaller batches (run.micro_batch leaves the mathematics as it is)"
_ALLOW = "--allow-package=NAME"
"""The switch of all verbs that read a recipe."""
_MEANT = {
    "resume": "train", "continue": "train", "fit": "train", "finetune": "train", "run": "train", "validate": "check",
    "generate": "sample", "draw": "sample", "txt2img": "sample", "list": "ls", "copy": "cp",
}  # fmt: skip
"""Verbs of other programs for ours."""

_STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb. about: one line. form: what follows it. reads_recipe: whether RECIPE key=value come first. examples:
    three command lines with what they do. switches: a switch with its meaning."""

    name: str
    about: str
    form: str
    reads_recipe: bool
    examples: tuple[tuple[str, str], ...]
    switches: dict[str, str] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """What is imported when it is used, `tasks/NAME/NAME.py` or `tasks/NAME.py`: `run(words) -> exit status`."""
        has_folder = (Path(__file__).parent / "tasks" / self.name).is_dir()
        return f"mezzotint.tasks.{self.name}.{self.name}" if has_folder else f"mezzotint.tasks.{self.name}"


VERBS: tuple[Verb, ...] = (
    Verb(
        "train",
        "train a model, or go on with a run",
        "RECIPE [key=value …]",
        True,
        (
            ("mezzotint train recipe.yaml", "starts the run, or goes on from its newest checkpoint"),
            ("mezzotint train recipe.yaml optim.lr=1e-6 run.name=slow", "the same recipe with two settings changed"),
            ("torchrun --nproc-per-node 2 -m mezzotint train recipe.yaml", "on two devices, with the same draws"),
        ),
    ),
    Verb(
        "cache",
        "encode pictures, clips and captions once, ahead of the training",
        "RECIPE [key=value …]",
        True,
        (
            ("mezzotint cache recipe.yaml data.cache.latents=true", "encodes what is not in the cache yet"),
            ("mezzotint cache recipe.yaml data.cache.text=true", "encodes the captions"),
            ("mezzotint cache recipe.yaml data.cache.path=/disk/cache", "keeps the cache in another folder"),
        ),
    ),
    Verb(
        "check",
        "read everything, train nothing: recipe, files, batches, memory",
        "RECIPE [key=value …]",
        True,
        (
            ("mezzotint check recipe.yaml", "tells what the run would do, and whether it fits"),
            ("mezzotint check recipe.yaml data.resolution=768", "the same at another size"),
            ("mezzotint check recipe.yaml --dry", "takes two real steps and tells how long the run would take"),
        ),
        {
            "--json": "one JSON document instead of the page",
            "--all": "every setting, defaults included",
            "--dry": "runs two real steps and tells how long the run would take",
            "--processes=N": "as N processes would share the batches",
        },
    ),
    Verb(
        "translate",
        "print the recipe that the command line of another trainer amounts to",
        "--as NAME [--processes=N] -- THE LINE AS IT IS",
        False,
        (
            (
                "mezzotint translate --as diffusers-sd -- --pretrained_model_name_or_path=sd-v1-5 "
                "--train_data_dir=photos",
                "the recipe, and a note for each flag that is not simply carried over",
            ),
            (
                "mezzotint translate --as diffusers-sd --processes=8 -- --pretrained_model_name_or_path=sd-v1-5 "
                "--train_data_dir=photos --use_ema",
                "as eight processes would share the batches",
            ),
            (
                "mezzotint translate --as diffusers-sd -- python train_text_to_image.py "
                "--pretrained_model_name_or_path=sd-v1-5 --train_data_dir=photos > recipe.yaml",
                "keeps it as a recipe; the launcher may stay",
            ),
        ),
        {
            "--as=NAME": "the dialect of the line after `--`; `mezzotint ls dialects` lists them",
            "--processes=N": "as N processes would share the batches",
        },
    ),
    Verb(
        "bench",
        "measure how fast a recipe trains here, and what it costs",
        "RECIPE [key=value …]",
        True,
        (
            ("mezzotint bench recipe.yaml", "images a second, memory, MFU; a plot of loss and step time"),
            ("mezzotint bench recipe.yaml --steps=30 --fast", "beside it a row with everything that is faster"),
            ("mezzotint bench recipe.yaml --stand-in=833", "on drawn pictures in the place of the recipe's"),
        ),
        {
            "--steps=N": "how many steps; without it the run's own length, at most 101",
            "--warm-up=N": "steps that the numbers leave out; 5 without it, or a quarter of a short run",
            "--fast": "a second row, with caches and on GPUs compiled",
            "--as-written": "of a foreign line, only the row as it is written",
            "--rounds=N": "measure the rows N times in turn, so that a machine that slows favours none; 1 without it",
            "--stand-in=N": "train on N drawn pictures in the place of the recipe's",
            "--target=LOSS": "tell whether the last micro-batch's loss is below it",
            "--json": "the JSON document instead of the table",
            "--out=FOLDER": "where the results go; without it a new folder in bench/",
        },
    ),
    Verb(
        "sample",
        "draw pictures or clips from a model, a run or a recipe",
        "MODEL|RUN|RECIPE [--prompt=TEXT …] [key=value …]",
        False,
        (
            ("mezzotint sample runs/mine --prompt='a red fox'", "from the run's newest checkpoint"),
            ("mezzotint sample model/ --file=prompts.txt --seed=1,2 --size=512x768", "a sheet of prompts and seeds"),
            (
                "mezzotint sample model/ --prompt='a red fox' sample.image=photo.png sample.strength=0.6",
                "begins with a picture (img2img); a strength of 1 leaves little of it",
            ),
        ),
        {
            "--prompt=TEXT": "what to draw; more texts may follow it",
            "--file=FILE": "prompts: .txt, one a line, options behind them (--n --w --h --s --d --l), or .json",
            "--negative=TEXT": "what guidance moves away from",
            "--size=WxH": "in pixels, 512 for a square, or one of SDXL's sizes by name; several with commas between",
            "--seed=N": "of the noise, -1 a new one; several with commas between, or 1-4",
            "--index=N": "number of the first prompt, which addresses its noise; 0 without",
            "--steps=N": "sample.steps",
            "--guidance=G": "sample.guidance, also --cfg; several with commas between",
            "--rescale=SHARE": "sample.guidance_rescale",
            "--solver=NAME": "sample.solver",
            "--spacing=NAME": "sample.spacing",
            "--batch=N": "sample.batch_size",
            "--weights=KIND": "of a run: raw, or shadow for its average (EMA), which is usual where there is one",
            "--frames=N": "sample.clip.frames, of models that draw clips",
            "--rate=FPS": "sample.clip.rate, frames a second of a clip's file",
            "--out=FOLDER": "where the pictures go; without it a new folder in samples/",
            "--numbered": "calls pictures 000000000.png and so on, after those that are there",
        },
    ),
    Verb(
        "convert",
        "turn a model's files into another form: single file, folder, safetensors",
        "SOURCE DESTINATION",
        False,
        (
            ("mezzotint convert model.safetensors model/", "a single file into a folder that diffusers opens"),
            (
                "mezzotint convert runs/run/exports/step-00001000 mine.safetensors --dtype=fp16",
                "a folder into one file",
            ),
            ("mezzotint convert old.ckpt old.safetensors", "a pickle into a file that cannot run code"),
        ),
        {
            "--dtype=fp16": "fp32, fp16 or bf16; without it every tensor keeps its type",
            "--ema=use": "averaged copies in a single file: ignore them, use them as the denoiser, or keep both",
            "--prediction=v": "epsilon or v, for files that do not say it",
            "--config=FOLDER": "configurations of a single file of unusual size",
        },
    ),
    Verb(
        "merge",
        "lay trained parts over the model they came from, or sum models up",
        "MODEL FILE… DESTINATION",
        False,
        (
            ("mezzotint merge sdxl.safetensors unet_1000.ckpt mine.safetensors", "a trained denoiser in its model"),
            ("mezzotint merge sdxl/ a.ckpt,b.safetensors mine/", "two, left to right: the later wins"),
            ("mezzotint merge a/ b/ half.safetensors --weights=0.5,0.5 --dtype=fp16", "a weighted sum of models"),
        ),
        {
            "--weights=A,B": "sum the models up, one weight for each",
            "--dtype=fp16": "fp32, fp16 or bf16; without it every tensor keeps its type",
            "--ema=use": "take the averaged copies of later files",
            "--config=FOLDER": "configurations of a first file of unusual size",
            "--report=FILE.json": "write down where every tensor came from",
        },
    ),
    Verb(
        "explain",
        "tell what a setting, a section or an error code means",
        "PATH|CODE|NAME OF ANOTHER TRAINER …",
        False,
        (
            ("mezzotint explain optim.lr", "one setting: type, default, what a change does on resume"),
            ("mezzotint explain data.cache", "every setting of a section"),
            ("mezzotint explain E1007", "what an error code means and what to do"),
        ),
    ),
    Verb(
        "schema",
        "print the JSON Schema of recipes, for editors",
        "",
        False,
        (
            ("mezzotint schema", "prints it"),
            ("mezzotint schema > recipe.schema.json", "keeps it beside the recipes"),
            ("mezzotint schema --markdown", "prints the reference page of all settings"),
        ),
        {"--markdown": "the reference page instead of the schema"},
    ),
    Verb(
        "ls",
        "list shipped recipes and models, families, formats, dialects, runtimes",
        "[recipes|models|families|formats|dialects|runtimes]",
        False,
        (
            ("mezzotint ls", "everything that can be named in a recipe"),
            ("mezzotint ls recipes", "the shipped recipes"),
            ("mezzotint ls families formats", "the kinds of models, and of data"),
        ),
    ),
    Verb(
        "cp",
        "copy a shipped recipe, to change it",
        "NAME [DESTINATION]",
        False,
        (
            ("mezzotint cp tiny_cpu", "copies it to tiny_cpu.yaml in this folder"),
            ("mezzotint cp tiny_cpu mine.yaml", "copies it under another name"),
            ("mezzotint cp tiny_cpu recipes/", "copies it into a folder"),
        ),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit status. argv: the words after the program's name.

    0 done; 1 a bug; 2 the request, the data or the files are wrong; 3 training diverged; 4 storage; 5 out of memory;
    6 a peer process was lost; 128 + n a signal.
    """
    threads.wait_asleep(os.environ, is_loaded="torch" in sys.modules)  # before anything imports torch
    _show_everything()
    quiet.leave_out()
    try:
        status = _guarded(list(sys.argv[1:] if argv is None else argv))
        _flush()
    except BrokenPipeError:
        _silence_output()
        return 128 + 13
    return status


def _guarded(arguments: list[str]) -> int:
    try:
        return _dispatch(arguments)
    except Stopped as stopped:
        _complain(str(stopped))
        return 128 + stopped.signal_number
    except MezzotintError as error:
        _complain("\n".join([str(error), *filter(None, getattr(error, "__notes__", ()))]))
        return error.exit_status
    except KeyboardInterrupt:
        _complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except MemoryError:
        _complain(f"error[E1750]: this process ran out of memory; {_LESS_MEMORY}")
        return OutOfMemory.exit_status
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _STORAGE:
            _complain(f"error[E1701]: {error.filename or 'a file'} cannot be written: {error.strerror}")
            return StorageError.exit_status
        if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):  # torch's own words, on a CPU
            _complain(f"error[E1750]: this process ran out of memory ({_asked_for(error)}); {_LESS_MEMORY}")
            return OutOfMemory.exit_status
        _complain(traceback.format_exc().rstrip())
        _complain("this is a bug in Mezzotint; please report it with the lines above")
        return 1


def _asked_for(error: Exception) -> str:
    """How many bytes torch wanted, in its words."""
    found = re.search(r"tried to allocate \d+ bytes", str(error))
    return found[0] if found else "the system gives no more"


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        about = [verb for verb in VERBS if verb.name in arguments[1:2]]
        _print(_help(about[0]) if about else _overview())
        return 0
    if arguments[0] in ("--version", "-V"):
        _print(f"mezzotint {__version__}")
        return 0
    verb = _verb(arguments[0], arguments[1:])
    rest = joined(arguments[1:], verb)
    ours = rest[: rest.index("--")] if "--" in rest else rest
    if "-h" in ours or "--help" in ours:
        _print(_help(verb))
        return 0
    _arm_probes()
    flags: Mapping[str, str] = {}
    if verb.reads_recipe:
        from mezzotint.tasks.reading.arguments import preflight  # reading imports pydantic, which --help does without

        flags = preflight(rest, verb.name, verb.switches)
    elif verb.name != "translate" and any(word == "--as" or word.startswith("--as=") for word in ours):
        from mezzotint.tasks.reading.arguments import translated

        rest, flags = translated(rest, verb.name)
    run: Callable[[Sequence[str]], int] = importlib.import_module(verb.module).run
    try:
        return run(rest)
    except MezzotintError as error:
        if flags:
            from mezzotint.tasks.reading.foreign import their_flags

            error.add_note(their_flags(str(error), flags))
        raise


def joined(words: Sequence[str], verb: Verb) -> list[str]:
    """The words after a verb with `--switch value` written `--switch=value`, for switches that take one. What follows a
    lone `--` stays as it is."""
    forms = (*verb.switches, _ALLOW) if verb.reads_recipe else tuple(verb.switches)
    takes = {form.partition("=")[0] for form in forms if "=" in form}
    end = words.index("--") if "--" in words else len(words)
    found: list[str] = []
    for word in words[:end]:
        if found and found[-1] in takes and not word.startswith("--"):
            found[-1] += f"={word}"
        else:
            found.append(word)
    return [*found, *words[end:]]


def _verb(name: str, rest: Sequence[str] = ()) -> Verb:
    """The verb of a name. rest: what stands behind it. Raises RecipeError E1012 with the nearest."""
    known = {verb.name: verb for verb in VERBS}
    if name in known:
        return known[name]
    near = most_alike(name, known)
    if name in _MEANT:
        hint = f"did you mean `{shlex.join(['mezzotint', _MEANT[name], *rest])}`?"
    elif near:
        hint = f"did you mean `mezzotint {near}`?"
    elif name.endswith((".yaml", ".yml")):
        hint = f"did you mean `mezzotint train {name}`?"
    else:
        hint = f"it knows {', '.join(known)}"
    raise RecipeError(f"mezzotint has no verb {name!r}; {hint}", code="E1012")


def _arm_probes() -> None:
    fault = os.environ.get("MEZZOTINT_FAULT", "")
    if not fault:
        return
    try:
        fault_injection.arm(fault)
    except ValueError as error:
        raise RecipeError(f"MEZZOTINT_FAULT cannot be read: {error}", code="E1012") from None


def _overview() -> str:
    width = max(len(verb.name) for verb in VERBS)
    bold, plain = _marks()
    lines = [
        f"{bold}mezzotint{plain} {__version__} trains latent-diffusion models.",
        "",
        f"{bold}usage{plain}  mezzotint VERB …",
        "",
        *(f"  {bold}{verb.name:<{width}}{plain}  {verb.about}" for verb in VERBS),
        "",
        "Every setting of a recipe is an option: mezzotint train recipe.yaml optim.lr=1e-6 data.batch_size=4",
        "`mezzotint VERB --help` shows examples, `mezzotint explain PATH` tells what a setting does.",
    ]
    return "\n".join(lines)


def _help(verb: Verb) -> str:
    bold, plain = _marks()
    lines = [
        f"{bold}mezzotint {verb.name}{plain}: {verb.about}",
        "",
        f"{bold}usage{plain}  mezzotint {verb.name} {verb.form}".rstrip(),
        "",
    ]
    if verb.reads_recipe:
        lines += [
            "RECIPE is a file, the name of a shipped recipe (`mezzotint ls recipes`), or the folder of a run.",
            "key=value sets any path of it, key+=value appends to a list; `mezzotint explain PATH` tells what it does.",
            f"The line of another trainer instead: mezzotint {verb.name} --as NAME -- THE LINE AS IT IS.",
            f"An optimizer's class of a package other than torch, bitsandbytes, pytorch_optimizer: {_ALLOW}.",
            "",
        ]
    if verb.name in _TOOLS:
        lines += [
            f"The line of another trainer's tool instead: mezzotint {verb.name} --as NAME -- THE LINE AS IT IS.",
            "",
        ]
    width = max(map(len, verb.switches), default=0)
    lines += [f"  {name:<{width}}  {meaning}" for name, meaning in verb.switches.items()] + [""] * bool(verb.switches)
    lines.append(f"{bold}examples{plain}")
    for line, meaning in verb.examples:
        lines += [f"  {line}", f"      {meaning}"]
    return "\n".join(lines)


def _marks() -> tuple[str, str]:
    """How bold begins and ends: nothing without a terminal, or when NO_COLOR is set."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not _is_terminal():
        return "", ""
    return "\033[1m", "\033[0m"


def _is_terminal() -> bool:
    return sys.stdout is not None and not sys.stdout.closed and sys.stdout.isatty()


def _print(text: str) -> None:
    if sys.stdout is not None and not sys.stdout.closed:
        print(text)


def _complain(text: str) -> None:
    """Writes to stderr; an error that cannot be shown still ends with its status."""
    try:
        if sys.stderr is not None and not sys.stderr.closed:
            print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def _show_everything() -> None:
    """What a terminal cannot write is shown as an escape, so that no message dies of an arrow. Words for a stream that
    was closed before the start (`>&-`) go nowhere; nor does a file of the run get the stream's number."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  for the life of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush() -> None:
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError):
        return


def _silence_output() -> None:
    """The reader went away (`| head`): what Python still wants to flush goes nowhere."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        return
