"""What the doctor finds about pictures: the same ones, shapes, conversions, files that are not used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from mezzotint.data.buckets import buckets
from mezzotint.data.catalogue import findings, likeness
from mezzotint.data.catalogue.data_report import DataReport, readable
from mezzotint.data.media.colour import WORDS, Conversion
from mezzotint.recipe.counting import counted
from mezzotint.tasks.doctor._findings import Example, Finding, Status, some
from mezzotint.tasks.doctor._looking import ExaminedData, by_digest

_ADVICE = {
    Conversion.TURNED: "nothing: the picture is trained as viewers show it",
    Conversion.ALPHA: "choose data.background for what lies behind, or use masks (data.mask) to train the object alone",
    Conversion.DEEP: "nothing, unless the picture is very dark: then bring it to 8 bits yourself",
    Conversion.CMYK: "look at its colours; where they are off, save it as sRGB yourself",
    Conversion.PROFILE: "nothing: its colours are as its profile says",
    Conversion.BAD_PROFILE: "look at its colours, and save it as sRGB where they are off",
    Conversion.FIRST_FRAME: "take it away, or save the frame that you mean as a picture",
    Conversion.COLOUR_SPACE: "look at its colours; where they are off, save it as sRGB yourself",
    Conversion.VARIABLE_RATE: "encode the clip anew at an even rate",
}
_MUCH = 1.5
_LOOK = (Conversion.CMYK, Conversion.BAD_PROFILE, Conversion.FIRST_FRAME, Conversion.VARIABLE_RATE)


def of_likeness(looked: ExaminedData) -> Iterator[Finding]:
    """The same picture twice, or nearly, among the trained ones and across what is held out."""
    exact = list(by_digest(looked))
    within = [pair for pair in exact if looked.trained[pair[0]] and looked.trained[pair[1]]]
    across = {pair: "the same bytes" for pair in exact if looked.trained[pair[0]] != looked.trained[pair[1]]}
    if within:
        yield Finding(
            "duplicates", "look", len(within),
            f"{counted(len(within), 'exact copy')} of other images, trained twice",
            "remove them; to show an image more often, use data.repeats",
            _pairs(looked, [(a, b, "the same bytes") for a, b in within]),
        )  # fmt: skip
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
    return some([Example(f"{looked.name(b)} = {looked.name(a)} ({words})", (a, b)) for a, b, words in pairs[:1000]])


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


def _places(looked: ExaminedData, places: Sequence[int], words: Sequence[str] = ()) -> tuple[Example, ...]:
    texts = [f" ({word})" for word in words] or [""] * len(places)
    return some([Example(looked.name(place) + more, (place,)) for place, more in zip(places, texts, strict=True)])


def of_shapes(looked: ExaminedData) -> Iterator[Finding]:
    """Pictures smaller than their bucket, and such of which most is cut away."""
    catalogue, settings, rows = looked.dataset.catalogue, looked.recipe.data, looked.rows()
    table, placed = buckets.table(settings), catalogue.buckets_of(rows, settings)
    wide, high = (np.asarray([getattr(size, side) for size in table])[placed] for side in ("width", "height"))
    width, height = catalogue.width[rows], catalogue.height[rows]
    grown = np.maximum(wide / width, high / height)
    small = np.flatnonzero(grown > 1)
    if len(small):
        order = small[np.argsort(-grown[small], kind="stable")].tolist()
        words = [f"{width[i]}×{height[i]}, enlarged {grown[i]:.2g} times to {table[int(placed[i])]}" for i in order]
        much = int((grown[small] > _MUCH).sum())
        worst = f"{much:,} of them more than {_MUCH:g} times" if much else "none of them much"
        yield Finding(
            "undersized", "look" if much else "know", len(small),
            f"{counted(len(small), 'picture')} smaller than their bucket and enlarged, {worst}: the model learns their "
            "blur",
            "lower data.resolution, leave them out with data.small_images, or take larger originals",
            _places(looked, order, words),
        )  # fmt: skip
    if settings.has_clips:
        return
    shares = findings.seen_shares(catalogue, rows, settings)
    cut = np.flatnonzero(shares < findings.MOSTLY_CUT)
    if len(cut):
        order = cut[np.argsort(shares[cut], kind="stable")].tolist()
        words = [f"{width[i]}×{height[i]}, {shares[i]:.0%} is seen" for i in order]
        yield Finding(
            "extreme-shapes", "look", len(cut),
            f"{counted(len(cut), 'picture')} of a shape far from every bucket, so that most of it is cut away",
            "cut them by hand, or raise data.buckets.max_aspect",
            _places(looked, order, words),
        )  # fmt: skip


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


def of_files(report: DataReport) -> Iterator[Finding]:
    """Files that are not used, and why."""
    kinds: tuple[tuple[str, Status, tuple[tuple[str, str], ...], str, str], ...] = (
        ("skipped", "mend", report.skipped, "cannot be used", "mend the files, or take them away"),
        ("left-out", "know", report.left_out, "left out as the recipe asks",
         "nothing, if meant; otherwise change the setting that the reason names"),
        ("noted", "look", report.notes, "about which something is to be known", "read the reasons"),
    )  # fmt: skip
    for name, status, files, what, advice in kinds:
        if files:
            reasons: dict[str, int] = defaultdict(int)
            for _, reason in files:
                reasons[readable(reason)[:80]] += 1
            most = sorted(reasons.items(), key=lambda pair: -pair[1])[:3]
            why = ", ".join(f"{reason} ({count:,})" for reason, count in most)
            yield Finding(
                name, status, len(files),
                f"{counted(len(files), 'file')} {what}: {why}{' and other reasons' if len(reasons) > 3 else ''}",
                advice, some([Example(f"{readable(path)}: {readable(reason)}") for path, reason in files]),
            )  # fmt: skip
    if report.unknown:
        count = sum(number for _, number in report.unknown)
        endings = [(readable(suffix) or "no ending", f"{number:,}") for suffix, number in report.unknown]
        yield Finding(
            "unknown-files", "know", count, f"{counted(count, 'file')} of other kinds not looked at",
            "unpack archives; save pictures as PNG, JPEG or WebP; otherwise nothing",
            (), (("ending", "files"), *endings),
        )  # fmt: skip
