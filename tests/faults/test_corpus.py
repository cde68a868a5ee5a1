"""Every hostile file has the result that its entry states: it is read, skipped by name, or refused with a message, in
bounded time and memory, and nothing else is changed. `support/hostile/` makes the files; a row of faults.tsv is a test
here."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint.errors import CheckpointError
from mezzotint.run_folder import RunFolder
from mezzotint.settings.reference import error_codes
from support.hostile import judge
from support.hostile.corpus import ENTRIES
from support.hostile.entry import Entry, file, write
from support.hostile.trial import problems

pytestmark = pytest.mark.exhaustive

CLASSES = {"ok", "S", "E2"}


def of(*rows: str) -> pytest.MarkDecorator:
    """The entries of some rows of faults.tsv; slow ones run only under `make faults`."""
    chosen = [entry for entry in ENTRIES if entry.row in rows]
    assert chosen
    return pytest.mark.parametrize(
        "entry", [pytest.param(one, id=one.id, marks=() if one.is_quick else pytest.mark.slow) for one in chosen]
    )


@pytest.fixture
def tried(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[Entry], None]:
    """Tries an entry."""

    def run(entry: Entry) -> None:
        if entry.reader == "pickle" and entry.is_quick:
            request.getfixturevalue("pickles_read_here")  # the slow ones are read by a process of its own
        assert problems(entry, tmp_path) == [], f"{entry.fault}: {entry.expected}"

    return run


@pytest.mark.faults
@of("F7", "F10")
def test_images_and_clips_have_the_expected_outcome(entry: Entry, tried: Callable[[Entry], None]) -> None:
    tried(entry)


@pytest.mark.faults
@of("F8")
def test_captions_have_the_expected_outcome(entry: Entry, tried: Callable[[Entry], None]) -> None:
    tried(entry)


@pytest.mark.faults
@of("F9")
def test_file_names_have_the_expected_outcome(entry: Entry, tried: Callable[[Entry], None]) -> None:
    tried(entry)


@pytest.mark.faults
@of("H1")
def test_recipes_and_lists_have_the_expected_outcome(entry: Entry, tried: Callable[[Entry], None]) -> None:
    tried(entry)


@pytest.mark.faults
@of("I1")
def test_weights_checkpoints_and_caches_have_the_expected_outcome(entry: Entry, tried: Callable[[Entry], None]) -> None:
    tried(entry)


@pytest.mark.faults
@of("I2")
def test_archives_have_the_expected_outcome(entry: Entry, tried: Callable[[Entry], None]) -> None:
    tried(entry)


@pytest.mark.faults
@of("E7")
def test_code_in_a_state_file_never_runs(entry: Entry, tried: Callable[[Entry], None]) -> None:
    tried(entry)


@pytest.mark.faults
@of("I7")
def test_code_in_a_model_folder_never_runs(entry: Entry, tried: Callable[[Entry], None]) -> None:
    tried(entry)


@pytest.mark.parametrize(
    "text", ["[" * 4000, '{"pid": 1}', "null", "\x1b[31m", ""], ids=["deep", "part", "null", "codes", "empty"]
)
def test_malformed_lock_still_counts_as_held(text: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run").open()
    with folder.lock():
        (folder.path / "lock").write_text(text)
        with pytest.raises(CheckpointError, match="another run is writing here"):
            RunFolder(folder.path).lock()


def test_manifest_lists_all_entries() -> None:
    assert len(ENTRIES) > 500
    assert [id_ for id_, count in Counter(entry.id for entry in ENTRIES).items() if count > 1] == []
    for entry in ENTRIES:
        assert re.fullmatch(r"[\w-]+(\.\w+|;\d+)?", entry.id), entry.id
        assert entry.expected in CLASSES, entry.id
        assert (entry.expected == "E2") == bool(entry.code), entry.id
        assert not entry.code or any(code.startswith(entry.code) for code in error_codes()), entry.id
        assert entry.expected != "S" or entry.names, entry.id
        assert entry.fault, entry.id


def test_corpus_is_deterministic(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write(tmp_path / name, [entry for entry in ENTRIES if entry.reader in ("tar", "index", "recipe", "caption")])
    lines = (tmp_path / "first" / "manifest.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["id"] == next(e.id for e in ENTRIES if e.reader == "caption")
    first, second = ({k.partition(n)[2]: v for k, v in judge.tree(tmp_path / n).items()} for n in ("first", "second"))
    assert len(first) > 200
    assert first == second


def test_monitor_notices_forbidden_actions(tmp_path: Path) -> None:
    """The judge is judged: each thing that no reader may do, done on purpose."""
    (tmp_path / "inside").mkdir()
    with judge.looking_on(tmp_path / "inside") as seen:
        (tmp_path / "inside" / "a").write_text("")
        assert seen == []
        (tmp_path / "b").write_text("")
        (tmp_path / "b").unlink()
    assert [one.partition(" ")[0] for one in seen] == ["open", "os.remove"]
    (tmp_path / "c").write_text("")
    assert len(seen) == 2, "the monitor is off afterwards"
    with pytest.raises(judge.Hangs, match="computing"), judge.limited(seconds=0.05, megabytes=300):
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)
    with pytest.raises(MemoryError), judge.limited(seconds=5, megabytes=100):
        bytes(300 << 20)
    before = judge.tree(tmp_path)
    (tmp_path / "c").write_text("other")
    assert judge.tree(tmp_path) != before


@pytest.mark.parametrize(
    ("expected", "content", "words"),
    [
        ("ok", b"", "skipped"),
        ("S", b"no image", "skipped is"),
        ("E2", b"no image", "it was read, and E1201 is expected"),
    ],
)
def test_entry_with_another_outcome_fails(expected: str, content: bytes, words: str, tmp_path: Path) -> None:
    entry = next(entry for entry in ENTRIES if entry.id == "image-empty")
    facts = {name: getattr(entry, name) for name in Entry.__slots__} | {"expected": expected, "code": "E1201"}

    def make(folder: Path) -> None:
        entry.make(folder)
        file("x.png", content)(folder)

    wrong = Entry(**facts | {"make": make, "says": "another reason" if expected == "S" else ""})
    assert words in "".join(problems(wrong, tmp_path))
