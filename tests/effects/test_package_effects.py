"""Settings that name a choice of another package or folder: here of a package that each test writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mezzotint import outside
from support.installed import install

FILES = """
from pathlib import Path

def is_readable(path):
    return path.name == "moments.toy"

def check(update, family):
    pass

def restore(path, update, family):
    for name, tensor in update.tensors().items():
        if name.startswith("opt.mean/"):
            tensor.fill_(float(path.read_text()))
    return ["every first moment is that of the toy"]

def write(folder, update, family, rates):
    (folder / "moments.toy").write_text(str(float(update.applied)))
"""
DIALECT = """
import json
from mezzotint.settings.reading.translation import Translation

class Toy:
    name, about, config = "toy", "a toy", "settings"

    def translate(self, arguments, launched, *, ahead=False):
        words = dict(zip(arguments[::2], arguments[1::2]))
        with open(words["--settings"]) as file:
            written = json.load(file)
        values = {"offset": 0.0, "gamma": 1.0} | written
        origin = {f"objective.{ours}": f"{key} in toy.json" for ours, key in NAMES.items()}
        if "--offset" in words:
            values["offset"], origin["objective.noise_offset"] = float(words["--offset"]), "--offset"
        return Translation("train", {"objective": {ours: values[key] for ours, key in NAMES.items()}}, origin, ())

NAMES = {"noise_offset": "offset", "min_snr_gamma": "gamma"}
DIALECT = Toy()
"""


# breaks if the file is not written at a save, or not read into the optimizer of the new run
@pytest.mark.effect("run.export.optimizer_file", "run.start.optimizer")
def test_moments_are_exported_to_and_read_from_a_foreign_file(
    prepare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path / "site", monkeypatch, {"toy_files.py": FILES}, {"mezzotint.optimizer_files": {"toy": "toy_files"}}
    )
    whole = prepare(run__export__optimizer_file="toy", run__steps=8)
    for _ in range(3):
        whole.step()
    whole.trainer.host.save(whole.trainer)
    file = whole.folder.path / "moments.toy"
    assert file.read_text() == "3.0"
    assert not prepare(run__steps=8).folder.path.joinpath("moments.toy").exists()
    later = prepare(run__start={"step": 3, "optimizer": str(file)}, run__steps=8)
    means = [t for name, t in later.trainer.model.update.tensors().items() if name.startswith("opt.mean/")]
    assert means
    assert all((tensor == 3.0).all() for tensor in means)
    assert "every first moment is that of the toy" in (later.folder.path / "run.log").read_text()


# breaks if the file is read as a Mezzotint recipe, or the command line does not override it
@pytest.mark.effect("run.live.dialect", "run.live.line")
def test_live_line_overrides_the_live_file_of_a_dialect(shared_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        shared_world.root / "site", monkeypatch, {"toy_line.py": DIALECT}, {"mezzotint.dialects": {"toy": "toy_line"}}
    )
    path = shared_world.root / "toy.json"
    path.write_text(json.dumps({"gamma": 5.0, "offset": 0.3}))
    common = {"data__cache__latents": True, "run__steps": 2, "optim__ema__rule": "none"}
    words = {"run__live__path": str(path), "run__live__dialect": "toy", **common}
    assert shared_world.train("file", **words) == 0
    assert shared_world.train("line", run__live__line=["--offset", "0.05"], **words) == 0
    read = [
        next(
            event["values"]
            for event in outside.read_lines(shared_world.root / name / "history.jsonl")
            if "values" in event
        )
        for name in ("file", "line")
    ]
    assert [values["objective.min_snr_gamma"] for values in read] == [5.0, 5.0]
    assert [values["objective.noise_offset"] for values in read] == [0.3, 0.05]
