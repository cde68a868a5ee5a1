"""Edits on the page Data: previewed, applied to the files, undone; never to what has changed meanwhile."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

from mezzotint.board.guard import AccessPolicy
from mezzotint.data.catalogue.catalogue import build
from mezzotint.run_folder import RunFolder
from mezzotint.settings.sections.data import DataSettings
from support.board_runs import SCRIPT, Board, opened, write_run
from support.image_catalogues import paint

DATA = "folder=0/photos&resolution=64"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paint(tmp_path / "photos", 5, size=(64, 48))
    return tmp_path / "photos"


@pytest.fixture
def board(root: Path, tmp_path: Path) -> Iterator[Board]:
    with opened(tmp_path) as board:
        yield board


def edit(board: Board, value: dict[str, Any], data: str = DATA) -> tuple[int, Any]:
    """Previews a change and makes it."""
    status, preview = board.post(f"/api/data/edit?{data}", value | {"preview": True})
    if status != 200:
        return status, preview
    return board.post(f"/api/data/edit?{data}", value | {"shown": preview["shown"]})


def page_of(board: Board, data: str = DATA) -> str:
    """The page, when its data set is open."""
    assert board.ask(f"/part/gallery?{data}")[0] == 200
    return board.ask(f"/data?{data}")[1]


def facts_of(board: Board, key: str, data: str = DATA) -> dict[str, Any]:
    status, text, _ = board.ask(f"/api/data/image?{data}&key={quote(key)}")
    assert status == 200, text
    return dict(json.loads(text))


def newest(board: Board, which: str, data: str = DATA) -> float:
    page = board.ask(f"/part/gallery?{data}")[1]
    return float(page.partition(f'data-{which}="')[2].partition('"')[0])


def captions_of(root: Path) -> list[str]:
    return [path.read_text() for path in sorted(root.glob("*.txt"))]


def test_selection_is_previewed_changed_undone_and_redone(board: Board, root: Path) -> None:
    before = captions_of(root)
    change = {"kind": "add-tag", "tag": SCRIPT, "keys": ["000.png", "002.png"]}
    status, preview = board.post(f"/api/data/edit?{DATA}", change | {"preview": True})
    assert (status, preview["count"], preview["examples"][0]) == (200, 2, ["000.png", "image 0", f"image 0, {SCRIPT}"])
    assert captions_of(root) == before, "a preview writes nothing"
    assert board.post(f"/api/data/edit?{DATA}", change)[0] == 409, "only what was shown is changed"
    status, answer = board.post(f"/api/data/edit?{DATA}", change | {"shown": preview["shown"]})
    assert (status, answer["message"]) == (200, "Saved (2 files).")
    changed = [f"image 0, {SCRIPT}", "image 1", f"image 2, {SCRIPT}", "image 3", "image 4"]
    assert captions_of(root) == changed
    for path in (f"/part/gallery?{DATA}", f"/data?{DATA}", f"/part/tags?{DATA}", f"/part/edits?{DATA}"):
        text = board.ask(path)[1]
        assert SCRIPT not in text, path
        assert "&lt;script&gt;" in text, path
    assert board.post(f"/api/data/step?{DATA}", {"shown": newest(board, "undo")})[0] == 200
    assert captions_of(root) == before
    assert board.post(f"/api/data/step?{DATA}", {"redo": True, "shown": newest(board, "redo")})[0] == 200
    assert captions_of(root) == changed


def test_all_that_match_are_changed(board: Board, root: Path) -> None:
    assert edit(board, {"kind": "trigger", "tag": "sks", "all": True}, f"{DATA}&text=image+3")[0] == 200
    assert captions_of(root)[2:4] == ["image 2", "sks, image 3"]
    assert edit(board, {"kind": "prepend", "text": "a ", "all": True})[0] == 200
    assert captions_of(root)[2:4] == ["a image 2", "a sks, image 3"]


def test_second_browser_with_an_older_page_is_refused(board: Board, root: Path) -> None:
    change = {"kind": "append", "text": " fox", "keys": ["000.png"]}
    _, mine = board.post(f"/api/data/edit?{DATA}", change | {"preview": True})
    shown = facts_of(board, "001.png")
    edit(board, {"kind": "append", "text": " theirs", "all": True})
    undo = newest(board, "undo")
    edit(board, {"kind": "exclude", "keys": ["001.png"]})
    before = captions_of(root)
    for path, value in (
        ("edit", change | {"shown": mine["shown"]}),
        ("edit", {"kind": "region", "rotate": 90, "keys": ["001.png"], "shown": shown["settings"]}),
        ("edit", {"kind": "set", "text": "x", "keys": ["001.png"], "shown": shown["shown"]}),
        ("edit", {"kind": "set", "text": "x", "keys": ["gone.png"], "shown": shown["shown"]}),
        ("step", {"shown": undo}),
    ):
        status, answer = board.post(f"/api/data/{path}?{DATA}", value)
        assert (status, answer["code"]) == (409, "E1261"), value
        assert "reload" in answer["error"]
    assert captions_of(root) == before


def test_image_is_cropped_rotated_excluded_and_included(board: Board, root: Path) -> None:
    original = (root / "001.png").read_bytes()
    value = {"kind": "region", "crop": [0, 0, 0.5, 1], "rotate": 90, "keys": ["001.png"]}
    shown = facts_of(board, "001.png")
    assert board.post(f"/api/data/edit?{DATA}", value | {"shown": shown["settings"]})[0] == 200
    text = page_of(board)
    assert "48×32 → " in text
    assert '<span class="tag soft">cropped</span><span class="tag soft">rotated 90°</span>' in text
    line = {"file": "001.png", "crop": [0.0, 0.0, 0.5, 1.0], "rotate": 90}
    assert json.loads((root / "mezzotint.jsonl").read_text()) == line
    assert edit(board, {"kind": "exclude", "keys": ["001.png"]})[0] == 200
    text = page_of(board)
    assert "4 of 4 samples" in text
    assert 'class="plain include" value="001.png"' in text
    assert edit(board, {"kind": "include", "keys": ["001.png"]})[0] == 200
    assert edit(board, {"kind": "whole", "keys": ["001.png"]})[0] == 200
    assert not (root / "mezzotint.jsonl").exists()
    assert edit(board, {"kind": "exclude", "all": True})[1]["code"] == "E1260", "one must stay"
    assert (root / "001.png").read_bytes() == original


def test_painted_mask_is_the_file_that_training_reads(board: Board, root: Path, tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.fromarray(np.tile(np.uint8([255, 0]), (24, 16))).convert("RGBA").save(content, "PNG")
    png = base64.b64encode(content.getvalue()).decode()
    shown = facts_of(board, "001.png")
    assert board.post(f"/api/data/mask?{DATA}", {"key": "001.png", "png": png, "shown": shown["mask"]})[0] == 200
    with Image.open(root / "001-masklabel.png") as mask:
        assert (mask.size, mask.mode) == ((64, 48), "L")
    catalogue = build(DataSettings.model_validate({"path": root, "mask": {"source": "files"}}), tmp_path / "index")
    assert [catalogue.overrides.mask_of(row) is not None for row in range(5)] == [False, True, False, False, False]
    assert '<span class="tag soft">mask</span>' in page_of(board)
    for png_text, code in ((png, "E1261"), ("AAAA", "E1260"), (base64.b64encode(b"GIF89a").decode(), "E1260")):
        value = {"key": "001.png", "png": png_text, "shown": shown["mask"]}
        assert board.post(f"/api/data/mask?{DATA}", value)[1]["code"] == code
    assert board.ask(f"/mask?{DATA}&key=001.png")[2]["content-type"] == "image/png"
    board.post(f"/api/data/step?{DATA}", {"shown": newest(board, "undo")})
    assert not (root / "001-masklabel.png").exists()


def test_running_run_is_named_and_its_masks_stay(board: Board, root: Path, tmp_path: Path) -> None:
    data = {"path": str(root), "mask": {"source": "files"}, "resolution": 64}
    run = write_run(tmp_path / "run", ended=None, recipe={"data": data, "run": {"name": "fox"}})
    assert "It keeps the data that it started with" not in page_of(board)
    with RunFolder(run).lock():
        text = page_of(board)
        assert "<strong>run</strong> is training on these images. It keeps the data that it started with" in text
        assert edit(board, {"kind": "append", "text": "!", "all": True})[0] == 200
        status, answer = board.post(f"/api/data/mask?{DATA}", {"key": "001.png", "png": None, "shown": ""})
        assert (status, answer["code"]) == (409, "E1268")


def test_captions_to_review_are_listed_and_accepted(board: Board, root: Path) -> None:
    (root / "mezzotint.jsonl").write_text('{"file": "002.png", "review": true}\n')
    text = page_of(board, f"{DATA}&problem=review")
    assert "1 of 5 samples" in text
    assert facts_of(board, "002.png")["review"]
    assert edit(board, {"kind": "accept", "all": True}, f"{DATA}&problem=review")[0] == 200
    assert not (root / "mezzotint.jsonl").exists()
    assert "0 of 5 samples" in page_of(board, f"{DATA}&problem=review")


@pytest.mark.parametrize(
    "key", ["../secret.png", "/etc/passwd", "photos/../000.png", ".mezzotint/edits/000001.json", "%00", "000.png/../x"]
)
def test_keys_outside_of_the_data_set_are_refused(board: Board, root: Path, key: str) -> None:
    (root.parent / "secret.txt").write_text("mine")
    for kind in ("append", "exclude"):
        status, answer = edit(board, {"kind": kind, "text": "x", "keys": [quote(key) if key != "%00" else key]})
        assert (status, answer["code"]) == (409, "E1261")
    for path in ("/api/data/image", "/mask"):
        assert board.ask(f"{path}?{DATA}&key={quote(quote(key))}")[0] == 409
    assert (root.parent / "secret.txt").read_text() == "mine"
    assert not (root / "mezzotint.jsonl").exists()


def test_names_of_any_bytes_are_edited(board: Board, root: Path) -> None:
    names = [b"\xff<img src=x>.png", 'quo"te & \u202e.png'.encode(), b"new\nline.png"]
    for number, name in enumerate(names):
        (root / f"00{number}.png").rename(os.fsdecode(os.path.join(os.fsencode(root), name)))
    page = page_of(board)
    assert "<img src=x>" not in page
    for name in names:
        assert quote(name) in page
        assert edit(board, {"kind": "set", "text": "odd", "keys": [quote(name)]})[0] == 200
        with open(os.path.join(os.fsencode(root), name[:-4] + b".txt")) as file:
            assert file.read() == "odd\n"


def test_only_the_page_itself_can_edit(board: Board, root: Path) -> None:
    body = json.dumps({"kind": "append", "text": "x", "all": True, "preview": True}).encode()
    for path in ("edit", "mask", "step"):
        address = f"/api/data/{path}?{DATA}"
        assert board.ask(address, method="POST", body=body, Origin="http://evil.example")[0] == 403
        assert board.ask(address, method="POST", body=body)[0] == 403
        assert board.ask(address, method="POST", body=body, cookie=False, Origin=board.address)[0] == 401
        assert board.ask(address)[0] in (404, 405)
    with opened(root.parent, policy=AccessPolicy(name="m", read_only=True)) as other:
        assert other.post(f"/api/data/edit?{DATA}", json.loads(body))[0] == 403
        assert "Preview" not in page_of(other)


def test_data_outside_of_the_folders_is_shown_but_not_edited(root: Path, tmp_path: Path) -> None:
    recipe = {"data": {"path": str(root), "resolution": 64}, "run": {"name": "fox"}}
    write_run(tmp_path / "runs" / "run", recipe=recipe)
    with opened(tmp_path / "runs", any_folder=True) as board:
        text = page_of(board, "run=0/run")
        assert "outside of the folders of this page, so it cannot be edited" in text
        status, answer = edit(board, {"kind": "append", "text": "x", "all": True}, "run=0/run")
        assert (status, answer["code"]) == (409, "E1948")


def test_several_folders_are_changed_and_undone_together(board: Board, root: Path, tmp_path: Path) -> None:
    paint(tmp_path / "more", 2, size=(64, 48))
    data = {"sets": [{"path": str(root)}, {"path": str(tmp_path / "more")}], "resolution": 64}
    write_run(tmp_path / "run", recipe={"data": data, "run": {"name": "fox"}})
    query = "run=0/run"
    before = captions_of(root), captions_of(tmp_path / "more")
    keys = ["0/001.png", "1/001.png"]
    assert edit(board, {"kind": "add-tag", "tag": "fox", "keys": keys}, query)[0] == 200
    assert captions_of(root)[1] == captions_of(tmp_path / "more")[1] == "image 1, fox"
    assert facts_of(board, "1/001.png", query)["masks"].startswith("this recipe reads no mask files")
    board.post(f"/api/data/step?{query}", {"shown": newest(board, "undo", query)})
    assert (captions_of(root), captions_of(tmp_path / "more")) == before


def test_clip_has_captions_and_neither_crop_nor_mask(board: Board, tmp_path: Path, write_clip: Any) -> None:
    write_clip(tmp_path / "clips" / "one.mp4", 8)
    (tmp_path / "clips" / "one.txt").write_text("one")
    data = "folder=0/clips&resolution=64"
    facts = facts_of(board, "one.mp4", data)
    assert edit(board, {"kind": "append", "text": " fox", "keys": ["one.mp4"]}, data)[0] == 200
    assert (tmp_path / "clips" / "one.txt").read_text() == "one fox"
    region = {"kind": "region", "rotate": 90, "keys": ["one.mp4"], "shown": facts["settings"]}
    assert board.post(f"/api/data/edit?{data}", region)[1]["code"] == "E1260"
    content = io.BytesIO()
    Image.new("L", (64, 48)).save(content, "PNG")
    png = base64.b64encode(content.getvalue()).decode()
    status, _ = board.post(f"/api/data/mask?{data}", {"key": "one.mp4", "png": png, "shown": ""})
    assert status == 409
    assert board.ask(f"/sample?{data}&row=0&whole=1")[2]["content-type"] == "image/webp"


@pytest.mark.parametrize(
    "value",
    [
        {}, {"kind": "append"}, {"kind": ["set"], "all": True, "preview": True}, {"kind": "set", "keys": "000.png"},
        {"kind": "region", "crop": "all", "rotate": 1e999, "keys": ["000.png"], "shown": "x"},
        {"kind": "region", "crop": [0, 0, 0, 0], "keys": ["000.png"], "shown": ["x"]},
        {"kind": "rename-tag", "tag": "a", "to": "b, c", "all": True, "preview": True},
        {"kind": "sort-frequency", "keep": "-1", "all": True, "preview": True},
        {"kind": "append", "text": "two\nlines", "all": True, "preview": True},
    ],
)  # fmt: skip
def test_forms_that_mean_nothing_are_refused(board: Board, root: Path, value: dict[str, Any]) -> None:
    before = captions_of(root)
    status, answer = board.post(f"/api/data/edit?{DATA}", value)
    assert (status, answer["code"]) in ((409, "E1260"), (409, "E1261")), answer
    assert captions_of(root) == before
    assert not (root / "mezzotint.jsonl").exists()
