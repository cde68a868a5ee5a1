"""Runs of Qwen-Image-Edit and Qwen-Image-Edit-Plus, whose text encoder sees the condition images: cached, resumed,
sampled, and opened by diffusers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diffusers.pipelines.qwenimage.pipeline_qwenimage_edit import QwenImageEditPipeline
from diffusers.pipelines.qwenimage.pipeline_qwenimage_edit_plus import QwenImageEditPlusPipeline
from PIL import Image, ImageOps

from mezzotint.cli import main
from support.qwen_edit import QWEN, make_edit_model, open_pipeline
from support.run_folders import logged
from support.sample_command import drawn

PIPELINES: dict[str, Any] = {"edit": QwenImageEditPipeline, "plus": QwenImageEditPlusPipeline}
NAMES = {"edit": ["source"], "plus": ["person", "style"]}
BOTH = [pytest.param("edit", marks=pytest.mark.slow), "plus"]
SMALL = {
    "data__buckets__step": 16, "data__buckets__shape": "square", "data__batch_size": 2, "run__steps": 2,
    "optim__ema__rule": "none", "sample__prompts": ["a red circle"], "sample__steps": 2, "sample__size": [48, 48],
    "model__family": "qwen-image", "model__weights": "files",
}  # fmt: skip
CACHED = {"data__cache__latents": True, "data__cache__text": True, "data__flip": 0, "data__crop": "center"}
LORA = {"model__adapter__kind": "lora", "model__adapter__rank": 2, "model__adapter__targets": "[attention]"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of both models."""
    root = tmp_path_factory.mktemp("models")
    return {name: make_edit_model(root / name, kind.__name__) for name, kind in PIPELINES.items()}


@pytest.fixture(scope="module")
def images(shared_world: Any) -> list[Path]:
    """Two folders of condition images: the samples' negatives, and the samples in grey."""
    folders = []
    for name, change in {"negatives": ImageOps.invert, "grey": ImageOps.grayscale}.items():
        folders.append(shared_world.root / name)
        folders[-1].mkdir()
        for path in shared_world.images.glob("*.png"):
            change(Image.open(path).convert("RGB")).convert("RGB").save(folders[-1] / path.name)
    return folders


@pytest.fixture
def settings(models: dict[str, Path], images: list[Path]) -> Any:
    """`settings("edit", run__steps=4)`: a run with one condition, of Qwen-Image-Edit-Plus with two."""

    def of(name: str, **changes: Any) -> dict[str, Any]:
        folders = dict(zip(NAMES[name], images, strict=False))
        conditions = {
            "data__conditions": {one: str(folder) for one, folder in folders.items()},
            "sample__conditions": {one: str(folder / "00.png") for one, folder in folders.items()},
        }
        return {"model__path": models[name]} | SMALL | conditions | changes

    return of


@pytest.mark.parametrize("name", BOTH)
def test_run_with_previews_is_exported_and_sampled(
    shared_world: Any, settings: Any, name: str, tmp_path: Path, loaded: list[set[str]]
) -> None:
    world, own = shared_world, settings(name, run__preview__every=1, **CACHED)
    assert main(["check", *world.words(name, **own)]) == 0
    assert main(["cache", *world.words(name, **own)]) == 0
    loaded.clear()
    assert world.train(name, **own) == 0
    assert not any("text_encoder" in parts for parts in loaded), "texts of previews are in the cache, too"
    [export] = [path for path in (world.root / name / "exports").iterdir() if path.is_dir()]
    assert type(open_pipeline(PIPELINES[name], export)) is PIPELINES[name]
    generated = []
    for number in ("00", "03"):
        words = [
            f"--condition={one}={Path(path).parent / f'{number}.png'}"
            for one, path in own["sample__conditions"].items()
        ]
        out = tmp_path / number
        assert main(["sample", str(export), "--prompt=a", "--steps=2", "--size=48x48", *words, f"--out={out}"]) == 0
        [(pixels, _)] = drawn(out).values()
        generated.append(pixels)
    assert not np.array_equal(*generated)


@pytest.mark.parametrize("name", BOTH)
def test_embeddings_are_cached_by_caption_and_images(
    shared_world: Any, settings: Any, images: list[Path], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed condition image gives new entries to its sample only, and the cache does not change the loss."""
    world = shared_world
    own = settings(name, **CACHED, data__cache__path=str(world.root / f"{name}-entries"), data__cache__dtype="fp32")
    assert main(["cache", *world.words(f"{name}-cached", **own)]) == 0
    assert world.train(f"{name}-cached", **own) == 0
    uncached = own | {"data__cache__text": False}
    assert world.train(f"{name}-uncached", **uncached) == 0
    assert logged(world.root / f"{name}-cached") == logged(world.root / f"{name}-uncached")
    decoded = uncached | {"data__cache__latents": False, "data__workers": 1, "run__micro_batch": 1}
    assert world.train(f"{name}-decoded", **decoded) == 0
    assert logged(world.root / f"{name}-decoded") == pytest.approx(logged(world.root / f"{name}-cached"), rel=1e-4)
    changed, before = images[0] / "01.png", (images[0] / "01.png").read_bytes()
    try:
        ImageOps.invert(Image.open(changed)).save(changed)
        capsys.readouterr()
        assert main(["cache", *world.words(f"{name}-cached", **own)]) == 0
        out = capsys.readouterr().out
        assert "cache: 2 captions to encode" in out, "its own and the empty one"
        assert "31 entries, 29 present, 2 added: 2 captions changed" in out, out
        assert "1 condition image stored" in out, out
    finally:
        changed.write_bytes(before)


@pytest.mark.parametrize("name", BOTH)
def test_resumed_run_is_bit_exact(shared_world: Any, settings: Any, name: str) -> None:
    world = shared_world
    own = settings(name, data__condition_dropout=0.2, **CACHED, **LORA)
    assert world.train(f"{name}-whole", **own | {"run__steps": 4}) == 0
    assert world.train(f"{name}-parts", **own) == 0
    assert main(["train", str(world.root / f"{name}-parts"), "run.extend=2 steps"]) == 0
    assert world.end(f"{name}-parts").tensors == world.end(f"{name}-whole").tensors
    assert logged(world.root / f"{name}-parts") == logged(world.root / f"{name}-whole")
    pytest.importorskip("peft")
    exports = (world.root / f"{name}-whole" / "exports").rglob("*.safetensors")
    file = next(path for path in exports if "kohya" not in path.name)
    pipeline = open_pipeline(PIPELINES[name], own["model__path"])
    pipeline.load_lora_weights(str(file.parent), weight_name=file.name)
    assert any("lora" in key for key in pipeline.transformer.state_dict())


@pytest.mark.parametrize(
    ("name", "conditions", "message"),
    [
        ("edit", 0, "edits images, and the recipe has no data.conditions; write data.conditions.source.folder=FOLDER"),
        ("edit", 2, "edits images, and data.conditions has source, style; write data.conditions.source.folder"),
        ("plus", 0, "edits images, and the recipe has no data.conditions; write data.conditions.NAME.folder=FOLDER"),
        ("text", 1, "generates from text alone; leave them out"),
    ],
)
def test_conditions_must_fit_the_model(
    shared_world: Any, settings: Any, images: list[Path], name: str, conditions: int, message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folders = {one: str(folder) for one, folder in list(zip(["source", "style"], images, strict=True))[:conditions]}
    own = settings("edit" if name == "text" else name) | {"data__conditions": folders}
    del own["sample__conditions"]
    own |= {"model__path": QWEN} if name == "text" else {}
    assert shared_world.train("refused", **own) == 2
    printed = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert "error[E1296]" in printed
    assert message in printed


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_train_as_one(shared_world: Any, settings: Any) -> None:
    world = shared_world
    own = settings("plus", data__condition_dropout=0.2, run__preview__every=2, **CACHED)
    for name, processes in (("plus-one", 1), ("plus-two", 2)):
        each = own | {"data__cache__path": str(world.root / f"{name}-entries")}
        for child in world.fork_group(name, processes, **each):
            assert world.wait(child) == 0, world.out(name)
    assert logged(world.root / "plus-two", "loss") == pytest.approx(logged(world.root / "plus-one", "loss"), rel=2e-5)
