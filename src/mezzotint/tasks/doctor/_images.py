"""Findings from decoding the images: near-duplicates, images without colours, and conversions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mezzotint.data.catalogue import likeness
from mezzotint.data.findings.finding import Example, Finding, limit_examples
from mezzotint.data.media.colour import CONVERSION_NAMES, Conversion
from mezzotint.settings.counting import format_count
from mezzotint.tasks.doctor._examining import ExaminedData, by_digest

_ADVICE = {
    Conversion.TURNED: "no action needed: the image is trained as viewers show it",
    Conversion.ALPHA: "set data.background to choose the background, or use masks (data.mask) to train only the object",
    Conversion.DEEP: "no action needed, unless the image is very dark: then convert it to 8 bits yourself",
    Conversion.CMYK: "check its colours; if they are wrong, save it as sRGB yourself",
    Conversion.PROFILE: "no action needed: its colour profile is applied",
    Conversion.BAD_PROFILE: "check its colours; if they are wrong, save it as sRGB yourself",
    Conversion.FIRST_FRAME: "remove it, or save the frame that you want as an image",
    Conversion.COLOUR_SPACE: "check its colours; if they are wrong, save it as sRGB yourself",
    Conversion.VARIABLE_RATE: "encode the clip again at a constant frame rate",
}
_LOOK = (Conversion.CMYK, Conversion.BAD_PROFILE, Conversion.FIRST_FRAME, Conversion.VARIABLE_RATE)


def of_likeness(examined: ExaminedData) -> Iterator[Finding]:
    """Findings about near-duplicates among the trained images, and about held-out images that are also trained."""
    exact = list(by_digest(examined))
    across = {pair: "the same bytes" for pair in exact if examined.trained[pair[0]] != examined.trained[pair[1]]}
    near = likeness.near_pairs(examined.hashes) if examined.hashes is not None else []
    same = set(exact)
    alike = []
    for a, b, distance in near:
        note = f"distance {distance:g} of 255"
        if examined.digest(a) == examined.digest(b) or not examined.trained[a]:
            continue
        if examined.trained[b]:
            alike.append((a, b, note))
        elif (a, b) not in same:
            across.setdefault((a, b), note)
    if alike:
        yield Finding(
            "near-duplicates", "look", len(alike),
            f"{format_count(len(alike), 'pair')} of images that look alike: resized, compressed again, or of "
            "one series",
            "keep the better one of each; near-identical images are memorised first",
            _pairs(examined, alike),
        )  # fmt: skip
    if across:
        pairs = [(a, b, note) for (a, b), note in across.items()]
        count = len({index for pair in across for index in pair if not examined.trained[index]})
        yield Finding(
            "held-out-is-trained", "mend", count,
            f"{format_count(count, 'held-out image')} also among the trained ones, so the held-out loss is too low",
            "remove the trained copies, or hold out a separate folder (data.holdout.path)",
            _pairs(examined, pairs),
        )  # fmt: skip
    yield from _of_colours(examined)


def _pairs(examined: ExaminedData, pairs: Sequence[tuple[int, int, str]]) -> tuple[Example, ...]:
    named = (((examined.samples[a], examined.samples[b]), distance) for a, b, distance in pairs)
    return limit_examples(
        Example(f"{examined.name(second)} = {examined.name(first)} ({distance})", (first, second))
        for (first, second), distance in named
    )


def _of_colours(examined: ExaminedData) -> Iterator[Finding]:
    plain = np.flatnonzero(examined.plain).tolist()
    if plain:
        yield Finding(
            "plain", "look", len(plain), f"{format_count(len(plain), 'image')} of a single colour",
            "remove those that are empty by mistake", _examples(examined, plain),
        )  # fmt: skip
    grey = np.flatnonzero(examined.grey & ~examined.plain).tolist()
    if grey:
        share = len(grey) / max(1, len(examined.samples))
        yield Finding(
            "grey", "know", len(grey), f"{format_count(len(grey), 'image')} without colours ({share:.0%})",
            "mention it in their captions (black and white photo), or generated images become less colourful",
            _examples(examined, grey),
        )  # fmt: skip


def _examples(examined: ExaminedData, indices: Sequence[int]) -> tuple[Example, ...]:
    chosen = [examined.samples[index] for index in indices]
    return limit_examples(Example(examined.name(sample), (sample,)) for sample in chosen)


def of_conversions(examined: ExaminedData) -> Iterator[Finding]:
    """A finding for each kind of conversion that images undergo before training."""
    rows = examined.rows()
    flags = examined.dataset.catalogue.conversions[rows]
    for flag, advice in _ADVICE.items():
        indices = np.flatnonzero(flags & np.uint16(flag)).tolist()
        if indices:
            yield Finding(
                f"converted-{str(flag.name).lower().replace('_', '-')}", "look" if flag in _LOOK else "know",
                len(indices),
                f"{format_count(len(indices), 'image')}: {CONVERSION_NAMES[flag]}",
                advice, _examples(examined, indices),
            )  # fmt: skip
