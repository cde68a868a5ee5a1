"""`tools/compare_with.py`: reading and comparing the files that two versions of the source write."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest
import torch
from safetensors.torch import save_file

import compare_with
import compared_files
import compared_journeys
import compared_words
from compared_journeys import Command, Journey
from compared_words import Expected, Words
from mezzotint import registry
from mezzotint.settings.families.base import specs


def write_tree(root: Path, *, weight: float = 1.0, shadow: str = "shadow") -> compared_files.Side:
    """Writes the files of a run, a check and a translation to a folder named after the tree."""
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
            content = json.dumps({"words": text.split(), "status": 0}) if ending == "words" else text
            (root / "j" / f"{number:02d}.{ending}").write_text(content)
    return compared_files.Side(root, {str(root): "WORK"}, Words(names={"shadow": "ema"}))


def verdicts(old: compared_files.Side, new: compared_files.Side) -> dict[str, list[str]]:
    lines = compare_with.compare_journey("j", old.read("j"), new.read("j"))
    return {line.kind: line.differences for line in lines}


def test_paths_and_times_are_no_difference(tmp_path: Path) -> None:
    verdict = verdicts(write_tree(tmp_path / "old"), write_tree(tmp_path / "new", shadow="ema"))
    forms = verdict.pop(compared_files.FORMS)
    assert forms == ["run/history.jsonl: 0.event: 'begun old' is 'begun new'"]
    assert set(verdict) == {
        "cache entries", "checked numbers", "checked settings", "checkpoint tensors", "exit statuses",
        "losses and metrics", "schedules", "translated settings", compared_files.SENTENCES,
    }  # fmt: skip
    assert not any(verdict.values())


def test_one_bit_of_a_tensor_is_a_difference(tmp_path: Path) -> None:
    verdict = verdicts(write_tree(tmp_path / "old"), write_tree(tmp_path / "new", weight=1.0 + 2**-23))
    (only,) = verdict["checkpoint tensors"]
    assert only == "run/checkpoints/step-00000002: weights/denoiser/a: F32 [2] from byte 4 of 8"


def test_cache_rows_are_compared_by_address(tmp_path: Path) -> None:
    cache = write_tree(tmp_path / "old").read("j")["cache entries"]
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
def test_moved_setting_with_the_same_value_is_no_difference(
    new: dict[str, int], moved: int, differences: list[str]
) -> None:
    line = compare_with.compare("j", "checked settings", {"r: model.a": 1, "r: model.b.0": 2}, new)
    assert (line.moved, line.differences) == (moved, differences)
    assert ("DIFFERENT" in line.verdict) == bool(differences)


def test_last_checkpoint_and_last_losses_are_compared() -> None:
    items = {"run/checkpoints/step-01: a": 1, "run/checkpoints/step-02: a": 2}
    assert compare_with.last_checkpoint(items) == {"a": 2}
    rows = [{"step": 1, "loss": 5}, {"step": 2, "loss": 6}, {"step": 2, "loss": 7}]
    written = {f"run/metrics.jsonl: {name}": value for name, value in compared_files.leaves(rows)}
    assert compare_with.losses(written) == {"step 1 loss": 5, "step 2 loss": 7}


def test_journeys_round_trip_through_their_file() -> None:
    planned = [*compared_journeys.journeys(["tiny_cpu", "sdxl"]), *compared_journeys.begun()]
    translated = [compared_journeys.translate(journey, Words()) for journey in planned]
    assert compared_journeys.read(compared_journeys.written(translated)) == translated
    assert len({journey.name for journey in planned}) == len(planned)


@pytest.mark.parametrize(("differs", "status"), [(False, 0), (True, 1)])
def test_only_judged_differences_decide_the_exit_status(
    differs: bool, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        compare_with.compare("j", "schedules", {"a": 1}, {"a": 2 if differs else 1}),
        compare_with.compare("j", compared_files.SENTENCES, {"a": "one"}, {"a": "two"}),
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
    assert list(compared_files.leaves({"time": 1, "a": {"seconds": 2, "b": [], "c": [3]}})) == [
        ("a.b", []),
        ("a.c.0", 3),
    ]
    assert [compared_files.kind_of(PurePosixPath(p)) for p in ("run/run.log", "run/lock", "cache/ledgers/x.npy")] == [
        ""
    ] * 3


def test_renamed_words_apply_to_commands_and_recipes_of_a_journey() -> None:
    words = Words(settings={"run.steps": "run.length"}, dialects={"x": "y"})
    journey = Journey(
        "j",
        (Command(("train", "mine.yaml", "run.steps=2")), Command(("train", "--as", "x", "--", "run.steps=2"))),
        files=(("mine.yaml", compared_journeys.recipe_text("run.steps=2", "data.path={world}/a")), ("x.json", "{}")),
    )
    translated = compared_journeys.translate(journey, words)
    assert [command.line for command in translated.commands] == [
        ("train", "mine.yaml", "run.length=2"),
        ("train", "--as", "y", "--", "run.steps=2"),
    ]
    assert [command.words for command in translated.commands] == [command.words for command in journey.commands]
    assert dict(translated.files) == {
        "empty.yaml": "schema: 1\n",
        "mine.yaml": "schema: 1\nrun:\n  length: 2\ndata:\n  path: '{world}/a'\n",
        "x.json": "{}",
    }


def test_renamed_settings_values_files_and_metrics_are_equal(tmp_path: Path) -> None:
    words = Words(settings={"model.a": "model.b"}, values={"model.a=2": "two"}, names={"shadow": "ema", "run": "runs"})
    old, new = write_tree(tmp_path / "old"), write_tree(tmp_path / "new", shadow="ema")
    (tmp_path / "new" / "j" / "run").rename(tmp_path / "new" / "j" / "runs")
    (tmp_path / "new" / "j" / "00.out").write_text("schema: 1\nmodel: {b: two}\n")
    verdict = verdicts(*(compared_files.Side(side.work, side.masks, words) for side in (old, new)))
    assert {kind for kind, differences in verdict.items() if differences} <= {
        compared_files.FORMS,
        compared_files.SENTENCES,
    }


def test_file_written_by_only_one_tree_is_one_difference() -> None:
    old = {"run/a.safetensors: x": 1, "run/a.safetensors: y": 1, "run/b.safetensors: x": 1}
    new = {"run/a.safetensors: x": 1, "run/c.safetensors: x": 1, "run/c.safetensors: y": 1, "d.ckpt": b""}
    line = compare_with.compare("j", "exported tensors", old, new)
    assert line.one_sided == [
        "run/b.safetensors: only the commit writes it (1 items)",
        "d.ckpt: only this tree writes it (1 items)",
        "run/c.safetensors: only this tree writes it (2 items)",
    ]
    assert line.differences == [*line.one_sided, "run/a.safetensors: y: no longer there"]


def test_expected_differences_are_listed_and_not_judged() -> None:
    line = compare_with.compare("flux", "exported tensors", {"a: x": 1, "b: y": 1}, {"a: x": 2, "b: y": 2, "c: z": 1})
    rows = [
        Expected("flux", "exported *", r"^c: only this tree", "one more file"),
        Expected("*", "exported tensors", r"^a: x", "rounded twice"),
        Expected("sdxl", "*", r".", "elsewhere"),
    ]
    assert compare_with.set_aside([line], rows) == [rows[2]], "rows without a match are reported"
    assert line.verdict == "DIFFERENT: 1, first b: y: '1' is '2'; 1 expected: one more file; 1 expected: rounded twice"
    assert compare_with.set_aside([line], [Expected("*", "*", "b: y", "known")]) == []
    assert line.verdict == "1 expected: one more file; 1 expected: rounded twice; 1 expected: known"


@pytest.mark.parametrize(("reason", "status"), [("", 1), ("the seed is another", 0)])
def test_expected_difference_does_not_change_the_exit_status(
    reason: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (Expected("j", "*", "^a: ", reason), Expected("j", "*", "^z: ", "an old one")) if reason else ()
    line = compare_with.compare("j", "schedules", {"a": 1}, {"a": 2})
    monkeypatch.setattr(compare_with, "extract", lambda commit, folder: folder)
    monkeypatch.setattr(compare_with, "take", lambda *_: None)
    monkeypatch.setattr(compare_with, "judge", lambda *_: [line])
    monkeypatch.setattr(compare_with, "read_tables", lambda tree: compared_words.Tables(Words(), rows))
    assert compare_with.main(["HEAD"]) == status
    printed = capsys.readouterr().out
    assert ("| 1 expected: the seed is another |" in printed) == bool(reason)
    assert ("matches nothing, delete it: [[expected]] j, *, ^z: " in printed) == bool(reason)


def test_cross_version_journeys_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("old", "new"):
        (tmp_path / name / "src" / "models" / "tiny-sd").mkdir(parents=True)
    monkeypatch.setattr(compare_with.compared_world, "make_world", lambda *_: None)
    monkeypatch.setattr(compare_with, "waited", lambda *runs: None)
    started: list[list[str]] = []
    monkeypatch.setattr(compare_with, "start", lambda tree, work, world, items: started.append([i.name for i in items]))
    trees = tmp_path / "old", tmp_path / "new"
    compare_with.take(*trees, tmp_path / "w", ["resume sd"])
    assert started == [["begun sd", "resume sd"], ["resume sd"], ["begun sd"]]
    started.clear()
    monkeypatch.setattr(compare_with, "read_tables", lambda tree: compared_words.Tables(Words(), (), "one index"))
    compare_with.take(*trees, tmp_path / "w", ["resume sd"])
    assert started == [["resume sd"], ["resume sd"]]
    line = compare_with.judge(*trees, tmp_path / "w", ["resume sd"])[-1]
    assert (line.journey, line.verdict) == ("begun there, ended here", "1 expected: one index")


def test_journeys_are_listed_and_selected_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_with.main(["--list"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert {"sdxl", "adapters", "two processes", "mindone-sdxl", "diffusers-sd", "resume sd"} <= set(names)
    items = [*compared_journeys.journeys([]), *compared_journeys.begun()]
    chosen = [item.name for item in compare_with.choose(items, ["resume *", "wan"])]
    assert chosen[0] == "wan"
    assert {name.partition(" ")[0] for name in chosen[1:]} == {"resume", "begun"}
    with pytest.raises(SystemExit):
        compare_with.main(["HEAD", "--only", "no such journey"])
    assert "no journey is called no such journey" in capsys.readouterr().err


def test_every_family_and_every_dialect_has_a_journey() -> None:
    since = {"ai-toolkit", "kohya", "musubi", "chroma", "krea2"}  # the earlier commit does not have them
    dialects = set(registry.names("dialects")) - since
    names = {journey.name for journey in compared_journeys.journeys([])}
    assert {spec.name for spec in specs()} - {"sd"} - since <= names
    assert dialects <= names
    assert {line.split()[0] for line in compared_journeys.LINES.splitlines() if line} >= dialects


def test_processes_of_one_command_find_each_other() -> None:
    from compared_runs import variables_of

    assert variables_of(Command(("train",), fault="step.begin@1:kill")) == [{"MEZZOTINT_FAULT": "step.begin@1:kill"}]
    two = variables_of(Command(("train",), processes=2))
    assert [one["RANK"] for one in two] == ["0", "1"]
    assert len({one["MASTER_PORT"] for one in two}) == 1


def test_times_in_folder_names_are_not_compared(tmp_path: Path) -> None:
    for name, date in (("old", "20260101-000000"), ("new", "20260102-111111")):
        path = tmp_path / name / "j" / f"myproj-{date}" / "metrics.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text('{"step": 1, "loss": 0.5}\n')
    sides = [compared_files.Side(tmp_path / name, {}) for name in ("old", "new")]
    assert not any(verdicts(*sides).values())


def test_listed_names_are_compared_in_any_order_and_renamed(tmp_path: Path) -> None:
    words = Words(recipes={"zebra": "aardvark"})
    for name, listed in (
        ("old", "recipes\n  mini   a model\n  zebra  a test\n"),
        ("new", "recipes\n  aardvark  a test\n"),
    ):
        folder = tmp_path / name / "j"
        folder.mkdir(parents=True)
        (folder / "00.out").write_text(listed)
        (folder / "00.words").write_text(json.dumps({"words": ["ls", "recipes"], "status": 0}))
    verdict = verdicts(*(compared_files.Side(tmp_path / name, {}, words) for name in ("old", "new")))
    assert verdict == {"names": ["00.out: mini: no longer there"]}
