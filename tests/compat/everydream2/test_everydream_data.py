"""A data folder of EveryDream2 with every kind of file, trained, interrupted and resumed."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from live_files import write_before_each_epoch
from PIL import Image

from mezzotint import outside
from mezzotint.data.schedule import plan, schedule_file
from mezzotint.data.schedule.columns import plan_columns
from mezzotint.runtimes.base import Launch
from mezzotint.runtimes.single import Runtime
from mezzotint.settings.reading.read import resolve_paths
from mezzotint.tasks import assemble
from mezzotint.tasks.reading.arguments import parse

FILES = {
    "global.yaml": "tags: [a drawing]\nflip_p: 0.25\n",
    "red, bright_1.png": (48, 48),
    "red, dark_2.png": (48, 48),
    "plain.png": (48, 48),
    "plain.txt": "a plain square, flat, even",
    "named.png": (64, 48),
    "named.caption": "a wide image, calm",
    "own.png": (64, 48),
    "own.yaml": "main_prompt: weighted\ntags:\n  - {tag: heavy, weight: 3}\n  - light\nshuffle_tags: true\n"
    "max_caption_length: 30\nrating: 2\n",
    "horses/batch_id.txt": "horses\n",
    "horses/multiply.txt": "1.5",
    "horses/loss_scale.txt": "0.5",
    "horses/shuffle_tags.txt": "",
    "horses/a.png": (48, 48),
    "horses/b.png": (48, 48),
    "horses/c.png": (48, 48),
    "horses/c.yml": "caption: a horse, brown, young\ncond_dropout: 1\n",
    "local/local.yaml": "main_prompt: of this folder\nbatch_id: here\n",
    "local/cond_dropout.txt": "0",
    "local/flip_p.txt": "0",
    "local/d.png": (48, 64),
    "local/below/e.png": (48, 64),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, (name, content) in enumerate(FILES.items()):
        path = tmp_path / "dreams" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content)
        else:
            Image.new("RGB", content, (20 * number % 256, 60, 90)).save(path)
    more = [{"image": "plain.png", "caption": "from a manifest"}]
    (tmp_path / "dreams" / "more.json").write_text(json.dumps(more))
    return tmp_path / "dreams"


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "data__path": None,
        "data__sets": json.dumps([{"path": str(folder)}, {"path": str(folder / "more.json")}]),
        "data__format": "everydream",
        "data__batch_size": 2,
        "data__remainder": "repeat",
        "data__epoch_seed": "add",
        "data__captions__dropout": 0.04,
        "data__flip": 0,
        "optim__accumulation": 2,
        "run__seed": 555,
        "run__steps": 8,
        "run__save__every": 3,
    } | more


@pytest.mark.slow
def test_resume_after_ctrl_c_is_exact_with_live_settings(
    world: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = world.root / "live.yaml"
    by_epoch = {0: "objective: {noise_offset: 0.02}", 1: "objective: {noise_offset: 0.1, min_snr_gamma: 5}", 2: "{"}
    write_before_each_epoch(monkeypatch, lambda epoch: file.write_text(by_epoch.get(epoch, by_epoch[1]) + "\n"))
    words = settings(folder, run__live__path=str(file), run__epochs=3, run__steps=None, run__save__every="1 epoch")
    assert world.wait(world.fork("whole", **words)) == 0
    stopped = words | {"run__export__when_stopped": True, "run__export__name": "'{last}{name}-gs{micro_step:05}{ema}'"}
    assert world.wait(world.fork("parts", fault="step.begin@5:int", **stopped)) == 130
    assert world.end("parts").step == 5
    models = sorted(path.name for path in (world.root / "parts" / "exports").iterdir())
    assert models == ["interrupted-run-gs00009", "interrupted-run-gs00009_ema"]
    assert world.wait(world.fork("parts", **words)) == 0
    assert not list((world.root / "whole" / "exports").glob("interrupted*"))
    assert world.end("parts") == world.end("whole")
    report = outside.read_lines(world.root / "whole" / "data_report.jsonl")
    assert [line for line in report if line["class"] == "noted"] == []
    output = world.out("parts")
    assert "epoch 2: objective.noise_offset is 0.1 from here" in output
    assert "is ignored in epoch 3" in output


@pytest.mark.usefixtures("unmeasured")
def test_check_lists_batch_names_and_badly_filled_batches(world: Any, folder: Path, capsys: Any) -> None:
    (folder / "more.zip").write_bytes(b"PK")
    assert world.train("look", verb="check", **settings(folder, run__steps=None, run__epochs=2)) == 0
    page = capsys.readouterr().out
    assert re.search(r"length +\d+ steps, 2\.0 epochs", page), "though epochs differ, with fractions of visits"
    assert f"1 .zip archive below {folder} is not opened" in " ".join(page.split())
    assert "data.holdout.fraction" not in page
    assert "name    bucket  images  over  to add  filled up" in page
    assert [line.split() for line in page.splitlines() if line.strip().startswith(("horses", "here"))] == [
        ["horses", "48×48", "3", "1", "1", "-"],
        ["here", "40×56", "1", "1", "1", "-"],
    ]
    assert "'here', bucket 40×56: 1 image for batches of 2; add 1 of about 5:7, or multiply these by 2" in " ".join(
        page.split()
    )


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_holdout_that_splits_a_batch_name_is_reported(world: Any, folder: Path, capsys: Any) -> None:
    words = settings(folder, data__holdout__fraction=0.6, run__steps=1)
    assert world.train("look", verb="check", **words) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert world.train("broken", **words) == 0
    start = capsys.readouterr().out
    for text in (
        "data.holdout.fraction splits images that are batched together by name: it holds out 2 of the 3 of 'horses'",
        "with data.holdout.path",
    ):
        assert text in page
        assert text in start


def test_schedule_file_lists_the_trained_samples(world: Any, folder: Path) -> None:
    recipe = resolve_paths(parse(world.words("run", **settings(folder)), "train"))
    runtime = Runtime(assemble.torch.device("cpu"), Launch(), recipe.run)
    dataset = assemble.open_dataset(recipe, runtime)
    seen = Counter[str]()
    for number in (0, 1):
        path = schedule_file.write(
            dataset.timeline.epoch(number), dataset.rows, dataset.catalogue, recipe.data, world.root
        )
        lines = path.read_text().splitlines()
        assert len(lines) % 2 == 0
        for line in lines:
            seen[Path(line.partition("path:")[2]).name] += 1
    assert set(seen) == {Path(name).name for name in FILES if name.endswith(".png")}
    first, second = (plan.plan(plan_columns(dataset.catalogue, dataset.rows, recipe.data), recipe.data,
                               accumulation=2, seed=seed, epoch=0).order.tolist() for seed in (555, 556))  # fmt: skip
    assert dataset.timeline.epoch(0).order.tolist() == first
    assert dataset.timeline.epoch(1).order.tolist() == second
