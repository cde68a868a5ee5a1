"""Run folders written directly, without training, and the page served from them in a thread."""

from __future__ import annotations

import fcntl
import http.client
import json
import math
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from mezzotint.board import server
from mezzotint.board.app import application
from mezzotint.board.guard import AccessPolicy
from mezzotint.board.pages import Pages
from mezzotint.board.reading.root_folders import RootFolders

SCRIPT = "<script>window.hit=1</script><img src=x onerror=window.hit=1>"
"""A script that runs if a page interprets text as markup."""


def line(step: int, **more: Any) -> str:
    """A line of metrics.jsonl."""
    loss = 0.2 + math.exp(-step / 300) + 0.05 * math.sin(step * 1.7)
    facts = {"step": step, "epoch": 0, "loss": loss, "loss_avg": 0.2 + math.exp(-step / 300), "norm": 1.5}
    facts |= {"lr/denoiser": 1e-4, "samples": 4, "images_per_s": 20.0, "data_wait": 0.02, "memory_bytes": 0}
    return json.dumps(facts | {"steps_since": 1, "samples_since": 4, "seconds_since": 0.2} | more) + "\n"


def write_run(
    folder: Path, *, steps: int = 60, ended: str | None = "finished", prompts: Sequence[str] = ("a red circle", SCRIPT),
    of: int | None = None, recipe: Mapping[str, Any] | None = None,
) -> Path:  # fmt: skip
    """Writes a run folder with metrics, images, a checkpoint, a history and a log. ended: its last event, None for a
    run that was killed."""
    folder.mkdir(parents=True)
    held_out = {n: json.dumps({"step": n, "val/loss": 0.5 + (n - 40) ** 2 / 4000}) + "\n" for n in range(10, steps, 10)}
    with open(folder / "metrics.jsonl", "w") as file:
        file.writelines(line(step) + held_out.get(step, "") for step in range(1, steps + 1))
    events: list[dict[str, Any]] = [
        {"event": "started", "time": "2026-03-01T10:00:00Z", "step": 0, "steps": of or steps, "recipe": "ab12"},
    ]
    if ended is not None:
        events.append({"event": ended, "time": "2026-03-01T10:05:00Z", "step": steps})
    (folder / "history.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    for step in (0, 30, 60):
        place = folder / "samples" / f"step-{step:08d}"
        place.mkdir(parents=True)
        for number, prompt in enumerate(prompts):
            for kind in ("raw", "shadow"):
                write_image(place / f"{number:02d}-{kind}.png", prompt, shade=4 * step + 30 * number)
    saved = folder / "checkpoints" / f"step-{steps:08d}"
    saved.mkdir(parents=True)
    (saved / "manifest.json").write_text("{}")
    (saved / "weights.safetensors").write_bytes(bytes(3000))
    tree = {"schema": 1, "optim": {"lr": 1e-4}, "run": {"name": SCRIPT}, "sample": {"prompts": list(prompts)}}
    (folder / "recipe.yaml").write_text(json.dumps(tree | dict(recipe or {})))
    (folder / "environment.json").write_text(
        json.dumps({"mezzotint": "0.1.0", "commit": "ab12" * 10, "device": "cpu", "packages": {"torch": "2.13.0"}})
    )
    (folder / "run.log").write_text(f"2026-03-01T10:00:00Z step 1 {SCRIPT} \x1b[31mred\x1b[0m\n")
    return folder


def write_images(folder: Path, count: int = 6, *, resolution: int = 48) -> Path:
    """Writes a captioned data set with two nearly equal images and a broken one."""
    folder.mkdir(parents=True)
    for number in range(count):
        sub = folder / ("cats" if number % 2 else "dogs")
        sub.mkdir(exist_ok=True)
        shade = 40 * min(number, count - 2)  # the last two differ in one corner
        image = Image.new("RGB", (64, 48) if number % 3 else (48, 64), (shade, 90, 255 - shade))
        image.putpixel((0, 0), (number, number, number))
        image.save(sub / f"{number}.png")
        (sub / f"{number}.txt").write_text(f"image {number}, {SCRIPT if number == 1 else 'plain'}, a tag\n")
    (folder / "broken.png").write_bytes(b"\x89PNG none")
    (folder / "broken.txt").write_text("a broken one")
    return folder


@contextmanager
def waiting(folder: Path) -> Iterator[Path]:
    """A run whose process waits for the lock `index/lock`, held by this process, as if another run were indexing its
    data."""
    write_run(folder, steps=3, ended=None)
    (folder / "metrics.jsonl").unlink()
    index = folder.parent / "index"
    index.mkdir()
    code = "import fcntl, sys\nfcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX)"
    with open(index / "lock", "w") as own:
        fcntl.flock(own, fcntl.LOCK_EX)
        process = subprocess.Popen([sys.executable, "-S", "-c", code, str(index / "lock")])
        facts = {"pid": process.pid, "host": socket.gethostname(), "since": "2030-01-01T00:00:00Z"}
        (folder / "lock").write_text(json.dumps(facts))
        until = time.monotonic() + 10
        while f"-> FLOCK  ADVISORY  WRITE {process.pid} " not in Path("/proc/locks").read_text():
            assert time.monotonic() < until
            time.sleep(0.01)
        try:
            yield folder
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(index)


def add_lines(folder: Path, first: int, last: int) -> None:
    """Appends steps to the metrics of a run."""
    with open(folder / "metrics.jsonl", "a") as file:
        file.writelines(line(step) for step in range(first, last + 1))


def wait(page: Any, words: str, *, seconds: float = 10.0) -> None:
    """Waits until a JavaScript expression is true, by polling: the content security policy forbids Playwright's own."""
    until = time.monotonic() + seconds
    while not page.evaluate(words):
        assert time.monotonic() < until, f"this did not come true: {words}"
        time.sleep(0.05)


def write_image(path: Path, prompt: str, *, shade: int = 90) -> None:
    """Writes an image with the prompt in its metadata."""
    texts = PngInfo()
    texts.add_itxt("mezzotint", json.dumps({"prompt": prompt, "seed": "0", "steps": "4"}))
    grid = np.indices((48, 48)).sum(0) * 2
    pixels = np.stack([(grid + shade) % 256, (grid * 2) % 256, np.full_like(grid, shade % 256)], -1).astype(np.uint8)
    Image.fromarray(pixels).save(path, pnginfo=texts)


@dataclass
class Board:
    """A running server of the page."""

    pages: Pages
    policy: AccessPolicy
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, path: str, *, method: str = "GET", body: bytes | None = None, host: str | None = None,
        cookie: bool = True, **headers: str,
    ) -> tuple[int, str, dict[str, str]]:  # fmt: skip
        """Sends a request; returns status, text and headers of the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        sent = {"Host": host or f"127.0.0.1:{self.port}"}
        sent |= {"Cookie": f"{self.policy.name}={self.policy.token}"} if cookie else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host=True)
        for name, value in (sent | ({"Content-Length": str(len(body))} if body is not None else {})).items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        connection.close()
        return answer.status, text, {name.lower(): value for name, value in answer.getheaders()}

    def post(self, path: str, value: Any) -> tuple[int, Any]:
        """Sends a JSON request with the origin of the page; returns status and response."""
        body = json.dumps(value).encode()
        status, text, _ = self.ask(path, method="POST", body=body, Origin=self.address, Content_Type="application/json")
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text


@contextmanager
def opened(*folders: Path, policy: AccessPolicy | None = None, any_folder: bool = False) -> Iterator[Board]:
    """Serves folders in a thread of this process."""
    own = server.open_listener("127.0.0.1", 0)
    port = own.getsockname()[1]
    policy = policy or AccessPolicy(name=f"mezzotint-{port}")
    pages = Pages(RootFolders.of(folders), read_only=policy.read_only)
    servers: list[Any] = []
    thread = threading.Thread(
        target=lambda: server.serve(application(pages, policy, any_folder=any_folder), own, servers.append), daemon=True
    )  # fmt: skip
    thread.start()
    until = time.monotonic() + 10
    while not (servers and servers[0].started) and time.monotonic() < until:
        time.sleep(0.01)
    try:
        yield Board(pages, policy, port)
    finally:
        servers[0].should_exit = True
        thread.join(5)
        pages.close()
