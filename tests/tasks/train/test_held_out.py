"""How many pictures are held out is a rule that a run keeps from its beginning. `data/run_by_chance` is a run of two
steps, begun on 2026-11-22 at commit 6a0ac3b, when there was one rule; it holds the recipe and the newest checkpoint:

    mezzotint train r.yaml model.path=model model.weights=random 'model.freeze=[denoiser/*, "!denoiser/conv_out.*"]'
    data.path=pictures data.resolution=48 data.buckets.step=8 data.batch_size=4 data.workers=0 data.holdout.share=0.25
    run.seed=2 run.folder=run run.steps=2 run.device=cpu run.threads=1 run.tensorboard=false run.save.every=2
    optim.lr=1e-3 run.log_samples=true run.preview.every=null run.validation.every=1

over the model and the pictures of the fixture `world`.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from mezzotint.cli import main
from mezzotint.tasks.check.check import check
from mezzotint.tasks.check.memory import Activations, Outline
from mezzotint.tasks.reading.arguments import parse

HERE = Path(__file__).parents[2] / "journeys" / "data" / "run_by_chance"
HELD_OUT_BEFORE = ["00.png", "02.png", "04.png", "05.png", "07.png"]
"""logs/held_out.txt of that run: half of ten pictures, with a share of 0.25."""


def held_out(run: Path) -> list[str]:
    return [Path(line).name for line in (run / "logs" / "held_out.txt").read_text().splitlines()]


def recorded_rule(run: Path, step: int) -> str:
    state = json.loads((run / "checkpoints" / f"step-{step:08d}" / "state.json").read_text())
    return str(state["recipe"]["data"]["holdout"]["rule"])


def test_a_run_begun_before_keeps_its_held_out_pictures_and_a_new_one_has_the_share(
    world: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # not measured here: tests/tasks/check/test_memory.py does
    monkeypatch.setattr(Outline, "activations", lambda self, size, samples: Activations(samples, 1000 * samples, 0, 0))
    run = world.root / "run"
    shutil.copytree(HERE, run)
    # another release of torch draws other frozen weights, and of Pillow writes other files
    here = [f"model.path={world.model}", f"data.path={world.pictures}", f"data.cache.path={world.root / 'cache'}",
            "run.allow_change=[data, model]"]  # fmt: skip
    # a recipe of the user's own, which says nothing of the rule
    own = world.root / "own.yaml"
    own.write_text((HERE / "recipe.yaml").read_text())
    words = [str(own), *here, f"run.folder={run}", "run.steps=3"]
    checked = check(parse(words, "check"))
    assert checked.dataset is not None
    assert len(checked.dataset.held) == 5
    assert not [note for note in checked.notes if "holdout" in note]
    capsys.readouterr()
    assert main(["train", *words]) == 0
    assert "holdout" not in capsys.readouterr().out, "nothing of the split is told as a change"
    assert held_out(run) == HELD_OUT_BEFORE
    assert recorded_rule(run, 3) == "chance"
    assert yaml.safe_load((run / "recipe.yaml").read_text())["data"]["holdout"]["rule"] == "chance"
    trained = set(re.findall(r"\d\d\.png", (run / "logs" / "samples.rank0.jsonl").read_text()))
    assert trained
    assert not trained & set(HELD_OUT_BEFORE)
    assert main(["train", *words, "data.holdout.rule=exact"]) == 2
    assert "data.holdout.rule  E1510 is 'exact', the checkpoint was made with 'chance'" in capsys.readouterr().err
    # begun today: ⌈0.25 · 10⌉ of them, the first of the same draw
    begun = check(parse([*words, f"run.folder={world.root / 'new'}"], "check"))
    assert begun.dataset is not None
    assert [begun.dataset.catalogue.key(row) for row in begun.dataset.held.tolist()] == ["00.png", "02.png", "05.png"]
    assert begun.recipe.data.holdout.rule == "exact"
