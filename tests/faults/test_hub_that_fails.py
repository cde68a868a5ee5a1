"""Data sets of the Hub when its server or the network fails: a local server with given answers."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from support.arrow_tables import png
from support.forked import free_port

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.faults]

SHA = "a" * 40
_READ = """
import sys
from pathlib import Path
from mezzotint.data.formats.shared import _hub
from mezzotint.errors import MezzotintError
try:
    files = _hub.arrow_files("someone/images", config=None, split="train", cache=Path(sys.argv[1]))
    print("files", [path.name for path in files])
except MezzotintError as error:
    print(error)
    sys.exit(error.exit_status)
"""


class Hub:
    """answer: the answer to each request: "ok", "cut" (half of each file), or a status. The first `failures` get
    503."""

    def __init__(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        content = io.BytesIO()
        rows = [{"bytes": png(shade), "path": None} for shade in (1, 2, 3)]
        pq.write_table(pa.table({"image": rows, "text": ["one", "two", "three"]}), content)
        self.parquet, self.answer, self.failures = content.getvalue(), "ok", 0
        self.seen: Counter[str] = Counter()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Answers", (_Answers,), {"hub": self}))
        Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"


class _Answers(BaseHTTPRequestHandler):
    hub: Any
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.hub, self.path.partition("?")[0]
        hub.seen[path] += 1
        if hub.failures > 0:
            hub.failures -= 1
            self._send(503, b"{}")
        elif hub.answer.isdigit():
            self._send(int(hub.answer), b"{}", **({"X-Error-Code": "RepoNotFound"} if hub.answer == "404" else {}))
        elif path.endswith("data.parquet"):
            self._send(200, hub.parquet, ETag='"b1"', **{"X-Repo-Commit": SHA, "Accept-Ranges": "bytes"})
        elif "/tree/" in path:
            self._send(
                200,
                json.dumps([{"type": "file", "path": "data.parquet", "size": len(hub.parquet), "oid": "b1"}]).encode(),
            )
        elif path.startswith("/api/datasets/someone/images/paths-info"):
            self._send(200, b"[]")
        elif path.startswith("/api/datasets/someone/images"):
            about = {
                "id": "someone/images",
                "sha": SHA,
                "private": False,
                "gated": False,
                "disabled": False,
                "tags": [],
                "downloads": 0,
                "likes": 0,
                "siblings": [{"rfilename": "data.parquet"}],
            }
            self._send(200, json.dumps(about).encode())
        else:
            self._send(404, b"{}", **{"X-Error-Code": "EntryNotFound", "X-Repo-Commit": SHA})

    do_POST = do_GET

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json", "Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            is_cut = self.hub.answer == "cut" and self.path.partition("?")[0].endswith("data.parquet")
            self.wfile.write(body[: len(body) // 2] if is_cut else body)
            self.close_connection = is_cut

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.server.shutdown()


def read(home: Path, address: str, **env: str) -> tuple[int, str]:
    """Reads the data set in a process of its own, since the library looks at its environment once."""
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    variables = (
        clean
        | {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        | env
    )
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(home / "sets")], capture_output=True, text=True, env=variables, timeout=500
    )
    return done.returncode, done.stdout + done.stderr


def whole_files(home: Path) -> list[Path]:
    """Files that a later start would take for complete downloads."""
    return [*home.glob("hub/*/snapshots/*/*"), *home.rglob("*.arrow")]


def test_request_to_a_failing_server_is_retried(hub: Hub, tmp_path: Path) -> None:
    hub.answer, hub.failures = "ok", 2
    status, output = read(tmp_path, hub.address)
    assert status == 0, output
    assert "files ['images-train.arrow']" in output
    assert hub.failures == 0


@pytest.mark.parametrize(
    ("answer", "tries", "words"),
    [
        ("401", 1, "the hub returned 401: it is private, gated or missing; log in with `hf auth login`"),
        ("404", 1, "'someone/images' doesn't exist on the Hub or cannot be accessed"),
        ("429", 3, "the hub returned 429, also after retries: try again later"),
        ("500", 3, "the hub returned 500, also after retries: try again later"),
    ],
)
def test_refusal_of_the_server_is_named(hub: Hub, tmp_path: Path, answer: str, tries: int, words: str) -> None:
    hub.answer, hub.failures = answer, 0
    hub.seen.clear()
    status, output = read(tmp_path, hub.address)
    assert status == 2, output
    assert "error[E1215]: someone/images: " in output
    assert words in output
    assert "Traceback" not in output
    assert max(hub.seen.values()) >= tries
    assert not whole_files(tmp_path)


def test_truncated_download_is_reported_and_never_used(hub: Hub, tmp_path: Path) -> None:
    hub.answer, hub.failures = "cut", 0
    status, output = read(tmp_path, hub.address)
    assert status == 2, output
    assert "error[E1215]: someone/images: " in output
    assert not whole_files(tmp_path)
    hub.answer = "ok"
    status, output = read(tmp_path, hub.address)
    assert status == 0, output
    (fetched,) = tmp_path.glob("hub/*/snapshots/*/data.parquet")
    assert fetched.read_bytes() == hub.parquet


@pytest.mark.parametrize("way", ["no server", "a proxy that refuses"])
def test_unreachable_hub_is_named(tmp_path: Path, way: str) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    address, env = (nowhere, {}) if way == "no server" else ("http://hub.invalid", {"HTTP_PROXY": nowhere})
    status, output = read(tmp_path, address, **env)
    assert status == 2, output
    assert "error[E1215]: someone/images: " in output
    assert "Traceback" not in output
    assert not whole_files(tmp_path)
