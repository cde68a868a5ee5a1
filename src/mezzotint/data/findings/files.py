"""Files that are not used, or not as intended."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from mezzotint.data.catalogue.data_report import DataReport, readable
from mezzotint.data.findings.finding import Example, Finding, Status, limit_examples, name_first
from mezzotint.data.formats.shared.folder_repeats import find_folders_with_repeats
from mezzotint.settings.counting import format_count
from mezzotint.settings.sections.data import DataSettings

_ARCHIVES = frozenset((".zip", ".7z", ".rar", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst"))


def of_files(report: DataReport, roots: Iterable[Path]) -> Iterator[Finding]:
    """Files that are skipped, left out, noted or of other kinds. roots: their folders."""
    kinds: tuple[tuple[str, Status, tuple[tuple[str, str], ...], str, str], ...] = (
        ("skipped", "mend", report.skipped, "skipped, which cannot be used", "repair the files, or remove them"),
        ("left-out", "know", report.left_out, "left out as the recipe asks",
         "nothing, if intended; otherwise change the setting in the reason"),
        ("noted", "look", report.notes, "with a note", "read the reasons"),
    )  # fmt: skip
    for name, status, files, state, advice in kinds:
        if files:
            examples = (Example(f"{readable(path)}: {readable(reason)}") for path, reason in files)
            sentence = f"{format_count(len(files), 'file')} {state}"
            yield Finding(name, status, len(files), sentence, advice, limit_examples(examples), _reasons(files))
    packed = {ending: count for ending, count in report.unknown if ending in _ARCHIVES}
    if packed:
        many = " and ".join(format_count(count, f"{ending} archive") for ending, count in packed.items())
        where = ", ".join(readable(os.fspath(root)) for root in dict.fromkeys(roots))
        verb, them = ("are", "them") if sum(packed.values()) > 1 else ("is", "it")
        yield Finding(
            "archives", "look", sum(packed.values()),
            f"{many} below {where} {verb} not opened: images in {them} are not trained",
            f"unpack {them} there",
        )  # fmt: skip
    others = {ending: count for ending, count in report.unknown if ending not in _ARCHIVES}
    if others:
        count = sum(others.values())
        endings = [Example(f"{readable(ending) or 'no extension'} ({number:,})") for ending, number in others.items()]
        yield Finding(
            "unknown-files", "know", count, f"{format_count(count, 'file')} of other kinds not read",
            "save images as PNG, JPEG or WebP; otherwise nothing", limit_examples(endings),
        )  # fmt: skip


def of_repeats(roots: Iterable[Path], settings: DataSettings) -> Iterator[Finding]:
    """Folders whose names contain the repeats of their images, which the format does not read."""
    is_once = all(one.settings.repeats == 1 for one in settings.image_sets())
    effect = "uses every image once" if is_once else "does not read it; data.repeats applies to all of a set"
    for root in dict.fromkeys(roots):
        if folders := find_folders_with_repeats(root):
            yield Finding(
                "kohya-folders", "look", len(folders),
                f"{name_first([readable(name) for name in folders])} below {readable(os.fspath(root))} "
                f"look{'s' * (len(folders) == 1)} like kohya's folders, whose number is how often an epoch visits each "
                f"image; data.format={settings.format} {effect}",
                "data.format=kohya reads the number, and uses the words for images without a caption",
            )  # fmt: skip


def _reasons(files: tuple[tuple[str, str], ...]) -> tuple[tuple[str, ...], ...]:
    """A table of the number of files for each reason, if there are several."""
    counts: dict[str, int] = {}
    for _, reason in files:
        counts[readable(reason)[:80]] = counts.get(readable(reason)[:80], 0) + 1
    rows = [(reason, f"{count:,}") for reason, count in sorted(counts.items(), key=lambda item: -item[1])]
    return (("reason", "files"), *rows) if len(rows) > 1 else ()
