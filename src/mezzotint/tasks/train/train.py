"""The command `train`: recipe → data → model → loop → export. Starting the same command again resumes the run."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from mezzotint.errors import Diverged, OutOfMemory, PeerLost, RecipeError, Stopped, StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import ABOUT_PEERS, Launch, Runtime, open_runtime
from mezzotint.settings.advice import less_memory
from mezzotint.settings.reading.read import Reading, located
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.resume_rules import unknown_allowances
from mezzotint.tasks import assemble
from mezzotint.tasks.cache import cache, text_files
from mezzotint.tasks.reading.arguments import parse
from mezzotint.tasks.reading.continuing import folder_of
from mezzotint.tasks.train import (
    _roll_back,
    run_files,
)
from mezzotint.tasks.train.exports import require_possible
from mezzotint.tasks.train.job import Job, RunStart
from mezzotint.tasks.train.prepare import prepare
from mezzotint.training import requests
from mezzotint.training.callbacks import wandb_log
from mezzotint.training.checkpoints import state
from mezzotint.training.interrupts import Interrupts
from mezzotint.training.user_code import NO_CODE, UserCode
from mezzotint.weights.folder import publishing


def run(arguments: Sequence[str]) -> int:
    """`mezzotint train RECIPE key=value …`. Returns 0; what goes wrong is raised as a MezzotintError. A foreign line
    that asks for the cache alone fills it."""
    reading = parse(arguments, "train")  # read before, too: mistakes are told before torch is imported (`preflight`)
    if reading.verb == "cache":
        print("the line encodes and does not train: mezzotint cache", flush=True)
        return cache.encode(reading)
    text_files.require(located(reading), arguments)
    train(reading, arguments)
    return 0


def train(
    reading: Reading, words: Sequence[str] = (), *, exports: bool = True, code: UserCode = NO_CODE,
    owns_process: bool = True,
) -> RunFolder:  # fmt: skip
    """Trains a recipe from wherever its run folder stands, and returns that. words: those behind the command, for lines
    that are printed. exports: whether the finished model is written. code: callbacks and loss function of the user.
    owns_process: see `Interrupts`."""
    with start_run(reading, words, code=code, owns_process=owns_process) as start:
        while run_attempt(start, exports=exports):
            gc.collect()  # the model of the attempt lets its memory go
        return start.folder


@contextmanager
def start_run(
    reading: Reading, words: Sequence[str] = (), *, code: UserCode = NO_CODE, owns_process: bool = True
) -> Iterator[RunStart]:  # fmt: skip
    """What attempts at a run start from: signals are handled, processes have met, the run folder is locked. See
    `train`."""
    recipe = located(reading)
    launch = Launch.read()
    _refuse_impossible(reading, recipe, launch)
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts(owns_process=owns_process))
        runtime = open_runtime(recipe.run, launch)
        stack.callback(runtime.close)
        place = Path(runtime.share(str(folder_of(reading, recipe))))
        folder = RunFolder(place, run_files.linked_folders(reading, recipe))
        folder.refuse_links()
        start = RunStart(reading, recipe, launch, runtime, folder, interrupts, tuple(words) or (reading.name,), code)
        stack.enter_context(named_failures(runtime, folder, start.command, recipe))
        run_files.refuse_foreign_recipe(folder)
        _take(folder, runtime, stack)
        yield start


def run_attempt(start: RunStart, *, exports: bool) -> bool:
    """Trains to the end, or until the run rolls back to an earlier checkpoint. Returns whether it did: another attempt
    follows."""
    with closing(prepare_from_valid_checkpoint(start)) as job:
        try:
            job.train()
            if exports:
                job.finish()
        except Diverged as error:
            run, progress = job.resolved.recipe.run, job.trainer.progress
            if not _roll_back.begun(error, run, progress, start.folder, start.runtime, job.say):
                raise
            return True
    return False


def _refuse_impossible(reading: Reading, recipe: Recipe, launch: Launch) -> None:
    """What is known from the recipe alone, before anything that takes long."""
    problems = unknown_allowances(recipe.run.allow_change)
    if problems:
        raise RecipeError(reading.name, problems=problems)
    require_possible(recipe)
    if recipe.run.wandb.mode != "off" and not launch.rank:
        wandb_log.package(recipe.run.wandb)
    if recipe.run.export.folder is not None:
        publishing.refuse_others(recipe.run.export.folder)


def _take(folder: RunFolder, runtime: Runtime, stack: ExitStack) -> None:
    """The first process makes the folder, locks it and sweeps it; the others wait, so that all see the same."""
    if runtime.is_first:
        folder.open()
        stack.callback(folder.lock().release)
        # only now: the folder of a start that is refused here is another run's
        stack.callback(folder.discard_if_unused)
        folder.sweep()
        requests.sweep(folder.requests)
    runtime.barrier()


@contextmanager
def named_failures(runtime: Runtime, folder: RunFolder, command: str, recipe: Recipe) -> Iterator[None]:
    """Gives the library's failures their names, and says the line that goes on whenever a run that has begun stops
    early."""

    def going_on() -> str:
        return f"go on: {command}" if folder.recipe.exists() else "start the same command again"

    try:
        with assemble.named_shortage(f"{runtime.device} has not enough memory", less_memory(recipe)):
            yield
    except RuntimeError as error:
        if "can't allocate memory" in str(error):  # torch's words for the host's own memory
            raise OutOfMemory(
                f"this process ran out of memory ({str(error).splitlines()[0]}); lower run.micro_batch (the "
                f"mathematics stays the same), or take a smaller data.resolution; {going_on()}",
                code="E1750",
            ) from error
        if runtime.world_size > 1 and any(word in str(error) for word in ABOUT_PEERS):
            lost = f"process {runtime.rank} lost {runtime.lost()}"
            words = (lost, runtime.peer_phases(), "the newest checkpoint is whole", going_on())
            raise PeerLost("; ".join(filter(None, words)), code="E1804") from error
        raise
    except Stopped as stopped:
        raise Stopped(f"{stopped.message}; {going_on()}", signal_number=stopped.signal_number) from stopped
    except (StorageError, Diverged) as error:
        if isinstance(error, Diverged) and runtime.is_first:
            with suppress(StorageError):
                folder.record("diverged", code=error.code, what=error.message)
        raise type(error)(f"{error.message}; {going_on()}", code=error.code) from error


def prepare_from_valid_checkpoint(start: RunStart) -> Job:
    """`prepare`, and again from an older checkpoint where one proves damaged as its tensors are read. Raises
    DamagedCheckpoint where the recipe names that one."""
    damaged: dict[Path, str] = {}
    while True:
        try:
            return prepare(start, damaged)
        except state.DamagedCheckpoint as error:
            if error.path in damaged:
                raise
            damaged[error.path] = error.reason
        gc.collect()  # the model that was prepared lets its memory go
