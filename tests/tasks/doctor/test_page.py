"""The HTML page embeds its images, loads nothing, and escapes names and captions."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mezzotint.cli import main

SCRIPT = "<script>window.hit=1</script><img src=x onerror=window.hit=1>"
VOID = ("meta", "img", "br")


class Reader(HTMLParser):
    """Collects the elements and links of a page, and whether each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open += [] if tag in VOID else [tag]
        values = dict(attrs)
        self.images += [values] if tag == "img" else []
        self.links += [str(values[name]) for name in ("src", "href") if name in values]
        self.anchors |= {str(values["id"])} if "id" in values else set()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_html_page_is_self_contained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, place = tmp_path / "images", tmp_path / "page.html"
    folder.mkdir()
    for number in range(3):
        blots = np.random.default_rng(number % 2).integers(0, 256, (6, 6, 3), np.uint8)
        image = Image.fromarray(blots).resize((64 + number, 64), Image.Resampling.BICUBIC)
        image.save(folder / f"{number}<b>.png")
        (folder / f"{number}<b>.txt").write_text(f"{SCRIPT} to the left")
    words = ("data.resolution=64", "data.flip=0.5", f"data.cache.path={tmp_path}/cache", f"--html={place}")
    assert main(["doctor", str(folder), *words]) == 2
    assert "mirrored-words" not in capsys.readouterr().out
    page = Reader(place.read_text("utf-8"))
    assert page.open == []
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert len(page.images) == 2 + 3 + 3, "a pair, three mirrored, three with one caption"
    assert all(str(image["src"]).startswith("data:image/webp;base64,") for image in page.images)
    assert {link[1:] for link in page.links if link.startswith("#")} == page.anchors
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert {image["alt"] for image in page.images} == {f"{number}<b>.png" for number in range(3)}
    assert SCRIPT in page.words
    before = place.read_bytes()
    assert main(["doctor", str(folder), *words]) == 2
    assert "E1014" in capsys.readouterr().err
    assert place.read_bytes() == before
    place.write_text("mine")
    assert main(["doctor", str(folder), *words, "--replace"]) == 2
    assert place.read_bytes() == before


def test_machine_report_has_an_html_page(tmp_path: Path) -> None:
    main(["doctor", f"--html={tmp_path / 'page.html'}"])
    page = Reader((tmp_path / "page.html").read_text("utf-8"))
    assert (page.open, page.images) == ([], [])
    assert "This machine" in page.words
