"""Class pictures that the model draws itself: how many, which, and that an interruption changes none."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mezzotint import outside
from mezzotint.families.sd import Family
from mezzotint.sampling import pictures
from mezzotint.settings.reading.read import located, read_text
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.subjects import PriorSettings
from mezzotint.shapes import Size
from mezzotint.tasks.cache import class_pictures
from mezzotint.tasks.check.check import check
from mezzotint.tasks.reading.arguments import parse


def words_of(world: Any, name: str, folder: Path, **settings: Any) -> dict[str, Any]:
    return {
        "data__prior__path": folder, "data__prior__class_prompt": "a picture", "data__prior__num_class_images": 5,
        "data__prior__balance": "pairs", "data__buckets__shape": "square", "sample__steps": 1, "sample__batch_size": 2,
        "run__steps": 1, **settings,
    }  # fmt: skip


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def whole(shared_world: Any) -> Path:
    """Class images of a run without interruption."""
    folder: Path = shared_world.root / "class-whole"
    child = shared_world.fork("whole", **words_of(shared_world, "whole", folder))
    assert shared_world.wait(child) == 0, shared_world.out("whole")
    return folder


@pytest.mark.slow
@pytest.mark.faults
def test_interrupted_generation_resumes_with_the_same_class_images(shared_world: Any, whole: Path) -> None:
    world = shared_world
    parts = world.root / "class-parts"
    drawn = content(whole)
    assert list(drawn) == [f"class-0000{n}.png" for n in range(5)]
    assert len(set(drawn.values())) == 5
    heard = world.out("whole")
    assert "note: 5 class images of 'a picture' will be generated into" in heard
    assert re.search(r"class images: 2 of 5, about [\d.]+ s left", heard)
    assert "class images: 5 of 5" in heard
    with Image.open(whole / "class-00003.png") as image:
        assert image.size == (128, 128), "what tiny-sd was made for"
        facts = pictures.recorded_in(image)
    assert (facts["prompt"], facts["index"], facts["drawn_as"]) == ("a picture", "3", "class picture")
    lines = outside.read_lines(world.root / "whole" / "logs" / "samples.rank0.jsonl")
    assert any(key.startswith("1/class-") for line in lines for key in line["keys"])

    assert world.wait(world.fork("parts", fault="class.picture@3:kill", **words_of(world, "parts", parts))) != 0
    before = content(parts)
    assert 0 < len(before) < 5
    times = {name: os.stat(parts / name).st_mtime_ns for name in before}
    assert world.wait(world.fork("parts", **words_of(world, "parts", parts))) == 0, world.out("parts")
    assert content(parts) == drawn
    assert {name: os.stat(parts / name).st_mtime_ns for name in before} == times


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_generate_byte_identical_class_images(shared_world: Any, whole: Path) -> None:
    world, two = shared_world, shared_world.root / "class-two"
    for child in world.fork_group("two", 2, **words_of(world, "two", two)):
        assert world.wait(child) == 0, world.out("two")
    assert content(two) == content(whole)
    assert "of this process" in world.out("two")


def test_class_images_of_other_settings_are_reported(shared_world: Any, tmp_path: Path) -> None:
    folder = tmp_path / "class"
    folder.mkdir()
    assert class_pictures.of_other_settings(recipe_of(shared_world, folder)) == ""
    with Image.new("RGB", (8, 8)) as image:
        for number, facts in enumerate(({"prompt": "a picture"}, {"prompt": "a fox"}, {"steps": "9"})):
            (folder / f"class-0000{number}.png").write_bytes(pictures.png(np.asarray(image), facts))
        image.save(folder / "mine.png")
        image.save(folder / "class-00009.png")
    sentence = class_pictures.of_other_settings(recipe_of(shared_world, folder))
    assert "2 class images in it were generated with other settings (prompt 'a fox', now 'a picture')" in sentence
    assert class_pictures.as_checked(recipe_of(shared_world, folder))[1][-1] == sentence
    assert not class_pictures.of_other_settings(recipe_of(shared_world, folder, data__prior__num_class_images=0))


def test_default_folder_of_class_images_depends_on_model_and_prompt(tmp_path: Path) -> None:
    def prior_of(*words: str) -> PriorSettings:
        own = (f"data.cache.path={tmp_path}", "data.prior.num_class_images=5", "data.captions.trigger=sks cat", *words)
        return located(read_text("schema: 1", overrides=own)).data.prior

    plain = prior_of("data.captions.template=a photo of {trigger}")
    assert plain.class_prompt == "a photo of cat"
    [folder] = plain.path
    assert folder.parent == tmp_path / "class-pictures"
    assert folder.name.startswith("a-photo-of-cat-")
    assert prior_of("data.captions.template=a photo of {trigger}", "run.seed=7", "sample.steps=5") == plain
    others = [prior_of(), prior_of("data.prior.class_prompt=a cat"), prior_of("model.path=sd1")]
    assert [one.class_prompt for one in others] == ["cat", "a cat", "cat"]
    assert len({one.path for one in (plain, *others)}) == 4
    assert prior_of("data.prior.path=mine").path[0].name == "mine"


def test_progress_states_remaining_time() -> None:
    lines: list[tuple[str, bool]] = []
    now = iter((0.0, 10.0, 40.0, 70.0, 130.0, 160.0))
    progress = class_pictures._GenerationProgress(
        10, "", lambda line, is_due: lines.append((line, is_due)), lambda: next(now)
    )
    progress.start()
    for _ in range(4):
        progress.advance(2)
    assert lines == [
        ("class images: 2 of 10, about 2 min 0 s left", True),
        ("class images: 4 of 10, about 1 min 30 s left", False),
        ("class images: 6 of 10, about 1 min 20 s left", True),
        ("class images: 8 of 10, about 37.5 s left", False),
    ]


@pytest.mark.parametrize(("sample_size", "side"), [(8, 64), (None, 48)])
def test_class_images_have_the_native_size_of_the_model(
    shared_world: Any, tmp_path: Path, sample_size: int | None, side: int
) -> None:
    family = Family.tiny()
    family.denoisers[0].register_to_config(sample_size=sample_size)  # type: ignore[operator]
    recipe = recipe_of(shared_world, tmp_path, data__resolution=48)
    assert class_pictures._request(recipe, family, 3).size == Size(side, side)


def recipe_of(world: Any, folder: Path, **settings: Any) -> Recipe:
    return located(parse(world.words("counted", **words_of(world, "counted", folder, **settings)), "train"))


def test_existing_images_of_the_user_count_and_are_kept(shared_world: Any, tmp_path: Path) -> None:
    folder = tmp_path / "class"
    assert class_pictures.missing(recipe_of(shared_world, folder)) == [0, 1, 2, 3, 4]
    folder.mkdir()
    for name in ("one.png", "two.jpg", "class-00001.png", "notes.txt"):
        (folder / name).write_bytes(b"mine")
    assert class_pictures.missing(recipe_of(shared_world, folder)) == [0, 2]
    assert class_pictures.missing(recipe_of(shared_world, folder, data__prior__num_class_images=2)) == []
    assert class_pictures.missing(recipe_of(shared_world, folder, data__prior__num_class_images=0)) == []


def test_check_states_number_of_class_images_without_generating(shared_world: Any, tmp_path: Path) -> None:
    folder = tmp_path / "none"
    reading = parse(shared_world.words("checked", **words_of(shared_world, "checked", folder)), "check")
    checked = check(reading)
    assert not checked.problems
    assert any("5 class images of 'a picture' will be generated into" in note for note in checked.notes)
    assert checked.dataset is not None
    assert len(checked.dataset.rows) == 10
    assert not folder.exists()
