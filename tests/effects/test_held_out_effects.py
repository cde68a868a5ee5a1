"""Rows of the held-out loss: separate folders, a share of the trained images."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.errors import DatasetError, RecipeError
from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.tasks.reading.arguments import parse
from mezzotint.tasks.train import held_out
from mezzotint.training.callbacks.validation import Validation

Make = Callable[..., Any]
QUICK = {"run__steps": 2, "run__validation__every": 2, "run__validation__timesteps": 2, "optim__ema__rule": "none"}


def measured(run: Path) -> dict[int, dict[str, float]]:
    """The held-out numbers of metrics.jsonl by step."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {line.pop("step"): line for line in lines if any(key.startswith("val/") for key in line)}


@pytest.fixture
def sets(noisy: Make, tmp_path: Path) -> tuple[Path, Path]:
    return noisy(tmp_path / "faces", [(48, 48)] * 3), noisy(tmp_path / "places", [(64, 48)] * 2)


# breaks if a single folder has no name, several folders are one set, or their images are trained
@pytest.mark.effect("data.holdout.path")
def test_holdout_path_folders_are_measured_and_not_trained(
    prepare: Make, sets: tuple[Path, Path], shared_world: Any
) -> None:
    faces, places = sets
    several = {"faces": str(faces), "places": str(places)}
    ready = prepare(data__holdout__path=several, data__holdout__fraction=0.2, run__log_samples=True, **QUICK)
    ready.trainer.run()
    losses = measured(ready.folder.path)
    assert sorted(losses) == [0, 2]
    tags = {"val/loss", "val/faces", "val/places", "val/all"}
    assert {key for key in losses[2] if "_at/" not in key} == tags
    places = ("250", "750", "quartile_1", "quartile_3")
    assert losses[2].keys() - tags == {f"{tag}_at/{at}" for tag in tags - {"val/all"} for at in places}
    assert losses[2]["val/all"] == pytest.approx(sum(losses[2][tag] for tag in tags - {"val/all"}) / 3)
    assert len({losses[2][tag] for tag in tags}) == 4
    rows = (ready.folder.logs / "samples.rank0.jsonl").read_text()
    assert "00.png" in rows
    assert "000.png" not in rows, "images of the sets are named with three digits"
    own = [str(ready.job.dataset.catalogue.path(row)) for row in ready.job.dataset.held.tolist()]
    listed = (ready.folder.logs / "held_out.txt").read_text().splitlines()
    assert listed == [*own, *(str(path) for folder in sets for path in sorted(folder.glob("*.png")))]


# breaks if a single folder is not a set, the report omits it, or the loss depends on where latents come from
@pytest.mark.effect("data.holdout.path")
def test_single_holdout_folder_is_named_val(prepare: Make, sets: tuple[Path, Path]) -> None:
    losses = []
    for cached in (True, False):
        cache = {"data__cache__latents": cached, "data__cache__text": cached}
        still = {"data__crop": "center", "data__flip": 0}
        ready = prepare(data__holdout__path=sets[0], **QUICK, **cache, **still)
        [validation] = [o for o in ready.trainer.callbacks if isinstance(o, Validation)]
        losses.append(validation.measure())
    assert set(losses[0]) - {"val/val_at/quartile_1", "val/val_at/quartile_3"} == {
        "val/val", "val/val_at/250", "val/val_at/750",
    }  # fmt: skip
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


# breaks if measuring changes anything, such as the trained weights
@pytest.mark.effect("data.holdout.path", "run.validation.training_fraction")
def test_validation_does_not_change_training(shared_world: Any, sets: tuple[Path, Path], prepare: Make) -> None:
    measuring = {
        "data__holdout__path": str(sets[0]),
        "run__validation__training_fraction": 0.5,
        "run__validation__every": 1,
        "run__validation__timesteps": 1,
    }
    for name, settings in (("unmeasured", {"run__validation__every": "null"}), ("measured", measuring)):
        short = {"data__cache__latents": True, "data__cache__text": True, "run__steps": 2, "optim__ema__rule": "none"}
        assert shared_world.train(name, **short | settings) == 0
    assert shared_world.end("measured") == shared_world.end("unmeasured")
    assert "held-out loss" in (shared_world.root / "measured" / "logs" / "report.txt").read_text()


# breaks if a trained image among the held-out ones is ignored silently
@pytest.mark.effect("data.holdout.path")
def test_trained_images_in_holdout_give_a_warning(prepare: Make, sets: tuple[Path, Path], shared_world: Any) -> None:
    for number in range(2):
        shutil.copy(shared_world.images / f"0{number}.png", sets[0] / f"again-{number}.png")
        (sets[0] / f"again-{number}.txt").write_text("again")
    ready = prepare(data__holdout__path=sets[0], **QUICK)
    sentences: list[str] = []
    held_out.warn_of_trained(ready.job.dataset, sentences.append)
    assert sentences == [
        "2 of the 5 images of data.holdout.path val are trained as well, so val/val does not measure "
        "only unseen images; remove them from data.path"
    ]


# breaks if a large folder is measured completely
@pytest.mark.effect("data.holdout.max_samples")
def test_max_samples_bounds_each_holdout_set(prepare: Make, sets: tuple[Path, Path]) -> None:
    many = {"data__holdout__path": {"a": str(sets[0]), "b": str(sets[1])}, "run__validation__training_fraction": 0.9}
    ready = prepare(data__holdout__max_samples=2, **many, **QUICK)
    assert [len(one.rows) for one in ready.job.dataset.sets.values()] == [2, 2]
    assert len(held_out.trained_rows(ready.recipe, ready.job.dataset)) == 2


def test_impossible_holdout_set_is_refused(prepare: Make, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"data\.holdout\.path, set faces: .*does not exist"):
        prepare(data__holdout__path={"faces": str(tmp_path / "nowhere")}, **QUICK)
    for name in ("loss", "all", "train", "x_shadow", "a/b", ""):
        with pytest.raises(RecipeError, match=r"data\.holdout\.path"):
            read_text(f"data: {{holdout: {{path: {{'{name}': x}}}}}}")


def test_holdout_paths_are_relative_to_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "faces").mkdir()
    (tmp_path / "r.yaml").write_text("schema: 1\nsample: {prompt_file: p.txt}\ndata: {holdout: {path: faces}}\n")
    (tmp_path / "p.txt").write_text("a fox")
    recipe = resolve_paths(parse([str(tmp_path / "r.yaml")], "train"))
    assert recipe.data.holdout.path == {"val": tmp_path / "faces"}
    assert recipe.sample.prompt_file == tmp_path / "p.txt"
    one = parse([str(tmp_path / "r.yaml"), "data.holdout.path={a: x, b: y}", "data.holdout.path.b=z"], "train")
    assert one.recipe.data.holdout.path == {"a": Path("x"), "b": Path("z")}


# breaks if other rows are measured, the share differs, or the rows are no longer trained
@pytest.mark.effect("run.validation.training_fraction")
def test_training_fraction_measures_trained_images(prepare: Make) -> None:
    ready = prepare(run__validation__training_fraction=0.4, data__holdout__fraction=0.2, **QUICK)
    dataset = ready.job.dataset
    rows = held_out.trained_rows(ready.recipe, dataset)
    assert set(rows.tolist()) < set(dataset.rows.tolist())
    assert len(dataset.rows) + len(dataset.held) == 10
    [validation] = [o for o in ready.trainer.callbacks if isinstance(o, Validation)]
    losses = validation.measure()
    assert {"val/loss", "val/train", "val/train_at/250"} <= losses.keys()
    assert "val/all" not in losses, "trained images say nothing about unseen ones"
    again = prepare(run__validation__training_fraction=0.4, data__holdout__fraction=0.2, **QUICK)
    assert np.array_equal(held_out.trained_rows(again.job.resolved.recipe, again.job.dataset), rows)
    other = prepare(run__validation__training_fraction=0.4, data__holdout__fraction=0.2, run__seed=1, **QUICK)
    assert other.job.dataset.held.tolist() != dataset.held.tolist()
    assert not (ready.folder.logs / "held_out.txt").read_text().count("\n") > len(dataset.held)
    assert len(held_out.trained_rows(prepare(**QUICK).job.resolved.recipe, dataset)) == 0
