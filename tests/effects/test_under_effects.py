"""Rows of `model.under` and `sample.under`: frozen adapters that change the denoiser only while it is trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from mezzotint.adapters import files, writing
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.training.callbacks.previews import Previews
from support.sample_command import draw

Prepare = Callable[..., Any]
LORA = {"model__adapter__kind": "lora", "model__adapter__rank": 4, "model__adapter__targets": "[attention]"}


@pytest.fixture
def under_file(prepare: Prepare, tmp_path: Path) -> Path:
    """An adapter that changes much."""
    ready = prepare(**LORA, run__seed=5)
    generator = torch.Generator().manual_seed(7)
    tensors = {n: torch.randn(t.shape, generator=generator) for n, t in ready.trainer.model.update.masters.items()}
    adapter = ready.trainer.model.adapter
    writing.write(adapter.as_file(tensors), tmp_path / "under.safetensors", adapter.names, "kohya")
    return tmp_path / "under.safetensors"


def preview(ready: Any) -> Any:
    [previews] = [callback for callback in ready.trainer.callbacks if isinstance(callback, Previews)]
    previews.on_step(None, ready.trainer.progress)
    return np.asarray(Image.open(ready.folder.samples / "step-00000000" / "00-raw.png"))


# breaks if an adapter under a run is not applied while training, or at another strength
@pytest.mark.effect("model.under")
def test_adapter_under_a_run_changes_training_only(prepare: Prepare, under_file: Path) -> None:
    plain, half = prepare(**LORA).step(), prepare(**LORA, model__under=[{"path": str(under_file), "strength": 0.5}])
    ready = prepare(**LORA, model__under=str(under_file))
    step = ready.step()
    assert len({step.report.loss, plain.report.loss, half.step().report.loss}) == 3
    assert step.after.keys() == plain.after.keys(), "it is not trained"
    (folder, _) = ready.job.host.write_exports(ready.trainer)
    written = files.read(folder / "pytorch_lora_weights.safetensors", ready.trainer.model.adapter.names)
    assert [note for note in written.notes if "trained with under.safetensors under it" in note]
    [recorded] = json.loads(written.metadata[files.UNDER_KEY])
    assert recorded["name"] == "under.safetensors"
    assert recorded["sha256"] in str(ready.job.host.identity.parts)


def test_run_is_not_resumed_or_sampled_with_another_adapter_under_it(
    shared_world: Any, under_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = LORA | {"model__under": str(under_file), "data__cache__latents": True, "data__cache__text": True}
    assert shared_world.train("over", run__steps=2, **words) == 0
    moved = under_file.rename(under_file.with_name("moved.safetensors"))
    assert shared_world.train("over", run__steps=3, **words | {"model__under": str(moved)}) == 0, (
        "a new path is allowed"
    )
    run = shared_world.root / "over"
    images = [
        draw(tmp_path / name, f"sample.under={name}", "--prompt=a red circle", place=run) for name in ("false", "true")
    ]
    assert not np.array_equal(*(next(iter(drawn.values()))[0] for drawn in images))
    tensors = load_file(moved)
    save_file({name: tensor + (tensor.ndim > 0) for name, tensor in tensors.items()}, moved)
    assert shared_world.train("over", run__steps=4, **words | {"model__under": str(moved)}) == 2
    assert "adapter 1 under the run is not the one" in capsys.readouterr().err
    with pytest.raises(WeightsError, match=r"not the one that .*step-00000003 was trained with"):
        draw(tmp_path / "changed", "sample.under=true", "--prompt=a red circle", place=run)


# breaks if previews are with the adapters under the run although it is not asked for, or without them if it is
@pytest.mark.effect("sample.under")
def test_previews_are_without_adapters_under_the_run_unless_asked_for(prepare: Prepare, under_file: Path) -> None:
    few = LORA | {
        "run__preview__every": 1, "run__preview__weights": "raw", "sample__steps": 2, "sample__guidance": 1,
        "sample__prompts": ["a red circle"],
    }  # fmt: skip
    plain = preview(prepare(**few))
    assert np.array_equal(preview(prepare(**few, model__under=str(under_file))), plain)
    assert not np.array_equal(preview(prepare(**few, model__under=str(under_file), sample__under=True)), plain)
    with pytest.raises(RecipeError, match="and there is none"):
        prepare(**few, sample__under=True)
