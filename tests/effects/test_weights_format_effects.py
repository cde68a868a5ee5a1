"""Rows of the formats in which single files are written, including one of another installed package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.train.exports import require_possible
from mezzotint.weights.files import formats, tensor_files
from support.effect_fixtures import COMMON, names
from support.numbers_format import add_numbers_format

FIRST = "model.diffusion_model.input_blocks.0.0.weight"


@pytest.fixture(autouse=True)
def _numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_numbers_format(tmp_path / "packages", monkeypatch)


# breaks if files are always safetensors, or a family without a layout accepts the format
@pytest.mark.effect("run.export.file_format")
def test_export_file_format_applies_to_single_files(prepare: Any) -> None:
    settings = COMMON | {"optim__ema__rule": "none", "run__export__name": "x"}
    for parts, suffix, written in (
        ({"run__export__single_file": True}, ".numbers", ["x", "x.numbers"]),
        ({"run__export__parts": "trained"}, ".numbers", ["x.numbers"]),
        ({"run__export__parts": "trained"}, ".safetensors", ["x.safetensors"]),
    ):
        ready = prepare(**settings, **parts, run__export__file_format=suffix.removeprefix("."))
        ready.trainer.host.export(ready.trainer)
        assert names(ready.folder.exports) == written
        file = ready.folder.exports / f"x{suffix}"
        assert formats.name_at(file) == ("numbers" if suffix == ".numbers" else None)
        unet = ready.family.parts()["denoiser"].state_dict()
        assert torch.equal(tensor_files.read(file, [FIRST])[FIRST], unet["conv_in.weight"])


# breaks if the file has the format of the others, or is missing where only that of the others differs
@pytest.mark.effect("run.export.trained_file")
def test_export_trained_file_may_have_its_own_format(prepare: Any) -> None:
    settings = COMMON | {"optim__ema__rule": "none", "run__export__name": "x"}
    for parts, written in (
        ({"run__export__single_file": True}, ["unet-x.numbers", "x", "x.safetensors"]),
        ({"run__export__parts": "trained"}, ["unet-x.numbers", "x.safetensors"]),
        ({"run__export__parts": "trained", "run__export__file_format": "numbers"}, ["x.numbers"]),
    ):
        ready = prepare(**settings, **parts, run__export__trained_file="numbers")
        ready.trainer.host.export(ready.trainer)
        assert names(ready.folder.exports) == written


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run.export.file_format=number"], "there is no weights format 'number'; did you mean numbers?"),
        (["run.export.trained_file=safetensor"], "there is no weights format 'safetensor'; did you mean safetensors?"),
        (["run.export.file_format=numbers"], "has no effect without single files"),
        (
            ["model.family=sdxl", "run.export.file_format=numbers", "run.export.single_file=true"],
            "family sdxl are not written in the format numbers, those of sd are",
        ),
        (["model.family=sdxl", "run.export.trained_file=numbers"], "run.export.trained_file: models of family sdxl"),
        (["model.family=flux", "run.export.trained_file=safetensors"], "are written as whole folders only"),
        (["model.family=flux", "run.export.parts=trained"], "are written as whole folders only"),
    ],
)
def test_formats_that_cannot_be_written_are_refused(words: list[str], sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        require_possible(read_text("schema: 1", "x", words).recipe)
    assert sentence in str(caught.value)
