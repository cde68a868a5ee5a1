"""uvicorn as the page needs it: one process, no log of addresses, and no patience with connections that say nothing."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from mezzotint.errors import RecipeError

SILENCE_SECONDS = 10.0
"""So long may a connection take to say what it wants."""

_FILES = 8192
"""Open files that are asked of the system: a connection is one."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose request, headers and body, is not finished after some seconds. uvicorn's
    own timeout, `timeout_keep_alive`, begins after an answer; it has none for a first request or a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # the headers of a request have come
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        """Closes the connection after some seconds if it still waits for the client then as it does now."""
        request: RequestResponseCycle | None = self.cycle
        is_answered = request is not None and request.response_complete
        self.loop.call_later(SILENCE_SECONDS, self._let_go, request, is_answered)

    def _let_go(self, request: RequestResponseCycle | None, is_answered: bool) -> None:
        if self.cycle is not request or self.transport.is_closing():
            return
        if request is None or is_answered or request.more_body:
            self.transport.close()


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. port: 0 takes a free one. Raises RecipeError E1944."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    own = socket.socket(family, socket.SOCK_STREAM)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        own.bind((host, port))
    except (OSError, OverflowError, UnicodeError) as error:  # taken; a port above 65535; no name of a machine
        own.close()
        reason = "ports are 0 to 65535" if isinstance(error, OverflowError) else getattr(error, "strerror", error)
        raise RecipeError(
            f"mezzotint board: {host}:{port} cannot be listened at ({reason}); choose another --port or --host",
            code="E1944",
        ) from error
    own.listen(1024)
    return own


def serve(app: ASGIApp, own: socket.socket, ready: Callable[[uvicorn.Server], None] | None = None) -> None:
    """Answers until Ctrl-C. ready: gets the server before it begins."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        most = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    config = uvicorn.Config(
        app, http=PatientProtocol, ws="none", loop="asyncio", log_level="error", access_log=False, server_header=False,
        date_header=False, proxy_headers=False, timeout_keep_alive=10, timeout_graceful_shutdown=1, lifespan="off",
        h11_max_incomplete_event_size=32_768, backlog=1024, use_colors=False,
    )  # fmt: skip
    server = uvicorn.Server(config)
    if ready is not None:
        ready(server)
    server.run(sockets=[own])
