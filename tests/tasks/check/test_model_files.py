"""Files of a model, and what prevents loading them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from mezzotint.errors import WeightsError
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.tasks.check._model_files import components
from support.check_command import checked, codes

MODEL = Path(__file__).parents[2] / "parity" / "data" / "diffusers" / "tiny_sd"


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-100]), "E1402"),
        (lambda file: file.rename(file.with_suffix(".bin")), "E1408"),
        (lambda file: file.unlink(), "E1407"),
        (lambda file: shutil.copy(file.parent.parent / "vae" / file.name, file), "E1405"),
    ],
    ids=["truncated", "pickled", "missing", "of another model"],
)
def test_unloadable_weights_are_found_without_loading(quick: Path, damage: Any, code: str) -> None:
    damage(quick / "model" / "unet" / "diffusion_pytorch_model.safetensors")
    outcome = checked()
    assert codes(outcome.problems) == [code]
    assert "unet" in outcome.problems[0].message
    assert isinstance(outcome.problems[0], WeightsError)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["model.adapter.kind=dora", "model.adapter.targets=all"],
        ["model.adapter.kind=lora", "run.frozen_dtype=int8"],
        pytest.param(["model.adapter.kind=lora", "run.frozen_dtype=nf4"], marks=pytest.mark.slow),
        ["model.train=[denoiser, tokens]", "model.tokens.words={<toy>: red}", "data.captions.prefix=<toy> "],
    ],
    ids=["adapter", "int8", "nf4", "learned token"],
)
def test_adapter_and_quantization_cause_no_missing_keys(quick: Path, words: list[str]) -> None:
    pytest.importorskip("peft")
    if "run.frozen_dtype" in words[-1]:
        pytest.importorskip("torchao")
    assert codes(checked(*words).problems) == []


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["fp32", "int8"])
def test_quantized_flow_model_has_no_missing_keys(quick: Path, kept: str) -> None:
    pytest.importorskip("peft")
    if kept == "int8":
        pytest.importorskip("torchao")
    folder = MODEL.parents[1] / "flow" / "flux" / "model"
    words = ("model.family=flux", f"model.path={folder}", "model.adapter.kind=lora", f"run.frozen_dtype={kept}")
    found = checked(*words, "data.buckets.step=16")
    assert "E1405" not in codes(found.problems)
    assert {one.part for one in found.files} == {"denoiser", "text_encoder", "text_encoder_2", "vae"}


def test_missing_model_is_reported_once(quick: Path) -> None:
    outcome = checked("model.path=elsewhere")
    assert codes(outcome.problems) == ["E1401"]
    assert outcome.buckets  # the data are checked nevertheless


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MODEL / "vae", tmp_path / "repaired"))


def test_separate_vae_is_listed_instead_of_the_models_own(other: Path) -> None:
    weights = other / "diffusion_pytorch_model.safetensors"
    halves = {name: tensor.half() for name, tensor in load_file(weights).items()}
    save_file(halves, weights)
    settings = ModelSettings(path=MODEL, vae=other)
    parts = Family.of(settings).parts()
    plain, _ = components(ModelSettings(path=MODEL), parts)
    with_other, problems = components(settings, parts)
    assert problems == []
    [own], [vae] = ([one for one in listed if one.part == "vae"] for listed in (plain, with_other))
    assert (vae.file, vae.types, vae.bytes) == ("repaired", ("F16",), 2 * sum(t.numel() for t in halves.values()))
    assert vae.parameters == own.parameters
    assert [one for one in with_other if one.part != "vae"] == [one for one in plain if one.part != "vae"]


def test_incomplete_separate_vae_is_a_named_problem(other: Path) -> None:
    path = other / "diffusion_pytorch_model.safetensors"
    tensors = load_file(path)
    tensors.pop("decoder.conv_out.bias")
    save_file(tensors, path)
    listed, problems = components(ModelSettings(path=MODEL, vae=other), Family.of(ModelSettings(path=MODEL)).parts())
    assert [problem.code for problem in problems] == ["E1405"]
    assert str(other) in problems[0].message
    assert len(listed) > 3, "other files are listed nevertheless"
    path.unlink()
    _, problems = components(ModelSettings(path=MODEL, vae=other), Family.of(ModelSettings(path=MODEL)).parts())
    assert [problem.code for problem in problems] == ["E1407"]
    (other / "config.json").write_text(json.dumps({"_class_name": "AutoencoderTiny"}))
    _, problems = components(ModelSettings(path=MODEL, vae=other), Family.of(ModelSettings(path=MODEL)).parts())
    assert [problem.code for problem in problems] == ["E1406"]
