"""`tools/compare_with.py`: what it reads of what two trees have written, and what it makes of it."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest
import torch
from safetensors.torch import save_file

import compare_with
import compared_journeys


def a_tree(root: Path, *, weight: float = 1.0, shadow: str = "shadow") -> compare_with.Side:
    """What a run, a check and a translation leave, in folders called after the tree."""
    run = root / "j" / "run"
    (run / "checkpoints" / "step-00000002").mkdir(parents=True)
    tensors = {"weights/denoiser/a": torch.tensor([1.0, weight])}
    save_file(tensors, run / "checkpoints" / "step-00000002" / "weights.safetensors")
    save_file({"ema/a": torch.ones(2)}, run / "checkpoints" / "step-00000002" / f"{shadow}.safetensors")
    line = {"step": 1, "loss": 0.5, "seconds_since": hash(str(root)) % 97, f"val/loss_{shadow}": 2.0}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    (run / "history.jsonl").write_text(json.dumps({"event": f"begun {root.name}"}) + "\n")
    (run / "ep0_batch_schedule.txt").write_text(f"path:{root}/a.png\n")
    shard = root / "j" / "cache" / "text" / "id" / "rows-4"
    shard.mkdir(parents=True)
    (shard / f"{root.name}.index").write_bytes(b"B" * 32 + bytes(16) + b"A" * 32 + b"\1" + bytes(15))
    (shard / f"{root.name}.rows").write_bytes(b"11112222")
    for number, (words, out) in enumerate(
        [
            ("translate --as x", "schema: 1\nmodel: {a: 2}\n"),
            ("check x --json", '{"recipe": {"settings": {"a": 1}}, "n": 1, "says": "x", "free": 3}'),
        ]
    ):
        for ending, text in (("words", words), ("out", out), ("err", ""), ("status", "0\n")):
            (root / "j" / f"{number:02d}.{ending}").write_text(text)
    return compare_with.Side(root, {str(root): "WORK"})


def verdicts(old: compare_with.Side, new: compare_with.Side) -> dict[str, list[str]]:
    lines = compare_with.compare_journey("j", old.read("j"), new.read("j"))
    return {line.kind: line.differences for line in lines}


def test_what_is_the_same_in_other_places_and_at_other_times_is_the_same(tmp_path: Path) -> None:
    verdict = verdicts(a_tree(tmp_path / "old"), a_tree(tmp_path / "new", shadow="ema"))
    forms = verdict.pop(compare_with.FORMS)
    assert forms == ["run/history.jsonl: 0.event: 'begun old' is 'begun new'"]
    assert set(verdict) == {
        "cache entries", "checked numbers", "checked settings", "checkpoint tensors", "exit statuses",
        "losses and metrics", "schedules", "translated settings", compare_with.SENTENCES,
    }  # fmt: skip
    assert not any(verdict.values())


def test_one_bit_of_a_tensor_is_seen(tmp_path: Path) -> None:
    verdict = verdicts(a_tree(tmp_path / "old"), a_tree(tmp_path / "new", weight=1.0 + 2**-23))
    (only,) = verdict["checkpoint tensors"]
    assert only == "run/checkpoints/step-00000002: weights/denoiser/a: F32 [2] from byte 4 of 8"


def test_rows_of_a_cache_are_read_by_address(tmp_path: Path) -> None:
    cache = a_tree(tmp_path / "old").read("j")["cache entries"]
    assert cache == {
        "cache/text/id/rows-4: " + "41" * 32: b"2222",
        "cache/text/id/rows-4: " + "42" * 32: b"1111",
    }


@pytest.mark.parametrize(
    ("new", "moved", "differences"),
    [
        ({"r: model.a": 1, "r: model.b.0": 2}, 0, []),
        ({"r: model.x.a": 1, "r: model.b.0": 2}, 1, []),
        ({"r: model.x.a": 3, "r: model.b.0": 2}, 0, ["r: model.a: no longer there", "r: model.x.a: was not there"]),
        ({"r: model.a": 1, "r: c.0": 2}, 0, ["r: model.b.0: no longer there", "r: c.0: was not there"]),
        ({"r: model.a": 3, "r: model.b.0": 2}, 0, ["r: model.a: '1' is '3'"]),
    ],
)
def test_a_setting_may_move_with_its_value(new: dict[str, int], moved: int, differences: list[str]) -> None:
    line = compare_with.compare("j", "checked settings", {"r: model.a": 1, "r: model.b.0": 2}, new)
    assert (line.moved, line.differences) == (moved, differences)
    assert ("DIFFERENT" in line.verdict) == bool(differences)


def test_the_last_step_and_its_losses_are_taken_of_runs() -> None:
    items = {"run/checkpoints/step-01: a": 1, "run/checkpoints/step-02: a": 2}
    assert compare_with.last_checkpoint(items) == {"a": 2}
    rows = [{"step": 1, "loss": 5}, {"step": 2, "loss": 6}, {"step": 2, "loss": 7}]
    written = {f"run/metrics.jsonl: {name}": value for name, value in compare_with.leaves(rows)}
    assert compare_with.losses(written) == {"step 1 loss": 5, "step 2 loss": 7}


def test_journeys_survive_being_written_down() -> None:
    planned = [*compared_journeys.journeys(["tiny_cpu", "sdxl"]), *compared_journeys.begun()]
    assert compared_journeys.read(compared_journeys.written(planned)) == planned
    assert len({journey.name for journey in planned}) == len(planned)


@pytest.mark.parametrize(("differs", "status"), [(False, 0), (True, 1)])
def test_what_is_judged_decides_the_exit_status(
    differs: bool, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        compare_with.compare("j", "schedules", {"a": 1}, {"a": 2 if differs else 1}),
        compare_with.compare("j", compare_with.SENTENCES, {"a": "one"}, {"a": "two"}),
    ]
    monkeypatch.setattr(compare_with, "extract", lambda commit, folder: folder)
    monkeypatch.setattr(compare_with, "take", lambda *_: None)
    monkeypatch.setattr(compare_with, "judge", lambda *_: lines)
    assert compare_with.main(["HEAD", "--all"]) == status
    printed = capsys.readouterr().out
    assert f"{int(differs)} lines DIFFERENT" in printed
    assert "| j | sentences (not judged) | 1 | differ: 1, first a: 'one' is 'two' |" in printed


def test_both_trees_get_the_same_environment(tmp_path: Path) -> None:
    shell = {"PATH": "/bin", "MEZZOTINT_FAULT": "x", "PYTHONPATH": "/other", "MKL_CBWR": "AVX2"}
    old, new = (compare_with.environment(tmp_path / name, shell) for name in ("old", "new"))
    assert old.pop("PYTHONPATH") == str(tmp_path / "old" / "src")
    del new["PYTHONPATH"]
    assert old == new
    assert not {"MEZZOTINT_FAULT", "MKL_CBWR"} & old.keys()
    assert old["OMP_NUM_THREADS"] == "1"


def test_clocks_and_logs_are_not_compared() -> None:
    assert list(compare_with.leaves({"time": 1, "a": {"seconds": 2, "b": [], "c": [3]}})) == [("a.b", []), ("a.c.0", 3)]
    assert [compare_with.kind_of(PurePosixPath(p)) for p in ("run/run.log", "run/lock", "cache/ledgers/x.npy")] == [
        ""
    ] * 3
