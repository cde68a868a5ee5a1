"""`data.captions.clean`: captions as in the training of DeepFloyd IF, PixArt and Open-Sora-Plan, without URLs, markup,
noise of shop pages and CJK ideographs.

The rules and their order are DeepFloyd's. Open-Sora-Plan applies them twice. Needs the extra `video` (ftfy repairs
broken encodings, Beautiful Soup converts markup to text).
"""

from __future__ import annotations

import html
import re
import urllib.parse
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec

from mezzotint.errors import RecipeError
from mezzotint.stages import Sample

VERSION = 1
"""Part of the address of an index. Increment it when the result for any caption changes."""

_HOST = r"[a-zA-Z0-9.\-]+[.](?:com|co|ru|net|org|edu|gov|it)[\w/-]*\b\/?(?!@)"
_ENDINGS = "png|jpg|jpeg|bmp|webp|eps|pdf|apk|mp4"
_DASHES = (
    r"\u002d\u058a\u05be\u1400\u1806\u2010-\u2015\u2e17\u2e1a\u2e3a\u2e3b\u2e40\u301c\u3030\u30a0"
    r"\ufe31\ufe32\ufe58\ufe63\uff0d"
)
_PUNCTUATION = r"[#®•©™&@·º½¾¿¡§~)(\]\[}{|\\/*]+"

_Rules = tuple[tuple[str, str], ...]

_ADDRESSES: _Rules = (
    ("<person>", "person"),
    (rf"\b((?:https?:(?:\/{{1,3}}|[a-zA-Z0-9%])|{_HOST}))", ""),
    (rf"\b((?:www:(?:\/{{1,3}}|[a-zA-Z0-9%])|{_HOST}))", ""),
)

_SIGNS: _Rules = (
    (r"@[\w\d]+\b", ""),  # nicknames
    # Unicode blocks: strokes, phonetic extensions, enclosed, compatibility, ideographs A, hexagrams,
    # ideographs; kana and Hangul stay
    ("[\u31c0-\u31ef]+", ""),
    ("[\u31f0-\u31ff]+", ""),
    ("[\u3200-\u32ff]+", ""),
    ("[\u3300-\u33ff]+", ""),
    ("[\u3400-\u4dbf]+", ""),
    ("[\u4dc0-\u4dff]+", ""),
    ("[\u4e00-\u9fff]+", ""),
    (f"[{_DASHES}]+", "-"),
    ("[`´«»“”¨]", '"'),
    ("[‘’]", "'"),
    ("&quot;?", ""),
    ("&amp", ""),
    (r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}", " "),  # internet addresses
    (r"\d:\d\d\s+$", ""),  # numbers of articles
    (r"\\n", " "),
    (r"#\d{1,3}\b", ""),
    (r"#\d{5,}\b", ""),
    (r"\b\d{6,}\b", ""),
    (rf"[\S]+\.(?:{_ENDINGS})", ""),
    (r"[\"\']{2,}", '"'),
    (r"[\.]{2,}", " "),
    (_PUNCTUATION, " "),
    (r"\s+\.\s+", " "),
)

_WORD_RULES: _Rules = (
    (r"\b[a-zA-Z]{1,3}\d{3,15}\b", ""),  # jc6640
    (r"\b[a-zA-Z]+\d+[a-zA-Z]+\b", ""),  # jc6640vc
    (r"\b\d+[a-zA-Z]+\d+\b", ""),  # 6640vc231
    (r"(worldwide\s+)?(free\s+)?shipping", ""),
    (r"(free\s)?download(\sfree)?", ""),
    (r"\bclick\b\s(?:for|on)\s\w+", ""),
    (rf"\b(?:{_ENDINGS})(\simage[s]?)?", ""),
    (r"\bpage\s+\d+\b", ""),
    (r"\b\d*[a-zA-Z]+\d+[a-zA-Z]+\d+[a-zA-Z\d]*\b", " "),
    (r"\b\d+\.?\d*[xх×]\d+\.?\d*\b", ""),  # 640x480; the second sign is Cyrillic
    (r"\b\s+\:\s+", ": "),
    (r"(\D[,\./])\b", r"\1 "),
    (r"\s+", " "),
    # the ends: quotes around the whole, stray signs, a leading dot
    (r"^[\"\']([\w\W]+)[\"\']$", r"\1"),
    (r"^[\'\_,\-\:;]", ""),
    (r"[\'\_,\-\:\-\+]$", ""),
    (r"^\.\S+$", ""),
)

_MAX_HYPHENS = 3


def cleaner() -> Callable[[str], str]:
    """`clean`. Raises RecipeError E1466 without the packages of the extra `video`."""
    for package in ("ftfy", "bs4"):
        if find_spec(package) is None:
            raise RecipeError(
                f"data.captions.clean needs the package {package}, which is not installed; install mezzotint[video], "
                "or set data.captions.clean=false",
                code="E1466",
            )
    return clean


def clean_captions(sample: Sample) -> Sample:
    """Returns the sample with cleaned captions. Raises as `cleaner` does."""
    return replace(sample, captions=tuple(map(cleaner(), sample.captions)))


def clean(caption: str) -> str:
    """Cleans a caption as Open-Sora-Plan does: applies the rules twice. The result may be empty."""
    return clean_once(clean_once(caption))


def clean_once(caption: str) -> str:
    """Applies DeepFloyd's rules once, as diffusers' pipelines do."""
    import ftfy

    text = _apply_rules(urllib.parse.unquote_plus(caption).strip().lower(), _ADDRESSES)
    text = _apply_rules(_remove_markup(text), _SIGNS)
    if sum(map(text.count, "-_")) > _MAX_HYPHENS:  # this-is-my-cute-cat
        text = text.replace("-", " ").replace("_", " ")
    text = html.unescape(html.unescape(str(ftfy.fix_text(text))))
    return _apply_rules(text, _WORD_RULES).strip()


def _remove_markup(text: str) -> str:
    from bs4 import BeautifulSoup
    from bs4.exceptions import ParserRejectedMarkup

    try:
        # the leading line end avoids Beautiful Soup's warning that the text looks like a file name
        return str(BeautifulSoup("\n" + text, features="html.parser").text)[1:]
    except ParserRejectedMarkup:  # such as "<![x"; the reference stops there
        return text


def _apply_rules(text: str, rules: _Rules) -> str:
    for pattern, by in _compile(rules):
        text = pattern.sub(by, text)
    return text


@lru_cache(maxsize=3)
def _compile(rules: _Rules) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), by) for pattern, by in rules)
