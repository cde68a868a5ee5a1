"""Rows of files that MindONE reads and writes: checkpoints of MindSpore's, and moments of its optimizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.compat.mindone import mindspore_format
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.train.exports import require_possible
from mezzotint.weights.files import formats
from mezzotint.weights.files.tensor_files import read, read_header
from support.effect_fixtures import COMMON, names

Prepare = Callable[..., Any]
KIND = {"optim__optimizer__kind": "adam-weight-decay"}
PREFIX = "ldm_with_loss_grad.optimizer."


# breaks if moments go to other tensors, their count is lost, or missing ones are not reported
@pytest.mark.effect("run.start.optimizer", "run.export.optimizer_file")
def test_optimizer_moments_round_trip_under_mindone_names(prepare: Prepare, tmp_path: Path) -> None:
    settings = {"run__steps": 8, "optim__schedule__warmup_steps": 2} | KIND
    whole = prepare(run__export__optimizer_file="mindone", **settings)
    for _ in range(3):
        whole.step()
    whole.trainer.progress.step = 3
    whole.trainer.host.save(whole.trainer)
    file = whole.job.start.folder.path / "optimizer.ckpt"
    there = dict(mindspore_format.read(file))
    names = {name.removeprefix(PREFIX) for name in there}
    assert all(name.startswith(PREFIX) for name in there)
    assert there[PREFIX + "global_step"].tolist() == [3]
    assert there[PREFIX + "global_step"].dtype == torch.int32
    assert there[PREFIX + "learning_rate.learning_rate"].tolist() == pytest.approx([0.0, 5e-4, *[1e-3] * 6])
    weight = "model.diffusion_model.out.0.gamma"
    assert {weight, f"adam_m.{weight}", f"adam_v.{weight}"} <= names
    masters = whole.trainer.model.update.masters
    assert torch.equal(there[PREFIX + weight], masters["denoiser/conv_norm_out.weight"])
    assert not prepare(**settings).job.start.folder.path.joinpath("optimizer.ckpt").exists()

    later = prepare(run__start={"step": 3, "optimizer": str(file)}, **settings)
    mine, theirs = later.trainer.model.update.tensors(), whole.trainer.model.update.tensors()
    moments = [name for name in mine if name.startswith(("opt.mean/", "opt.square/"))]
    assert len(moments) == 2 * len(masters)
    assert all(torch.equal(mine[name], theirs[name]) for name in moments)
    assert float(later.trainer.model.update.applied) == 3.0
    assert "after 3 updates" in (later.job.start.folder.path / "run.log").read_text()

    lacking = tmp_path / "lacking.ckpt"
    kept = {name: t for name, t in there.items() if not name.endswith(("adam_m." + weight, "global_step"))}
    mindspore_format.write(lacking, kept | {PREFIX + "adam_v.lora": torch.zeros(2)})
    part = prepare(run__start={"step": 3, "optimizer": str(lacking)}, **settings)
    log = (part.job.start.folder.path / "run.log").read_text()
    assert "1 start at zero, because the file does not have them: denoiser/conv_norm_out.weight" in log
    assert "1 of the file belong to parameters that are not trained: adam_v.lora" in log
    assert not part.trainer.model.update.tensors()["opt.mean/denoiser/conv_norm_out.weight"].any()


def test_optimizers_without_moments_are_refused(prepare: Prepare, tmp_path: Path) -> None:
    empty = tmp_path / "other.ckpt"
    mindspore_format.write(empty, {"model.diffusion_model.out.2.bias": torch.zeros(4)})
    with pytest.raises(RecipeError, match=r"has no moments of the trained parameters"):
        prepare(run__start={"step": 3, "optimizer": str(empty)}, **KIND)
    with pytest.raises(RecipeError, match=r"the two moments of Adam.*write optim.optimizer.kind"):
        prepare(run__export__optimizer_file="mindone", optim__optimizer__kind="adacoor")
    with pytest.raises(RecipeError, match=r"set run.start.step to its number of steps"):
        read_text("schema: 1", overrides=["run.start.optimizer=optimizer.ckpt"])


# breaks if files are safetensors, have other names than MindONE's, or another family accepts the format
@pytest.mark.effect("run.export.file_format")
def test_export_file_format_mindspore_writes_mindone_checkpoints(prepare: Any, sdxl_folder: Path) -> None:
    settings = COMMON | {"model__family": "sdxl", "model__path": sdxl_folder, "optim__ema__rule": "none"}
    settings |= {"run__export__file_format": "mindspore", "run__export__name": "SDXL-base-1.0_{micro_step}"}
    whole = prepare(**settings, run__export__single_file=True)
    whole.trainer.host.export(whole.trainer)
    assert names(whole.job.start.folder.exports) == ["SDXL-base-1.0_0", "SDXL-base-1.0_0.ckpt"]
    unet = whole.family.parts()["denoiser"].state_dict()
    for parts, starts in (("all", 4), ("trained", 1)):
        if parts == "trained":
            part = prepare(**settings, run__export__parts="trained")
            part.trainer.host.export(part.trainer)
            [file] = part.job.start.folder.exports.glob("*.ckpt")
        else:
            file = whole.job.start.folder.exports / "SDXL-base-1.0_0.ckpt"
        assert formats.name_at(file) == "mindspore"
        held = read_header(file)
        assert len({".".join(name.split(".")[:3]) for name in held if "embedders" in name}) == (2 if starts == 4 else 0)
        assert "model.diffusion_model.out.0.gamma" in held
        assert ("first_stage_model.encoder.norm_out.gamma" in held) == (parts == "all")
        result = read(file, ["model.diffusion_model.out.0.gamma"])["model.diffusion_model.out.0.gamma"]
        assert torch.equal(result, unet["conv_norm_out.weight"])
    words = ["run.export.file_format=mindspore", "run.export.parts=trained"]
    with pytest.raises(RecipeError, match="family sd are not written in the format mindspore, those of sdxl") as caught:
        require_possible(read_text("schema: 1", "x", words).recipe)
    assert caught.value.code == "E1092"


def test_export_trained_file_may_be_a_mindspore_checkpoint(prepare: Any, sdxl_folder: Path) -> None:
    settings = COMMON | {"model__family": "sdxl", "model__path": sdxl_folder, "run__name": "mine"}
    ready = prepare(**settings, run__export__trained_file="mindspore", run__export__name="{what}_{micro_step}{ema}")
    ready.trainer.host.export(ready.trainer)
    assert names(ready.folder.exports) == ["mine_0", "mine_0_ema", "unet_0.ckpt", "unet_0_ema.ckpt"]
    assert "model.diffusion_model.out.0.gamma" in read_header(ready.folder.exports / "unet_0.ckpt")
