"""uvicorn for the page: one process, no access log, and a timeout for idle connections."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from mezzotint.errors import RecipeError

IDLE_SECONDS = 10.0
"""Seconds in which a connection must complete a request."""

_FILES = 8192
"""The limit of open files that is requested from the system; each connection is one."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose request, headers and body, is incomplete after `IDLE_SECONDS`. uvicorn's
    `timeout_keep_alive` starts after a response; uvicorn has no timeout for a first request or a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # the headers of a request have arrived
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        """Closes the connection after `IDLE_SECONDS` if it then still waits for the client at the same point."""
        request: RequestResponseCycle | None = self.cycle
        is_answered = request is not None and request.response_complete
        self.loop.call_later(IDLE_SECONDS, self._close_if_unchanged, request, is_answered)

    def _close_if_unchanged(self, request: RequestResponseCycle | None, is_answered: bool) -> None:
        if self.cycle is not request or self.transport.is_closing():
            return
        if request is None or is_answered or request.more_body:
            self.transport.close()


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket. port: 0 selects a free one. Raises RecipeError E1944."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError, UnicodeError) as error:  # in use; a port above 65535; not a host name
        listener.close()
        reason = "ports are 0 to 65535" if isinstance(error, OverflowError) else getattr(error, "strerror", error)
        raise RecipeError(
            f"mezzotint board: cannot listen at {host}:{port} ({reason}); choose another --port or --host",
            code="E1944",
        ) from error
    listener.listen(1024)
    return listener


def serve(app: ASGIApp, listener: socket.socket, ready: Callable[[uvicorn.Server], None] | None = None) -> None:
    """Serves until Ctrl-C. ready: called with the server before it starts."""
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
    server.run(sockets=[listener])
