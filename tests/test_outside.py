"""Small untrusted files: only regular files of limited size are read, and reading never blocks."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint import outside
from mezzotint.assets import MODELS
from mezzotint.data.cache.entries import TextCache
from mezzotint.data.files import columns
from mezzotint.errors import CheckpointError, MezzotintError
from mezzotint.families.sd import Family
from mezzotint.outside import NotRegularFile
from mezzotint.reports.run_report import write_run_report
from mezzotint.run_folder import CHECKPOINT_SCHEMA, RunFolder
from mezzotint.sampling import prompt_file
from mezzotint.settings.reading.read import read as read_recipe
from mezzotint.settings.sections.data import DataSettings
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.tasks.sample.plan import resolve_source
from mezzotint.tasks.train.resume import choose
from mezzotint.training.callbacks import metrics_log
from mezzotint.training.checkpoints import state
from mezzotint.weights.files import tensor_files
from mezzotint.weights.folder.model_folder import open_folder, require_plain
from support.model_export import load_model

IRREGULAR: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
}


@pytest.fixture(params=IRREGULAR)
def put(request: pytest.FixtureRequest) -> Callable[[Path], Path]:
    """Creates a pipe without a writer, an endless device or a folder in place of a small file."""

    def put_there(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        IRREGULAR[request.param](path)
        return path

    return put_there


def test_only_regular_files_are_read(put: Callable[[Path], Path], tmp_path: Path) -> None:
    path = put(tmp_path / "x.json")
    for read in (outside.open_plain, outside.read_bytes, outside.read_text, outside.read_json, outside.read_lines):
        with pytest.raises(NotRegularFile, match="not a regular file"):
            read(path)


def test_irregular_configurations_indexes_and_prompts_are_refused(put: Callable[[Path], Path], tmp_path: Path) -> None:
    put(tmp_path / "model" / "model_index.json")
    put(tmp_path / "weights" / "model.safetensors.index.json")
    put(tmp_path / "prompts.txt")
    for read, code in (
        (lambda: open_folder(tmp_path / "model"), "E1409"),
        (lambda: tensor_files.shards(tmp_path / "weights" / "model.safetensors.index.json"), "E1401"),
        (lambda: prompt_file.read(tmp_path / "prompts.txt"), "E1073"),
    ):
        with pytest.raises(MezzotintError) as caught:
            read()
        assert caught.value.code == code
        assert "regular file" in caught.value.message


@pytest.mark.parametrize(("kind", "word"), [("pipe", "a pipe"), ("endless", "a device")])
def test_irregular_file_is_not_reported_as_missing(
    kind: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put_there = IRREGULAR[kind]
    put_there(Path("ff.yaml"))
    for name in ("index", "weights"):
        shutil.copytree(MODELS / "tiny-sd", name)
    Path("index", "model_index.json").unlink()
    put_there(Path("index", "model_index.json"))
    put_there(Path("weights", "unet", "diffusion_pytorch_model.safetensors"))
    readers: dict[str, Callable[[], object]] = {
        "E1011": lambda: read_recipe("ff.yaml"),
        "E1011 ": lambda: resolve_source("ff.yaml", ()),
        "E1409": lambda: load_model(Family, ModelSettings(path=Path("index"))),
        "E1409 ": lambda: place_and_load("index"),
        "E1406": lambda: load_model(Family, ModelSettings(path=Path("ff.yaml"))),
        "E1401": lambda: load_model(Family, ModelSettings(path=Path("weights"))),
    }
    for code, reader in readers.items():
        with pytest.raises(MezzotintError, match=f"it is {word}, not a regular file") as caught:
            reader()
        assert caught.value.code == code.strip()
    assert (
        outside.describe_file_kind(tmp_path)
        == outside.describe_file_kind(tmp_path / "none")
        == outside.describe_file_kind(Path("x" * 300))
        == ""
    )
    assert outside.describe_file_kind(tmp_path / "index" / "unet" / "config.json") == ""


def place_and_load(word: str) -> None:
    place = resolve_source(word, ())
    assert place.kind == "model", "it has a model_index.json, of a kind"
    load_model(Family, ModelSettings(path=place.path))


def test_cache_with_irregular_files_is_ignored(put: Callable[[Path], Path], tmp_path: Path) -> None:
    put(tmp_path / "catalogue" / "manifest.json")
    with pytest.raises(columns.DamagedColumns, match="regular file"):
        columns.read(tmp_path / "catalogue")
    settings = DataSettings.model_validate({"path": [tmp_path]})
    cache = TextCache(tmp_path, settings, identity="an encoder", compute="fp32")
    put(cache.folder / "layout.json")
    cache.refresh()
    assert cache.layout is None


@pytest.mark.parametrize("name", ["manifest.json", "state.json"])
def test_checkpoint_with_irregular_files_is_skipped(name: str, put: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run").open()
    checkpoint = folder.checkpoints / "step-00000002"
    checkpoint.mkdir()
    listing = {"state.json": {"bytes": 2, "sha256": "0"}}
    (checkpoint / "manifest.json").write_text(
        json.dumps({"schema": CHECKPOINT_SCHEMA, "step": 2, "files": listing, "tensors": {}})
    )
    (checkpoint / name).unlink(missing_ok=True)
    put(checkpoint / name)
    assert state.find_damage(checkpoint) is not None
    with pytest.raises(MezzotintError, match=name) as caught:
        choose("auto", folder, "mezzotint train x")
    assert caught.value.code == "E1506"


def test_metrics_are_read_only_from_regular_files(put: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run").open()
    put(folder.metrics)
    metrics_log.truncate(folder, 0)  # an irregular file is left unchanged
    with pytest.raises(CheckpointError) as caught:
        write_run_report(folder)
    assert caught.value.code == "E1160"


def test_file_size_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(outside.SMALL + 1)
    with pytest.raises(NotRegularFile, match="larger than 4,000,000 bytes, with 4,000,001"):
        outside.read_json(path)
    assert len(outside.read_bytes(path, limit=outside.SMALL + 1)) == outside.SMALL + 1


def test_link_to_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text('{"a": 1}')
    (tmp_path / "link.json").symlink_to("real.json")
    assert outside.read_json(tmp_path / "link.json") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested more than 200 levels deep"),
        ('{"a": ' * 300 + "1" + "}" * 300, "nested more than 200 levels deep"),
        ('{"a": ' + "7" * 5000 + "}", "a number of 5,000 digits"),
        ('{"a": 0.' + "7" * 5000 + "}", "a number of 5,002 digits"),
        ("{", "Expecting"),
    ],
    ids=["lists", "objects", "whole", "fraction", "torn"],
)
def test_deep_huge_or_torn_json_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        outside.parse_json(text)


@pytest.mark.parametrize("value", [["[" * 500, '\\"' + "{" * 500], "1" * 900, [[[{}]] * 300], {"a": [1, 2.5, None]}])
def test_json_with_many_brackets_in_strings_is_read(value: Any) -> None:
    assert outside.parse_json(json.dumps(value)) == value


def test_torn_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert outside.read_lines(path) == []
    path.write_bytes(b'{"a": 1}\n{"a": \n[1]\n' + b"[" * 9999 + b'\n\xff\n{"a": 2}')
    assert outside.read_lines(path) == [{"a": 1}, {"a": 2}]


def test_tokenizer_folder_must_have_regular_files(put: Callable[[Path], Path], tmp_path: Path) -> None:
    place = put(tmp_path / "tokenizer" / "tokenizer_config.json")
    if place.is_dir():
        require_plain(tmp_path / "tokenizer")  # the library itself reports this
        return
    with pytest.raises(MezzotintError, match=r"tokenizer_config\.json: is not a regular file"):
        require_plain(tmp_path / "tokenizer")
