"""The format `everydream`: which file applies to which image, and what is malformed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from everydream_folders import manifest, own, problem, read, samples, settings_of, write_files
from PIL import Image

from mezzotint.compat.everydream2 import data_format as everydream
from mezzotint.data.catalogue.catalogue import build
from mezzotint.data.formats.base import Noted, Skipped
from mezzotint.data.loading.loader import held_out_batches
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from support.loading import open_loader
from support.messages import refused


def test_caption_is_the_file_name_up_to_the_first_underscore(tmp_path: Path) -> None:
    names = ["a dog_1.png", "a dog, brown, asleep_x_2.png", "cat.png", "under/a_b_c.png"]
    by_key = samples(write_files(tmp_path, dict.fromkeys(names)))
    assert {key: sample.captions for key, sample in by_key.items()} == {
        "a dog_1.png": ("a dog",),
        "a dog, brown, asleep_x_2.png": ("a dog, brown, asleep",),
        "cat.png": ("cat",),
        "under/a_b_c.png": ("a",),
    }


def test_empty_file_name_is_a_missing_caption(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"_1.png": None, "b.png": None})
    with refused("E1203", r"1 image has no caption: _1\.png.*data\.captions\.missing=empty"):
        read(root)
    assert samples(root, captions={"missing": "empty"})["_1.png"].captions == ("",)
    assert [item.path for item in read(root, captions={"missing": "skip"}) if isinstance(item, Skipped)] == ["_1.png"]


def test_nearer_files_have_precedence(tmp_path: Path) -> None:
    root = write_files(tmp_path, {
        "global.yaml": "tags: [far]\nmultiply: 2\nflip_p: 0.1",
        "d/global.yaml": "tags: [near]\nmain_prompt: of the folder",
        "d/local.yaml": "tags: [here]\nmultiply: 3",
        "d/a.png": None,
        "d/a.txt": "from text, own",
        "d/a.yaml": "multiply: 4\ntags: [last]",
        "d/b.png": None,
        "d/e/c.png": None,
    })  # fmt: skip
    by_key = samples(root)
    assert {key: sample.captions[0] for key, sample in by_key.items()} == {
        "d/a.png": "from text, last, own, here, near, far",
        "d/b.png": "of the folder, here, near, far",
        "d/e/c.png": "of the folder, near, far",
    }
    assert [by_key[key].repeats for key in ("d/a.png", "d/b.png", "d/e/c.png")] == [4, 3, 2]
    assert {own(sample)["flip"] for sample in by_key.values()} == {"0.1"}
    notes = [item for item in read(root) if isinstance(item, Noted)]
    assert [note.path for note in notes] == ["d/a.png"]
    assert "several main prompts" in notes[0].reason


def test_folder_files_apply_to_that_folder(tmp_path: Path) -> None:
    root = write_files(tmp_path, {
        "d/multiply.txt": " 2.5\n", "d/cond_dropout.txt": "0.1", "d/flip_p.txt": "0.3", "d/loss_scale.txt": "0",
        "d/batch_id.txt": "my horses\n", "d/shuffle_tags.txt": "", "d/a.png": None, "d/sub/b.png": None,
    })  # fmt: skip
    by_key = samples(root)
    inside, below = by_key["d/a.png"], by_key["d/sub/b.png"]
    assert (inside.repeats, inside.weight, inside.group) == (2.5, 0.0, "my horses")
    assert own(inside) == {"flip": "0.3", "caption_dropout": "0.1", "shuffle_tags": "true"}
    assert (below.repeats, below.weight, below.group, below.overrides) == (1.0, 1.0, "", ())


def test_local_yaml_overrides_numbers_but_not_batch_names(tmp_path: Path) -> None:
    local = "multiply: 3\ncond_dropout: 0\nflip_p: 1\nbatch_id: other\nloss_scale: 0.5"
    root = write_files(tmp_path, {
        "local.yaml": local, "multiply.txt": "7", "cond_dropout.txt": "0.2", "flip_p.txt": "0.2",
        "batch_id.txt": "mine", "loss_scale.txt": "2", "a.png": None, "b.png": None, "b.yaml": "batch_id: third",
    })  # fmt: skip
    by_key = samples(root)
    assert (by_key["a.png"].repeats, by_key["a.png"].weight, by_key["a.png"].group) == (3, 2, "mine")
    assert own(by_key["a.png"]) == {"flip": "1.0", "caption_dropout": "0.0"}
    assert by_key["b.png"].group == "third"


def test_caption_file_outside_the_data_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("not for training")
    root = write_files(tmp_path / "data", {"a.png": None, "a.yaml": f"caption: {tmp_path}/secret.txt"})
    assert "there is no file" in problem(root)


def test_hidden_and_other_files_are_ignored(tmp_path: Path) -> None:
    root = write_files(tmp_path, {"a.png": None, ".b.png": None, ".d/c.png": None, "d.gif": b"GIF89a", "notes.md": "x"})
    listing = everydream.FORMAT.files_at(root, settings_of(root))
    assert listing.names == ["a.png"]
    assert listing.unknown == {".gif": 1, ".md": 1}


def test_empty_folder_is_reported(tmp_path: Path) -> None:
    with refused("E1202", "no images found"):
        build(settings_of(write_files(tmp_path / "data", {"global.yaml": "tags: [x]"})), tmp_path / "index", workers=1)


@pytest.mark.parametrize("name", ["source", "lines"])
def test_settings_without_effect_are_refused(name: str) -> None:
    value = {"source": "either", "lines": "random"}[name]
    with pytest.raises(RecipeError, match=r"data\.captions\.lines have no effect with data\.format=everydream"):
        read_text(f"data: {{path: x, format: everydream, captions: {{{name}: {value}}}}}")


def test_manifest_lists_its_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(
        tmp_path, {"data/a.png": None, "data/global.yaml": "tags: [not here]", "here/b_1.png": None, "far/c.png": None}
    )
    path = manifest(
        tmp_path / "data",
        {"image": "a.png", "caption": "a cat, black", "batch_id": 7},
        {"image": "a.png", "main_prompt": "a cat again", "multiply": 2},
        {"image": "here/b_1.png"},
        {"image": str(tmp_path / "far/c.png"), "caption": "far away"},
    )
    monkeypatch.chdir(tmp_path)
    by_key = samples(path)
    far = str(tmp_path / "far/c.png")
    assert {key: sample.captions[0] for key, sample in by_key.items()} == {
        "a.png": "a cat, black", "a.png#2": "a cat again", "here/b_1.png": "b", far: "far away",
    }  # fmt: skip
    assert (by_key["a.png"].group, by_key["a.png#2"].repeats) == ("7", 2)
    data_set = build(settings_of(path), tmp_path / "index", workers=1)
    assert [data_set.path(row).is_file() for row in range(len(data_set))] == [True] * 4
    assert data_set.width.tolist() == [64] * 4


def test_changed_image_of_a_manifest_is_noticed(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.png": None})
    path = manifest(tmp_path, {"image": "a.png"})
    first = build(settings_of(path), tmp_path / "index", workers=1)
    Image.new("RGB", (80, 64)).save(tmp_path / "a.png")
    assert build(settings_of(path), tmp_path / "index", workers=1).width.tolist() == [80]
    assert first.width.tolist() == [64]


def test_missing_images_are_skipped(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.png": None, "b.xcf": b"x"})
    items = read(manifest(tmp_path, {"image": "gone.png"}, {"image": "a.png"}, {"image": "b.xcf"}))
    assert [(s.path, s.reason) for s in items if isinstance(s, Skipped)] == [
        ("gone.png", "no such file, neither next to the manifest nor in the current folder"),
        ("b.xcf", ".xcf is not an image suffix"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"image": "a.png"},\n {"image": }]', r"list\.json:2: not JSON"),
        ('{"image": "a.png"}', r"list\.json:1: a manifest is a list of objects"),
        ('[{"image": "a.png"}, {"file": "b.png"}]', "entry 2 must be an object with `image`"),
        ('[{"image": "a.png", "multiply": -1}]', r"list\.json: entry 1: multiply: must not be below 0"),
        ('[{"image": "a.png", "capton": "x"}]', r"list\.json: entry 1: capton: unknown key; did you mean caption\?"),
        (f'[{{"image": "a.png", "multiply": {"9" * 5000}}}]', r"list\.json.*digits"),
        ("[" * 5000 + "]" * 5000, r"list\.json.*nested"),
    ],
)
def test_malformed_manifest_is_reported_with_its_entry(tmp_path: Path, text: str, message: str) -> None:
    write_files(tmp_path, {"a.png": None, "list.json": text})
    with refused("E1217", message):
        read(tmp_path / "list.json")


def test_missing_manifest_is_reported(tmp_path: Path) -> None:
    with refused("E1201", "does not exist"):
        read(tmp_path / "list.json")


def test_shuffled_tags_with_a_fixed_order_are_refused(tmp_path: Path) -> None:
    root = write_files(tmp_path / "data", {"a.png": None, "shuffle_tags.txt": ""})
    with refused("E1218", r"tags of 1 images.*set data\.cache\.shuffles above 1"):
        build(settings_of(root, cache={"text": True}), tmp_path / "index", workers=1)
    assert len(build(settings_of(root, cache={"text": True, "shuffles": 2}), tmp_path / "index", workers=1)) == 1


def test_held_out_captions_are_unshuffled_and_unweighted(tmp_path: Path) -> None:
    mapping = "main_prompt: x\ntags: [a, b, c, d]\nshuffle_tags: true\ncond_dropout: 1\nloss_scale: 0.1"
    root = write_files(tmp_path / "data", {"a.png": None, "a.yaml": mapping})
    settings = settings_of(root, resolution=64, workers=0)
    data_set = build(settings, tmp_path / "index", workers=1)
    [batch] = held_out_batches(data_set, np.zeros(1, np.int32), settings, seed=0)
    assert (batch.captions, batch.weight.tolist()) == (("x, a, b, c, d",), [1.0])
    with open_loader(
        data_set, np.zeros(1, np.int32), settings, accumulation=1, seed=0, start_step=0, last_step=1
    ) as loader:  # fmt: skip
        [trained] = [batch for step in loader for batch in step.batches]
    assert (trained.captions, trained.weight.tolist()) == (("",), [pytest.approx(0.1)])
