"""A headless Chromium for the tests of the pages, through Playwright."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mezzotint.board import live
from support import browsers
from support.board_runs import Board, opened, write_run

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if not browsers.is_installed():
        pytest.skip(browsers.MISSING)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browsers.CHROMIUM,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"],
        )
        yield browser
        browser.close()


@pytest.fixture(autouse=True, scope="session")
def quick_updates() -> Iterator[None]:
    """Pages receive updates after 50 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "LOOK_SECONDS", 0.05)
        yield


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that finished, stopped, diverged and were killed."""
    root = tmp_path_factory.mktemp("board") / "runs"
    if os.environ.get("MEZZOTINT_SHOTS"):  # a short path, shown in the screenshots
        root = Path("/tmp/photos/runs")
        shutil.rmtree(root.parent, ignore_errors=True)
    write_run(root / "finished", steps=400, recipe={"optim": {"lr": 2e-4}})
    write_run(root / "killed", steps=60, ended=None, of=500)
    write_run(root / "stopped", steps=80, ended="stopped", of=500)
    write_run(root / "diverged", steps=70, ended="diverged", of=500)
    return root


@pytest.fixture(scope="session")
def board(folders: Path) -> Iterator[Board]:
    with opened(folders) as board:
        yield board


class BrowserPage:
    """A page in the browser. trouble: errors and warnings of its console, and requests to other machines."""

    def __init__(self, page: Any, board: Board) -> None:
        self.page, self.board = page, board
        self.trouble: list[str] = []
        page.on("console", self._on_message)
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("request", self._on_request)

    def _on_message(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.trouble.append(f"{message.text} {message.location.get('url', '')}".rstrip())

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.board.address, "data:", "blob:")):
            self.trouble.append(f"requested {request.url}")

    def go(self, path: str) -> Any:
        self.page.goto(self.board.address + path)
        return self.page


@pytest.fixture(scope="session")
def context(browser: Any) -> Callable[..., Any]:
    """`context(width=360)`: the browser context with these options, created once for all tests."""

    contexts: dict[str, Any] = {}

    def create(width: int = 1280, **options: Any) -> Any:
        key = repr((width, options))
        if key not in contexts:
            contexts[key] = browser.new_context(viewport={"width": width, "height": 900}, **options)
            contexts[key].set_default_timeout(8000)
        return contexts[key]

    return create


@pytest.fixture
def open_page(context: Callable[..., Any], board: Board) -> Iterator[Callable[..., BrowserPage]]:
    """`open_page(width=360)`: a new browser page. At the end its console must have no errors."""
    pages: list[BrowserPage] = []

    def open_in(other: Board | None = None, **options: Any) -> BrowserPage:
        shown, within = other or board, context(**options)
        within.add_cookies([{"name": shown.policy.name, "value": shown.policy.token, "url": shown.address}])
        pages.append(BrowserPage(within.new_page(), shown))
        return pages[-1]

    yield open_in
    trouble = [one for page in pages for one in page.trouble]
    hits = [page for page in pages if page.page.evaluate("window.hit")]
    for page in pages:
        page.page.close()
    assert trouble == []
    assert hits == [], "a text was interpreted as markup"


@pytest.fixture
def training(folders: Path) -> Iterator[Path]:
    """A running run, locked by this process; tests append its metrics."""
    from mezzotint.run_folder import RunFolder

    folder = folders / "training"
    shutil.rmtree(folder, ignore_errors=True)
    write_run(folder, steps=60, ended=None, of=1000)
    with RunFolder(folder).lock():
        yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def shots() -> Callable[[Any, str], None]:
    """`shots(page, "run")` updates a screenshot in docs/images/board/ if MEZZOTINT_SHOTS is set."""

    def shoot(page: Any, name: str, **how: Any) -> None:
        if os.environ.get("MEZZOTINT_SHOTS"):
            folder = HERE.parents[1] / "docs" / "images" / "board"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name}.png"
            page.screenshot(path=path, **how)
            from PIL import Image

            with Image.open(path) as image:
                image.convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(path, optimize=True)

    return shoot


@pytest.fixture(scope="session")
def axe() -> Callable[[Any], list[str]]:
    """`axe(page)`: its serious and critical accessibility findings, one line each."""
    spec = importlib.util.find_spec("axe_playwright_python")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("axe is not installed: pip install axe-playwright-python")
    script = (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text("utf-8")

    def find(page: Any) -> list[str]:
        page.evaluate(script)
        answer = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:160]}"
            for one in answer["violations"]
            if one["impact"] in ("serious", "critical")
        ]

    return find
