"""Attacks on `mezzotint board`, byte by byte (I4), and markup in the data that it shows (I5)."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mezzotint.board import server
from mezzotint.board.reading import token_counts
from mezzotint.run_folder import RunFolder
from support.board_runs import SCRIPT, Board, opened, write_image, write_images, write_run


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    write_run(tmp_path / "runs" / "run", ended=None)
    (tmp_path / "secret.png").write_text("a secret")
    (tmp_path / "runs" / "run" / "samples" / "out.png").symlink_to(tmp_path / "secret.png")
    with opened(tmp_path / "runs") as board:
        yield board


def sent(board: Board, line: str, *headers: str, body: bytes = b"") -> tuple[int, bytes]:
    """Status and whole answer to bytes as they are; 0 where the connection was only closed."""
    with socket.create_connection(("127.0.0.1", board.port), timeout=20) as connection:
        head = "\r\n".join([f"{line} HTTP/1.1", *headers, "Connection: close", "", ""])
        connection.sendall(head.encode("latin-1"))
        try:
            connection.sendall(body)
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        except OSError:
            answer = b""  # refused before all was sent
    return int(answer[9:12] or 0), answer


def test_attacks_on_the_board_are_refused_and_training_is_unaffected(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, cookie = f"Host: 127.0.0.1:{board.port}", f"Cookie: {board.policy.name}={board.policy.token}"
    own, file = f"Origin: {board.address}", "GET /file?run=0/run&file="
    image = "samples/step-00000000/00-raw.png"
    upgrade = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAA")
    attacks: list[tuple[str, tuple[str, ...], bytes]] = [
        ("GET /", ("Host: evil.example", cookie), b""),
        ("GET /", (cookie,), b""),
        ("GET /", (host, cookie, "Origin: http://evil.example"), b""),
        ("POST /api/act", (host, cookie, "Content-Length: 2"), b"{}"),
        ("POST /api/act", (host, cookie, "Origin: null", "Content-Length: 2"), b"{}"),
        ("POST /api/act", (host, cookie, own, "Content-Length: 10000000"), bytes(10_000_000)),
        ("GET /", (host,), b""),
        ("GET /", (host, f"Cookie: {board.policy.name}=x"), b""),
        (f"{file}../../../secret.png", (host, cookie), b""),
        (f"{file}%2e%2e/%2e%2e/secret.png", (host, cookie), b""),
        (f"{file}..%5c..%5csecret.png", (host, cookie), b""),
        (f"{file}%00", (host, cookie), b""),
        (f"{file}{image}%00.png", (host, cookie), b""),
        (f"{file}{tmp_path}/secret.png", (host, cookie), b""),
        (f"{file}samples/out.png", (host, cookie), b""),
        ("GET /static/../../guard.py", (host, cookie), b""),
        ("GET //etc/passwd", (host, cookie), b""),
        ("GET /live?run=0/run", (host, *upgrade), b""),
        ("\x00\x01\x02", (host, cookie), b""),
    ]
    run = RunFolder(tmp_path / "runs" / "run")
    with run.lock():
        before = of_all(run.path)
        assert sent(board, f"{file}{image}", host, cookie)[0] == 200, "the address is valid"
        for line, headers, body in attacks:
            status, answer = sent(board, line, *headers, body=body)
            assert status == 0 or 400 <= status < 500, (line, headers, status)
            assert b"a secret" not in answer
            assert b"root:" not in answer
        monkeypatch.setattr(server, "IDLE_SECONDS", 0.5)
        assert of_all(run.path) == before
    with opened(tmp_path / "runs") as slow, socket.create_connection(("127.0.0.1", slow.port), timeout=20) as drip:
        drip.sendall(b"GET / HTTP/1.1\r\nHos")
        assert slow.ask("/")[0] == 200
        assert drip.recv(10) == b"", "an idle client is disconnected"


def of_all(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


class Tags(HTMLParser):
    """Active content of a page: inline scripts, images without source, event handlers."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.bad: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        is_program = tag == "script" and facts.get("type") != "application/json" and "src" not in facts
        if is_program or any(name.startswith("on") for name in facts) or facts.get("src") == "x":
            self.bad.append(f"{tag} {facts}")


def test_markup_in_user_data_is_escaped_on_the_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_counts, "of_run", lambda run: SCRIPT)  # also the error of a tokenizer
    name = SCRIPT.replace("/", "|") + "\u202e'\" onload=window.hit=1"
    write_images(tmp_path / "data" / name, 4)
    (tmp_path / "data" / name / "cats" / "1.txt").write_text(f"'\"></textarea>{SCRIPT}")
    data = {
        "path": [str(tmp_path / "data")], "resolution": 64, "max_skipped": 0.5, "cache": {"path": str(tmp_path / "c")}
    }  # fmt: skip
    run = write_run(tmp_path / name, recipe={"data": data, "run": {"name": "a"}}, steps=3)
    (run / "environment.json").write_text(json.dumps({SCRIPT: {SCRIPT: SCRIPT}}))
    (run / "origin.json").write_text(json.dumps({"optim.lr": SCRIPT}))
    with open(run / "history.jsonl", "a") as file:
        file.write(json.dumps({"event": SCRIPT, "time": SCRIPT, SCRIPT: SCRIPT, "step": 3}) + "\n")
    write_image(run / "samples" / "step-00000000" / "02-raw.png", f"</script>{SCRIPT}")
    with opened(tmp_path, any_folder=True) as board:
        from urllib.parse import quote, quote_plus

        which = quote(f"0/{name}")
        board.ask(f"/thumb?run={which}&row=0")  # which waits until the data are open
        names = ("run?run=", "compare?run=", "data?run=", "recipe?base=run:", f"draw?prompt={quote_plus(SCRIPT)}&a=",
                 f"data?text={quote(SCRIPT)}&run=")  # fmt: skip
        for page in ("/", *(f"/{name}{which}" for name in names)):
            status, text, headers = board.ask(page)
            assert status == 200, page
            assert Tags(text).bad == [], page
            assert "&lt;script&gt;" in text or "u003cscript" in text, page
            assert "unsafe" not in headers["content-security-policy"]
