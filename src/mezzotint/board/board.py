"""The command `board`: a local page for runs, data and images. It shows files and commands, and stores nothing.

It needs the extra `board`; no other package imports it.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mezzotint import outside
from mezzotint.errors import RecipeError
from mezzotint.tasks.reading import command_line
from mezzotint.tasks.reading.command_line import CommandLine

_LOOPBACK = "127.0.0.1"
_INSTALL = "mezzotint board needs Starlette, uvicorn and Jinja; install them with `pip install 'mezzotint[board]'`"


def run(arguments: Sequence[str]) -> int:
    """`mezzotint board [FOLDER …]`. Returns 0 when it is stopped.

    Raises RecipeError: E1940 if packages are missing, E1941 for a public address without a password, E1943 for a folder
    that does not exist, E1944 for a port that is in use.
    """
    line = command_line.parse(arguments, "board")
    folders = _folders(line)
    host, password = line.get("--host") or _LOOPBACK, _password(line)
    try:
        from mezzotint.board import server
        from mezzotint.board.app import application
        from mezzotint.board.guard import AccessPolicy
        from mezzotint.board.pages import Pages
        from mezzotint.board.reading.root_folders import RootFolders
    except ModuleNotFoundError as error:
        raise RecipeError(f"{_INSTALL} ({error.name} is missing)", code="E1940") from error
    listener = server.open_listener(host, line.get_integer("--port", 0) or 0)
    port = listener.getsockname()[1]
    policy = AccessPolicy(
        hosts=(host, *line.get_all("--allow-host")), any_address=host != _LOOPBACK, password=password,
        read_only="--read-only" in line, name=f"mezzotint-{port}",
    )  # fmt: skip
    pages = Pages(RootFolders.of(folders), read_only=policy.read_only)
    app = application(pages, policy, any_folder="--data" in line)
    where = f"[{host}]" if ":" in host else host
    query = "" if password else f"/?token={policy.token}"
    print(f"Runs in {', '.join(map(str, folders))}: http://{where}:{port}{query}", flush=True)
    print("Press Ctrl-C to close the page; runs continue.", flush=True)
    try:
        with suppress(KeyboardInterrupt):
            server.serve(app, listener)
    finally:
        pages.close()
    return 0


def _folders(line: CommandLine) -> list[Path]:
    """The folders of the command line, or the current folder. Raises RecipeError E1943."""
    named = [Path(word).expanduser() for word in line.plain]
    for path in named:
        if not path.is_dir():
            raise RecipeError(f"mezzotint board: there is no folder {path}; name a folder with runs", code="E1943")
    return named or [Path.cwd()]


def _password(line: CommandLine) -> str:
    """The password of a page that other machines can reach; "" for a page on the loopback interface. Raises RecipeError
    E1941."""
    file = line.get_path("--password-file")
    if file is None and line.get("--host") in (None, _LOOPBACK, "localhost", "::1"):
        return ""
    if file is None and sys.stdin is not None and sys.stdin.isatty():
        password = getpass.getpass("Password for the page: ").strip()
    else:
        password = _from_file(file)
    if len(password) < 8:
        raise RecipeError(
            f"--host={line.get('--host') or _LOOPBACK} lets others reach the page, which starts and stops runs; set a "
            "password of at least eight characters with --password-file=FILE",
            code="E1941",
        )
    return password


def _from_file(file: Path | None) -> str:
    try:
        return "" if file is None else outside.read_text(file, limit=4096).strip()
    except (OSError, ValueError) as error:
        raise RecipeError(f"--password-file: {file} cannot be read ({error})", code="E1941") from None
