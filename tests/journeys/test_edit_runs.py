"""Runs that teach a model to edit: bit-exact after a kill and in two processes, cached or not, sampled from their
folder."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

from support.run_folders import assert_alike, logged, tensors_of

CACHED = {"data__cache__latents": True, "data__cache__text": True, "data__cache__crops": 2}


def settings_of(world: Any, **more: Any) -> dict[str, Any]:
    """The world's images, each with its negative as the image before the edit."""
    before = world.root / "before"
    if not before.exists():
        before.mkdir()
        for path in world.images.glob("*.png"):
            Image.fromarray(255 - np.asarray(Image.open(path).convert("RGB"))).save(before / path.name)
    return {
        "model__task": "edit", "data__conditions": json.dumps({"source": str(before)}), "data__condition_dropout": 0.2,
        "run__steps": 6, "run__save__every": 2, "optim__accumulation": 2,
    } | more  # fmt: skip


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.faults
def test_edit_run_resumes_bit_exactly_and_does_not_depend_on_the_processes(shared_world: Any) -> None:
    world, settings = shared_world, settings_of(shared_world, **CACHED)
    assert world.wait(world.fork("edit", **settings)) == 0, world.out("edit")
    assert "condition images stored" in world.out("edit")

    assert world.wait(world.fork("edit-killed", fault="step.backward@4:kill", **settings)) != 0
    assert world.wait(world.fork("edit-killed", **settings)) == 0, world.out("edit-killed")
    assert world.end("edit-killed") == world.end("edit")

    for child in world.fork_group("edit-two", 2, **settings):
        assert world.wait(child) == 0, world.out("edit-two")
    whole = world.root / "edit"
    assert logged(world.root / "edit-two", "loss") == pytest.approx(logged(whole, "loss"), rel=2e-5)
    assert_alike(tensors_of(world.root / "edit-two"), tensors_of(whole))


def test_previews_of_an_edit_run_need_an_image(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_of(world, run__preview__every="2 steps", sample__prompts=["red"], sample__steps=2)
    assert world.train("previews", **settings) == 2
    assert "sample.conditions has no source; write sample.conditions={source: IMAGE}" in capsys.readouterr().err
    image = str(next(iter((world.root / "before").glob("*.png"))))
    settings |= {"sample__conditions": json.dumps({"source": image}), "run__steps": 2}
    assert world.train("previews", **settings) == 0
    assert list((world.root / "previews" / "samples").rglob("*.png"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__task": "auto"}, "generates from text alone; leave them out, or set model.task=edit"),
        (
            {"data__conditions": "{}", "data__condition_dropout": 0},
            "edits images, and the recipe has no data.conditions",
        ),
        ({"data__conditions": '{"other": "before"}'}, "edits images, and data.conditions has other"),
        ({"data__conditions": '{"source": "nowhere"}'}, "nowhere"),
        (
            {"data__conditions": '{"source": {"folder": "before", "align": "own"}}'},
            "write data.conditions.source.align=",
        ),
    ],
)
def test_wrong_conditions_are_one_clear_error(
    world: Any, changes: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    settings = settings_of(world) | changes
    monkeypatch.chdir(world.root)
    assert world.train("wrong", **settings) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert "Traceback" not in printed
