"""A model by its hub id, from the local cache."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign_lines import printed

from mezzotint.errors import WeightsError
from mezzotint.tasks.reading import arguments
from mezzotint.tasks.reading import hub as _hub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with one model of two revisions, as the hub's programs lay it out."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "hub" / "models--some--model"
    for commit, name in (("c0ffee", "main"), ("beef", "fp16")):
        (root / "snapshots" / commit).mkdir(parents=True)
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / name).write_text(commit)
    return root


def model_of(name: str, *more: str) -> Path:
    words = ["--as", "diffusers-sd", "--", f"--pretrained_model_name_or_path={name}", "--train_data_dir=x", *more]
    return arguments.parse(words, "train").recipe.model.path


def test_hub_id_is_found_in_the_local_cache_at_its_revision(hub: Path) -> None:
    assert model_of("some/model") == hub / "snapshots" / "c0ffee"
    assert model_of("some/model", "--revision=fp16") == hub / "snapshots" / "beef"
    assert model_of("some/model", "--revision=beef") == hub / "snapshots" / "beef"
    assert arguments.parse(["tiny_cpu", "model.path=some/model@fp16"], "train").recipe.model.path.name == "beef"
    assert arguments.parse(["tiny_cpu", "model.config=some/model"], "train").recipe.model.config == (
        hub / "snapshots" / "c0ffee"
    )


def test_uncached_hub_id_prints_how_to_download_it(hub: Path) -> None:
    with pytest.raises(WeightsError, match="download it with `hf download some/other`") as caught:
        model_of("some/other")
    assert caught.value.code == "E1401"
    line = ["--pretrained_model_name_or_path=some/model", "--train_data_dir=x"]
    with pytest.raises(WeightsError, match=r"`hf download some/other --exclude '\*.safetensors'`"):
        arguments.parse(["--as", "diffusers-sd", "model.config=some/other", "--", *line], "train")
    assert model_of("checkpoints/mine.ckpt") == Path("checkpoints/mine.ckpt"), "a file, and no id"
    with pytest.raises(WeightsError, match="at revision nosuch"):
        model_of("some/model", "--revision=nosuch")


def test_folder_overrides_hub_id_and_has_no_revision(hub: Path, tmp_path: Path) -> None:
    (tmp_path / "some" / "model").mkdir(parents=True)
    assert model_of("some/model", "--revision=fp16") == tmp_path / "some" / "model"
    assert model_of("some/model") == Path("some/model")


def test_translate_does_not_read_the_hub_cache(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--as", "diffusers-sd", "--", "--pretrained_model_name_or_path=not/there",
                   "--dataset_name=not/there")  # fmt: skip
    assert "path: not/there  # --pretrained_model_name_or_path" in text


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({}, str(Path.home() / ".cache" / "huggingface" / "hub")),
    ],
)
def test_cache_path_is_that_of_the_hub_library(environ: dict[str, str], expected: str) -> None:
    assert str(_hub.cache_root(environ)) == expected


def test_autoencoder_is_found_by_its_hub_id(hub: Path) -> None:
    words = ["tiny_cpu", "model.family=sdxl", "model.path=tiny-sdxl", "model.vae=some/model@fp16"]
    reading = arguments.parse(words, "train")
    assert reading.recipe.model.vae == hub / "snapshots" / "beef"
    assert str(reading.recipe.model.path) == "tiny-sdxl"
    line = ["--pretrained_model_name_or_path=some/model", "--train_data_dir=x"]
    with pytest.raises(WeightsError, match="download it with `hf download some/vae`"):
        arguments.parse(
            ["--as", "diffusers-sdxl", "--", *line, "--pretrained_vae_model_name_or_path=some/vae"], "train"
        )
