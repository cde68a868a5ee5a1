"""The doctor finds every flaw of a dataset by name, and none in a sound one."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from mezzotint.data.catalogue import likeness
from mezzotint.errors import DatasetError
from mezzotint.tasks.doctor import _examining, doctor
from support.flawed_images import Ask, findings_in, names, put, scene


def write_odd(folder: Path) -> None:
    """Images with every flaw."""
    for number in range(6):
        put(folder, f"same{number}.png", scene(number), "one for all")
    shutil.copyfile(folder / "same0.png", folder / "twin.png")
    (folder / "twin.txt").write_text("red_hair, 1girl, smile")
    put(folder, "near.jpg", scene(1, (96, 96)), "Red hair, 1girl, smile", quality=60)
    put(folder, "wide.png", scene(20, (640, 64)), "red_hair, 1girl, hat")
    put(folder, "small.png", scene(21, (20, 20)), "a, b, c")
    put(folder, "long.png", scene(22), " ".join(["word"] * 100))
    put(folder, "left.png", scene(23), "a dog that looks to the left")
    put(folder, "plain.png", Image.new("RGB", (64, 64), "#336699"), "1girl, hat, smile")
    put(folder, "grey.png", scene(24).convert("L"), "red_hair, smile, 2girls")
    alpha = scene(25).convert("RGBA")
    alpha.putalpha(scene(26).convert("L"))
    put(folder, "alpha.png", alpha, "")
    put(folder, "print.jpg", scene(27).convert("CMYK"), "c, d, e")
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    put(folder, "profile.png", scene(28), "f, g, h", icc_profile=icc)
    put(folder, "moves.gif", scene(29), "i, j, k", save_all=True, append_images=[scene(30)])
    put(folder, "many.png", scene(31), "\n".join(f"line {n}" for n in range(12)))
    (folder / "broken.png").write_bytes(b"\x89PNG none")
    (folder / "notes.psd").write_bytes(b"x")


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd") / "images"
    folder.mkdir()
    write_odd(folder)
    return folder


def test_doctor_finds_every_planted_flaw_with_advice(odd: Path, ask: Ask) -> None:
    status, text = ask(odd, "--json", "data.flip=0.5", "data.captions.lines=random")
    findings = findings_in(text)
    assert (status, json.loads(text)["status"]) == (2, "mend")
    assert all(finding["advice"] and finding["sentence"] for finding in findings.values())
    assert findings["duplicates"]["examples"] == ["twin.png = same0.png"]
    assert any({"near.jpg", "same1.png"} <= set(words.split()) for words in findings["near-duplicates"]["examples"])
    one = {
        "undersized": "small.png", "extreme-shapes": "wide.png", "cut-captions": "long.png", "plain": "plain.png",
        "mirrored-words": "left.png", "grey": "grey.png", "empty-captions": "alpha.png", "many-captions": "many.png",
        "converted-alpha": "alpha.png", "converted-cmyk": "print.jpg", "converted-bad-profile": "profile.png",
        "converted-first-frame": "moves.gif", "skipped": "broken.png",
    }  # fmt: skip
    assert {name: names(findings[name]) for name in one} == {name: [file] for name, file in one.items()}
    assert "(225 tokens lost)" in findings["cut-captions"]["examples"][0]
    assert findings["shared-captions"]["examples"] == ["6 times: one for all"]
    assert findings["unknown-files"]["examples"] == [".psd (1)"]
    assert {name for name, one in findings.items() if one["status"] == "mend"} == {
        "refused",
        "mirrored-words",
        "skipped",
    }


def test_batches_are_listed_per_number_of_processes(odd: Path, ask: Ask) -> None:
    findings = findings_in(ask(odd, "--json", "--processes=3", "data.remainder=drop")[1])
    assert findings["buckets"]["status"] == "mend", "with `drop`, a bucket without a full batch is never trained"
    head, *rows = findings["buckets"]["table"]
    rest = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert all(int(row["over"]) == int(row["visits"]) % 4 == int(row["left out"]) for row in rest.values())
    lines = {row[0]: row for row in findings["processes"]["table"][1:]}
    batches = sum(int(row["batches"]) for row in rest.values())
    assert lines["3"][1] == f"{batches} of {batches}", "no batch of 4 divides evenly among 3"
    assert lines["4"][1].startswith("0 of")
    assert lines["8"][1] == "cannot run"


def test_sound_dataset_has_no_findings(tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(4):
        put(tmp_path / "photos", f"{number}.png", scene(number), f"a thing of kind {number}")
    (tmp_path / "recipe.yaml").write_text("data: {path: photos}\nmodel: {path: gone}\n")
    status, text = ask(tmp_path / "photos")
    assert (status, text.splitlines()[-1].partition(":")[0]) == (0, "well")
    status, text = ask(tmp_path / "recipe.yaml", "--json")
    assert (status, json.loads(text)["status"]) == (0, "look")
    assert findings_in(text).keys() == {"no-tokenizer", "buckets", "processes"}


def test_problems_that_prevent_a_run_are_findings(tmp_path: Path, ask: Ask) -> None:
    put(tmp_path, "0.png", scene(0), None)
    put(tmp_path, "1.png", scene(1), "a thing")
    status, text = ask(tmp_path, "--json", "data.max_skipped=0")
    assert (status, "E1203" in findings_in(text)["refused"]["sentence"]) == (2, True)
    assert names(findings_in(text)["empty-captions"]) == ["0.png"]


def test_missing_library_skips_only_its_findings(
    odd: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def absent() -> None:
        raise DatasetError("near duplicates are found by ImageHash: pip install it", code="E1970")

    monkeypatch.setattr(likeness, "require_library", absent)
    findings = findings_in(ask(odd, "--json")[1])
    assert "near-duplicates" not in findings
    assert findings.keys() >= {"no-hashes", "duplicates", "cut-captions"}


@pytest.mark.timing
def test_doctor_needs_under_20_cpu_seconds_for_800_photos(tmp_path: Path, ask: Ask) -> None:
    """Crops of scikit-image's photographs, a third PNG, 480 to 900 pixels a side."""
    skimage = pytest.importorskip("skimage")
    sources = sorted((Path(skimage.__file__).parent / "data").glob("*.[pj][np]g"))
    photos = [Image.open(path).convert("RGB") for path in sources]
    photos = [photo for photo in photos if min(photo.size) > 250]
    rng = np.random.default_rng(0)
    for number in range(800):
        photo = photos[number % len(photos)]
        wide, high = (int(rng.integers(side // 3, side)) for side in photo.size)
        left, top = int(rng.integers(0, photo.width - wide)), int(rng.integers(0, photo.height - high))
        crop = photo.crop((left, top, left + wide, top + high)).resize(tuple(rng.integers(480, 900, 2).tolist()))
        put(tmp_path, f"{number}.{'jpg' if number % 3 else 'png'}", crop, f"image {number} of a thing")
    started = time.process_time()
    status, _ = ask(tmp_path, "data.resolution=512", f"--html={tmp_path}/page.html")
    assert status in (0, 2)
    assert time.process_time() - started < 20


def test_doctor_distinguishes_data_from_recipes(here: Path) -> None:
    assert doctor.is_data("plain")
    assert doctor.is_data("s3://bucket/shards")
    assert not doctor.is_data("runs/first")
    assert not doctor.is_data("windows.yaml")
    assert not doctor.is_data("photos-of-nowhere")
    (here / "plain" / "metadata.jsonl").write_text("{}\n")
    assert doctor.read(["plain"]).recipe.data.format == "metadata"
    assert doctor.read(["plain", "data.format=image-folder"]).recipe.data.format == "image-folder"


def test_doctor_prints_the_random_seed_of_minus_1(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "few").mkdir()
    for number in range(4):
        put(tmp_path / "few", f"{number}.png", scene(number), f"caption {number}")
    opened, seeds = _examining.open_data, []
    monkeypatch.setattr(_examining, "open_data", lambda recipe: (seeds.append(recipe.run.seed), opened(recipe))[1])
    _, text = ask(tmp_path / "few", "run.seed=-1")
    assert seeds[0] >= 0
    assert f"run.seed is -1: a new run draws another; here, the seed is {seeds[0]}, drawn just now" in text
