"""Runs that are held to the base's prediction, with a frozen adapter under them: killed and resumed, in several
processes, with quantized and offloaded weights, in all families."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.adapters import writing
from mezzotint.adapters.files import Adapter
from mezzotint.adapters.modules import AdapterModule
from mezzotint.adapters.names import LayerNames
from mezzotint.families.sd import Family
from mezzotint.settings.families.base import specs
from mezzotint.settings.sections.model import ModelSettings
from support.run_folders import assert_alike, logged, tensors_of
from support.trained_families import clip_settings, settings_of

SETTINGS = {
    "model__adapter__kind": "lora", "model__adapter__rank": 3, "model__adapter__dropout": 0.2, "run__steps": 4,
    "run__save__every": 2, "data__batch_size": 4, "optim__lr": 3e-3, "objective__preserve__kind": "[output, prompts]",
    "data__captions__trigger": "sks dog", "run__export__every": None, "model__adapter__targets": "[attention]",
}  # fmt: skip


@pytest.fixture(scope="module")
def under(shared_world: Any) -> Path:
    """An adapter for the model of the world."""
    names = LayerNames.of(Family.files.of(ModelSettings(path=shared_world.model, weights="random")))
    generator = torch.Generator().manual_seed(3)
    modules = {
        layer: AdapterModule("lora", {
            "lora_down.weight": torch.randn(2, shape[1], generator=generator) * 0.1,
            "lora_up.weight": torch.randn(shape[0], 2, generator=generator) * 0.1,
        })
        for layer, shape in names.weights.items() if layer.component == "unet" and layer.path.endswith("to_q")
    }  # fmt: skip
    writing.write(Adapter(modules), shared_world.root / "under.safetensors", names, "kohya")
    return Path(shared_world.root / "under.safetensors")


@pytest.fixture(scope="module")
def whole(shared_world: Any, under: Path) -> Path:
    assert shared_world.wait(shared_world.fork("whole", **SETTINGS, model__under=str(under))) == 0
    return Path(shared_world.root / "whole")


def test_preserved_run_reports_the_distance_to_the_base(whole: Path) -> None:
    distance = logged(whole, "loss/preserve")
    assert distance[0] == 0
    assert distance[3] > 0


@pytest.mark.slow
def test_killed_run_ends_with_the_same_bits(shared_world: Any, whole: Path, under: Path) -> None:
    settings = SETTINGS | {"model__under": str(under)}
    killed = settings | {"run__save__asynchronous": False}
    assert shared_world.wait(shared_world.fork("killed", fault="step.backward@3:kill", **killed)) == 137
    assert shared_world.wait(shared_world.fork("killed", **settings)) == 0, shared_world.out("killed")
    assert shared_world.end("killed").tensors == shared_world.end("whole").tensors
    assert shared_world.end("killed").metrics == shared_world.end("whole").metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [
        {"run__offload__blocks": 1},
        {"run__gradient_checkpointing__enabled": True},
        {"run__micro_batch": 2},
        {"data__cache__text": True, "data__cache__latents": True},
    ],
    ids=["offloaded", "recomputed", "micro-batches", "cached"],
)
def test_other_ways_of_computing_give_the_same(
    shared_world: Any, whole: Path, under: Path, other: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    settings = SETTINGS | {"model__under": str(under)} | other
    assert shared_world.wait(shared_world.fork(name, **settings)) == 0, shared_world.out(name)
    folder = shared_world.root / name
    for curve in ("loss", "loss/preserve"):
        assert logged(folder, curve) == pytest.approx(logged(whole, curve), rel=1e-3, abs=1e-6)
    assert_alike(tensors_of(folder), tensors_of(whole))


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("runtime", ["ddp", "fsdp"])
def test_two_processes_end_as_one_does(shared_world: Any, whole: Path, under: Path, runtime: str) -> None:
    for child in shared_world.fork_group(runtime, 2, run__runtime=runtime, **SETTINGS, model__under=str(under)):
        assert shared_world.wait(child) == 0, shared_world.out(runtime)
    for curve in ("loss", "loss/preserve"):
        assert logged(shared_world.root / runtime, curve) == pytest.approx(logged(whole, curve), rel=1e-3, abs=1e-6)
    assert_alike(tensors_of(shared_world.root / runtime), tensors_of(whole))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(spec.name for spec in specs() if spec.is_flow_matching), "sd"])
def test_preserved_run_of_each_family_resumes_bit_exactly(shared_world: Any, clips: Path, name: str) -> None:
    if name == "sd":
        pytest.importorskip("torchao")
        settings = SETTINGS | {"run__frozen_dtype": "nf4"}
    else:
        settings = (
            SETTINGS
            | settings_of(name)
            | clip_settings(name, clips)
            | {"objective__preserve__kind": "[output, prompts]"}
        )
    settings |= {"run__steps": 3, "run__save__every": 2}
    world = shared_world
    assert world.wait(world.fork(f"all-{name}", **settings)) == 0, world.out(f"all-{name}")
    assert world.wait(world.fork(f"cut-{name}", fault="step.begin@3:kill", **settings)) == 137
    assert world.wait(world.fork(f"cut-{name}", **settings)) == 0, world.out(f"cut-{name}")
    assert world.end(f"cut-{name}").tensors == world.end(f"all-{name}").tensors
    assert logged(world.root / f"all-{name}", "loss/preserve")[1] > 0
