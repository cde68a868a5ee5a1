"""Access to the page: tokens, hosts, origins, and files that are never sent."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mezzotint.board import server
from mezzotint.board.guard import BODY, AccessPolicy
from support.board_runs import SCRIPT, Board, opened, write_run


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    write_run(root / "runs" / "first")
    (root / "secret.txt").write_text("a secret")
    (root / "runs" / "first" / "samples" / "out.png").symlink_to(root / "secret.txt")
    (root / "runs" / "first" / "samples" / "page.svg").write_text("<svg onload='alert(1)'/>")
    (root / "runs" / "first" / "samples" / "page.html").write_text(SCRIPT)
    return root


@pytest.fixture(scope="module")
def board(root: Path) -> Iterator[Board]:
    with opened(root / "runs") as board:
        yield board


def test_token_becomes_an_http_only_cookie_and_leaves_the_address(board: Board) -> None:
    status, _, headers = board.ask(f"/run?run=0/first&token={board.policy.token}", cookie=False)
    assert (status, headers["location"]) == (303, "/run?run=0%2Ffirst")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert board.ask("/")[0] == 200


def test_token_redirect_stays_on_this_server(board: Board) -> None:
    _, _, headers = board.ask(f"//evil.example/?token={board.policy.token}", cookie=False)
    assert headers["location"] == "/evil.example/"


@pytest.mark.parametrize("path", ["/", "/run?run=0/first", "/file?run=0/first&file=samples/step-00000000/00-raw.png",
                                  "/api/curves?run=0/first", "/live", "/?token=wrong"])  # fmt: skip
def test_nothing_is_shown_without_the_cookie(board: Board, path: str) -> None:
    status, text, _ = board.ask(path, cookie=False)
    assert status in (401, 403)
    assert "first" not in text
    assert board.ask(path, cookie=False, Cookie=f"{board.policy.name}=wrong")[0] in (401, 403)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "127.0.0.2", "192.168.0.9", "0.0.0.0", "localhost.",
     "127.0.0.1:80@evil.example", "localhost:x", "[::1]evil.example:80", ""],
)  # fmt: skip
def test_other_host_names_are_refused(board: Board, host: str) -> None:
    assert board.ask("/", host=host or " ")[0] in (400, 403)
    assert board.ask("/static/page.css", host=host or " ")[0] in (400, 403)


def test_localhost_with_another_port_is_accepted(board: Board) -> None:
    assert board.ask("/", host="localhost:9999")[0] == 200
    assert board.ask("/", host="[::1]:9999")[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"])
def test_cross_origin_requests_are_refused(board: Board, origin: str) -> None:
    assert board.ask("/", Origin=origin)[0] == 403
    assert board.ask("/api/act", method="POST", body=b"{}", Origin=origin)[0] == 403
    assert board.ask("/api/act", method="POST", body=b"{}")[0] == 403
    assert board.ask("/api/curves?run=0/first", Sec_Fetch_Site="cross-site")[0] == 403


@pytest.mark.parametrize(
    "file",
    ["../secret.txt", "..%2f..%2fsecret.txt", "%2e%2e/%2e%2e/secret.txt", "/etc/passwd", "%00", "samples/out.png",
     "samples/page.svg", "samples/page.html", "recipe.yaml", "", "samples", "checkpoints/step-00000060/manifest.json"],
)  # fmt: skip
@pytest.mark.parametrize("small", ["", "&small=64"])
def test_only_images_inside_the_run_are_sent(board: Board, file: str, small: str) -> None:
    status, text, _ = board.ask(f"/file?run=0/first&file={file}{small}")
    assert status in (404, 415)
    assert "secret" not in text
    assert "root:" not in text
    assert "svg" not in text


@pytest.mark.parametrize(
    "path",
    ["/static/../guard.py", "/static/%2e%2e%2fguard.py", "/static/..%5cguard.py", "/nothing", "/part/../run",
     "/part/run", "/run", "/run?run=0", "/run?run=0/first%00", "/api/curves?run=9/x", "/live?run=0/none"],
)  # fmt: skip
def test_unknown_addresses_are_not_found(board: Board, path: str) -> None:
    assert board.ask(path)[0] == 404


def test_every_response_has_a_strict_content_security_policy(board: Board) -> None:
    for path in ("/", "/nothing", "/static/page.js", "/api/curves?run=0/first"):
        headers = board.ask(path)[2]
        assert "script-src 'self';" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    headers = board.ask("/file?run=0/first&file=samples/step-00000000/00-raw.png")[2]
    assert headers["content-security-policy"].startswith("default-src 'none'; img-src 'self'; media-src 'self'; style-")
    assert "script" not in headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/", "/run?run=0/first", "/compare?run=0/first", "/part/log?run=0/first"])
def test_markup_in_files_is_escaped(board: Board, path: str) -> None:
    status, text, _ = board.ask(path)
    assert status == 200
    assert "<script>window" not in text
    assert "<img src=x" not in text
    if "log" in path:
        assert "&lt;script&gt;window.hit=1" in text
        assert "\\x1b[31m" in text


@pytest.mark.parametrize(
    "query",
    ["width=99999999999", "width=-3", "width=x", "from=nan&to=inf", "from=1e999", "axis=../x", "from=2,5&to=4.5"],
)
def test_invalid_ranges_of_a_chart_are_ignored(board: Board, query: str) -> None:
    status, text, _ = board.ask(f"/api/curves?run=0/first&{query}")
    assert status == 200
    assert '"axis":"step"' in text


@pytest.mark.parametrize(
    "path",
    ["/run?run={nines}", "/run?run=0/{nines}", "/data?folder={nines}", "/api/data?folder=", "/api/data?folder=/{nines}",
     "/file?run={nines}&file=x", "/image?file={nines}", "/api/drawn?job={nines}", "/data?folder=0&resolution={nines}",
     "/file?run=0/first&file=samples/step-00000000/00-raw.png&small={nines}", "/thumb?run=0/first&row={nines}"],
)  # fmt: skip
def test_numbers_of_5000_digits_are_no_server_error(board: Board, path: str) -> None:
    assert board.ask(path.format(nines="9" * 5000))[0] < 500


@pytest.mark.parametrize("path", ["/api/act", "/api/recipe", "/api/check", "/api/save", "/api/start", "/api/draw"])
@pytest.mark.parametrize("sign", ["\ud800", "\0"])
def test_characters_not_allowed_in_arguments_are_refused(board: Board, path: str, sign: str) -> None:
    value = {"base": "mini", "changes": {"run.name": f"a{sign}"}, "run": sign, "a": sign, "file": sign}
    status, answer = board.post(path, value)
    assert (status, answer["code"]) == (409, "E1012")


def test_model_name_longer_than_a_file_name_is_not_found(board: Board) -> None:
    assert board.post("/api/draw", {"a": "n" * 5000, "prompt": "x"})[0] == 404


def test_body_size_is_limited(board: Board) -> None:
    assert board.ask("/api/act", method="POST", body=b"x" * (BODY + 1), Origin=board.address)[0] == 413


def post(board: Board, *headers: str) -> socket.socket:
    """A connection with the headers of a POST request sent."""
    connection = socket.create_connection(("127.0.0.1", board.port), timeout=8)
    cookie = f"Cookie: {board.policy.name}={board.policy.token}"
    lines = ["POST /api/act HTTP/1.1", "Host: 127.0.0.1", "Origin: http://127.0.0.1", cookie, *headers, "", ""]
    connection.sendall("\r\n".join(lines).encode())
    return connection


def test_size_of_a_chunked_body_is_limited(board: Board, capfd: pytest.CaptureFixture[str]) -> None:
    with post(board, "Transfer-Encoding: chunked") as connection:
        for _ in range(1 + BODY // 100_000):
            connection.sendall(b"186a0\r\n" + bytes(100_000) + b"\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
    with post(board, "Content-Length: 9") as connection:
        connection.sendall(b"{")  # then the client disconnects
    assert board.ask("/")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_incomplete_requests_are_closed(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.3)
    with opened(root / "runs") as board, post(board, "Content-Length: 9") as half, post(board) as second:
        half.sendall(b"{")
        answer = b""
        while not answer.endswith(b"of this page.\n"):
            answer += second.recv(4000)
        assert b" 404 " in answer, "a complete request that names no run"
        second.sendall(b"GET / HTTP/1.1\r\nHos")
        assert half.recv(10) == b""
        assert second.recv(10) == b""
        assert board.ask("/")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_range_request_sends_part_of_a_file(board: Board) -> None:
    status, _, headers = board.ask("/file?run=0/first&file=samples/step-00000000/00-raw.png", Range="bytes=0-3")
    assert (status, headers["content-length"]) == (206, "4")


def test_other_addresses_need_the_password_instead_of_the_token(root: Path) -> None:
    policy = AccessPolicy(password="a long password", any_address=True, name="m", read_only=True)
    with opened(root / "runs", policy=policy) as board:
        assert board.ask(f"/?token={policy.token}", cookie=False)[0] == 401
        assert board.ask("/", cookie=False, host="192.168.0.9:80")[0] == 401
        assert board.ask("/", cookie=False, host="evil.example")[0] == 403
        words = {"method": "POST", "Origin": board.address, "cookie": False}
        begun = time.monotonic()
        assert board.ask("/login", body=b"password=wrong", **words)[0] == 403  # type: ignore[arg-type]
        assert time.monotonic() - begun > 0.9
        status, _, headers = board.ask("/login", body=b"password=a+long+password", **words)  # type: ignore[arg-type]
        assert status == 303
        assert policy.token in headers["set-cookie"]
        assert board.ask("/api/act", method="POST", body=b"{}", Origin=board.address)[0] == 403
        assert "read only" in board.ask("/")[1]


@pytest.mark.slow
def test_a_thousand_silent_connections_block_nobody_and_are_closed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 1.0)
    with opened(root / "runs") as board, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", board.port))) for _ in range(1000)]
        for number, connection in enumerate(silent):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x" if number % 2 else b"")
        begun = time.monotonic()
        assert board.ask("/")[0] == 200
        assert time.monotonic() - begun < 5
        silent[0].settimeout(8)
        assert silent[0].recv(10) == b""
        silent[-1].settimeout(8)
        assert silent[-1].recv(10) == b""


def test_slow_reader_blocks_nobody(board: Board) -> None:
    with socket.create_connection(("127.0.0.1", board.port)) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        cookie = f"Cookie: {board.policy.name}={board.policy.token}"
        head = f"GET /live?run=0/first HTTP/1.1\r\nHost: 127.0.0.1\r\n{cookie}\r\n\r\n"
        slow.sendall(head.encode())
        assert b"200 OK" in slow.recv(400)
        for _ in range(5):
            assert board.ask("/")[0] == 200


def test_deleted_run_is_not_found(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "runs" / "gone")
    with opened(tmp_path / "runs") as board:
        assert board.ask("/run?run=0/gone")[0] == 200
        (folder / "metrics.jsonl").unlink()
        os.mkfifo(folder / "metrics.jsonl")
        assert board.ask("/run?run=0/gone")[0] == 200
        assert board.ask("/api/curves?run=0/gone")[0] == 200
        shutil.rmtree(folder)
        assert board.ask("/run?run=0/gone")[0] == 404
        assert board.ask("/")[0] == 200


def test_token_is_not_logged(root: Path, board: Board, capfd: pytest.CaptureFixture[str]) -> None:
    board.ask(f"/nothing?token={board.policy.token}x", cookie=False)
    board.ask(f"/run?run=0/first&token={board.policy.token}")
    output = capfd.readouterr()
    assert board.policy.token not in output.out + output.err + repr(board.policy)


def test_web_sockets_are_not_opened(board: Board) -> None:
    words = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    words |= {"Sec_WebSocket_Version": "13"}
    assert board.ask("/live", cookie=False, **words)[0] == 401  # type: ignore[arg-type]
    assert board.ask("/", **words)[0] == 200  # type: ignore[arg-type]


@pytest.mark.timing
@pytest.mark.parametrize("path", ["/", "/run?run=0/first", "/recipe?base=mini", "/draw", "/data"])
def test_first_response_takes_at_most_300_ms(board: Board, path: str) -> None:
    board.ask("/static/page.css")
    begun = time.perf_counter()
    assert board.ask(path)[0] == 200
    assert time.perf_counter() - begun < 0.3
