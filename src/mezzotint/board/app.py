"""The ASGI application: the routes and their handlers, inside the guard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mezzotint.board import pages
from mezzotint.board.acting.draw_pages import DrawPages
from mezzotint.board.acting.edit_pages import EditPages
from mezzotint.board.acting.new_run_pages import NewRunPages
from mezzotint.board.acting.queue_pages import QueuePages
from mezzotint.board.acting.recipe_pages import RecipePages
from mezzotint.board.acting.run_pages import RunPages
from mezzotint.board.answers import JsonAnswer
from mezzotint.board.data_pages import DataPages
from mezzotint.board.guard import AccessPolicy, Guard
from mezzotint.board.pages import Pages
from mezzotint.board.reading.root_folders import OutsideFolders
from mezzotint.errors import MezzotintError

_PARTS = ("/api/", "/part/", "/file", "/live", "/thumb", "/sample", "/image", "/mask")
"""Paths that are requested by scripts: an error there is not answered with a page."""

_KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def application(view: Pages, policy: AccessPolicy, *, any_folder: bool = False) -> ASGIApp:
    """The application. any_folder: show the data of runs outside of the page's folders, too."""
    data, recipes, drawing = DataPages(view, any_folder), RecipePages(view), DrawPages(view)
    queue, new, edits = QueuePages(view), NewRunPages(view), EditPages(data)
    view.at_close.append(drawing.close)
    selected = RunPages(view)
    routes = [
        Route("/", view.runs),
        Route("/run", view.run),
        Route("/compare", view.compare),
        Route("/file", view.file),
        Route("/api/curves", view.run_curves),
        Route("/api/compare", view.compared_curves),
        Route("/api/previews", view.previews),
        Route("/api/image", view.image_facts),
        Route("/api/act", view.act, methods=["POST"]),
        Route("/trash", selected.trash),
        Route("/api/notes", selected.change_notes, methods=["POST"]),
        Route("/api/trash", selected.delete, methods=["POST"]),
        Route("/api/restore", selected.restore, methods=["POST"]),
        Route("/data", data.data),
        Route("/thumb", data.thumbnail),
        Route("/sample", data.image),
        Route("/api/data", data.state),
        Route("/part/histograms", data.histograms),
        Route("/part/gallery", data.gallery),
        Route("/part/tags", edits.tags),
        Route("/part/edits", edits.history),
        Route("/mask", edits.mask_image),
        Route("/api/data/image", edits.facts),
        Route("/api/data/edit", edits.edit, methods=["POST"]),
        Route("/api/data/mask", edits.mask, methods=["POST"]),
        Route("/api/data/step", edits.step, methods=["POST"]),
        Route("/part/{part}", view.part),
        Route("/new", new.new),
        Route("/thumb/file", new.thumbnail),
        Route("/api/new", new.propose, methods=["POST"]),
        Route("/api/new/data", new.data),
        Route("/api/new/models", new.models),
        Route("/api/new/memory", new.memory, methods=["POST"]),
        Route("/api/new/doctor", new.doctor, methods=["POST"]),
        Route("/recipe", recipes.recipe),
        Route("/api/settings", recipes.find),
        Route("/api/recipe", recipes.live, methods=["POST"]),
        Route("/api/check", recipes.check, methods=["POST"]),
        Route("/api/save", recipes.save, methods=["POST"]),
        Route("/api/start", recipes.start, methods=["POST"]),
        Route("/api/translate", recipes.translate, methods=["POST"]),
        Route("/queue", queue.queue),
        Route("/live/queue", queue.events),
        Route("/api/queue", queue.act, methods=["POST"]),
        Route("/api/queue/add", recipes.enqueue, methods=["POST"]),
        Route("/api/queue/run", queue.run, methods=["POST"]),
        Route("/draw", drawing.draw),
        Route("/image", drawing.image),
        Route("/api/draw", drawing.begin, methods=["POST"]),
        Route("/api/drawn", drawing.state),
        Route("/live", view.events),
        Route("/static/{name}", _static),
        Route("/favicon.ico", _no_icon),
    ]
    handlers: dict[Any, Callable[..., Any]] = {
        OutsideFolders: _answer(view, 404, "Not found: it was removed, or is outside of the folders of this page."),
        MezzotintError: _error_page(view),
        HTTPException: _http_error(view),
    }  # fmt: skip
    return Guard(Starlette(routes=routes, exception_handlers=handlers), policy)


def _no_icon(request: Request) -> Response:
    """Nothing: a browser that opens an image or a file by itself asks for an icon all the same."""
    return Response(status_code=204)


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    content, kind = pages.static(name), _KINDS.get(name.rpartition(".")[2])
    if content is None or kind is None:
        return PlainTextResponse("There is no such file.\n", 404)
    return Response(content, media_type=kind, headers={"cache-control": "no-cache"})


def _error_page(view: Pages) -> Callable[[Request, Exception], Any]:
    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, MezzotintError)
        if request.url.path.startswith(_PARTS):
            return JsonAnswer({"error": str(error), "code": error.code}, 409)
        facts = {"heading": "This did not work", "sentence": str(error), "current_page": ""}
        return await run_in_threadpool(lambda: view.html("message.html", 409, **facts))

    return answer


def _answer(view: Pages, status: int, sentence: str) -> Callable[[Request, Exception], Any]:
    async def answer(request: Request, error: Exception) -> Response:
        if request.url.path.startswith(_PARTS):
            return PlainTextResponse(sentence + "\n", status)
        return await run_in_threadpool(
            view.html, "message.html", status, heading="Not found", sentence=sentence, current_page=""
        )

    return answer


def _http_error(view: Pages) -> Callable[[Request, Exception], Any]:
    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        sentence = "There is no such page." if error.status_code == 404 else f"{error.detail}."
        return await _answer(view, error.status_code, sentence)(request, error)  # type: ignore[no-any-return]

    return answer
