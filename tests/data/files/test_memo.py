"""Results in `memo.sqlite` are returned unchanged or not at all: after damage, after kills, with several writers."""

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
def memo_file(tmp_path: Path) -> Memo:
    result = Memo(tmp_path)
    result.put("report", ("a", 1), LARGE)
    result.put("number", "b", b"7")
    return result


def test_result_is_returned_only_for_its_key(memo_file: Memo) -> None:
    assert memo_file.get("report", ("a", 1)) == LARGE
    assert memo_file.get("number", "b") == b"7"
    assert memo_file.get_json("number", "b") == 7
    assert memo_file.get("report", ("a", 2)) is None
    assert memo_file.get("number", ("a", 1)) is None
    assert memo_file.get_json("number", "c") is None
    memo_file.put("number", "b", b"{")
    assert memo_file.get("number", "b") == b"{"
    assert memo_file.get_json("number", "b") is None
    assert os.listdir(memo_file.path.parent) == ["memo.sqlite"]


def test_file_is_stored_from_its_start(tmp_path: Path) -> None:
    file = io.BytesIO(LARGE)
    file.seek(9)
    Memo(tmp_path).put("report", 1, file)
    out = io.BytesIO(b"before")
    out.seek(6)
    assert Memo(tmp_path).copy_to(out, "report", 1)
    assert out.getvalue() == b"before" + LARGE
    Memo(tmp_path).put("empty", 1, b"")
    assert Memo(tmp_path).get("empty", 1) == b""


def test_newest_results_of_a_kind_are_kept(memo_file: Memo) -> None:
    for key in (1, 2, 3, 1, 4):
        memo_file.put("complete", key, b"x", keep=3)
    assert [key for key in range(6) if memo_file.get("complete", key)] == [1, 3, 4]
    assert memo_file.get("number", "b") == b"7", "others stay"
    memo_file.put("report", 1, LARGE[::-1], keep=1)
    size = memo_file.path.stat().st_size
    for key in range(5):
        memo_file.put("report", key, LARGE, keep=1)
    assert memo_file.path.stat().st_size == size, "pages are used again"


def test_damaged_bytes_are_never_returned(memo_file: Memo, capsys: pytest.CaptureFixture[str]) -> None:
    """Pages in all parts of the file are damaged in several ways."""
    whole = memo_file.path.read_bytes()
    rng = random.Random(1)
    for start in range(0, len(whole), 4096 * 53):
        content = bytearray(whole)
        match start // 4096 % 4:
            case 0:
                content[start + rng.randrange(4096)] ^= 1 << rng.randrange(8)
            case 1:
                content[start : start + 4096] = rng.randbytes(4096)
            case 2:
                content[start : start + 4096] = bytes(4096)
            case _:
                del content[start:]
        memo_file.path.write_bytes(content)
        assert memo_file.get("report", ("a", 1)) in (LARGE, None)
        assert memo_file.get("number", "b") in (b"7", None)
        memo_file.put("number", "b", b"8")
        memo_file.put("report", ("a", 1), LARGE)
        memo_file.put("number", "b", b"8")
        assert (memo_file.get("number", "b"), memo_file.get("report", ("a", 1))) == (b"8", LARGE)
    printed = set(capsys.readouterr().err.splitlines())
    assert printed
    assert all(line.startswith(f"{memo_file.path}: was damaged (") for line in printed)


def test_swapped_or_missing_parts_are_not_returned(memo_file: Memo) -> None:
    memo_file.put("report", 2, LARGE[::-1])
    with sqlite3.connect(memo_file.path) as database:
        database.execute("UPDATE parts SET value = (SELECT value FROM parts WHERE kind = 'number' AND part = 1)")
    assert memo_file.get("report", ("a", 1)) is None
    with sqlite3.connect(memo_file.path) as database:
        database.execute("UPDATE parts SET value = 7 WHERE part = 1")
        database.execute("UPDATE parts SET part = 9 WHERE part = 2")
    assert memo_file.get("number", "b") is None
    assert memo_file.get("report", 2) is None


def _database_of_another_program(path: Path) -> None:
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


def _with_schema_that_is_not_text(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"parts", b"p\xff\xfets"))


def _of_an_unknown_format(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[47] = 9
    path.write_bytes(content)


def _with_journal_of_another_file(path: Path) -> None:
    name = os.fspath(path.parent / "precious").encode()
    numbers = len(name).to_bytes(4, "big") + (sum(name) % 2**32).to_bytes(4, "big")
    (path.parent / "precious").write_text("mine")
    Path(f"{path}-journal").write_bytes(bytes(600) + name + numbers + bytes.fromhex("d9d505f920a163d7"))


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"no database" * 1000),
        lambda path: os.truncate(path, 50),
        lambda path: (path.unlink(), _database_of_another_program(path)),
        _with_a_trigger,
        _with_a_log,
        _of_another_version,
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: os.mkfifo(f"{path}-journal"),
        lambda path: os.mkfifo(f"{path}-wal"),
        _with_journal_of_another_file,
        _with_schema_that_is_not_text,
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
def test_foreign_or_damaged_file_is_reported_and_replaced(
    memo_file: Memo, change: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(change)
    change(memo_file.path)
    if change is not _with_a_trigger:  # has no effect on reading
        assert memo_file.get("number", "b") is None
    assert capsys.readouterr().err == ""
    memo_file.put("number", "c", b"9")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{memo_file.path}: was damaged (")
    assert (memo_file.get("number", "b"), memo_file.get("number", "c")) == (None, b"9")
    assert set(os.listdir(memo_file.path.parent)) <= {"memo.sqlite", "precious"}


def test_unwritable_location_is_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Memo(tmp_path / "gone").put("number", 1, b"7")
    assert os.listdir(tmp_path) == []
    (tmp_path / "memo.sqlite").mkdir()
    Memo(tmp_path).put("number", 1, b"7")
    assert Memo(tmp_path).get("number", 1) is None
    assert capsys.readouterr().err == ""


def test_read_only_folder_can_be_read(memo_file: Memo, monkeypatch: pytest.MonkeyPatch) -> None:
    memo_file.path.chmod(0o444)
    memo_file.path.parent.chmod(0o555)
    try:
        if os.access(memo_file.path, os.W_OK):  # root may write everywhere
            connect = sqlite3.connect
            monkeypatch.setattr(
                sqlite3, "connect", lambda where, **options: connect(f"{where.split('?')[0]}?mode=ro", **options)
            )
        assert memo_file.get("report", ("a", 1)) == LARGE
        memo_file.put("number", "b", b"8")
        assert memo_file.get("number", "b") == b"7"
    finally:
        memo_file.path.parent.chmod(0o755)


def test_locked_file_is_treated_as_absent(memo_file: Memo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "_BUSY_SECONDS", 0.05)
    other = sqlite3.connect(memo_file.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert memo_file.get("number", "b") is None
    memo_file.put("number", "b", b"8")
    other.execute("ROLLBACK")
    other.close()
    assert memo_file.get("number", "b") == b"7"


def _put_forever(folder: Path) -> None:
    for number in range(1_000_000):
        Memo(folder).put("pair", "one", bytes([number % 256]) * (3 << 20), keep=2)


@pytest.mark.faults
def test_kill_during_writing_leaves_old_or_new_result(tmp_path: Path) -> None:
    rng = random.Random(2)
    Memo(tmp_path).put("number", "b", b"7")
    for _ in range(3):
        child = multiprocessing.get_context("fork").Process(target=_put_forever, args=(tmp_path,))
        child.start()
        while Memo(tmp_path).get("pair", "one") is None:
            time.sleep(0.005)
        time.sleep(rng.random() / 20)
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        content = Memo(tmp_path).get("pair", "one")
        assert content is not None
        assert content == content[:1] * (3 << 20)
        assert Memo(tmp_path).get("number", "b") == b"7"
    Memo(tmp_path).put("number", "b", b"8")
    assert sorted(os.listdir(tmp_path)) == ["memo.sqlite"]


@pytest.mark.faults
def test_partial_write_is_rolled_back_by_the_journal(tmp_path: Path) -> None:
    """The state after a power loss: the journal is synced before the pages are written, in any order."""
    memo_file = Memo(tmp_path / "now")
    memo_file.path.parent.mkdir()
    memo_file.put("number", "b", b"7")
    before = memo_file.path.read_bytes()
    database = sqlite3.connect(memo_file.path, isolation_level=None)
    database.execute("PRAGMA cache_size = 1")
    database.execute("BEGIN IMMEDIATE")
    for number in range(40):  # spills into the file before it is committed
        database.execute("INSERT INTO parts VALUES ('number', ?, 1, ?)", (bytes([number]), os.urandom(3000)))
    after, journal = memo_file.path.read_bytes(), Path(f"{memo_file.path}-journal").read_bytes()
    assert len(after) > len(before)
    for number in range(8):
        rng = random.Random(number)
        pages = [rng.choice([before, after])[at : at + 4096] for at in range(0, len(after), 4096)]
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
def test_concurrent_writers_keep_all_results(tmp_path: Path) -> None:
    children = [
        multiprocessing.get_context("fork").Process(target=_put_some, args=(tmp_path, 20 * n)) for n in range(3)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [Memo(tmp_path).get("number", number) for number in range(60)] == [bytes([number]) for number in range(60)]
