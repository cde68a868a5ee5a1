"""TensorBoard events: documented tags, and never ending a run."""

from __future__ import annotations

import importlib
import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mezzotint.errors import StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.training.callbacks._scalars import TAGS
from mezzotint.training.callbacks.tensorboard_log import TensorBoardLog
from mezzotint.training.progress import Progress
from support.forked import exit_status
from support.trainers import log_steps, report

OURS = "mezzotint.training.callbacks.tensorboard_log"


def events(folder: RunFolder) -> EventAccumulator:
    read = EventAccumulator(str(folder.logs), size_guidance={"scalars": 0, "images": 0})
    return read.Reload()


def is_of(tag: str, pattern: str) -> bool:
    own, other = pattern.replace("0..9", "T").replace("_Q", "_3").split("/"), tag.split("/")
    return len(own) == len(other) and all(o == g or o.isupper() for o, g in zip(own, other, strict=True))


def test_tensorboard_events_read_back_with_the_documented_tags(folder: RunFolder) -> None:
    board = TensorBoardLog(folder, every=1)
    for step in range(3):
        fp16 = report(step, memory_bytes=3 * 2**30, loss_scale=65536.0)
        board.on_step(fp16, Progress(step=step + 2, last_step=99))
    board.numbers(3, {"val/loss": 0.5, "val/loss_at/125": 0.25, "val/loss_shadow": 0.5, "val/loss_shadow_at/125": 0.5})
    board.numbers(3, {"val/loss_at/quartile_3": 0.5})
    board.numbers(3, {"val/faces": 0.5, "val/train": 0.25, "val/all": 0.5})
    drift = ("drift/class", "drift/leak", "drift/class_at/499", "drift/class_shadow", "drift/class_shadow_at/499")
    board.numbers(3, dict.fromkeys(drift, 0.5))
    machine = ("processors", "busy", "memory_bytes", "available_bytes")
    board.numbers(3, {f"machine/{name}": 0.5 for name in machine} | {"device/utilization": 93.0, "device/memory": 50.0})
    pixels = np.arange(8 * 6 * 3, dtype=np.uint8).reshape(8, 6, 3)
    board.image(3, "0/raw", pixels)
    board.image(3, "0/shadow", pixels)
    board.close()
    read = events(folder)
    tags = {*read.Tags()["scalars"], *read.Tags()["images"]}
    assert [tag for tag in tags if not any(is_of(tag, pattern) for pattern in TAGS)] == []
    assert [pattern for pattern in TAGS if not any(is_of(tag, pattern) for tag in tags)] == []
    assert [event.step for event in read.Scalars("loss/step")] == [1, 2, 3]
    assert read.Scalars("loss/step")[1].value == pytest.approx(report(1).loss)
    assert read.Scalars("memory/peak_gib")[0].value == 3.0
    assert read.Scalars("loss/by_timestep/9")[0].value == pytest.approx(1 / 3)
    image = read.Images("preview/0/raw")[0]
    assert (image.width, image.height) == (6, 8)
    assert image.encoded_image_string.startswith(b"\x89PNG")


def test_resumed_run_hides_events_after_its_checkpoint(folder: RunFolder) -> None:
    log_steps(TensorBoardLog(folder, every=1), range(8))
    (killed,) = folder.logs.glob("events.*")
    killed.write_bytes(killed.read_bytes()[:-5])  # truncated by a kill
    board = TensorBoardLog(folder, every=1, start_step=5)
    board.numbers(6, {"val/loss": 0.5})
    log_steps(board, range(5, 7))
    assert [event.step for event in events(folder).Scalars("loss/step")] == [1, 2, 3, 4, 5, 6, 7]


def test_unwritable_events_are_an_error_once(tmp_path: Path) -> None:
    board = TensorBoardLog(RunFolder(tmp_path / "gone"), every=1)
    with pytest.raises(StorageError) as caught:
        board.on_step(report(0), Progress(step=1, last_step=9))
    assert caught.value.code == "E1705"
    board.on_step(report(1), Progress(step=2, last_step=9))


def test_records_start_with_their_length(folder: RunFolder) -> None:
    log_steps(TensorBoardLog(folder, every=1), range(1))
    (path,) = folder.logs.glob("events.*")
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    assert b"brain.Event:2" in data[12 : 12 + length]


def test_installed_tensorflow_is_not_imported(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('tensorflow was imported')")
    child = os.fork()
    if not child:  # a process without TensorBoard imported
        try:
            for name in [name for name in sys.modules if name.startswith("tensorboard.") or name == OURS]:
                del sys.modules[name]
            sys.path.insert(0, str(tmp_path))
            importlib.import_module(OURS).TensorBoardLog(folder, 1).numbers(1, {"val/loss": 0.5})
        except BaseException:
            os._exit(1)
        os._exit(0 if "tensorflow" not in sys.modules else 2)
    assert exit_status(child) == 0
    assert events(folder).Scalars("val/loss")[0].value == 0.5
