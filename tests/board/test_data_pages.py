"""The page Data: samples of a run as its model sees them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mezzotint.board.reading import data_sets, token_counts
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue import likeness, thumbnails
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.files import columns
from mezzotint.data.files.columns import TextBuilder
from mezzotint.data.loading.worker import BatchRequest, BatchWorker, Caches, HostBatch
from mezzotint.settings.reading.read import read_text, resolve_paths
from support.board_runs import Board, opened, write_images, write_run
from support.image_catalogues import many


@pytest.fixture(autouse=True, scope="module")
def lengths() -> Iterator[None]:
    """Replaces the process that counts tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_counts, "of_run", lambda run: ([9, 9, 12, 77, 78, 90], 77))
        yield


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    root = tmp_path_factory.mktemp("data")
    write_images(root / "images")
    data = {
        "path": [str(root / "images")], "resolution": 48, "buckets": {"step": 8}, "flip": 0.5, "crop": "random",
        "cache": {"path": str(root / "cache")}, "captions": {"shuffle_tags": True}, "max_skipped": 0.5,
    }  # fmt: skip
    folder = write_run(root / "runs" / "run", recipe={"data": data, "run": {"name": "a"}})
    report = [{"id": "cats/1.png", "lost_tokens": 12}, {"id": "none.png", "lost_tokens": 3}]
    (folder / "data_report.jsonl").write_text("".join(json.dumps(line) + "\n" for line in report))
    with opened(root) as board:
        until = time.monotonic() + 20
        while not json.loads(board.ask("/api/data?run=0/runs/run")[1])["ready"]:
            assert time.monotonic() < until
            time.sleep(0.05)
        yield board


def test_samples_are_shown_with_crop_caption_and_problems(board: Board) -> None:
    status, text, _ = board.ask("/data?run=0/runs/run")
    assert status == 200
    assert text.count('<figure class="sample"') == 6
    assert "6 samples" in text
    assert "broken.png" in text
    assert "caption longer than the text encoder reads: 12 tokens lost" in text
    assert "<script>window" not in text


@pytest.mark.parametrize(
    ("query", "count"),
    [("text=IMAGE+3", 1), ("text=nothing", 0), ("in=cats", 3), ("in=cats&text=image+1", 1), ("problem=long", 1),
     ("problem=none", 0), ("bucket=56×40", None), ("bucket=9×9", 0), ("page=99", 6), ("page=-1&epoch=x&visit=3", 6)],
)  # fmt: skip
def test_filters_select_samples(board: Board, query: str, count: int | None) -> None:
    from urllib.parse import quote

    status, text, _ = board.ask(f"/data?run=0/runs/run&{quote(query, safe='=&+')}")
    assert status == 200
    shown = text.count('<figure class="sample"')
    assert shown == count if count is not None else 0 < shown < 6
    if count == 0:
        assert "No sample matches these filters" in text


def test_crops_and_captions_are_those_of_the_loader(tmp_path: Path) -> None:
    gradient = np.repeat(np.arange(0, 192, 2, dtype=np.uint8)[None, :, None], 48, axis=0).repeat(3, axis=2)
    Image.fromarray(gradient).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("one, two, three, four")
    words = [
        "resolution=48",
        "buckets.step=16",
        "buckets.shape=square",
        "flip=0.5",
        "crop=random",
        "captions.shuffle_tags=true",
    ]
    words.append(f"cache.path={tmp_path}/cache")
    recipe = resolve_paths(
        read_text("schema: 1", overrides=[f"data.path={tmp_path}", *(f"data.{word}" for word in words)])
    )
    data = data_sets.open_data(recipe, None)
    loader = BatchWorker(data.catalogue, data.settings, seed=recipe.run.seed, caches=Caches())
    seen = set()
    for number in range(6):
        sample = data.sample(0, epoch=2, number=number)
        batch = loader[visit_request(number, epoch=2)]
        assert isinstance(batch, HostBatch)
        assert batch.pixels is not None
        left = round(96 * sample["frame"][0])
        assert batch.captions == (sample["caption"],)
        assert batch.pixels[0, 0, 0, 0] == 2 * (left + 47 if sample["flipped"] else left)
        seen.add((sample["caption"], left, sample["flipped"]))
    assert len({flipped for _, _, flipped in seen}) == 2
    assert len(seen) > 2, "visits differ"


def visit_request(number: int, *, epoch: int) -> BatchRequest:
    """A batch of one visit of row 0."""
    row, visit = np.zeros(1, np.int32), np.array([number], np.int32)
    return BatchRequest(0, epoch, 1, True, 0, row, visit, np.ones(1, np.float32), np.zeros(1, np.int64))


def test_caption_lengths_are_counted_in_tokens_of_the_run(board: Board) -> None:
    until = time.monotonic() + 20
    while not json.loads(board.ask("/api/data?run=0/runs/run")[1])["counted"]:
        assert time.monotonic() < until
        time.sleep(0.02)
    for path in ("/data", "/part/histograms"):
        text = board.ask(f"{path}?run=0/runs/run")[1]
        assert "tokens of the first caption, including start and end; the text encoder reads 77" in text
        assert re.search(r'class="over"><th scope="row">over 77, cut</th>.*<td class="n">2</td>', text)
    output = "words of the first caption (tokens are counted only for the data of a run)"
    while output not in board.ask("/data?folder=0/images/cats&resolution=64")[1]:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_tokens_are_counted_with_the_tokenizer_of_the_recipe(tmp_path: Path) -> None:
    write_images(tmp_path / "images", 4)
    (tmp_path / "images" / "cats" / "1.txt").write_text("a " * 90)
    recipe = {"schema": 1, "data": {"path": str(tmp_path / "images"), "max_skipped": 0.5,
                                     "cache": {"path": str(tmp_path / "cache")}}}  # fmt: skip
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    answer = token_counts.count(str(tmp_path / "recipe.yaml"))
    assert not isinstance(answer, str)
    assert (max(answer[0]), answer[1]) == (92, 77)
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe | {"model": {"path": str(tmp_path / "gone")}}))
    assert "no tokenizer is available" in str(token_counts.count(str(tmp_path / "recipe.yaml")))


@contextmanager
def page_of_many(root: Path, count: int, patch: pytest.MonkeyPatch) -> Iterator[Board]:
    catalogue = many(root / "data", count)
    patch.setattr(catalogues, "build", lambda settings, folder, progress=None: catalogue)
    data = {"path": [str(root / "data")], "cache": {"path": str(root / "cache")}, "resolution": 64}
    write_run(root / "run", recipe={"data": data, "run": {"name": "a"}})
    with opened(root) as board:
        until = time.monotonic() + 120
        while not json.loads(board.ask("/api/data?run=0/run")[1])["ready"]:
            assert time.monotonic() < until
            time.sleep(0.02)
        yield board


def test_page_of_many_samples_reads_only_those_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    whole: list[str] = []
    decoded: list[int] = []
    for name in ("key", "captions"):
        own = getattr(Catalogue, name)
        monkeypatch.setattr(Catalogue, name, lambda self, row, own=own: rows.append(row) or own(self, row))
    for name in ("keys", "caption_words", "rows_with", "rows_in"):
        own = getattr(Catalogue, name)
        monkeypatch.setattr(
            Catalogue, name, lambda self, *words, own=own, name=name: whole.append(name) or own(self, *words)
        )
    look = likeness.image_of
    monkeypatch.setattr(likeness, "image_of", lambda *words, **more: decoded.append(words[1]) or look(*words, **more))
    with page_of_many(tmp_path, 20_000, monkeypatch) as board:
        for query, shown, looks in (
            ("", range(60), []),
            ("&page=333", range(19_980, 20_000), []),
            ("&text=thing+1999", [1999, *range(19_990, 20_000)], ["rows_with"]),
            ("&text=thing+1999&in=3", [19_993], ["rows_in", "rows_with"]),
            ("&in=3&page=1", range(603, 1203, 10), ["rows_in"]),
            ("&in=3&page=2", range(1203, 1803, 10), []),
        ):
            rows.clear()
            whole.clear()
            status, text, _ = board.ask(f"/data?run=0/run{query}")
            assert (status, text.count('<figure class="sample"')) == (200, len(shown)), query
            assert set(rows) == set(shown), query
            assert sorted(set(whole) - {"caption_words"}) == looks, query
        assert decoded == []
        for _ in range(2):
            assert board.ask("/thumb?run=0/run&row=19999")[0] == 200
        assert decoded == [19_999], "created on request and stored"


@pytest.mark.slow
def test_a_million_samples_are_opened_paged_and_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = time.perf_counter()
    with page_of_many(tmp_path, 1_000_000, monkeypatch) as board:
        print(f"written and opened {time.perf_counter() - begun:.1f} s")
        for query, count in (("", 60), ("&page=16666", 40), ("&text=thing+99999", 11), ("&in=7&page=9", 60),
                             ("&in=7&page=10", 60), ("&text=a", 60), ("&text=a&page=2", 60)):  # fmt: skip
            begun = time.perf_counter()
            text = board.ask(f"/data?run=0/run{query}")[1]
            took = time.perf_counter() - begun
            print(f"{query or 'first page'}: {took:.2f} s, {len(text) / 1000:.0f} kB")
            assert text.count('<figure class="sample"') == count, query
            assert took < 15  # for a busy machine; less than a second each on a quiet one


def test_thumbnails_are_created_once_and_stored(board: Board) -> None:
    status, _, headers = board.ask("/thumb?run=0/runs/run&row=1")
    assert (status, headers["content-type"]) == (200, "image/webp")
    (memo,) = (board.pages.roots.folders[0] / "cache").rglob("memo.sqlite")
    asked: list[str] = []
    with pytest.MonkeyPatch.context() as context:
        context.setattr(thumbnails, "_webp", lambda *words, **options: asked.append("made"))
        assert board.ask("/thumb?run=0/runs/run&row=1")[0] == 200
        assert not asked
        memo.unlink()
        assert board.ask("/thumb?run=0/runs/run&row=1")[0] == 404
    assert asked == ["made"]
    assert board.ask("/thumb?run=0/runs/run&row=99")[0] == 404


def test_sample_is_shown_large_and_a_clip_is_sent_unchanged(tmp_path: Path, write_clip: Any) -> None:
    write_images(tmp_path / "images")
    (tmp_path / "images" / "broken.png").unlink()
    write_clip(tmp_path / "clips" / "one.mp4", 8)
    (tmp_path / "clips" / "one.txt").write_text("one")
    with opened(tmp_path) as board:
        for query in ("folder=0/images&resolution=64", f"folder={tmp_path}/clips&resolution=64"):
            until = time.monotonic() + 20
            while "samples. The frame" not in (text := board.ask(f"/data?{query}")[1]):
                assert time.monotonic() < until, text
                time.sleep(0.02)
        status, _, headers = board.ask("/sample?folder=0/images&resolution=64&row=2")
        assert (status, headers["content-type"]) == (200, "image/webp")
        assert board.ask("/sample?folder=0/images&resolution=64&row=6")[0] == 404
        status, _, headers = board.ask(f"/sample?folder={tmp_path}/clips&resolution=64&row=0", Range="bytes=0-9")
        assert (status, headers["content-type"], headers["content-length"]) == (206, "video/mp4", "10")
        for folder in (f"{tmp_path.parent}", "/etc", f"{tmp_path}/../", "/", "5", "images"):
            assert board.ask(f"/data?folder={folder}")[0] == 404, folder


def test_data_outside_the_folders_need_any_folder(tmp_path: Path) -> None:
    write_images(tmp_path / "images")
    data = {"path": [str(tmp_path / "images")], "cache": {"path": str(tmp_path / "cache")}, "max_skipped": 0.5}
    write_run(tmp_path / "runs" / "run", recipe={"data": data, "run": {"name": "a"}})
    with opened(tmp_path / "runs") as board:
        status, text, _ = board.ask("/data?run=0/run")
        assert (status, "E1948" in text) == (409, True)
        assert board.ask("/thumb?run=0/run&row=0")[0] == 409
        assert board.ask("/data?folder=0/../images")[0] == 404
    with opened(tmp_path / "runs", any_folder=True) as board:
        assert board.ask("/thumb?run=0/run&row=0")[0] == 200


def test_data_that_cannot_be_opened_show_the_error(tmp_path: Path) -> None:
    write_run(tmp_path / "run", recipe={"data": {"path": []}, "run": {"name": "!"}})
    (tmp_path / "empty").mkdir()
    with opened(tmp_path) as board:
        assert "E1" in board.ask("/data?run=0/run")[1]
        until = time.monotonic() + 20
        while "E1202" not in board.ask("/data?folder=0/empty")[1]:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert "No run lies" not in board.ask("/data")[1]


def test_text_search_does_not_cross_borders_between_texts() -> None:
    builder = TextBuilder()
    for text in ("Ab", "cd ab", "", "bC", "ü.b"):
        builder.append(text)
    texts = builder.texts()
    assert texts.containing("AB").tolist() == [0, 1]
    assert texts.containing("bc").tolist() == [3]
    assert texts.containing("ü.").tolist() == [4]
    assert texts.containing(".*").tolist() == []
    assert texts.containing("B").tolist() == [0, 1, 3, 4]
    assert texts.containing("bcd").tolist() == [], "across a border"
    assert texts.containing("").tolist() == [0, 1, 2, 3, 4]
    assert texts.containing("cd Ab").tolist() == [1]
    assert texts.beginning_with("b").tolist() == [3]
    assert texts.beginning_with("cd a").tolist() == [1]
    assert texts.beginning_with("ü").tolist() == [4]
    assert texts.beginning_with("").tolist() == [0, 1, 2, 3, 4]


def test_short_and_long_search_terms_give_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = TextBuilder()
    for number in range(300):
        builder.append(f"{number:x}Ab{number % 7}aB" if number % 5 else "")
    texts = builder.texts()
    for part in ("a", "aB", "ab0", "B1", "zz", "f"):
        at_once = texts.containing(part).tolist()
        with monkeypatch.context() as patch:
            patch.setattr(columns, "SHORT_TEXT", 0)
            assert texts.containing(part).tolist() == at_once
        assert at_once == [n for n, text in enumerate(texts) if part.lower() in text.lower()], part


def test_300_000_captions_are_searched_within_a_second() -> None:
    builder = TextBuilder()
    for number in range(300_000):
        builder.append(f"an image of thing {number}")
    texts = builder.texts()
    begun = time.perf_counter()
    assert len(texts.containing("thing 29999")) == 11
    assert time.perf_counter() - begun < 1


def test_condition_images_are_shown_beside_their_samples(tmp_path: Path) -> None:
    write_images(tmp_path / "images")
    before = write_images(tmp_path / "before") or tmp_path / "before"
    data = {
        "path": str(tmp_path / "images"), "resolution": 48, "buckets": {"step": 8}, "max_skipped": 0.5,
        "conditions": {"source": {"folder": str(before), "optional": True}}, "cache": {"path": str(tmp_path / "cache")},
    }  # fmt: skip
    write_run(tmp_path / "runs" / "run", recipe={"data": data, "run": {"name": "a"}})
    outside = {**data, "conditions": {"source": {"folder": "/etc", "optional": True}}}
    write_run(tmp_path / "runs" / "outside", recipe={"data": outside, "run": {"name": "b"}})
    with opened(tmp_path) as board:
        query = "run=0/runs/run"
        until = time.monotonic() + 20
        while not json.loads(board.ask(f"/api/data?{query}")[1])["ready"]:
            assert time.monotonic() < until
            time.sleep(0.05)
        text = board.ask(f"/data?{query}")[1]
        assert text.count("condition=source") == 12
        assert text.count('<span class="quiet">source</span>') == 6
        for route in ("thumb", "sample"):
            status, _, headers = board.ask(f"/{route}?{query}&row=2&condition=source")
            assert (status, headers["content-type"]) == (200, "image/webp")
        assert board.ask(f"/thumb?{query}&row=2&condition=other")[0] == 404
        assert "outside of the folders of this page" in board.ask("/data?run=0/runs/outside")[1]
