"""The command `train`: recipe → data → model → loop → export. Starting the same command again resumes the run."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from mezzotint.errors import Diverged, OutOfMemory, PeerLost, RecipeError, Stopped, StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import ABOUT_PEERS, Launch, Runtime, open_runtime
from mezzotint.settings.advice import suggest_less_memory
from mezzotint.settings.reading.read import Reading, resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.resume_rules import find_unknown_allowances
from mezzotint.tasks import assemble
from mezzotint.tasks.cache import cache, text_files
from mezzotint.tasks.reading.arguments import parse
from mezzotint.tasks.reading.continuing import folder_of, linked_folders
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
    """`mezzotint train RECIPE key=value …`. Returns 0; failures are raised as MezzotintError. A foreign command line
    that only fills the cache does that."""
    reading = parse(arguments, "train")  # read before torch is imported, too, to report mistakes early (`preflight`)
    if reading.verb == "cache":
        print("this command line only encodes: mezzotint cache", flush=True)
        return cache.encode(reading)
    text_files.require(resolve_paths(reading), arguments)
    train(reading, arguments)
    return 0


def train(
    reading: Reading, arguments: Sequence[str] = (), *, exports: bool = True, code: UserCode = NO_CODE,
    owns_process: bool = True,
) -> RunFolder:  # fmt: skip
    """Trains a recipe, resuming from what its run folder contains, and returns the run folder. arguments: those after
    the command, for printed command lines. exports: whether the finished model is written. code: callbacks and loss
    function of the user. owns_process: see `Interrupts`."""
    with start_run(reading, arguments, code=code, owns_process=owns_process) as start:
        while run_attempt(start, exports=exports):
            gc.collect()  # frees the memory of the attempt's model
        return start.folder


@contextmanager
def start_run(
    reading: Reading, arguments: Sequence[str] = (), *, code: UserCode = NO_CODE, owns_process: bool = True
) -> Iterator[RunStart]:  # fmt: skip
    """Prepares for attempts at a run: signals are handled, processes are connected, the run folder is locked. See
    `train`."""
    recipe = resolve_paths(reading)
    launch = Launch.read()
    _refuse_impossible(reading, recipe, launch)
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts(owns_process=owns_process))
        runtime = open_runtime(recipe.run, launch)
        stack.callback(runtime.close)
        with _translate_lost_peer(runtime, lambda: "start the same command again"):
            path = Path(runtime.share(str(folder_of(reading, recipe))))
        folder = RunFolder(path, linked_folders(reading, recipe))
        folder.refuse_links()
        start = RunStart(
            reading, recipe, launch, runtime, folder, interrupts, tuple(arguments) or (reading.name,), code
        )
        stack.enter_context(translate_failures(runtime, folder, start.command, recipe))
        run_files.refuse_foreign_recipe(folder)
        _take_folder(folder, runtime, stack)
        yield start


def run_attempt(start: RunStart, *, exports: bool) -> bool:
    """Trains to the end, or until the run rolls back to an earlier checkpoint. Returns whether it rolled back: another
    attempt follows."""
    with closing(prepare_from_valid_checkpoint(start)) as job:
        try:
            job.train()
            if exports:
                job.finish()
        except Diverged as error:
            run, progress = job.resolved.recipe.run, job.trainer.progress
            if not _roll_back.start_roll_back(error, run, progress, start.folder, start.runtime, job.say):
                raise
            return True
    return False


def _refuse_impossible(reading: Reading, recipe: Recipe, launch: Launch) -> None:
    """Refuses what the recipe shows to be impossible, before anything slow."""
    problems = find_unknown_allowances(recipe.run.allow_change)
    if problems:
        raise RecipeError(reading.name, problems=problems)
    require_possible(recipe)
    if recipe.run.wandb.mode != "off" and not launch.rank:
        wandb_log.package(recipe.run.wandb)
    if recipe.run.export.folder is not None:
        publishing.refuse_others(recipe.run.export.folder)


def _take_folder(folder: RunFolder, runtime: Runtime, stack: ExitStack) -> None:
    """The first process creates, locks and cleans the folder; the others wait for it."""
    if runtime.is_first:
        folder.open()
        stack.callback(folder.lock().release)
        # only now: the folder of a start that is refused here is another run's
        stack.callback(folder.discard_if_unused)
        folder.sweep()
        requests.sweep(folder.requests)
    runtime.barrier()


@contextmanager
def translate_failures(runtime: Runtime, folder: RunFolder, command: str, recipe: Recipe) -> Iterator[None]:
    """Turns failures of libraries into errors of ours, and adds the command line that resumes a run that stops
    early."""

    def resume_hint() -> str:
        return f"resume with: {command}" if folder.recipe.exists() else "start the same command again"

    try:
        shortage = f"{runtime.device} does not have enough memory"
        with (
            _translate_lost_peer(runtime, resume_hint),
            assemble.translate_shortage(shortage, suggest_less_memory(recipe)),
        ):
            yield
    except RuntimeError as error:
        if "can't allocate memory" in str(error):  # torch's message about host memory
            raise OutOfMemory(
                f"this process ran out of memory ({str(error).splitlines()[0]}); lower run.micro_batch (the "
                f"mathematics stays the same) or data.resolution; {resume_hint()}",
                code="E1750",
            ) from error
        raise
    except Stopped as stopped:
        raise Stopped(f"{stopped.message}; {resume_hint()}", signal_number=stopped.signal_number) from stopped
    except (StorageError, Diverged) as error:
        if error.code == "E1703":  # the same command would fail again
            raise
        if isinstance(error, Diverged) and runtime.is_first:
            with suppress(StorageError):
                folder.record("diverged", code=error.code, what=error.message)
        raise type(error)(f"{error.message}; {resume_hint()}", code=error.code) from error


@contextmanager
def _translate_lost_peer(runtime: Runtime, resume_hint: Callable[[], str]) -> Iterator[None]:
    """Raises PeerLost where another process of the run has ended."""
    try:
        yield
    except RuntimeError as error:
        if runtime.world_size == 1 or not any(phrase in str(error) for phrase in ABOUT_PEERS):
            raise
        lost = f"process {runtime.rank} lost {runtime.describe_lost_peer()}"
        sentences = (lost, runtime.peer_phases(), "the newest checkpoint is intact", resume_hint())
        raise PeerLost("; ".join(filter(None, sentences)), code="E1804") from error


def prepare_from_valid_checkpoint(start: RunStart) -> Job:
    """`prepare`, repeated from an older checkpoint when the tensors of one turn out to be damaged. Raises
    DamagedCheckpoint where the recipe names that checkpoint."""
    damaged: dict[Path, str] = {}
    while True:
        try:
            return prepare(start, damaged)
        except state.DamagedCheckpoint as error:
            if error.path in damaged:
                raise
            damaged[error.path] = error.reason
        gc.collect()  # frees the memory of the prepared model
