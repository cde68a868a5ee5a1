"""Runs of models that are given images as further tokens (FLUX.1 Kontext, FLUX.2): cached, killed and resumed,
with little memory, sampled, and opened by diffusers."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diffusers import DiffusionPipeline
from PIL import Image, ImageOps

from mezzotint.cli import main
from support.flow_folders import tiny_flux2_dev
from support.run_folders import logged
from support.sample_command import drawn
from support.sd_folder import edit

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "flow"
PIPELINES = {"flux": "FluxKontextPipeline", "flux2": "Flux2KleinPipeline", "flux2-dev": "Flux2Pipeline"}
OWN: dict[str, dict[str, Any]] = {
    "flux": {"model__flux__t5_tokens": 16}, "flux2": {"model__flux2__text_tokens": 48},
    "flux2-dev": {"model__flux2__text_tokens": 256, "model__flux2__guidance": 2.0},
}  # fmt: skip
ALL = ["flux", *(pytest.param(name, marks=pytest.mark.slow) for name in ("flux2", "flux2-dev"))]
SMALL = {
    "data__buckets__step": 16, "data__buckets__shape": "square", "data__batch_size": 2, "run__steps": 2,
    "optim__ema__rule": "none", "sample__prompts": ["a red circle"], "sample__steps": 2, "sample__size": [48, 48],
}  # fmt: skip
CACHED = {"data__cache__latents": True, "data__cache__text": True, "data__flip": 0, "data__crop": "center"}
LORA = {"model__adapter__kind": "lora", "model__adapter__rank": 2}


@pytest.fixture(scope="module")
def befores(shared_world: Any) -> dict[str, Path]:
    """Two folders of condition images: the samples' negatives, and the samples in grey."""
    made = {"flux": ImageOps.invert, "style": lambda image: ImageOps.grayscale(image).convert("RGB")}
    for name, change in made.items():
        (shared_world.root / name).mkdir()
        for path in shared_world.images.glob("*.png"):
            change(Image.open(path).convert("RGB")).save(shared_world.root / name / path.name)
    return {"source": shared_world.root / "flux", "style": shared_world.root / "style"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of the models."""
    root = tmp_path_factory.mktemp("models")
    shutil.copytree(RECORDS / "flux" / "model", root / "flux")
    edit(root / "flux" / "model_index.json", _class_name="FluxKontextPipeline")
    klein = RECORDS / "flux2_klein" / "model"
    return {"flux": root / "flux", "flux2": klein, "flux2-dev": tiny_flux2_dev(klein, root / "flux2-dev")}


@pytest.fixture
def settings(models: dict[str, Path], befores: dict[str, Path]) -> Any:
    """`settings("flux", run__steps=4)`: a run with one condition, of FLUX.2 with two."""

    def of(name: str, **changes: Any) -> dict[str, Any]:
        names = ["source"] if name == "flux" else ["source", "style"]
        given = {one: str(befores[one]) for one in names}
        model = {"model__family": name.removesuffix("-dev"), "model__path": models[name], "model__weights": "files"}
        samples = {one: str(path / "00.png") for one, path in befores.items() if one in names}
        return model | SMALL | OWN[name] | {"data__conditions": given, "sample__conditions": samples} | changes

    return of


def export_of(run: Path) -> Path:
    [export] = [path for path in (run / "exports").iterdir() if path.is_dir()]
    return export


@pytest.mark.parametrize("name", ALL)
def test_run_depends_on_its_images_and_its_export_opens_in_diffusers(
    shared_world: Any, befores: dict[str, Path], settings: Any, name: str, tmp_path: Path
) -> None:
    world, own = shared_world, settings(name, run__preview__every=2, **CACHED)
    assert main(["check", *world.words(name, **own)]) == 0
    assert world.train(name, **own) == 0
    others = dict(zip(own["data__conditions"], reversed(befores.values()), strict=False))
    assert world.train(f"{name}-others", **own | {"data__conditions": {k: str(v) for k, v in others.items()}}) == 0
    assert logged(world.root / name) != logged(world.root / f"{name}-others")
    export = export_of(world.root / name)
    pipeline: Any = DiffusionPipeline.from_pretrained(str(export), local_files_only=True)
    assert type(pipeline).__name__ == PIPELINES[name]
    conditions = [f"--condition={one}={path}" for one, path in own["sample__conditions"].items()]
    images = []
    for words in (conditions, [word.replace("00.png", "03.png") for word in conditions]):
        out = tmp_path / str(len(images))
        assert main(["sample", str(export), "--prompt=a", "--steps=2", "--size=48x48", *words, f"--out={out}"]) == 0
        [(pixels, _)] = drawn(out).values()
        images.append(pixels)
    assert not np.array_equal(*images)


@pytest.mark.slow
@pytest.mark.parametrize("name", PIPELINES)
def test_cached_run_with_dropped_images_resumes_bit_exactly(shared_world: Any, settings: Any, name: str) -> None:
    world, own = shared_world, settings(name, run__steps=4, run__save__every=2, data__condition_dropout=0.2, **CACHED)
    assert main(["cache", *world.words(f"{name}-cache", **own)]) == 0
    assert world.train(f"{name}-whole", **own) == 0
    killed = own | {"run__save__asynchronous": False}
    assert world.wait(world.fork(f"{name}-cut", fault="step.backward@4:kill", **killed)) == 137
    assert world.train(f"{name}-cut", **own) == 0
    assert world.end(f"{name}-cut").tensors == world.end(f"{name}-whole").tensors
    assert world.end(f"{name}-cut").metrics == world.end(f"{name}-whole").metrics


@pytest.mark.slow
@pytest.mark.parametrize("name", PIPELINES)
def test_run_with_little_memory_trains_the_same(shared_world: Any, settings: Any, name: str) -> None:
    """Blocks that are recomputed, and streamed from host memory, with gradients of the same losses."""
    world, own = shared_world, settings(name, **CACHED)
    assert world.train(f"{name}-roomy", **own) == 0
    less = {"run__gradient_checkpointing__enabled": True, "run__offload__blocks": 1, "run__micro_batch": 1}
    assert world.train(f"{name}-narrow", **own | less) == 0
    assert logged(world.root / f"{name}-narrow") == pytest.approx(logged(world.root / f"{name}-roomy"), rel=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_adapter_on_quantized_weights_opens_in_diffusers(
    shared_world: Any, models: dict[str, Path], settings: Any, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("peft")
    world = shared_world
    own = settings(name, **CACHED, **LORA, run__frozen_dtype="int8", model__adapter__targets="[attention]")
    assert world.train(f"{name}-lora", **own) == 0
    file = next(p for p in (world.root / f"{name}-lora" / "exports").rglob("*.safetensors") if "kohya" not in p.name)
    capsys.readouterr()
    assert main(["check-adapter", str(file), f"--base={models[name]}"]) == 0
    assert not re.search("error", capsys.readouterr().out)
    pipeline: Any = DiffusionPipeline.from_pretrained(str(models[name]), local_files_only=True)
    pipeline.load_lora_weights(str(file.parent), weight_name=file.name)
    assert any("lora" in key for key in pipeline.transformer.state_dict())


def test_run_without_the_image_before_the_edit_is_refused(
    shared_world: Any, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {key: value for key, value in settings("flux").items() if "conditions" not in key}
    assert shared_world.train("flux-without", **own) == 2
    message = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert "error[E1296]" in message
    assert "edits images, and the recipe has no data.conditions; write data.conditions.source.folder=FOLDER" in message
