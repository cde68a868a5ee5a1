"""An optimizer and a callback need only what `docs/how-to-add/` shows, also in another package."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.training.checkpoints import state
from support.installed import install

PAGES = Path(__file__).parents[2] / "docs" / "how-to-add"


def shown(words: str) -> str:
    """The marked example of a page."""
    page = (PAGES / f"{words.partition('-')[0]}.md").read_text("utf-8")
    return re.split(rf"```(?:python run|py) {words}\n", page)[1].partition("```")[0]


def test_documented_row_shows_its_setting() -> None:
    names: dict[str, Any] = {}
    exec(f"{shown('optimizer-step')}\n{shown('optimizer-effect')}", names)
    names["test_momentum_decides_how_long_a_gradient_counts"]()


def group_of(folder: str) -> str:
    """The entry points that add choices to a folder."""
    return f"mezzotint.{folder.replace('training/', '').replace('/', '.')}"


class Outside:
    """Other installed packages, one for each file."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.modules, self._patch = root, list[str](), monkeypatch

    def add(self, folder: str, name: str, text: str) -> None:
        module = f"{name}_of_{folder.replace('/', '_')}"
        points = {group_of(folder): {name: module}}
        install(self.root / module, self._patch, {f"{module}.py": text}, points, name=module)
        self.modules.append(module)


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outside]:
    place = Outside(tmp_path / "outside", monkeypatch)
    yield place
    for name in place.modules:
        sys.modules.pop(name, None)


def test_external_optimizer_trains_and_resumes(outside: Outside, shared_world: Any) -> None:
    with pytest.raises(ValueError, match="signum"):
        OptimSettings(optimizer={"kind": "signum"})
    outside.add("settings/optimizers", "signum", shown("optimizer"))
    outside.add("training/optimizers", "signum", shown("optimizer-step"))
    settings = OptimSettings(optimizer={"kind": "signum", "momentum": 0.5})
    assert settings.model_dump(mode="json")["optimizer"] == {"kind": "signum", "momentum": 0.5}
    with pytest.raises(ValueError, match="momentum"):
        OptimSettings(optimizer={"kind": "signum", "momentum": 2.0})
    options: dict[str, Any] = {"optim__optimizer": {"kind": "signum"}, "optim__ema__rule": "none"}
    assert shared_world.train("signum", run__steps=2, run__save__every=1, **options) == 0
    checkpoints = sorted((shared_world.root / "signum" / "checkpoints").iterdir())
    halfway, whole = (state.read(path) for path in checkpoints[-2:])
    names = [name for name in whole.tensors if name.startswith("w/")]
    step = torch.stack([(whole.tensors[n] - halfway.tensors[n]).abs().max() for n in names])
    assert 0 < float(step.max()) <= 1.001e-3, "one step in the direction of a sign, as large as the rate"
    assert {name.split("/")[0] for name in whole.tensors if name.startswith("opt.mean")} == {"opt.mean"}
    assert whole.values["recipe"]["optim"]["optimizer"]["kind"] == "signum"
    assert shared_world.train("signum-rest", run__steps=2, run__resume=checkpoints[-2], **options) == 0
    again = state.read(max((shared_world.root / "signum-rest" / "checkpoints").iterdir()))
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in whole.tensors.items())


# breaks if callbacks must be listed somewhere, or do not get their settings
@pytest.mark.effect("run.callbacks")
def test_external_callback_receives_its_settings(outside: Outside, shared_world: Any) -> None:
    outside.add("training/callbacks", "spikes", shown("callback"))
    for name, settings, steps in (("with-spikes", {"spikes": {"factor": 0.01}}, 4), ("without", {}, 2)):
        assert shared_world.train(name, run__steps=steps, run__callbacks=settings) == 0
    lines = (shared_world.root / "with-spikes" / "spikes.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 3, 4], "all losses except the first are above 0.01"
    assert not (shared_world.root / "without" / "spikes.jsonl").exists()
    [newest] = [max((shared_world.root / "with-spikes" / "checkpoints").iterdir())]
    assert state.read(newest).values["callbacks"]["Spikes"]["count"] == 4


def test_unknown_callback_is_named(shared_world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert shared_world.train("unknown", run__callbacks={"spike": {}}) == 2
    assert "there is no 'spike' among callbacks" in capsys.readouterr().err
