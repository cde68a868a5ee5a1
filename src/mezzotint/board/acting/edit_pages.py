"""What the page Data sends: previews of operations, edits, undo and redo, masks. Each request names the data set in its
query, as the page does, and the images by their keys or by the filters that select them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from mezzotint.board.acting.edits import DataEdits, changes_mask, decode_key
from mezzotint.board.answers import JsonAnswer, read_body
from mezzotint.board.data_pages import DataPages, filtered_rows
from mezzotint.errors import DatasetError

_MOST_TAGS = 300


@dataclass(eq=False)
class EditPages:
    """Handlers of the edits of a data set."""

    data: DataPages

    async def edit(self, request: Request) -> Response:
        """Previews an operation, or makes it: {kind, keys or all, preview, shown, …}. Returns the preview, or
        {message}."""
        value = await read_body(request)
        return JsonAnswer(await run_in_threadpool(self._edit, request, value))

    def _edit(self, request: Request, value: dict[str, Any]) -> dict[str, Any]:
        edits = self._edits(request)
        keys = self._keys(request, edits, value)
        if value.get("preview"):
            return edits.preview(keys, value)
        return {"message": edits.apply(keys, value)}

    async def mask(self, request: Request) -> Response:
        """Writes or removes a mask: {key, png, shown}. Returns {message}."""
        value = await read_body(request)
        return JsonAnswer(await run_in_threadpool(self._write_mask, request, value))

    def _write_mask(self, request: Request, value: dict[str, Any]) -> dict[str, Any]:
        edits = self._edits(request)
        self._refuse_masks_in_use(edits)
        key = decode_key(str(value.get("key", "")))
        return {"message": edits.write_mask(key, value.get("png"), value.get("shown"))}

    async def step(self, request: Request) -> Response:
        """Undoes the last change, or makes it again: {redo, shown}. Returns {message}."""
        value = await read_body(request)
        return JsonAnswer(await run_in_threadpool(self._step, request, value))

    def _step(self, request: Request, value: dict[str, Any]) -> dict[str, Any]:
        edits, redo = self._edits(request), bool(value.get("redo"))
        if changes_mask(edits.redoable() if redo else edits.undoable()):
            self._refuse_masks_in_use(edits)
        return {"message": edits.step(shown=value.get("shown"), redo=redo)}

    def facts(self, request: Request) -> Response:
        """The facts of one image for its editor."""
        return JsonAnswer(self._edits(request).facts(decode_key(request.query_params.get("key", ""))))

    def mask_image(self, request: Request) -> Response:
        """The mask of an image."""
        content = self._edits(request).mask(decode_key(request.query_params.get("key", "")))
        if content is None:
            return PlainTextResponse("This image has no mask.\n", 404)
        return Response(content, media_type="image/png", headers={"cache-control": "no-store"})

    def tags(self, request: Request) -> Response:
        """The most frequent tags of the images that the filters select."""
        edits = self._edits(request)
        counts = edits.count_tags(self._filtered(request, edits))
        return self.data.pages.html("_tags.html", tags=counts.most_common(_MOST_TAGS), total=len(counts))

    def history(self, request: Request) -> Response:
        """The newest changes."""
        return self.data.pages.html("_history.html", entries=self._edits(request).history())

    def _edits(self, request: Request) -> DataEdits:
        return DataEdits.of(self.data.wait_for_data(request), self.data.pages.roots)

    def _keys(self, request: Request, edits: DataEdits, value: dict[str, Any]) -> list[str]:
        keys = value.get("keys")
        if value.get("all"):
            return self._filtered(request, edits)
        if not isinstance(keys, list) or not keys:
            raise DatasetError("no image is selected", code="E1260")
        chosen = [decode_key(key) for key in dict.fromkeys(map(str, keys))]
        return edits.require(chosen, excluded=value.get("kind") == "include")

    def _filtered(self, request: Request, edits: DataEdits) -> list[str]:
        rows: Sequence[int] = filtered_rows(edits.data, request.query_params).tolist()
        return [edits.data.catalogue.key(row) for row in rows]

    def _refuse_masks_in_use(self, edits: DataEdits) -> None:
        roots: Sequence[Path] = edits.data.catalogue.roots
        reading = [name for name, reads_masks in self.data.runs_on(roots) if reads_masks]
        if reading:
            raise DatasetError(
                f"the run {reading[0]} is training with masks of this folder and reads them at each visit; change them "
                "when it has ended",
                code="E1268",
            )
