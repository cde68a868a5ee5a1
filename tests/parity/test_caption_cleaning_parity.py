"""Captions that Open-Sora-Plan has cleaned, recorded, against ours; and the same routine as diffusers ships it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from diffusers import PixArtAlphaPipeline

from mezzotint.data.files.caption_cleaning import clean, clean_once

RECORD = json.loads((Path(__file__).parent / "data" / "open-sora-plan" / "caption_cleaning.json").read_text("utf-8"))
HARD = (
    "",
    " \t\n ",
    "cats.html",
    "c:/cats/cat.xml",
    "a&b.txt",
    "&amp &lt &#x41; &nosuch; &am",
    "A%20Cat+in+https%3A%2F%2Fa.b%2Fc &lt;i&gt;hat&lt;/i&gt;",
    "mail me@shop.com or www.shop.co.uk/now?x=1, www:/x, shop.it@home",
    "<p>one</p><br/>two &amp;amp; three &#39;four&#39;</unclosed",
    "㇀ㇰ㈀㌀㐀䷀一 kana カナ 한글 stay",
    "– — ― ⸺ 〜 ﹣ － · º ½ ¿ § ~ {a} [b] (c) | d \\ e / f * g",
    "one-two_three four-five_six",
    "one-two_three four-five",
    "item 5:30  ",
    "#1 #12345 #1234 1234567 12345 3.14 10.0.0.1",
    "photo.jpeg and clip.mp4 and a.b.webp, png images and mp4 image",
    '""quoted"" \'\'twice\'\' "whole"',
    "'_,-:;edge-+",
    ".hidden",
    "schÃ¶n â€œmojibakeâ€\x9d ﬁne ½",
    "worldwide free shipping, free download free, click on me, click for it, page 3",
    "ab123 abc123def 12ab34 a1b2c3 640x480 640х480 3.5×2.5",
    "one , two.three /four : five",
    "a\x00b \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
)


@pytest.mark.parametrize("entry", RECORD, ids=[str(i) for i in range(len(RECORD))])
def test_cleaned_caption_equals_the_record(entry: dict[str, str]) -> None:
    assert clean(entry["input"]) == entry["output"]


def test_record_has_captions_that_change_when_cleaned_twice() -> None:
    assert len(RECORD) == 12
    assert any(clean_once(entry["input"]) != entry["output"] for entry in RECORD)


@pytest.mark.parametrize("caption", HARD)
def test_one_pass_equals_that_of_the_pipeline(caption: str) -> None:
    pipeline = PixArtAlphaPipeline.__new__(PixArtAlphaPipeline)
    assert clean_once(caption) == pipeline._clean_caption(caption)
