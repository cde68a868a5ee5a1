"""Who may ask the page for anything: the holder of its token, from a page of its own, by a name of this machine.

The address that is printed carries the token; it comes back as a cookie that no script can read, and the address in the
browser loses it. A name that somebody else's server says is ours (DNS rebinding) is refused before anything is looked
at, and so is a request that another site's page sends.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs, parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY = 1_000_000
"""Bytes that a request may bring."""

_LOGIN_BODY = 4096
"""Bytes of a form with a password."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_OF_PICTURES = "default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'none'"
"""Of a picture or clip that is opened alone: the browser lays it out by styles of its own, and nothing runs there."""

_HEADERS = {
    "content-security-policy": POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
    "x-frame-options": "DENY", "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}  # fmt: skip
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_OPEN = ("/static/",)
"""What is the same for everybody and says nothing."""

_LOGIN = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Mezzotint</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/static/page.css">
<main class="door"><h1>Mezzotint</h1><form method="post" action="/login"><label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" autofocus>
<button>Open</button></form></main></html>"""


@dataclass(frozen=True, slots=True)
class Door:
    """What opens the page. hosts: names that it answers to besides those of this machine. any_address: whether it
    answers to addresses in digits, too, when it listens elsewhere. password: "" takes the token alone."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    hosts: tuple[str, ...] = ()
    any_address: bool = False
    password: str = field(default="", repr=False)
    read_only: bool = False
    name: str = "mezzotint"

    def is_host(self, host: str) -> bool:
        """Whether a Host header names this machine. Any port does: a tunnel has its own."""
        match = re.fullmatch(r"(\[[^]@]*\]|[^:@]*)(?::[0-9]*)?", host)
        name = match[1] if match is not None else ""
        if name.lower() in (*_LOOPBACK, *self.hosts):
            return True
        return self.any_address and _is_address(name)

    def is_open_to(self, cookies: str) -> bool:
        """Whether a Cookie header has the token."""
        return hmac.compare_digest(cookie_parser(cookies).get(self.name, "").encode(), self.token.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class Guard:
    """Stands before the whole application."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)
        answer = _refused(scope, headers, self._door)
        if answer is None:
            answer = await self._let_in(scope, headers, receive)
        if answer is None and scope["method"] not in ("GET", "HEAD"):
            body = await _body(receive, BODY)
            if body is None:
                return  # nobody is there any more
            receive = _again(body, receive)
            if len(body) > BODY:
                answer = _too_large()
        target: ASGIApp = self._app if answer is None else answer
        await target(scope, receive, _with_headers(send))

    async def _let_in(self, scope: Scope, headers: Headers, receive: Receive) -> Response | None:
        """What is answered to who has no cookie yet; None lets the request pass."""
        door, path = self._door, scope["path"]
        if path.startswith(_OPEN):
            return None
        if path == "/login" and scope["method"] == "POST" and door.password:
            body = await _body(receive, _LOGIN_BODY) or b""
            words = parse_qs(body.decode("utf-8", "replace")).get("password", [""])
            if hmac.compare_digest(words[0].encode(), door.password.encode()):
                return _entered(door, "/")
            await asyncio.sleep(1.0)
            return HTMLResponse(_LOGIN, 403)
        query = parse_qsl(scope["query_string"].decode("ascii", "replace"), keep_blank_values=True)
        token = next((value for name, value in query if name == "token"), None)
        if token is not None and scope["method"] == "GET" and not door.password:
            if not hmac.compare_digest(token.encode(), door.token.encode()):
                return PlainTextResponse(
                    "This address is from an earlier start; open the one that was printed last.\n", 403
                )
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            return _entered(door, f"{_local(path)}{'?' if rest else ''}{rest}")
        if door.is_open_to(headers.get("cookie", "")):
            return None
        if door.password:
            return HTMLResponse(_LOGIN, 401)
        return PlainTextResponse("Open the address that `mezzotint board` printed: it contains a token.\n", 401)


def _local(path: str) -> str:
    """A path that leads nowhere but here: two slashes at its beginning would name another server."""
    return "/" + path.lstrip("/\\")


def _entered(door: Door, where: str) -> Response:
    answer = RedirectResponse(where, 303)
    answer.set_cookie(door.name, door.token, httponly=True, samesite="strict", path="/")
    return answer


def _refused(scope: Scope, headers: Headers, door: Door) -> Response | None:
    """What is wrong with a request whoever sends it; None for nothing."""
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not door.is_host(hosts[0]):
        return PlainTextResponse("error[E1942]: the page does not answer to this name; see `explain E1942`\n", 403)
    writes = scope["method"] not in ("GET", "HEAD")
    origins = headers.getlist("origin")
    own = f"{scope.get('scheme', 'http')}://{hosts[0]}"
    if any(origin != own for origin in origins) or (writes and len(origins) != 1):
        return PlainTextResponse("error[E1942]: another page has sent this request\n", 403)
    if headers.get("sec-fetch-site", "none") == "cross-site" and (writes or scope["path"].startswith("/api/")):
        return PlainTextResponse("error[E1942]: another site has sent this request\n", 403)
    if writes and door.read_only and scope["path"] != "/login":
        return PlainTextResponse("error[E1945]: the page was opened with --read-only\n", 403)
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdecimal() or int(length) > BODY:
        return _too_large()
    return None


def _too_large() -> Response:
    return PlainTextResponse(f"A request brings at most {BODY:,} bytes.\n", 413)


async def _body(receive: Receive, most: int) -> bytes | None:
    """The body of a request; of one that has more than `most` bytes, its beginning, which is longer than that. None
    where the connection has ended before it."""
    content, more = b"", True
    while more and len(content) <= most:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        content += message.get("body", b"")
        more = message.get("more_body", False)
    return content


def _again(body: bytes, receive: Receive) -> Receive:
    """`receive` for a request whose body has been read."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if headers.get("content-type", "").startswith(("image/", "video/")):
                headers.setdefault("content-security-policy", _OF_PICTURES)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return sent


def hosts_of(names: Sequence[str]) -> tuple[str, ...]:
    """Names as they are compared."""
    return tuple(name.lower() for name in names)
