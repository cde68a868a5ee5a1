"""A model folder is exported completely or not at all; components that are not trained are copied."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mezzotint.errors import StorageError, WeightsError
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from support.model_export import export_model, load_model
from support.sd_folder import FOLDER, opened, trained


@pytest.fixture(autouse=True, scope="module")
def _of_two_levels(shallow_sd: Path) -> None:
    """A U-Net with two levels is enough for exports."""
    globals()["FOLDER"] = shallow_sd


@pytest.fixture
def family() -> Family:
    return load_model(Family, ModelSettings(path=FOLDER))


def test_other_components_are_copied(family: Family, tmp_path: Path) -> None:
    source = Path(shutil.copytree(FOLDER, tmp_path / "source"))
    (source / "safety_checker").mkdir()
    save_file({"a": torch.ones(1)}, source / "safety_checker" / "model.safetensors")
    (source / "feature_extractor").mkdir()
    (source / "feature_extractor" / "preprocessor_config.json").write_text('{"x":  1}')
    loaded = load_model(Family, ModelSettings(path=source), only=["denoiser"])
    out = export_model(loaded, tmp_path / "out", trained(loaded, "denoiser"))
    for name in ("safety_checker/model.safetensors", "feature_extractor/preprocessor_config.json"):
        assert (out / name).read_bytes() == (source / name).read_bytes()


def test_training_artifacts_are_not_exported(family: Family, tmp_path: Path) -> None:
    source = Path(shutil.copytree(FOLDER, tmp_path / "source"))
    for name in ("checkpoint-500", "checkpoints", "exports", "logs", "samples"):
        (source / name).mkdir()
        (source / name / "optimizer.bin").write_bytes(b"a pickle")
    loaded = load_model(Family, ModelSettings(path=source), only=["denoiser"])
    out = export_model(loaded, tmp_path / "out", trained(loaded, "denoiser"))
    assert {path.name for path in out.iterdir()} == {path.name for path in FOLDER.iterdir()}


def test_export_contains_no_local_path(family: Family, tmp_path: Path) -> None:
    source = Path(shutil.copytree(FOLDER, tmp_path / "source"))
    for name in ("model_index.json", "unet/config.json", "vae/config.json", "scheduler/scheduler_config.json"):
        table = json.loads((source / name).read_text())
        (source / name).write_text(json.dumps(table | {"_name_or_path": str(tmp_path)}))
    loaded = load_model(Family, ModelSettings(path=source))
    out = export_model(loaded, tmp_path / "out", trained(loaded, "denoiser"))
    texts = [p.read_bytes() for p in out.rglob("*") if p.is_file()]
    assert not any(str(tmp_path).encode() in text or b"_name_or_path" in text for text in texts)


def test_only_variant_is_exported_under_the_plain_name(tmp_path: Path) -> None:
    source = Path(shutil.copytree(FOLDER, tmp_path / "source"))
    plain = source / "vae" / "diffusion_pytorch_model.safetensors"
    plain.rename(source / "vae" / "diffusion_pytorch_model.fp16.safetensors")
    loaded = load_model(Family, ModelSettings(path=source), only=["denoiser"])
    opened(export_model(loaded, tmp_path / "out", trained(loaded, "denoiser")))


def test_existing_target_is_not_overwritten(family: Family, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(WeightsError, match="already exists") as caught:
        export_model(family, tmp_path / "out", trained(family, "denoiser"))
    assert caught.value.code == "E1410"
    assert os.listdir(tmp_path / "out") == ["mine"]


def test_failed_export_leaves_no_files(family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StorageError, match="make room") as caught:
        export_model(family, tmp_path / "out", trained(family, "denoiser"))
    assert caught.value.code == "E1701"
    assert os.listdir(tmp_path) == []


def test_target_that_cannot_be_created_is_reported(family: Family, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="out") as caught:
        export_model(family, tmp_path / "file" / "out", trained(family, "denoiser"))
    assert caught.value.code == "E1701"
