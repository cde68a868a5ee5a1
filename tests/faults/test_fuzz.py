# ruff: noqa: E501 (a reader a line)
"""Mutated files of every reader: each is read, or refused with a message and a code; never another exception, a hang,
unbounded memory or a written file. A few of each in `make test`, thousands in `make faults`."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from mezzotint.data.files import columns
from mezzotint.data.files.memo import Memo
from mezzotint.data.media import decoding
from mezzotint.data.media.clip_files import decoder
from mezzotint.errors import MezzotintError
from mezzotint.reports import curves
from mezzotint.run_folder import RunFolder
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.reference import error_codes
from mezzotint.weights.files import learned_tokens
from support.hostile import judge, seeds, trainers
from support.hostile.entry import SEED, file
from support.hostile.images import clip
from support.hostile.mutate import mutated
from support.hostile.readers import IMAGE, Reader, both, listed, through
from support.hostile.runs import rows
from support.hostile.trial import DOORS, at_home

pytestmark = pytest.mark.exhaustive

FEW, MANY = 30, 1000
LIMITS = {"seconds": 2.0, "megabytes": 600}


def door(name: str) -> Callable[[Path], object]:
    return through(DOORS[name])


def _t5_json(folder: Path) -> None:
    seeds.tokenizer(folder)
    folder.joinpath("spiece.model").write_bytes(seeds.spiece())
    folder.joinpath("tokenizer_config.json").write_text('{"extra_ids": 3, "model_max_length": 77}')


def _catalogue(folder: Path) -> None:
    columns.write(folder / "index", {"a": np.arange(100), "b": np.zeros(0, np.int32)}, {"x": 1})


def _memo(folder: Path) -> None:
    memo = Memo(folder)
    assert memo.get("report", 1) in (bytes(9000), None)
    memo.put("report", 2, b"another")
    assert memo.get("report", 2) == b"another"


def _word(folder: Path) -> None:
    (folder / "word.safetensors").write_bytes(save({"fox": torch.ones(2, 8)}))


def _run(folder: Path) -> None:
    events = [{"event": "started", "time": "x"}, {"event": "exported", "step": 2}]
    (folder / "history.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5, "norm": 1.0}\n')
    (folder / "bad_steps.jsonl").write_text('{"step": 1, "samples": ["a"]}\n')


TABLE = '{"file_name": "a.png", "text": ["a fox", "red"]}\n{"file_name": "b.png", "text": "an owl"}\n'
READERS = {
    "tar": Reader(file("x.tar", seeds.shard()), ("x.tar",), listed("webdataset"), (b"ustar", b"17 path=/etc/a.png\n")),
    "safetensors": Reader(file("x.safetensors", seeds.weights()), ("x.safetensors",), door("weights"), (b'"F8_E4M3"', b"[-1]")),
    "index": Reader(both(file("a.safetensors", seeds.weights()), file("x.safetensors.index.json", '{"weight_map": {"a": "a.safetensors", "b": "a.safetensors"}}')), ("x.safetensors.index.json",), door("index")),
    "config": Reader(seeds.model, ("unet/config.json", "vae/config.json", "text_encoder/config.json", "model_index.json", "scheduler/scheduler_config.json"), door("config"), share=0.3),
    "recipe": Reader(file("recipe.yaml", seeds.RECIPE), ("recipe.yaml",), door("recipe"), (b"*c", b"!!map", b"? ", b"- ", b"\t", b"---\n")),
    "override": Reader(file("word", "data.captions={dropout: 0.1, missing: empty}"), ("word",), lambda folder: read_text("schema: 1", overrides=[(folder / "word").read_text("utf-8", "replace")]), (b"=", b"+=", b"[a, b]")),
    "parquet": Reader(file("t.parquet", seeds.parquet()), ("t.parquet",), listed("metadata"), share=0.5),
    "arrow": Reader(file("t.arrow", seeds.arrow()), ("t.arrow",), listed("metadata"), share=0.5),
    "jsonl": Reader(both(IMAGE, file("metadata.jsonl", TABLE)), ("metadata.jsonl",), listed("metadata")),
    "csv": Reader(both(IMAGE, file("metadata.csv", 'file_name,text\na.png,"a fox, red"\n')), ("metadata.csv",), listed("metadata"), (b'"', b";", b"\r")),
    "prompts-json": Reader(file("prompts.json", json.dumps(seeds.PROMPTS)), ("prompts.json",), door("prompts")),
    "prompts-text": Reader(file("prompts.txt", "a red fox --w 64 --h 64 --d 3 --n snow\n# note\nan owl --s 4\n"), ("prompts.txt",), door("prompts"), (b" --l ", b" --w ")),
    "cache-index": Reader(rows, ("rows-4x3-fp32/0123456789abcdef.index", "rows-4x3-fp32/0123456789abcdef.rows"), door("cache")),
    "cache-layout": Reader(file("layout.json", '{"identity": "x", "layout": {"channels": 8, "pixels": 8}}'), ("layout.json",), door("layout")),
    "memo": Reader(lambda folder: Memo(folder).put("report", 1, bytes(9000)), ("memo.sqlite",), _memo),
    "data-index": Reader(_catalogue, ("index/manifest.json", "index/a.npy"), lambda folder: columns.read(folder / "index")),
    "checkpoint": Reader(seeds.checkpoints, ("checkpoints/step-00000002/manifest.json", "checkpoints/step-00000002/state.json", "checkpoints/step-00000002/weights.safetensors"), door("checkpoint"), share=0.5),
    "sealed-state": Reader(seeds.checkpoints, ("checkpoints/step-00000002/state.json", "checkpoints/step-00000002/weights.safetensors"), lambda folder: (seeds.seal(folder / "checkpoints" / "step-00000002"), door("checkpoint")(folder)), share=0.5),
    "clip-tokenizer": Reader(seeds.tokenizer, ("vocab.json", "merges.txt", "tokenizer_config.json"), door("clip-tokenizer"), (b"<|endoftext|>", b"auto_map"), share=0.2),
    "t5-tokenizer": Reader(_t5_json, ("spiece.model", "tokenizer_config.json"), door("t5-tokenizer"), (b"extra_ids",), share=0.2),
    "word": Reader(_word, ("word.safetensors",), lambda folder: learned_tokens.read(folder / "word.safetensors", ["text_encoder"])),
    "run": Reader(_run, ("history.jsonl", "metrics.jsonl", "bad_steps.jsonl"), lambda folder: (door("run")(folder), curves.read_metrics(RunFolder(folder)))),
    "png": Reader(IMAGE, ("a.png",), lambda folder: decoding.probe(folder / "a.png", 10**6)),
    "jpeg": Reader(file("a.jpg", seeds.image_file("JPEG")), ("a.jpg",), lambda folder: decoding.probe(folder / "a.jpg", 10**6)),
    "webp": Reader(file("a.webp", seeds.image_file("WEBP")), ("a.webp",), lambda folder: decoding.probe(folder / "a.webp", 10**6)),
    "gif": Reader(file("a.gif", seeds.image_file("GIF", mode="P")), ("a.gif",), lambda folder: decoding.probe(folder / "a.gif", 10**6)),
    "tiff": Reader(file("a.tiff", seeds.image_file("TIFF")), ("a.tiff",), lambda folder: decoding.probe(folder / "a.tiff", 10**6)),
    "clip": Reader(lambda folder: file("a.mp4", clip())(folder), ("a.mp4",), lambda folder: decoder().probe(folder / "a.mp4", max_pixels=10**6), share=0.3),
} | {name: reader for trainer in trainers.modules() for name, reader in trainer.READERS.items()}  # fmt: skip


def fuzz(name: str, count: int, root: Path) -> None:
    """Reads the sound files once, then `count` times with one of them mutated."""
    reader, rng = READERS[name], random.Random(f"{SEED} {name}")
    sound, given, work = (root / one for one in ("sound", "given", "work"))
    for folder in (sound, work):
        folder.mkdir()
    reader.lay(sound)
    content = {one: (sound / one).read_bytes() for one in reader.files}
    shutil.copytree(sound, given)
    reader.read(given)
    for number in range(count):
        chosen = rng.choice(reader.files)
        body = mutated(content[chosen], rng, reader.words)
        shutil.rmtree(given)
        shutil.copytree(sound, given, copy_function=os.link)
        (given / chosen).unlink()
        (given / chosen).write_bytes(body)
        may_write = name in ("cache-index", "cache-layout", "sealed-state", "memo")
        if may_write:
            for one in given.rglob("*"):
                if one.is_file():
                    data = one.read_bytes()
                    one.unlink()
                    one.write_bytes(data)
        try:
            places = [work, root / "home", *([given] if may_write else [])]
            with judge.looking_on(*places) as seen, judge.limited(**LIMITS):
                try:
                    reader.read(given)
                except (columns.DamagedColumns, FileNotFoundError):
                    assert name == "data-index"  # the index is made again
                except MezzotintError as refusal:
                    require_sentence(refusal)
            assert seen == []
        except (Exception, judge.Hangs) as error:
            kept = root / f"{name}-{number}-{os.path.basename(chosen)}"
            kept.write_bytes(body)
            raise AssertionError(f"{name}, mutation {number} of {chosen}, kept as {kept}") from error


def require_sentence(refusal: MezzotintError) -> None:
    assert refusal.code in error_codes()
    assert judge.is_plain(str(refusal)), ascii(str(refusal))


@pytest.mark.faults
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"]
)  # fmt: skip
def test_mutated_file_is_read_or_refused_with_a_message(name: str, count: int, tmp_path: Path) -> None:
    share = READERS[name].share
    with at_home(tmp_path / "home"):
        fuzz(name, max(10, int(count * share)), tmp_path)


def test_mutations_are_deterministic() -> None:
    first, second = ([mutated(seeds.weights(), random.Random(n)) for n in range(50)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 45


@pytest.mark.parametrize("fault", [ValueError, MemoryError, RecursionError])
def test_failing_reader_is_noticed(fault: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def read(folder: Path) -> None:
        calls.append(folder)
        if len(calls) == 3:  # after the sound file and one that is refused as it should be
            raise fault(folder)

    monkeypatch.setitem(READERS, "x", Reader(READERS["index"].lay, READERS["index"].files, read))
    with pytest.raises(AssertionError, match="mutation 1 of"):
        fuzz("x", 9, tmp_path)
