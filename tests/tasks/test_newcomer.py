"""What a newcomer meets in a run: odd pictures and captions are named, previews are drawn as their pictures are
trained, a changed recipe is told how to begin a run of its own, and a run that is stopped has its report."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from mezzotint import outside
from mezzotint.data.buckets import buckets
from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.recipe.reading.read import located, read
from mezzotint.run_folder import RunFolder
from mezzotint.sampling.pictures import told_by
from mezzotint.sampling.prompt_file import PromptFile
from mezzotint.tasks import long_captions
from mezzotint.tasks.prompts import previews


def report_of(folder: Path) -> dict[str, dict[str, Any]]:
    return {line["id"]: line for line in outside.read_lines(folder / "data_report.jsonl")}


def odd_pictures(world: Any) -> None:
    """Beside the world's own: a strip, a copy, one that is too small, and captions that are too long or none."""
    folder: Path = world.pictures
    rng = np.random.default_rng(5)

    def picture(name: str, width: int, height: int, caption: str) -> None:
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(folder / f"{name}.png")
        (folder / f"{name}.txt").write_text(caption)

    picture("long", 48, 48, "circle " * 112)
    picture("many", 48, 48, "\n".join(["a dog", *(f"dog number {n}" for n in range(31)), "de.utf8=ein Hund"]))
    picture("mute", 48, 48, " \n")
    picture("small", 20, 20, "a small one")
    picture("strip", 300, 8, "a strip")
    (folder / "twin.png").write_bytes((folder / "small.png").read_bytes())
    (folder / "twin.txt").write_text("a twin")


def test_odd_pictures_and_captions_are_counted_and_named(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    odd_pictures(world)
    settings = {"data__captions__lines": "choose", "run__steps": 1, "optim__ema__rule": "none"}
    wanted = (
        r"1 caption of \d+ is longer than the text encoder reads, and the end is never seen: long\.png \(\d+ tokens\)",
        r"1 picture has the very bytes of another, and count as often: twin\.png = small\.png",
        r"1 picture has a shape far from every bucket, .*: strip\.png \(300×8, \d+(\.\d)? % seen\)",
        r"1 sample has 10 captions or more, .*: many\.png \(33, the last 'de\.utf8=ein Hund'\)",
    )
    assert world.train("run", verb="cache", data__cache__text=True, data__captions__lines="choose") == 0
    assert re.search(wanted[0], capsys.readouterr().out)
    assert world.train("run", verb="check", **settings) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert world.train("run", **settings) == 0
    start, log = capsys.readouterr().out, (world.root / "run" / "run.log").read_text()
    for pattern in wanted:
        assert re.search(pattern, said), pattern
        assert re.search(pattern, start), pattern
        assert re.search(pattern, log), pattern
    told = report_of(world.root / "run")
    assert told["small.png"]["enlarged"] is True
    assert (told["small.png"]["size"], told["small.png"]["bucket"]) == ("20×20", "48×48")
    assert told["twin.png"]["same_as"] == "small.png"
    assert told["twin.png"]["sha256"] == told["small.png"]["sha256"]
    assert told["mute.png"]["empty_caption"] is True
    assert told["many.png"]["captions"] == 33
    assert told["strip.png"]["seen"] < 0.25
    assert told["long.png"]["lost_tokens"] == 112 + 2 - 77
    for name in ("enlarged", "same_as", "empty_caption", "captions", "seen", "lost_tokens"):
        assert name not in told["00.png"], name


def test_of_very_many_long_captions_some_are_looked_at_and_the_rest_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_captions, "_LOOKED_AT", 10)
    seen: list[int] = []

    class Family:
        def lost_tokens(self, captions: list[str]) -> tuple[int, ...]:
            seen.append(len(captions))
            return tuple(max(0, len(caption.split()) + 2 - 77) for caption in captions)

    root = tmp_path / "pictures"
    root.mkdir()
    for number in range(60):
        Image.new("RGB", (48, 48), (number, 0, 0)).save(root / f"{number:02d}.png")
        (root / f"{number:02d}.txt").write_text("word " * (100 if number % 2 else 20 if number % 4 else 5))
    recipe = read("mini", [f"data.path={root}"]).recipe
    catalogue = build(recipe.data, tmp_path / "index", workers=1)
    lost = long_captions.lost_words(cast(Any, Family()), catalogue)
    assert lost is not None
    assert seen == [2, 10], "one look for the room, and no caption that is sure to fit"
    assert lost.long == 45
    (said,) = long_captions.note(lost, catalogue)
    assert re.match(rf"about {round(lost.cut * 4.5)} captions of 60 \(told from 10 of the longer ones\) are", said)


def test_previews_of_captions_differ_and_have_the_size_their_picture_is_trained_in(tmp_path: Path) -> None:
    """The shipped data set's fourth picture is wide: asked for as a square, training looked harmful."""
    recipe = located(read("mini", ["data.path=shapes"]))
    dataset = _dataset(build(recipe.data, tmp_path, workers=1))
    lines = previews._lines(recipe, PromptFile(()), dataset)
    assert [(line.prompt, line.width, line.height) for line in lines][2:] == [
        ("a blue triangle on a white ground", 64, 64),
        ("a yellow circle on a black ground", 80, 48),
    ]
    asked = located(read("mini", ["data.path=shapes", "sample.size=[64,64]"]))
    assert {line.width for line in previews._lines(asked, PromptFile(()), dataset)} == {None}
    of_file = previews._lines(recipe, PromptFile((), {"size": (64, 64)}), dataset)
    assert {line.width for line in of_file} == {None}


def _dataset(catalogue: Catalogue) -> Any:
    return SimpleNamespace(catalogue=catalogue, rows=np.arange(len(catalogue), dtype=np.int32))


def test_previews_of_a_run_take_different_captions_and_several_sizes(world: Any) -> None:
    for number in range(3):
        (world.pictures / f"{number:02d}.txt").write_text("the same for three")
    settings = {"run__steps": 1, "run__preview__every": 1, "sample__steps": 1, "optim__ema__rule": "none"}
    assert world.train("run", **settings) == 0
    told = []
    for path in sorted((world.root / "run" / "samples" / "step-00000001").glob("*.png")):
        with Image.open(path) as image:
            told.append((told_by(image)["prompt"], f"{image.width}×{image.height}"))
    prompts = [prompt for prompt, _ in told]
    assert len(set(prompts)) == 4
    by_caption = {
        (world.pictures / name).with_suffix(".txt").read_text().strip(): line["bucket"]
        for name, line in report_of(world.root / "run").items()
    }
    assert told[1:] == [(prompt, by_caption[prompt]) for prompt in prompts[1:]]
    assert len({size for _, size in told}) > 1


def test_a_changed_recipe_is_told_how_to_begin_a_run_beside_and_check_says_it_before(
    world: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.root)
    settings = {"run__steps": 1, "run__folder": None, "run__name": "fox", "optim__ema__rule": "none"}
    assert world.train("run", **settings) == 0
    (world.pictures / "00.txt").write_text("another caption")
    for verb in ("check", "train"):
        capsys.readouterr()
        assert world.train("run", verb=verb, **settings | {"optim__lr": 2e-3}) == 2
        said = capsys.readouterr().err
        assert "or begin a new run beside it: run.name=fox-2\n" in said, verb
        assert "E1510" in said, verb
        assert "E1513" in said, verb
    assert world.train("run", **settings | {"run__name": "fox-2", "optim__lr": 2e-3}) == 0


def test_a_new_seed_of_previews_is_printed_and_kept(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"sample__seed": -1, "run__preview__every": 9, "sample__prompts": ["a"], "sample__steps": 1}
    settings |= {"optim__ema__rule": "none", "run__seed": 5}
    assert world.train("run", run__steps=1, **settings) == 0
    (seed,) = re.findall(r"sample\.seed is -1: this run's previews have seed (\d+), drawn", capsys.readouterr().out)
    assert world.train("run", run__steps=2, **settings) == 0
    assert f"this run's previews have seed {seed}, kept" in capsys.readouterr().out
    for step in (0, 1, 2):
        with Image.open(world.root / "run" / "samples" / f"step-{step:08d}" / "00-raw.png") as image:
            assert told_by(image)["seed"] == seed
    assert world.train("other", run__steps=1, **settings) == 0
    assert f"seed {seed}, drawn" not in capsys.readouterr().out, "not run.seed, which is the same"


@pytest.mark.usefixtures("curves")
def test_a_run_that_is_stopped_has_its_report_and_says_so_in_its_history(
    world: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEZZOTINT_FAULT", "step.begin@3:int")
    assert world.train("run", run__steps=8) == 130
    folder = RunFolder(world.root / "run")
    stopped = [event for event in folder.events() if event["event"] == "stopped"]
    assert [(event["step"], event["signal"]) for event in stopped] == [(3, 2)]
    with Image.open(folder.logs / "loss.png") as image:
        assert image.size == (1650, 1050)
    assert "steps         3, the last in epoch 1" in (folder.logs / "report.txt").read_text()
    assert str(folder.logs / "loss.png") in capsys.readouterr().out


def test_the_prompt_of_quick_start_is_one_that_its_training_shows_in_the_size_it_is_drawn(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    pages = (root / "README.md", root / "docs" / "start" / "first-steps.md")
    shown = [
        re.findall(r'^mezzotint sample runs/first --prompt="(.*)"', page.read_text(), re.MULTILINE) for page in pages
    ]
    assert shown[0] == shown[1]
    (prompt,) = shown[0]
    recipe = located(read("mini", ["data.path=shapes"]))
    catalogue = build(recipe.data, tmp_path, workers=1)
    report = [row for row in range(len(catalogue)) if prompt in catalogue.captions(row)]
    assert report, prompt
    table = buckets.table(recipe.data)
    sizes = [table[number] for number in catalogue.buckets_of(report, recipe.data)]
    assert [(size.width, size.height) for size in sizes] == [recipe.sample.size or (64, 64)]
