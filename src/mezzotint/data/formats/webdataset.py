"""The format `webdataset`: images and captions in tar shards, grouped by key, read in place."""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.data.files import remote
from mezzotint.data.files.listing import Listing, Unusable, is_remote
from mezzotint.data.files.tar_members import Member
from mezzotint.data.formats.base import Format, Item, Noted, Skipped, Source
from mezzotint.data.formats.shared.captions import MAX_BYTES, captions_in, with_captions
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import format_names
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import Sample

SUFFIXES = frozenset({".tar"})

_IMAGES = frozenset(ending.removeprefix(".") for ending in decoding.SUFFIXES)
_MASKS = frozenset(f"mask.{ending}" for ending in _IMAGES)
_TEXTS = ("txt", "caption", "cls")
_DEFAULT_COLUMN = "text"
_MAX_JSON = 16 << 20
_MAX_HEADER = 1 << 20
"""Maximum size of the header of one member, with its long name, extended attributes and sparse map."""
_RANGE = re.compile(r"\{([^{}]*)\}")
_SPAN = re.compile(r"(\d+)\.\.(\d+)")
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"\x28\xb5": "zstd"}
_MAX_SHARDS = 1_000_000


# --- shards -----------------------------------------------------------------------------------------------------------


def list_files(path: Path, _settings: DataSettings) -> Listing:
    """The shards below a folder, or those that a path names: one, or many with braces. Raises DatasetError E1201, E1210
    without a shard, E1281 for commands and invalid braces."""
    if str(path).lower().startswith("pipe:"):
        raise DatasetError(f"{path}: commands are not supported; name the shards, local or as s3://…", code="E1281")
    if path.suffix == ".tar" or "{" in str(path):
        return _named_shards(path)
    listing = remote.files_below(path, SUFFIXES)
    if not listing.names:
        packed = sum(count for ending, count in listing.unknown.items() if ending in (".gz", ".tgz", ".zst", ".xz"))
        hint = f"; decompress the {packed} compressed files to .tar" if packed else ""
        raise DatasetError(f"{listing.root}: no .tar file at any depth{hint}; add shards", code="E1210")
    return listing


def _named_shards(path: Path) -> Listing:
    if is_remote(path):
        remote.open_file_system(path)  # rejects a URL with credentials before a message repeats it
        addresses = sorted(set(expand_braces(os.fspath(path))), key=os.fsencode)
        base = os.path.commonpath([os.path.dirname(url) for url in addresses])
        return remote.of_files(Path(base), [os.path.relpath(url, base) for url in addresses])
    paths = [Path(name).expanduser().absolute() for name in expand_braces(os.fspath(path))]
    missing = [str(shard) for shard in paths if not shard.is_file()]
    if missing:
        raise DatasetError(
            f"{path}: no such file: {format_names(missing, 5)}; set data.path to shards on local disks",
            code="E1201",
        )
    root = Path(os.path.commonpath([shard.parent for shard in paths])).resolve()
    names = {os.fspath(shard.parent.resolve().relative_to(root) / shard.name) for shard in paths}
    return Listing.of_files(root, sorted(names, key=os.fsencode))


def expand_braces(text: str) -> list[str]:
    """`a{00..02}b` → a00b, a01b, a02b; `{x,y}` → x, y; several braces in all combinations. Raises DatasetError
    E1281."""
    parts = _RANGE.split(text)
    choices = [[part] if number % 2 == 0 else _choices(part, text) for number, part in enumerate(parts)]
    if any(sign in part for part in parts[::2] for sign in "{}") or prod(map(len, choices)) > _MAX_SHARDS:
        raise _range_error(text)
    return ["".join(choice) for choice in product(*choices)]


def _choices(inside: str, text: str) -> list[str]:
    span = _SPAN.fullmatch(inside)
    if span is None and "," in inside:
        return inside.split(",")
    if span is None or not (first := int(span[1])) <= (last := int(span[2])) < first + _MAX_SHARDS:
        raise _range_error(text)
    width = len(span[1]) if span[1].startswith("0") or len(span[1]) == len(span[2]) else 0
    return [f"{number:0{width}d}" for number in range(first, last + 1)]


def _range_error(text: str) -> DatasetError:
    syntax = "write a range of shards as {000..011}, from the smaller number, or as {train,extra}"
    return DatasetError(f"{text}: {syntax}", code="E1281")


# --- members of a shard -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class MembersOfKey:
    """Members of one key. fields: by extension, lower case, without its first dot. fault: why they are not a sample."""

    fields: dict[str, Member] = field(default_factory=dict)
    fault: str = ""


def group_members(path: Path) -> tuple[dict[str, MembersOfKey], int]:
    """The members of a shard by key, in the order of their first member, and the number of members without key: their
    name starts with a dot or has none. A key is a member's path up to the first dot of its last part. Raises
    DatasetError E1280 for a file that is not a tar archive, or is compressed, damaged or truncated."""
    groups: dict[str, MembersOfKey] = {}
    others = 0
    for name, member in _members(path):
        folder, slash, last = name.removeprefix("./").rpartition("/")
        stem, _, ending = last.partition(".")
        if not stem or not ending:
            others += 1
            continue
        group, ending = groups.setdefault(folder + slash + stem, MembersOfKey()), ending.lower()
        if member is None:
            group.fault = f"{last!a} is a link or a device, not a file"
        elif ending in group.fields:
            group.fault = f"{last!a} is twice in the shard, which is ambiguous"
        else:
            group.fields[ending] = member
    return groups, others


class _HeaderReader(io.FileIO):
    """A shard of which at most `bytes_left` are read: tarfile reads long names, extended attributes and sparse maps
    into memory, without checking the size in their header."""

    bytes_left = _MAX_HEADER

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= self.bytes_left:
            raise tarfile.ReadError(f"a header of more than {_MAX_HEADER:,} bytes")
        self.bytes_left -= size
        return super().read(size)


def _members(path: Path) -> Iterator[tuple[str, Member | None]]:
    """The name and location of every member; None for one that is not a regular file. Reads only headers."""
    last = ""
    try:
        with _HeaderReader(path) as file, tarfile.open(
            fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape"
        ) as archive:  # fmt: skip
            for info in archive:
                last, file.bytes_left = info.name, _MAX_HEADER
                if info.size < 0 or archive.offset <= info.offset:  # the next header would be this or an earlier one
                    raise tarfile.ReadError("a size below 0")
                if not info.isdir():
                    is_plain = info.isreg() and not info.issparse()
                    yield last, Member(path, last, info.offset_data, info.size) if is_plain else None
            file.seek(archive.offset)
            rest = file.read(tarfile.BLOCKSIZE)
            if rest.strip(b"\0") or 0 < len(rest) < tarfile.BLOCKSIZE:
                raise tarfile.ReadError(f"no header at byte {archive.offset:,}")
    except (tarfile.TarError, ValueError, IndexError, OverflowError, RecursionError) as error:
        raise DatasetError(f"{path}: {_unreadable_reason(path, last, error)}", code="E1280") from error
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror or error}", code="E1280") from error


def _unreadable_reason(path: Path, last: str, error: Exception) -> str:
    with open(path, "rb") as file:
        head = file.read(2)
    if not head:
        return "is empty; download the shard again, or remove it"
    if head in _COMPRESSED:
        return f"is compressed ({_COMPRESSED[head]}), so members cannot be read in place; decompress it to .tar"
    after = f" after its member {last!a}" if last else ""
    return f"is a truncated or damaged tar archive{after} ({error}); download the shard again, or remove it"


# --- samples ----------------------------------------------------------------------------------------------------------


def read_samples(source: Source) -> Iterator[Item]:
    """One sample for each key of each shard that has an image, in order, or the reason why it is skipped.

    A sample's key is `SHARD/IMAGE`. Its caption is the column `columns.caption` of its .json, or else its .txt,
    .caption or .cls. Raises DatasetError E1280 for a shard that cannot be read, E1203 (`captions.with_captions`), E1212
    if no .json has the column."""
    reader = _ShardReader(source)
    return with_captions(reader.items(), source, reader.without_captions)


class _ShardReader:
    """Reads the shards of a source, and collects the columns of their .json files."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._column = source.settings.columns.caption
        self._has_column = False
        self._columns: set[str] = set()

    def items(self) -> Iterator[Item]:
        """The samples of all shards, in order, and reasons for skipped ones. Raises DatasetError E1212 if the caption
        column is set and no sample has it."""
        prefix = self._source.prefix
        for path, reason in self._source.listing.refused:
            yield Skipped(prefix + path, reason)
        for name in self._source.listing.names:
            groups, others = group_members(self._source.file(name))
            if others:
                yield Noted(prefix + name, f"{others} members without a key are ignored")
            for key, group in groups.items():
                try:
                    yield self._of_group(name, group)
                except Unusable as error:
                    yield Skipped(f"{prefix}{name}/{key}", str(error))
        if self._columns and not self._has_column and self._column != _DEFAULT_COLUMN:
            names = ", ".join(sorted(map(repr, self._columns))[:30])
            raise DatasetError(
                f"{self._source.root}: no .json has {self._column!r}; they have {names}; set data.columns.caption",
                code="E1212",
            )

    def without_captions(self, names: Sequence[str]) -> str:
        return (
            f"no caption for {format_names(names, 10)}: a .txt of the same key, or a .json with {self._column!r} "
            "(data.columns.caption); or set data.captions.missing=empty (or skip)"
        )

    def _of_group(self, shard: str, group: MembersOfKey) -> Item:
        prefix = f"{self._source.prefix}{shard}/"
        if group.fault:
            raise Unusable(group.fault)
        images = [member for ending, member in group.fields.items() if ending in _IMAGES]
        if not images:
            first = next(iter(group.fields.values()))
            return Skipped(prefix + first.name, "no image with its key", is_wanted=True)
        if len(images) > 1:
            names = " and ".join(ascii(member.name) for member in images)
            raise Unusable(f"{names} are images with the same key, which is ambiguous")
        captions, image = self._captions(group), images[0]
        key = prefix + image.name
        if self._source.condition:
            member = self._condition(group)
            if member is None:
                return Skipped(key, f"no {self._source.condition} image with its key", is_wanted=True)
            image = member
        path = self._source.root / shard / image.path.name
        return Sample(key, path, captions, repeats=self._source.repeats, overrides=self._mask(shard, group))

    def _condition(self, group: MembersOfKey) -> Member | None:
        """The member `KEY.NAME.png` of the condition that is read."""
        endings = {f"{self._source.condition.lower()}.{ending}" for ending in _IMAGES}
        members = [member for ending, member in group.fields.items() if ending in endings]
        if len(members) > 1:
            raise Unusable(f"{members[0].name!a} and {members[1].name!a} are condition images with the same key")
        return members[0] if members else None

    def _mask(self, shard: str, group: MembersOfKey) -> tuple[tuple[str, str], ...]:
        """The override `mask` for a member `KEY.mask.png`, if masks are used."""
        if self._source.settings.mask.source != "files":
            return ()
        masks = [member for ending, member in group.fields.items() if ending in _MASKS]
        if len(masks) > 1:
            raise Unusable(f"{masks[0].name!a} and {masks[1].name!a} are masks with the same key")
        return tuple(("mask", os.fspath(self._source.root / shard / member.path.name)) for member in masks)

    def _captions(self, group: MembersOfKey) -> tuple[str, ...]:
        settings = self._source.settings.captions
        if "json" in group.fields:
            value = _object(group.fields["json"])
            self._columns.update(list(value)[:100] if len(self._columns) < 100 else ())
            if value.get(self._column) is not None:
                self._has_column = True
                return captions_in(value[self._column], settings)
        text = next((group.fields[ending] for ending in _TEXTS if ending in group.fields), None)
        return () if text is None else captions_in(_text(text, MAX_BYTES), settings)


def _object(member: Member) -> dict[str, Any]:
    try:
        value = outside.parse_json(_text(member, _MAX_JSON))
    except ValueError as error:
        raise Unusable(f"{member.name!a}: not JSON: {getattr(error, 'msg', str(error))}") from error
    if not isinstance(value, dict):
        raise Unusable(f"{member.name!a}: not a JSON object")
    return value


def _text(member: Member, most: int) -> str:
    if member.size > most:
        raise Unusable(f"{member.name!a}: more than {most:,} bytes")
    try:
        with member.open() as file:
            return file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unusable(f"{member.name!a}: not UTF-8 at byte {error.start}; save it as UTF-8") from error


FORMAT = Format(read_samples=read_samples, suffixes=SUFFIXES, list_files=list_files, reads_remote=True)
