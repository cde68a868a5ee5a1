"""Runs with class images and masks: killed and resumed, and in two processes."""

from __future__ import annotations

from typing import Any

import pytest
from PIL import Image

from mezzotint import outside
from support.run_folders import assert_alike, logged, tensors_of

TAGS = ("loss", "loss/instance", "loss/class")


def settings_of(world: Any) -> dict[str, Any]:
    masks = world.root / "masks"
    masks.mkdir()
    for path in sorted(world.images.glob("*.png"))[::2]:
        mask = Image.new("L", Image.open(path).size, 30)
        mask.paste(240, (0, 0, mask.width // 2, mask.height))
        mask.save(masks / path.name)
    return {
        "data__prior__path": world.images, "data__prior__weight": 0.5, "run__steps": 6, "run__save__every": 2,
        "data__mask__source": "files", "data__mask__path": masks, "data__mask__background": 0.1,
        "data__batch_size": 4, "optim__accumulation": 2, "data__cache__latents": True, "data__cache__text": True,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.faults
def test_class_images_and_masks_in_two_processes_and_after_a_kill(shared_world: Any) -> None:
    world, settings = shared_world, settings_of(shared_world)
    assert world.wait(world.fork("prior", **settings)) == 0, world.out("prior")
    whole = world.root / "prior"
    lines = [line for line in outside.read_lines(whole / "metrics.jsonl") if "loss" in line]
    assert all(line["loss/instance"] != line["loss/class"] for line in lines)

    assert world.wait(world.fork("prior-killed", fault="step.backward@4:kill", **settings)) != 0
    assert world.wait(world.fork("prior-killed", **settings)) == 0, world.out("prior-killed")
    for tag in TAGS:
        assert logged(world.root / "prior-killed", tag) == logged(whole, tag)

    for child in world.fork_group("prior-two", 2, **settings):
        assert world.wait(child) == 0, world.out("prior-two")
    for tag in TAGS:
        assert logged(world.root / "prior-two", tag) == pytest.approx(logged(whole, tag), rel=2e-5)
    assert_alike(tensors_of(world.root / "prior-two"), tensors_of(whole))
