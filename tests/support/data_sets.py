"""Small data sets in every format: their files, the settings that read them, and the samples they must give."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mezzotint.data.formats.base import Item, Noted, Skipped, Source, format_of
from mezzotint.settings.base import with_values
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import Sample


def put(root: Path, *names: str, text: str | bytes = b"x") -> Path:
    """Files of one content below a folder."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return root


def settings_of(*paths: Path, **values: Any) -> DataSettings:
    """Settings of one folder, or of several sets."""
    where = {"sets": [{"path": path} for path in paths]} if len(paths) > 1 else {"path": list(paths)}
    return DataSettings.model_validate({**where, **values})


def small_of(*paths: Path, **values: Any) -> DataSettings:
    """Settings of small buckets."""
    return settings_of(*paths, **{"resolution": 64, "buckets": {"step": 8}} | values)


def read(path: Path, *, prefix: str = "", repeats: float = 1.0, **values: Any) -> list[Item]:
    """What the format of these settings reads at a path."""
    settings = settings_of(path, **values)
    chosen = format_of(settings.format)
    listing = chosen.files_at(path, settings)
    return list(chosen.read_samples(Source(listing.root, with_values(settings, {"repeats": repeats}), listing, prefix)))


def samples_in(items: Iterable[Item]) -> dict[str, Sample]:
    return {item.key: item for item in items if isinstance(item, Sample)}


def captions_of(items: Iterable[Item]) -> dict[str, tuple[str, ...]]:
    return {key: sample.captions for key, sample in samples_in(items).items()}


def skipped_of(items: Iterable[Item], *, is_wanted: bool | None = None) -> dict[str, str]:
    """Paths and reasons of what makes no sample; is_wanted: as the recipe asks, or not."""
    skipped = (item for item in items if isinstance(item, Skipped))
    return {item.path: item.reason for item in skipped if is_wanted in (None, item.is_wanted)}


def notes_of(items: Iterable[Item]) -> list[tuple[str, str]]:
    return [(item.path, item.reason) for item in items if isinstance(item, Noted)]
