"""What the doctor finds by decoding the images: ones that look alike, ones without colours; and conversions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mezzotint.data.catalogue import likeness
from mezzotint.data.findings.finding import Example, Finding, limit_examples
from mezzotint.data.media.colour import WORDS, Conversion
from mezzotint.settings.counting import counted
from mezzotint.tasks.doctor._looking import ExaminedData, by_digest

_ADVICE = {
    Conversion.TURNED: "nothing: the image is trained as viewers show it",
    Conversion.ALPHA: "choose data.background for what lies behind, or use masks (data.mask) to train the object alone",
    Conversion.DEEP: "nothing, unless the picture is very dark: then bring it to 8 bits yourself",
    Conversion.CMYK: "look at its colours; where they are off, save it as sRGB yourself",
    Conversion.PROFILE: "nothing: its colours are as its profile says",
    Conversion.BAD_PROFILE: "look at its colours, and save it as sRGB where they are off",
    Conversion.FIRST_FRAME: "take it away, or save the frame that you mean as a picture",
    Conversion.COLOUR_SPACE: "look at its colours; where they are off, save it as sRGB yourself",
    Conversion.VARIABLE_RATE: "encode the clip anew at an even rate",
}
_LOOK = (Conversion.CMYK, Conversion.BAD_PROFILE, Conversion.FIRST_FRAME, Conversion.VARIABLE_RATE)


def of_likeness(looked: ExaminedData) -> Iterator[Finding]:
    """Images that look alike among the trained ones, and held-out ones that are trained too."""
    exact = list(by_digest(looked))
    across = {pair: "the same bytes" for pair in exact if looked.trained[pair[0]] != looked.trained[pair[1]]}
    near = likeness.near_pairs(looked.looks) if looked.looks is not None else []
    same = set(exact)
    alike = []
    for a, b, apart in near:
        words = f"apart {apart:g} of 255"
        if looked.digest(a) == looked.digest(b) or not looked.trained[a]:
            continue
        if looked.trained[b]:
            alike.append((a, b, words))
        elif (a, b) not in same:
            across.setdefault((a, b), words)
    if alike:
        yield Finding(
            "near-duplicates", "look", len(alike),
            f"{counted(len(alike), 'pair')} of pictures that look alike: resized, compressed again, or of one series",
            "keep the better one of each; near-identical images are memorised first",
            _pairs(looked, alike),
        )  # fmt: skip
    if across:
        pairs = [(a, b, words) for (a, b), words in across.items()]
        count = len({place for pair in across for place in pair if not looked.trained[place]})
        yield Finding(
            "held-out-is-trained", "mend", count,
            f"{counted(count, 'held-out picture')} also among the trained ones, so that the held-out loss flatters",
            "take the trained copies away, or hold out a folder of its own (data.holdout.path)",
            _pairs(looked, pairs),
        )  # fmt: skip
    yield from _of_colours(looked)


def _pairs(looked: ExaminedData, pairs: Sequence[tuple[int, int, str]]) -> tuple[Example, ...]:
    named = (((looked.places[a], looked.places[b]), distance) for a, b, distance in pairs)
    return limit_examples(
        Example(f"{looked.name(second)} = {looked.name(first)} ({distance})", (first, second))
        for (first, second), distance in named
    )


def _of_colours(looked: ExaminedData) -> Iterator[Finding]:
    plain = np.flatnonzero(looked.plain).tolist()
    if plain:
        yield Finding(
            "plain", "look", len(plain), f"{counted(len(plain), 'picture')} of a single colour",
            "take away what is empty by mistake", _places(looked, plain),
        )  # fmt: skip
    grey = np.flatnonzero(looked.grey & ~looked.plain).tolist()
    if grey:
        share = len(grey) / max(1, len(looked.places))
        yield Finding(
            "grey", "know", len(grey), f"{counted(len(grey), 'picture')} without colours ({share:.0%})",
            "say it in their captions (black and white photo), or colours fade in what the model draws",
            _places(looked, grey),
        )  # fmt: skip


def _places(looked: ExaminedData, places: Sequence[int]) -> tuple[Example, ...]:
    samples = [looked.places[place] for place in places]
    return limit_examples(Example(looked.name(sample), (sample,)) for sample in samples)


def of_conversions(looked: ExaminedData) -> Iterator[Finding]:
    """What is done to pictures before they are trained, a finding for each kind."""
    rows = looked.rows()
    flags = looked.dataset.catalogue.conversions[rows]
    for flag, advice in _ADVICE.items():
        places = np.flatnonzero(flags & np.uint16(flag)).tolist()
        if places:
            yield Finding(
                f"converted-{str(flag.name).lower().replace('_', '-')}", "look" if flag in _LOOK else "know",
                len(places),
                f"{counted(len(places), 'picture')}: {WORDS[flag]}", advice, _places(looked, places),
            )  # fmt: skip
