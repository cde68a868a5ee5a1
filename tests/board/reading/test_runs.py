"""State of a run, read from its folder."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from mezzotint.assets import MODELS
from mezzotint.board import live
from mezzotint.board.reading import images, runs, tails, values
from mezzotint.run_folder import RunFolder
from support.board_runs import opened, waiting, write_run


def lock(folder: Path, **who: object) -> None:
    facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": "2030-01-01T00:00:00Z"} | who
    (folder / "lock").write_text(json.dumps(facts))


@pytest.mark.parametrize(
    ("ended", "state"),
    [("finished", "finished"), ("stopped", "stopped"), ("diverged", "diverged"), (None, "killed")],
)
def test_state_of_an_unlocked_run_is_its_last_event(ended: str | None, state: str, tmp_path: Path) -> None:
    assert runs.read_status(write_run(tmp_path / "run", ended=ended)).state == state


def test_locked_run_is_running_and_its_lock_is_not_touched(tmp_path: Path) -> None:
    folder = RunFolder(write_run(tmp_path / "run", ended=None, of=100))
    with folder.lock():
        before = (folder.path / "lock").stat()
        status = runs.read_status(folder.path)
        assert status.state == "running"
        assert (status.step, status.steps) == (60, 100)
        assert status.seconds_left == pytest.approx(40 * 0.2)
        assert (folder.path / "lock").stat() == before
    assert runs.read_status(folder.path).state == "killed"
    folder.record("finished", step=60)
    with folder.lock():
        assert runs.read_status(folder.path).state == "finished", "its process is ending"


def test_lock_with_a_reused_pid_is_stale(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ended=None)
    lock(folder, since="2001-01-01T00:00:00Z")
    assert runs.read_status(folder).state == "killed"
    lock(folder, pid=2**22 + 5)
    assert runs.read_status(folder).state == "killed"
    lock(folder, host="another-machine")
    assert runs.read_status(folder).state == "elsewhere"
    (folder / "metrics.jsonl").unlink()
    lock(folder)
    assert runs.read_status(folder).state == "starting"


def test_waiting_run_names_the_process_that_holds_the_lock(tmp_path: Path) -> None:
    with waiting(tmp_path / "run") as folder:
        status = runs.read_status(folder)
        assert status.state == "waiting"
        place = tmp_path / "index" / "lock"
        assert status.meaning == f"waits for process {os.getpid()}, which holds {place}; it continues by itself"
        before = live.brief(folder), live.marks(folder)["status"]
    assert runs.read_status(folder).state == "killed"
    assert (live.brief(folder), live.marks(folder)["status"]) != before
    assert live.brief(folder) != before[0]


@pytest.mark.slow
def test_run_waits_for_another_to_index_its_data_and_then_trains(world: Any) -> None:
    assert world.train("first", run__steps=1) == 0
    shutil.copyfile(world.images / "00.png", world.images / "more.png")
    (world.images / "more.txt").write_text("one more")
    (place,) = (world.root / "cache" / "catalogues").glob("*/lock")
    with open(place, "rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        child = world.fork("second", run__steps=1)
        until = time.monotonic() + 60
        while runs.read_status(world.root / "second").state != "waiting":
            assert time.monotonic() < until
            time.sleep(0.02)
        assert str(place) in runs.read_status(world.root / "second").waits_for
        fcntl.flock(held, fcntl.LOCK_UN)  # the forked run has inherited this file
    assert world.wait(child) == 0, world.out("second")
    assert runs.read_status(world.root / "second").state == "finished"


def test_damaged_or_missing_files_do_not_stop_the_rest(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for name in ("history.jsonl", "environment.json", "recipe.yaml", "metrics.jsonl", "lock", "bad_steps.jsonl"):
        (folder / name).write_bytes(b"\xff{[\n" * 9)
    assert runs.read_status(folder).steps is None
    assert runs.card(folder, runs.history(folder))["starts"] == "0"
    assert values.read_effective(folder) == []
    shutil.rmtree(folder)
    assert runs.read_status(folder).step == 0
    assert runs.checkpoints(folder) == runs.exports(folder) == []
    assert images.previews(folder).drawn == []
    assert tails.tail(folder / "run.log") == ""


def test_card_has_commit_recipe_data_and_weights(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    manifest = {"data": {"fingerprint": "f1", "samples": 12, "shards": {"000": "x"}}, "weights": {"denoiser": "d1"}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    card = runs.card(folder, runs.history(folder))
    assert card["commit"] == "ab12" * 10
    assert card["start: recipe"] == "ab12"
    assert (card["data: fingerprint"], card["data: samples"], card["weights: denoiser"]) == ("f1", "12", "d1")
    for text in ("[]", '{"data": [], "weights": "x"}', "{"):
        (folder / "manifest.json").write_text(text)
        assert not [name for name in runs.card(folder, []) if name.startswith(("data", "weights"))]


def test_checkpoint_has_the_command_that_resumes_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a run")
    (one,) = runs.checkpoints(folder)
    assert (one.step, one.size, one.is_whole) == (60, 3002, True)
    assert one.command == (
        f"mezzotint train '{folder}/recipe.yaml' 'run.resume={folder}/checkpoints/step-00000060'"
    )  # fmt: skip


def test_exported_adapter_is_sampled_with_its_base_model(tmp_path: Path) -> None:
    model = {
        "path": str(MODELS / "mezzotint-mini"), "adapter": {"kind": "lora"}, "tokens": {"words": {"<wug>": "wug"}},
    }  # fmt: skip
    lora = write_run(tmp_path / "lora", recipe={"model": model})
    whole = write_run(tmp_path / "whole", recipe={"model": model | {"adapter": {"kind": "none"}}})
    for folder in (lora, whole):
        (folder / "exports" / "step-00000060").mkdir(parents=True)
    (one,) = runs.exports(lora)
    assert one.command == f"mezzotint sample mezzotint-mini --adapter={lora}/exports/step-00000060 '--prompt=…'"
    (one,) = runs.exports(whole)
    assert one.command == f"mezzotint sample {whole}/exports/step-00000060 '--prompt=…'"
    with opened(tmp_path) as board:
        text = board.ask("/run?run=0/lora")[1]
        assert f'href="/draw?a=mezzotint-mini&amp;adapter={lora}/exports/step-00000060"' in text
        assert f'href="/draw?a={whole}/exports/step-00000060"' in board.ask("/run?run=0/whole")[1]
        offered = board.ask("/draw")[1]
        assert f'value="{whole}/exports/step-00000060"' in offered
        assert f'value="{lora}/exports/step-00000060"' not in offered
        assert f">{lora}/exports/x</textarea>" in board.ask(f"/draw?adapter={lora}/exports/x")[1]
        file = lora / "exports" / "step-00000060" / "embeddings" / "wug.safetensors"
        file.parent.mkdir()
        file.touch()
        (one,) = runs.exports(lora)
        assert one.command.endswith(f" '--embedding=<wug>={file}' '--prompt=…'")
        assert "/draw?a=mezzotint-mini" not in board.ask("/run?run=0/lora")[1], "the page has no field for embeddings"


def test_previews_have_prompts_and_thumbnails(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", prompts=("a cat", "ein Hündchen \u202e"))
    drawn = images.previews(folder)
    assert drawn.steps == [0, 30, 60]
    assert drawn.prompts == {0: "a cat", 1: "ein Hündchen \\u202e"}
    assert len(drawn.drawn) == 12
    small = images.downscale(folder / "samples" / "step-00000060" / "00-raw.png", 16)
    assert small is not None
    assert len(small) < 1000
    (folder / "x.png").write_bytes(b"\x89PNG no image")
    assert images.downscale(folder / "x.png", 16) is None


def test_setting_has_its_origin_and_help(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", recipe={"optim": {"lr": 1e-4, "accumulation": 1}})
    (folder / "origin.json").write_text(json.dumps({"optim.lr": "command line"}))
    rows = {value.path: value for value in values.read_effective(folder)}
    assert rows["optim.lr"].origin == "command line"
    assert "peak learning rate" in rows["optim.lr"].help
    assert rows["optim.accumulation"].is_default


def test_compared_settings_are_those_that_differ_and_the_equal_ones() -> None:
    compared = values.compare({"a": {"x": {"y": 1, "z": 2}}, "b": {"x": {"y": 1, "z": 3}, "w": True}})
    assert compared.different == [("x.z", ["2", "3"]), ("w", [None, "true"])]
    assert compared.equal == [("x.y", "1")]


def test_end_of_a_log_of_five_gigabytes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    with open(path, "wb") as file:
        file.truncate(5_000_000_000)  # a sparse file
        file.seek(0, os.SEEK_END)
        file.write(b"\nthe last line \x1b[2J\n")
    assert tails.tail(path, limit=4000).endswith("the last line \\x1b[2J\n")
