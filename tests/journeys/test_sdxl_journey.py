"""SDXL from images to a folder that diffusers' pipeline opens: cached, stopped and resumed, in two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl import StableDiffusionXLPipeline
from PIL import Image
from safetensors.torch import load_file

from mezzotint.cli import main
from mezzotint.families.sdxl import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.files.tensor_files import read_header
from support.run_folders import logged

CACHED = {"data__cache__latents": True, "data__cache__text": True, "data__cache__crops": 2}


@pytest.fixture
def settings(sdxl_folder: Path) -> dict[str, Any]:
    return {"model__family": "sdxl", "model__path": sdxl_folder, "model__weights": "files", "run__steps": 4}


@pytest.mark.slow
def test_stopped_run_resumes_bit_exactly(world: Any, settings: dict[str, Any]) -> None:
    assert world.train("whole", **settings) == 0
    assert world.train("parts", **settings | {"run__steps": 2}) == 0
    assert world.train("parts", **settings) == 0
    whole, parts = world.end("whole"), world.end("parts")
    assert parts == whole
    assert len(set(logged(world.root / "whole"))) == 4


@pytest.mark.slow
def test_cached_run_loads_no_encoder_and_exports_all_parts(
    world: Any, settings: dict[str, Any], loaded: list[set[str]], capsys: Any
) -> None:
    values = settings | CACHED | {"run__export__single_file": True, "run__preview__every": 4}
    values |= {"sample__prompts": ["a red circle"], "sample__steps": 2, "sample__size": [64, 48]}
    assert world.train("run", **values) == 0
    assert loaded.count({"denoiser"}) == 1
    assert all(parts in ({"denoiser"}, {"vae"}, {"text_encoder", "text_encoder_2"}) for parts in loaded)
    output = capsys.readouterr().out
    assert "text_encoder not loaded (cached); text_encoder_2 not loaded (cached); vae not loaded (cached)" in output

    exports = world.root / "run" / "exports"
    [folder, file] = [exports / "step-00000004", exports / "step-00000004.safetensors"]
    opened: Any = StableDiffusionXLPipeline.from_pretrained(str(folder), local_files_only=True)
    trained = load_file(world.root / "run" / "checkpoints" / "step-00000004" / "weights.safetensors")
    for name, tensor in opened.unet.state_dict().items():
        assert torch.equal(tensor, trained[f"w/denoiser/{name}"])
    starts = ("model.diffusion_model.", "first_stage_model.", "conditioner.embedders.0.", "conditioner.embedders.1.")
    names = read_header(file)
    assert all(any(name.startswith(start) for name in names) for start in starts)
    single = Family.of(ModelSettings(family="sdxl", path=file, config=folder), only=["denoiser"])
    for name, tensor in single.parts()["denoiser"].state_dict().items():
        assert torch.equal(tensor, opened.unet.state_dict()[name])


def test_crop_of_the_cache_entry_conditions_the_denoiser(
    world: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several cached random crops, the condition is the crop of the entry that is read."""
    vectors: list[list[float]] = []
    plain = Family.predict

    def watched(self: Family, noised: Any, condition: Any) -> torch.Tensor:
        vectors.extend(condition.vector.tolist())
        return plain(self, noised, condition)

    monkeypatch.setattr(Family, "predict", watched)
    assert world.train("run", **settings | CACHED | {"data__buckets__shape": "square", "run__steps": 4}) == 0
    assert {tuple(line[4:]) for line in vectors} == {(48.0, 48.0)}
    by_size: dict[tuple[float, ...], set[tuple[float, ...]]] = {}
    for line in vectors:
        by_size.setdefault(tuple(line[:2]), set()).add(tuple(line[2:4]))
    assert by_size.keys() == {(48, 48), (48, 64), (64, 48)}, "height first"
    assert by_size[48, 48] == {(0, 0)}
    assert all(top == 0 and 0 <= left <= 16 for top, left in by_size[48, 64])
    assert all(left == 0 and 0 <= top <= 16 for top, left in by_size[64, 48])
    assert len(by_size[48, 64]) > 1, "several crops"


@pytest.mark.slow
def test_both_text_encoders_are_trained_unless_text_is_cached(
    world: Any, settings: dict[str, Any], capsys: Any
) -> None:
    values = settings | {"model__train": ["denoiser", "text_encoder", "text_encoder_2"], "run__steps": 4}
    assert world.train("run", **values) == 0
    base = Family.of(ModelSettings(family="sdxl", path=settings["model__path"]))
    trained = load_file(world.root / "run" / "checkpoints" / "step-00000004" / "weights.safetensors")
    for part in ("text_encoder", "text_encoder_2"):
        moved = [n for n, t in base.parts()[part].state_dict().items() if not torch.equal(t, trained[f"w/{part}/{n}"])]
        assert len(moved) > 20, part
    opened: Any = StableDiffusionXLPipeline.from_pretrained(
        str(world.root / "run" / "exports" / "step-00000004"), local_files_only=True
    )
    assert torch.equal(opened.text_encoder_2.text_projection.weight, trained["w/text_encoder_2/text_projection.weight"])
    capsys.readouterr()
    second = {"model__train": ["denoiser", "text_encoder_2"], "data__cache__text": True}
    assert world.train("refused", **settings | second) == 2
    assert "model.train includes text_encoder_2" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_with_trained_text_encoders_equal_one(world: Any, settings: dict[str, Any]) -> None:
    values = settings | {"model__train": ["denoiser", "text_encoder", "text_encoder_2"], "data__cache__latents": True}
    assert world.train("one", **values) == 0
    for child in world.fork_group("two", 2, **values):
        assert world.wait(child) == 0, world.out("two")
    assert logged(world.root / "two") == pytest.approx(logged(world.root / "one"), rel=2e-5)


@pytest.mark.slow
def test_check_and_sample_accept_the_family(world: Any, settings: dict[str, Any], capsys: Any) -> None:
    recipe, *words = world.words("looked-at", **settings)
    assert main(["check", recipe, *words]) == 0
    output = capsys.readouterr().out
    assert "sdxl from" in output
    assert "text_encoder_2" in output
    assert (
        main(["sample", recipe, *words, "--prompt=a red circle", f"--out={world.root / 'out'}", "sample.steps=2"]) == 0
    )
    [path] = (world.root / "out").glob("0*.png")
    with Image.open(path) as image:
        assert image.size == (48, 48)
        assert np.asarray(image).std() > 0
