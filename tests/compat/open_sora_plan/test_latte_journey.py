"""From clips on disk to a model: cache, joint training with recompute, a kill, exact resume, the average, exports."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import pytest
import torch

from mezzotint.compat.open_sora_plan.latte import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.tasks.sample import sample

LATTE: dict[str, Any] = {
    "model__family": "latte",
    "model__path": "tiny-latte",
    "data__format": "videofolder",
    "data__resolution": 32,
    "data__buckets__step": 16,
    "data__buckets__shape": "square",
    "data__clips__frames": 5,
    "data__clips__images": 2,
    "data__clips__images_from": "clips",
    "data__captions__clean": True,
    "data__batch_size": 2,
    "data__crop": "center",
    "data__flip": 0.0,
    "run__steps": 4,
    "run__save__every": 2,
    "run__gradient_checkpointing__enabled": True,
    "run__gradient_checkpointing__skip_first": 1,
    "run__export__every": None,
}


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory, write_clip: Callable[..., Path]) -> Path:
    """Three clips of twelve frames with captions."""
    folder = tmp_path_factory.mktemp("films")
    for number in range(3):
        write_clip(folder / f"{number}.mp4", 12, size=(48, 32))
        (folder / f"{number}.txt").write_text(f"A {('Red', 'Green', 'Blue')[number]} Ball <br> example.com/ball.png")
    return folder


@pytest.mark.slow
@pytest.mark.faults
def test_resumed_run_is_bit_exact_and_is_sampled_from(shared_world: Any, films: Path) -> None:
    settings = LATTE | {"data__path": films, "data__cache__latents": True, "data__cache__text": True}
    name = "run"
    child = shared_world.fork(name, fault="step.begin@3:kill", **settings)
    assert shared_world.wait(child) == 128 + signal.SIGKILL, shared_world.out(name)
    assert shared_world.wait(shared_world.fork(name, **settings)) == 0, shared_world.out(name)
    assert shared_world.wait(shared_world.fork(f"{name}-whole", **settings)) == 0, shared_world.out(f"{name}-whole")
    resumed, whole = shared_world.end(name), shared_world.end(f"{name}-whole")
    assert resumed.step == whole.step == 4
    assert resumed == whole
    exports = shared_world.root / name / "exports"
    plain, average = (exports / f"step-00000004{end}" for end in ("", "-ema"))
    loaded = [Family.of(ModelSettings(family="latte", path=path)) for path in (plain, average)]
    first, second = (family.parts()["denoiser"].state_dict() for family in loaded)
    assert not torch.equal(first["proj_out.weight"], second["proj_out.weight"])
    generated = shared_world.root / "generated"
    for place, words in ((shared_world.root / name, ()), (average, ("--frames=9", "run.device=cpu"))):
        requested = [str(place), "--prompt=a RED ball", f"--out={generated / place.name}", "--steps=2", "--size=32x32"]
        assert sample.run([*requested, *words]) == 0
        with av.open(str(next((generated / place.name).glob("*.mp4")))) as container:
            stream = container.streams.video[0]
            found_frames = sum(1 for _ in container.decode(stream))
            assert (found_frames, stream.width, stream.average_rate) == (9 if words else 5, 32, 24)
