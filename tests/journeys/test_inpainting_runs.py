"""Runs that teach a text-to-image model to inpaint: random regions and mask files, resuming, sampling, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from PIL import Image

from mezzotint.cli import main
from support.run_folders import logged, tensors_of
from support.widened_models import FAMILIES, fill_model, text_model

FLUX = Path(__file__).parents[1] / "parity" / "data" / "flow" / "flux" / "model"
SIDE = 64
OURS = (
    "run.device=cpu", "run.threads=1", "run.tensorboard=false", "data.workers=0", "run.preview.every=null",
    "data.resolution=64", "data.buckets.shape=square", "data.batch_size=2", "optim.lr=1e-3", "data.holdout.fraction=0",
    "optim.schedule.warmup_steps=0",
)  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {name: text_model(name, root / name) for name in FAMILIES}


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four images with captions, of which two have masks."""
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text("schema: 1\n")
    folder = tmp_path / "images"
    folder.mkdir()
    Path("masks").mkdir()
    for number in range(4):
        pixels = np.random.Generator(np.random.Philox(key=number)).integers(0, 256, (80, 80, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"image {number}")
        if number < 2:
            mask = np.zeros((80, 80), np.uint8)
            mask[20:60, 10:40] = 255
            Image.fromarray(mask).save(f"masks/{number}.png")
    return folder


def train(model: Path, folder: str, *words: str, family: str = "sd") -> int:
    return main([
        "train", "recipe.yaml", f"model.path={model}", f"model.family={family}", "model.task=inpaint",
        "data.path=images", f"run.folder={folder}", "data.cache.path=cache", *OURS, *words,
    ])  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_run_teaches_a_model_to_inpaint_and_resumes_exactly(
    models: dict[str, Path], images: Path, family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    random = "data.inpaint.masks=random"
    assert train(models[family], "whole", random, "run.steps=4", family=family) == 0
    assert train(models[family], "parts", random, "run.steps=2", family=family) == 0
    assert main(["train", "parts/recipe.yaml", "run.resume=auto", "run.steps=4"]) == 0
    whole, parts = tensors_of(Path("whole")), tensors_of(Path("parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())
    assert logged(Path("whole"))[2:] == logged(Path("parts"))[-2:]
    weight = whole["w/denoiser/conv_in.weight"]
    assert weight.shape[1] == 9
    assert all(weight[:, channel].abs().max() > 0 for channel in range(4, 9)), "the new channels are trained"

    [export] = [path.parent for path in Path("whole/exports").rglob("model_index.json")]
    pipeline: Any = DiffusionPipeline.from_pretrained(str(export), local_files_only=True)
    assert type(pipeline).__name__.endswith("InpaintPipeline")
    mask = Image.new("L", (SIDE, SIDE), 0)
    mask.paste(255, (8, 8, 40, 40))
    mask.save("mask.png")
    Image.new("RGB", (SIDE, SIDE), (90, 20, 30)).save("photo.png")
    painted = pipeline(
        "a hat", image=Image.open("photo.png"), mask_image=mask, num_inference_steps=1, height=SIDE, width=SIDE,
        strength=1.0, output_type="np",
    ).images  # fmt: skip
    assert painted.shape == (1, SIDE, SIDE, 3)

    words = ["--prompt=a hat", "--steps=1", "--size=64", "--out=new", "--replace", "run.device=cpu"]
    assert main(["sample", "whole", *words, "--condition=source=photo.png", "--condition=mask=mask.png"]) == 0
    [file] = [path for path in Path("new").glob("*.png") if "contact" not in path.name]
    assert Image.open(file).size == (SIDE, SIDE)
    capsys.readouterr()
    assert main(["sample", "whole", *words, "--condition=source=photo.png"]) == 2
    assert "this model inpaints, and sample.conditions has no mask" in capsys.readouterr().err
    Image.new("L", (32, 64)).save("other.png")
    assert main(["sample", "whole", *words, "--condition=source=photo.png", "--condition=mask=other.png"]) == 2
    assert "other.png is 32×64, its image 64×64; give a mask of the image's size" in capsys.readouterr().err


def test_adapter_of_fill_resumes_exactly_on_rounded_weights(
    tmp_path_factory: pytest.TempPathFactory, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = fill_model(FLUX, tmp_path_factory.mktemp("fill") / "model")
    words = (
        "model.adapter.kind=lora", "model.adapter.rank=2", "run.frozen_dtype=int8", "data.inpaint.masks=random",
        "data.cache.text=true", "model.flux.t5_tokens=16", "optim.ema.rule=none",
    )  # fmt: skip
    assert train(model, "whole", *words, "run.steps=4", family="flux") == 0
    assert train(model, "parts", *words, "run.steps=2", family="flux") == 0
    assert main(["train", "parts/recipe.yaml", "run.resume=auto", "run.steps=4"]) == 0
    whole, parts = tensors_of(Path("whole")), tensors_of(Path("parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())

    [adapter] = Path("whole/exports").rglob("pytorch_lora_weights.safetensors")
    assert main(["check-adapter", str(adapter), f"--base={model}"]) == 0
    pipeline: Any = DiffusionPipeline.from_pretrained(str(model), local_files_only=True)
    pipeline.load_lora_weights(str(adapter.parent))
    assert type(pipeline).__name__ == "FluxFillPipeline"
    assert pipeline.get_active_adapters()
    capsys.readouterr()


def test_regions_of_mask_files_are_filled_and_held_out_images_count(models: dict[str, Path], images: Path) -> None:
    words = ("data.inpaint.masks=files", "data.mask.source=files", "data.mask.path=masks", "data.inpaint.full=0",
             "run.steps=2")  # fmt: skip
    held_out = ("data.holdout.fraction=0.25", "run.validation.every='1 steps'", "data.mask.background=1")
    assert train(models["sd"], "out", *words, *held_out) == 0
    assert len(logged(Path("out"))) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "inpaints, and the recipe has no regions to fill; write data.inpaint.masks=random"),
        (("model.task=text", "data.inpaint.masks=random"), "does not inpaint; leave it out, or set model.task=inpaint"),
        (("data.inpaint.masks=files",), "data.inpaint.masks=files needs masks; write data.mask.source=files"),
        (("data.inpaint.masks=random", "data.cache.latents=true"), "needs another masked image at each visit; write"),
        (("data.inpaint.full=0.5",), "data.inpaint.full has no effect with data.inpaint.masks=none"),
        (("data.inpaint.masks=random", "data.conditions={source: before}"), "are for different models; leave out one"),
        (("data.inpaint.masks=random", "data.conditions={mask: regions}"), "data.mask.path=FOLDER instead"),
    ],
)
def test_what_does_not_go_together_is_one_clear_error(
    models: dict[str, Path], images: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(models["sd"], "out", "run.steps=1", *words) == 2
    assert message in " ".join(capsys.readouterr().err.split())
