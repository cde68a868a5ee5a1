"""Access control of the page: requests need its token, its origin, and a host name of this machine.

The printed address carries the token; it is exchanged for a cookie that scripts cannot read, and the redirect removes
it from the address. Requests for a foreign host name (DNS rebinding) and from other sites (CSRF) are refused first.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import MutableHeaders
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY = 1_000_000
"""Largest size of a request's body, in bytes."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_IMAGES = "default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'none'"
"""For an image or clip opened directly: the browser shows it with inline styles; scripts are forbidden."""

_HEADERS = {
    "content-security-policy": POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
    "x-frame-options": "DENY", "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}  # fmt: skip
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_OPEN = "/static/"
"""Files that are served without a login: they contain no user data."""

_LOGIN = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Mezzotint</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/static/page.css">
<main class="door"><h1>Mezzotint</h1><form method="post" action="/login"><label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" autofocus>
<button>Open</button></form></main></html>"""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Who may use the page. hosts: accepted host names in addition to those of the loopback interface. any_address:
    also accept every IP address, for a page that listens on another interface. password: "" if only the token grants
    access."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    hosts: tuple[str, ...] = ()
    any_address: bool = False
    password: str = field(default="", repr=False)
    read_only: bool = False
    name: str = "mezzotint"

    def allows_host(self, header: str) -> bool:
        """Whether a Host header names this machine, with any port: a tunnel has its own. Starlette's
        TrustedHostMiddleware has no rule for `any_address`, and its answer does not say what to do."""
        match = re.fullmatch(r"(\[[^]@]*\]|[^:@]*)(?::[0-9]*)?", header)
        name = match[1].lower() if match is not None else ""
        if name in _LOOPBACK or name in map(str.lower, self.hosts):
            return True
        return self.any_address and _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class Guard:
    """ASGI middleware around the whole application: checks every request, bounds its body, sets security headers."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self.policy = policy
        self._app = app
        self._bounded = RequestBodyLimitMiddleware(self._answer, BODY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "lifespan":
                await self._app(scope, receive, send)
            case "http":
                with suppress(ClientDisconnect):
                    await self._bounded(scope, receive, _with_headers(send))
            case _:
                await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        refusal = self._refuse(request) or await self._require_login(request)
        await (refusal or self._app)(scope, receive, send)

    def _refuse(self, request: Request) -> Response | None:
        """The response to a request that is refused for every client; None to continue."""
        headers, path = request.headers, request.scope["path"]
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self.policy.allows_host(hosts[0]):
            return _forbidden("E1942", "this host name is not accepted; see `explain E1942`")
        writes = request.method not in ("GET", "HEAD")
        own_origin = f"{request.scope.get('scheme', 'http')}://{hosts[0]}"
        if any(origin != own_origin for origin in origins) or (writes and len(origins) != 1):
            return _forbidden("E1942", "the request comes from another page")
        if headers.get("sec-fetch-site", "none") == "cross-site" and (writes or path.startswith("/api/")):
            return _forbidden("E1942", "the request comes from another site")
        if writes and self.policy.read_only and path != "/login":
            return _forbidden("E1945", "the page was started with --read-only")
        return None

    async def _require_login(self, request: Request) -> Response | None:
        """The response to a client without the cookie; None to continue."""
        policy, path, token = self.policy, request.scope["path"], request.query_params.get("token")
        if path.startswith(_OPEN):
            return None
        if path == "/login" and request.method == "POST" and policy.password:
            form = parse_qs((await request.body()).decode("utf-8", "replace"))
            if _is_equal(form.get("password", [""])[0], policy.password):
                return self._admit("/")
            await asyncio.sleep(1.0)
            return HTMLResponse(_LOGIN, 403)
        if token is not None and request.method == "GET" and not policy.password:
            if not _is_equal(token, policy.token):
                return PlainTextResponse(
                    "This address is from an earlier start; open the newest one that `mezzotint board` printed.\n", 403
                )
            rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
            # two leading slashes would redirect to another server
            return self._admit(f"/{path.lstrip('/' + chr(92))}{'?' if rest else ''}{rest}")
        if _is_equal(request.cookies.get(policy.name, ""), policy.token):
            return None
        if policy.password:
            return HTMLResponse(_LOGIN, 401)
        return PlainTextResponse("Open the address that `mezzotint board` printed: it contains a token.\n", 401)

    def _admit(self, to: str) -> Response:
        answer = RedirectResponse(to, 303)
        answer.set_cookie(self.policy.name, self.policy.token, httponly=True, samesite="strict", path="/")
        return answer


def _is_equal(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode())


def _forbidden(code: str, sentence: str) -> Response:
    return PlainTextResponse(f"error[{code}]: {sentence}\n", 403)


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if headers.get("content-type", "").startswith(("image/", "video/")):
                headers.setdefault("content-security-policy", _IMAGES)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return send_with_headers
