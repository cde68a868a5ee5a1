"""Fixtures of all rows; see `support/effect_fixtures.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support import effect_fixtures

restore_process_state = effect_fixtures.restore_process_state
fast_start = effect_fixtures.fast_start
prepare, feed, noisy = effect_fixtures.prepare, effect_fixtures.feed, effect_fixtures.noisy


@pytest.fixture(scope="session")
def worlds() -> list[Any]:
    """The shared world of these tests, or empty before it is created; names of runs differ between all files."""
    return []


@pytest.fixture(scope="module")
def shared_world(shared_world: Any, worlds: list[Any]) -> Any:
    """A world whose denoiser has one level instead of two: these tests open hundreds of models."""
    if not worlds:
        path = shared_world.model / "unet" / "config.json"
        shallow = {
            "block_out_channels": [16], "down_block_types": ["CrossAttnDownBlock2D"],
            "up_block_types": ["CrossAttnUpBlock2D"],
        }  # fmt: skip
        path.write_text(json.dumps(json.loads(path.read_text()) | shallow))
        worlds.append(shared_world)
    return worlds[0]
