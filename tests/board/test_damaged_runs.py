"""Runs with damaged or hostile files: all pages respond, also for an intact run next to them, and each has a report."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from mezzotint.board import formatting, report
from mezzotint.board.guard import AccessPolicy
from support.board_runs import Board, opened, write_run

HUGE, TOO_HUGE = "9" * 299, "9" * 399
"""The longest number that JSON reading accepts, and a longer one."""

DEEP = "[" * 20_000 + "]" * 20_000
IMAGE = "samples/step-00000060/00-raw.png"
Damage = Callable[[Path], object]


def append(name: str, *lines: str) -> Damage:
    def add(run: Path) -> None:
        with open(run / name, "a") as file:
            file.writelines(f"{line}\n" for line in lines)

    return add


def replace_by(text: str, *names: str) -> Damage:
    return lambda run: [(run / name).write_text(text) for name in names]


def lock_by(pid: str) -> Damage:
    return replace_by(f'{{"pid": {pid}, "host": "{socket.gethostname()}", "since": "2099-01-01T00:00:00Z"}}', "lock")


def set_image_metadata(text: str) -> Damage:
    def draw(run: Path) -> None:
        texts = PngInfo()
        texts.add_itxt("mezzotint", text)
        Image.new("RGB", (8, 8)).save(run / IMAGE, pnginfo=texts)

    return draw


def replace_by_folders(run: Path) -> None:
    for name in JSON_FILES:
        (run / name).unlink(missing_ok=True)
        (run / name).mkdir()


def add_long_token(run: Path) -> None:
    (run / "exports" / "step-00000060" / "embeddings").mkdir(parents=True)
    model = {"adapter": {"kind": "lora"}, "tokens": {"words": {"w" * 300: {}}}}
    (run / "recipe.yaml").write_text(json.dumps({"schema": 1, "model": model}))


JSON_FILES = ("environment.json", "manifest.json", "origin.json", "lock", "run.log", "metrics.jsonl")
DAMAGES: dict[str, tuple[Damage, ...]] = {
    "numbers-of-399-digits": (
        append("metrics.jsonl", f'{{"step": 61, "loss": {TOO_HUGE}}}', f'{{"step": {TOO_HUGE}, "loss": 1}}'),
        append("history.jsonl", f'{{"event": "started", "steps": {TOO_HUGE}}}'),
    ),
    "huge-loss": (append("metrics.jsonl", f'{{"step": 61, "loss": {HUGE}, "images_per_s": {HUGE}}}'),),
    "huge-seconds": (append("metrics.jsonl", f'{{"step": 61, "loss": 1, "seconds_since": {HUGE}}}'),),
    "huge-step": (append("metrics.jsonl", f'{{"step": {HUGE}, "loss": 1}}', f'{{"step": {HUGE[:20]}, "loss": 1}}'),),
    "huge-steps": (append("history.jsonl", f'{{"event": "started", "steps": {HUGE}, "step": {HUGE}}}'), lock_by("1")),
    "endless-seconds": (append("metrics.jsonl", '{"step": 61, "loss": NaN, "seconds_since": Infinity}'),),
    "endless-speed": (append("metrics.jsonl", '{"step": 61, "loss": 1e999, "images_per_s": 1e999}'),),
    "texts-for-numbers": (append("metrics.jsonl", '{"step": 61, "loss": "x", "images_per_s": [], "loss_avg": {}}'),),
    "raised-digit": (append("metrics.jsonl", '{"step": 61, "loss": 1, "lr/\u00b2": 1, "lr/a": 2}'),),
    "tag-of-5000-digits": (append("metrics.jsonl", f'{{"step": 61, "loss": 1, "lr/{"9" * 5000}": 1, "lr/1": 2}}'),),
    "endless-pid": (lock_by("1e999"),),
    "huge-pid": (lock_by(HUGE),),
    "huge-bad-step": (replace_by(f'{{"step": {HUGE}}}\n{{"step": true}}\n', "bad_steps.jsonl"),),
    "odd-events": (
        append(
            "history.jsonl", '{"event": "live settings", "values": [1, 2]}', '{"event": {}, "time": {"a": []}}',
            '{"event": "resumed", "step": 1, "changes": 5}', f'{{"event": "exported", "step": {HUGE}, "time": 5}}',
        ),
    ),
    "half-a-surrogate": (
        append("history.jsonl", '{"event": "\\ud800", "time": "\\ud800", "step": 3, "\\udfff": "\\ud800"}'),
        append("metrics.jsonl", '{"step": 61, "loss": 1, "lr/\\ud800": 1}'),
        replace_by('{"\\ud800": "\\ud800"}', "environment.json", "origin.json"),
        set_image_metadata('{"prompt": "\\ud800"}'),
    ),
    "deep-text-of-a-image": (set_image_metadata(DEEP),),
    "cut-image": (lambda run: os.truncate(run / IMAGE, 60),),
    "deep-files": (replace_by(DEEP, *JSON_FILES, "recipe.yaml", "bad_steps.jsonl"),),
    "lists-for-objects": (replace_by("[1, 2]", *JSON_FILES, "recipe.yaml"),),
    "folders-for-files": (replace_by_folders,),
    "word-of-300-letters": (add_long_token,),
    "checkpoint-of-many-digits": (lambda run: (run / "checkpoints" / f"step-{'9' * 240}").mkdir(),),
}  # fmt: skip


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """The page over all damaged runs and an intact one."""
    root = tmp_path_factory.mktemp("damaged")
    write_run(root / "intact")
    for name, damages in DAMAGES.items():
        run = write_run(root / name)
        for damage in damages:
            damage(run)
    with opened(root, policy=AccessPolicy(read_only=True)) as board:
        yield board


@pytest.mark.parametrize("page", ["/", "/?part=rows", "/recipe", "/draw", "/data"])
def test_pages_of_all_runs_show_the_intact_run(board: Board, page: str) -> None:
    status, text, _ = board.ask(page)
    assert status == 200
    assert "intact" in text


@pytest.mark.parametrize("name", DAMAGES)
def test_every_page_of_a_damaged_run_answers(board: Board, name: str) -> None:
    axes = ("step", "time", "samples")
    pages = [f"/{page}?" for page in ("run", "compare", "api/previews")]
    pages += [f"/part/{part}?" for part in ("facts", "stored", "settings", "events", "log", "card")]
    pages += [f"/api/curves?axis={axis}&" for axis in axes] + [
        f"/api/compare?run=0/intact&axis={axis}&" for axis in axes
    ]
    for page in (f"{page}run=0/{name}" for page in pages):
        assert board.ask(page)[0] == 200, page
    for page in (f"/api/image?file={IMAGE}", f"/file?small=64&file={IMAGE}", "/recipe?", "/data?"):
        assert board.ask(f"{page}&base=run:0/{name}&run=0/{name}")[0] < 500, page


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_run_has_a_report(board: Board, name: str) -> None:
    text, _ = report.render_run(board.pages.roots.folders[0] / name)
    assert text.encode("utf-8")


@pytest.mark.parametrize("seconds", [1e300, -1e300, 2.0**70, float("inf"), float("nan")])
def test_times_outside_the_calendar_are_left_out(seconds: float) -> None:
    assert formatting.format_moment(seconds) == formatting.format_duration(seconds) == ""
    assert ">1970-01-01 00:00 UTC<" in formatting.format_moment(1.0)
    assert formatting.format_duration(3700.0) == "1 h 1 min"
