"""Results kept in `memo.sqlite` come back as they were, or not at all: after damage, after kills, beside others."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from mezzotint.data.files import memo
from mezzotint.data.files.memo import Memo

LARGE = os.urandom(5 << 19)  # three parts


@pytest.fixture
def kept(tmp_path: Path) -> Memo:
    result = Memo(tmp_path)
    result.put("report", ("a", 1), LARGE)
    result.put("number", "b", b"7")
    return result


def test_a_result_comes_back_by_what_it_depends_on(kept: Memo) -> None:
    assert kept.get("report", ("a", 1)) == LARGE
    assert kept.get("number", "b") == b"7"
    assert kept.get_json("number", "b") == 7
    assert kept.get("report", ("a", 2)) is None
    assert kept.get("number", ("a", 1)) is None
    assert kept.get_json("number", "c") is None
    kept.put("number", "b", b"{")
    assert kept.get("number", "b") == b"{"
    assert kept.get_json("number", "b") is None
    assert os.listdir(kept.path.parent) == ["memo.sqlite"]


def test_a_file_is_kept_from_its_beginning(tmp_path: Path) -> None:
    file = io.BytesIO(LARGE)
    file.seek(9)
    Memo(tmp_path).put("report", 1, file)
    out = io.BytesIO(b"before")
    out.seek(6)
    assert Memo(tmp_path).copy_to(out, "report", 1)
    assert out.getvalue() == b"before" + LARGE
    Memo(tmp_path).put("empty", 1, b"")
    assert Memo(tmp_path).get("empty", 1) == b""


def test_the_newest_of_a_kind_are_kept(kept: Memo) -> None:
    for key in (1, 2, 3, 1, 4):
        kept.put("complete", key, b"x", keep=3)
    assert [key for key in range(6) if kept.get("complete", key)] == [1, 3, 4]
    assert kept.get("number", "b") == b"7", "others stay"
    kept.put("report", 1, LARGE[::-1], keep=1)
    size = kept.path.stat().st_size
    for key in range(5):
        kept.put("report", key, LARGE, keep=1)
    assert kept.path.stat().st_size == size, "pages are used again"


def test_bytes_that_changed_anywhere_are_no_result(kept: Memo, capsys: pytest.CaptureFixture[str]) -> None:
    """Every page is damaged in turn, in several ways."""
    whole = kept.path.read_bytes()
    drawn = random.Random(1)
    for start in range(0, len(whole), 4096 * 13):
        content = bytearray(whole)
        match start // 4096 % 4:
            case 0:
                content[start + drawn.randrange(4096)] ^= 1 << drawn.randrange(8)
            case 1:
                content[start : start + 4096] = drawn.randbytes(4096)
            case 2:
                content[start : start + 4096] = bytes(4096)
            case _:
                del content[start:]
        kept.path.write_bytes(content)
        assert kept.get("report", ("a", 1)) in (LARGE, None)
        assert kept.get("number", "b") in (b"7", None)
        kept.put("number", "b", b"8")
        kept.put("report", ("a", 1), LARGE)
        kept.put("number", "b", b"8")
        assert (kept.get("number", "b"), kept.get("report", ("a", 1))) == (b"8", LARGE)
    said = set(capsys.readouterr().err.splitlines())
    assert said
    assert all(line.startswith(f"{kept.path}: was damaged (") for line in said)


def test_a_part_that_belongs_elsewhere_is_no_result(kept: Memo) -> None:
    kept.put("report", 2, LARGE[::-1])
    with sqlite3.connect(kept.path) as database:
        database.execute("UPDATE parts SET value = (SELECT value FROM parts WHERE kind = 'number' AND part = 1)")
    assert kept.get("report", ("a", 1)) is None
    with sqlite3.connect(kept.path) as database:
        database.execute("UPDATE parts SET value = 7 WHERE part = 1")
        database.execute("UPDATE parts SET part = 9 WHERE part = 2")
    assert kept.get("number", "b") is None
    assert kept.get("report", 2) is None


def _of_others(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE theirs (x)")
        database.execute("INSERT INTO theirs VALUES (1)")


def _with_a_trigger(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TRIGGER t AFTER INSERT ON parts BEGIN DELETE FROM parts; END")


def _with_a_log(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = WAL")


def _of_another_version(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")


def _with_a_schema_that_is_no_text(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"parts", b"p\xff\xfets"))


def _of_an_unknown_format(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[47] = 9
    path.write_bytes(content)


def _with_a_journal_that_names_another(path: Path) -> None:
    name = os.fspath(path.parent / "precious").encode()
    numbers = len(name).to_bytes(4, "big") + (sum(name) % 2**32).to_bytes(4, "big")
    (path.parent / "precious").write_text("mine")
    Path(f"{path}-journal").write_bytes(bytes(600) + name + numbers + bytes.fromhex("d9d505f920a163d7"))


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"no database" * 1000),
        lambda path: os.truncate(path, 50),
        lambda path: (path.unlink(), _of_others(path)),
        _with_a_trigger,
        _with_a_log,
        _of_another_version,
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: os.mkfifo(f"{path}-journal"),
        lambda path: os.mkfifo(f"{path}-wal"),
        _with_a_journal_that_names_another,
        _with_a_schema_that_is_no_text,
        _of_an_unknown_format,
        lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    ],
    ids=[
        "noise",
        "cut",
        "others",
        "trigger",
        "log",
        "version",
        "pipe",
        "journal",
        "wal",
        "super",
        "schema",
        "format",
        "device",
    ],
)
def test_what_is_none_of_ours_is_reported_and_begun_anew(
    kept: Memo, change: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(change)
    change(kept.path)
    if change is not _with_a_trigger:  # which is of no effect where nothing is written
        assert kept.get("number", "b") is None
    assert capsys.readouterr().err == ""
    kept.put("number", "c", b"9")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{kept.path}: was damaged (")
    assert (kept.get("number", "b"), kept.get("number", "c")) == (None, b"9")
    assert set(os.listdir(kept.path.parent)) <= {"memo.sqlite", "precious"}


def test_where_nothing_can_be_kept_nothing_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Memo(tmp_path / "gone").put("number", 1, b"7")
    assert os.listdir(tmp_path) == []
    (tmp_path / "memo.sqlite").mkdir()
    Memo(tmp_path).put("number", 1, b"7")
    assert Memo(tmp_path).get("number", 1) is None
    assert capsys.readouterr().err == ""


def test_a_folder_that_is_read_only_is_read(kept: Memo, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.path.chmod(0o444)
    kept.path.parent.chmod(0o555)
    try:
        if os.access(kept.path, os.W_OK):  # root may write everywhere
            connect = sqlite3.connect
            monkeypatch.setattr(
                sqlite3, "connect", lambda where, **options: connect(f"{where.split('?')[0]}?mode=ro", **options)
            )
        assert kept.get("report", ("a", 1)) == LARGE
        kept.put("number", "b", b"8")
        assert kept.get("number", "b") == b"7"
    finally:
        kept.path.parent.chmod(0o755)


def test_a_file_that_another_holds_is_as_if_it_were_not_there(kept: Memo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "_BUSY_SECONDS", 0.05)
    other = sqlite3.connect(kept.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert kept.get("number", "b") is None
    kept.put("number", "b", b"8")
    other.execute("ROLLBACK")
    other.close()
    assert kept.get("number", "b") == b"7"


def _put_for_ever(folder: Path) -> None:
    for number in range(1_000_000):
        Memo(folder).put("pair", "one", bytes([number % 256]) * (3 << 20), keep=2)


@pytest.mark.faults
def test_a_kill_at_any_moment_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    drawn = random.Random(2)
    Memo(tmp_path).put("number", "b", b"7")
    for _ in range(8):
        child = multiprocessing.get_context("fork").Process(target=_put_for_ever, args=(tmp_path,))
        child.start()
        while Memo(tmp_path).get("pair", "one") is None:
            time.sleep(0.005)
        time.sleep(drawn.random() / 10)
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        content = Memo(tmp_path).get("pair", "one")
        assert content is not None
        assert content == content[:1] * (3 << 20)
        assert Memo(tmp_path).get("number", "b") == b"7"
    Memo(tmp_path).put("number", "b", b"8")
    assert sorted(os.listdir(tmp_path)) == ["memo.sqlite"]


@pytest.mark.faults
def test_any_half_of_what_was_written_is_undone_by_its_journal(tmp_path: Path) -> None:
    """As a power loss leaves it: the journal is synced before the pages are written, in any order."""
    kept = Memo(tmp_path / "now")
    kept.path.parent.mkdir()
    kept.put("number", "b", b"7")
    before = kept.path.read_bytes()
    database = sqlite3.connect(kept.path, isolation_level=None)
    database.execute("PRAGMA cache_size = 1")
    database.execute("BEGIN IMMEDIATE")
    for number in range(40):  # spills into the file before it is committed
        database.execute("INSERT INTO parts VALUES ('number', ?, 1, ?)", (bytes([number]), os.urandom(3000)))
    after, journal = kept.path.read_bytes(), Path(f"{kept.path}-journal").read_bytes()
    assert len(after) > len(before)
    for number in range(20):
        drawn = random.Random(number)
        pages = [drawn.choice([before, after])[at : at + 4096] for at in range(0, len(after), 4096)]
        place = Memo(tmp_path / str(number))
        place.path.parent.mkdir()
        place.path.write_bytes(b"".join(page.ljust(4096, b"\0") for page in pages))
        Path(f"{place.path}-journal").write_bytes(journal)
        assert place.get("number", "b") == b"7"
        assert place.path.read_bytes() == before
    database.close()
    shutil.rmtree(tmp_path / "now")


def _put_some(folder: Path, first: int) -> None:
    for number in range(first, first + 20):
        Memo(folder).put("number", number, bytes([number]))


@pytest.mark.distributed
def test_processes_that_write_at_once_keep_all(tmp_path: Path) -> None:
    children = [
        multiprocessing.get_context("fork").Process(target=_put_some, args=(tmp_path, 20 * n)) for n in range(3)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [Memo(tmp_path).get("number", number) for number in range(60)] == [bytes([number]) for number in range(60)]
