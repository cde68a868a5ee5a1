"""The command line: `mezzotint COMMAND …`. Finds the command, runs it, prints errors, returns the exit status.

Each command is one entry of `COMMANDS` (`tasks/reading/commands.py`). Its module is imported only when it runs, so that
`--help` answers at once and a mistyped recipe is refused before torch is loaded.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import re
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO, cast

from mezzotint import __version__, startup
from mezzotint.errors import (
    MezzotintError,
    OutOfMemory,
    RecipeError,
    Stopped,
    StorageError,
    VisibleStream,
    find_closest,
)
from mezzotint.tasks.reading.commands import COMMANDS, Command
from mezzotint.tasks.reading.parser import parser_of

INTERRUPTED = 130
"""Exit status of Ctrl-C outside a run: 128 + SIGINT."""

_MEMORY_HINT = "close other programs, or use smaller batches (run.micro_batch keeps the mathematics the same)"
_SIMILAR_COMMANDS = {
    "resume": "train", "continue": "train", "fit": "train", "finetune": "train", "run": "train", "validate": "check",
    "generate": "sample", "draw": "sample", "txt2img": "sample", "list": "ls", "copy": "cp",
}  # fmt: skip
"""Commands of other programs, with ours."""

_WRITES = (["train"], ["cache"])
"""Commands that write files: their work is done even if nobody reads all of their output."""

_NO_HOME = "Could not determine home directory."
"""The message of `Path.expanduser` for an unknown user."""

_STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit status. argv: the arguments after the program's name.

    0 done; 1 a bug; 2 the request, the data or the files are wrong; 3 training diverged; 4 storage; 5 out of memory;
    6 a peer process was lost; 128 + n a signal.
    """
    startup.limit_spinning(os.environ, is_torch_loaded="torch" in sys.modules)  # before anything imports torch
    startup.ignore_warnings()
    arguments = list(sys.argv[1:] if argv is None else argv)
    status = 128 + 13
    with _visible_streams():
        try:
            try:
                status = _dispatch(arguments)
            except BrokenPipeError:
                raise
            except (Exception, KeyboardInterrupt) as error:
                status = _report(error)
            _flush()
        except BrokenPipeError:
            _silence_output()
            return status if arguments[:1] in _WRITES else 128 + 13
    return status


def _report(error: BaseException) -> int:
    """Prints an error and returns its exit status."""
    match error:
        case Stopped():
            _print_error(str(error))
            return 128 + error.signal_number
        case MezzotintError():
            _print_error("\n".join([str(error), *filter(None, getattr(error, "__notes__", ()))]))
            return error.exit_status
        case KeyboardInterrupt():
            _print_error("interrupted")
            return INTERRUPTED
        case MemoryError():
            _print_error(f"error[E1750]: this process ran out of memory; {_MEMORY_HINT}")
            return OutOfMemory.exit_status
        case OSError() if error.errno in _STORAGE:
            _print_error(f"error[E1701]: {error.filename or 'a file'} cannot be written: {error.strerror}")
            return StorageError.exit_status
        case OSError() if error.errno == errno.ENAMETOOLONG:
            _print_error(f"error[E1012]: {str(error.filename)[:80]}… is too long for a path; give another path")
            return RecipeError.exit_status
        case RuntimeError() if str(error) == _NO_HOME:
            _print_error(
                "error[E1012]: a path starts with ~ and names no home folder of this machine; give another path"
            )
            return RecipeError.exit_status
        case RuntimeError() if "can't allocate memory" in str(error):  # torch's message, on a CPU
            _print_error(f"error[E1750]: this process ran out of memory ({_requested_bytes(error)}); {_MEMORY_HINT}")
            return OutOfMemory.exit_status
    import traceback

    _print_error("".join(traceback.format_exception(error)).rstrip())
    _print_error("this is a bug in Mezzotint; please report it with the lines above")
    return 1


def _requested_bytes(error: Exception) -> str:
    """How many bytes torch tried to allocate, from its message."""
    match = re.search(r"tried to allocate \d+ bytes", str(error))
    return match[0] if match else "the system has no more"


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        about = [command for command in COMMANDS if command.name in arguments[1:2]]
        _print(parser_of(about[0]) if about else _overview())
        return 0
    if arguments[0] in ("--version", "-V"):
        print(f"mezzotint {__version__}")
        return 0
    command, rest = _find_command(arguments[0], arguments[1:]), arguments[1:]
    ours = rest[: rest.index("--")] if "--" in rest else rest
    if "-h" in ours or "--help" in ours:
        _print(parser_of(command))
        return 0
    _arm_probes()
    from mezzotint.tasks.reading.arguments import preflight  # reading imports pydantic, which --help does without

    rest, flags = preflight(rest, command)
    startup.quiet_libraries()
    run: Callable[[Sequence[str]], int] = importlib.import_module(command.module).run
    try:
        return run(rest)
    except MezzotintError as error:
        if flags:
            from mezzotint.tasks.reading.foreign import their_flags

            error.add_note(their_flags(str(error), flags))
        raise


def _find_command(name: str, rest: Sequence[str]) -> Command:
    """The command with this name. rest: the arguments after it. Raises RecipeError E1012 with the nearest name."""
    commands = {command.name: command for command in COMMANDS}
    if name in commands:
        return commands[name]
    near = find_closest(name, commands)
    if name in _SIMILAR_COMMANDS:
        import shlex

        hint = f"did you mean `{shlex.join(['mezzotint', _SIMILAR_COMMANDS[name], *rest])}`?"
    elif near:
        hint = f"did you mean `mezzotint {near}`?"
    elif name.endswith((".yaml", ".yml")):
        hint = f"did you mean `mezzotint train {name}`?"
    else:
        hint = f"the commands are {', '.join(commands)}"
    raise RecipeError(f"mezzotint has no command {name!r}; {hint}", code="E1012")


def _arm_probes() -> None:
    fault = os.environ.get("MEZZOTINT_FAULT", "")
    if not fault:
        return
    from mezzotint import fault_injection

    try:
        fault_injection.arm(fault)
    except ValueError as error:
        raise RecipeError(f"MEZZOTINT_FAULT cannot be read: {error}", code="E1012") from None


def _overview() -> ArgumentParser:
    """The parser whose help lists the commands."""
    width = max(len(command.name) for command in COMMANDS)
    parser = ArgumentParser(
        prog="mezzotint", usage="mezzotint COMMAND …", formatter_class=RawDescriptionHelpFormatter,
        description="\n".join([
            f"mezzotint {__version__} trains latent diffusion models.", "", "commands:",
            *(f"  {command.name:<{width}}  {command.about}" for command in COMMANDS),
        ]),
        epilog="Every setting of a recipe is an option: mezzotint train recipe.yaml optim.lr=1e-6 data.batch_size=4\n"
        "`mezzotint COMMAND --help` shows examples, `mezzotint explain PATH` explains a setting.",
    )  # fmt: skip
    parser.add_argument("-V", "--version", action="store_true", help="print the version")
    return parser


def _print(parser: ArgumentParser) -> None:
    """Prints a parser's help unescaped, since its colours (Python 3.14) are escape sequences."""
    if sys.stdout is not None and not sys.stdout.closed:
        parser.print_help(sys.stdout.stream if isinstance(sys.stdout, VisibleStream) else sys.stdout)


def _print_error(text: str) -> None:
    """Writes to stderr; an error that cannot be printed still ends with its status."""
    try:
        if sys.stderr is not None and not sys.stderr.closed:
            print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


@contextlib.contextmanager
def _visible_streams() -> Iterator[None]:
    """Escapes control characters and characters that the terminal cannot encode in everything that is printed. Output
    to a stream that was closed before the start (`>&-`) goes to the null device, which also keeps its file number from
    a file of the run."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  for the life of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with (
        contextlib.redirect_stdout(cast(TextIO, VisibleStream(sys.stdout))),
        contextlib.redirect_stderr(cast(TextIO, VisibleStream(sys.stderr))),
    ):
        yield


def _flush() -> None:
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError):
        return


def _silence_output() -> None:
    """The reader is gone (`| head`): redirects what Python still flushes to the null device."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        return
