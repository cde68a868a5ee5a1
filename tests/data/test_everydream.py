"""The format `everydream`: which file holds for which picture, and what is malformed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loading import open_loader
from PIL import Image

from mezzotint.data.cache.entries import LatentCache
from mezzotint.data.catalogue.catalogue import build
from mezzotint.data.files.tags import Tags
from mezzotint.data.formats import everydream
from mezzotint.data.formats.base import Noted, Skipped, Source
from mezzotint.data.loading.loader import held_out
from mezzotint.errors import DatasetError, RecipeError
from mezzotint.recipe.reading.read import read_text
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.stages import Sample


def lay(root: Path, files: Mapping[str, str | bytes | None]) -> Path:
    """A folder of files; None is a picture."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            Image.new("RGB", (64, 64), (len(name), 3, 3)).save(path, "PNG")
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def settings_of(*paths: Path, **values: Any) -> DataSettings:
    return DataSettings.model_validate({"path": list(paths), "format": "everydream", **values})


def read(path: Path, **values: Any) -> list[Sample | Skipped | Noted]:
    settings = settings_of(path, **values)
    listing = everydream.FORMAT.files_at(path, settings)
    return list(everydream.FORMAT.read_samples(Source(listing.root, settings, 1.0, listing)))


def samples(path: Path, **values: Any) -> dict[str, Sample]:
    return {item.key: item for item in read(path, **values) if isinstance(item, Sample)}


def own(sample: Sample) -> dict[str, str]:
    return dict(sample.overrides)


def problem(path: Path, **values: Any) -> str:
    with pytest.raises(DatasetError) as caught:
        read(path, **values)
    assert caught.value.code == "E1217"
    return caught.value.message


# --- captions ---------------------------------------------------------------------------------------------------------


def test_a_name_says_what_stands_before_its_first_underscore(tmp_path: Path) -> None:
    names = ["a dog_1.png", "a dog, brown, asleep_x_2.png", "cat.png", "under/a_b_c.png"]
    found = samples(lay(tmp_path, dict.fromkeys(names)))
    assert {key: sample.captions for key, sample in found.items()} == {
        "a dog_1.png": ("a dog",),
        "a dog, brown, asleep_x_2.png": ("a dog, brown, asleep",),
        "cat.png": ("cat",),
        "under/a_b_c.png": ("a",),
    }


def test_a_name_that_says_nothing_is_a_missing_caption(tmp_path: Path) -> None:
    root = lay(tmp_path, {"_1.png": None, "b.png": None})
    with pytest.raises(
        DatasetError, match=r"1 picture has no caption: _1\.png.*data\.captions\.missing=empty"
    ) as caught:
        read(root)
    assert caught.value.code == "E1203"
    assert samples(root, captions={"missing": "empty"})["_1.png"].captions == ("",)
    assert [item.path for item in read(root, captions={"missing": "skip"}) if isinstance(item, Skipped)] == ["_1.png"]


def test_nearer_files_come_before_farther_ones(tmp_path: Path) -> None:
    root = lay(tmp_path, {
        "global.yaml": "tags: [far]\nmultiply: 2\nflip_p: 0.1",
        "d/global.yaml": "tags: [near]\nmain_prompt: of the folder",
        "d/local.yaml": "tags: [here]\nmultiply: 3",
        "d/a.png": None,
        "d/a.txt": "from text, own",
        "d/a.yaml": "multiply: 4\ntags: [last]",
        "d/b.png": None,
        "d/e/c.png": None,
    })  # fmt: skip
    found = samples(root)
    assert {key: sample.captions[0] for key, sample in found.items()} == {
        "d/a.png": "from text, last, own, here, near, far",
        "d/b.png": "of the folder, here, near, far",
        "d/e/c.png": "of the folder, near, far",
    }
    assert [found[key].repeats for key in ("d/a.png", "d/b.png", "d/e/c.png")] == [4, 3, 2]
    assert {own(sample)["flip"] for sample in found.values()} == {"0.1"}
    notes = [item for item in read(root) if isinstance(item, Noted)]
    assert [note.path for note in notes] == ["d/a.png"]
    assert "several main prompts" in notes[0].reason


def test_files_of_a_folder_hold_for_that_folder(tmp_path: Path) -> None:
    root = lay(tmp_path, {
        "d/multiply.txt": " 2.5\n", "d/cond_dropout.txt": "0.1", "d/flip_p.txt": "0.3", "d/loss_scale.txt": "0",
        "d/batch_id.txt": "my horses\n", "d/shuffle_tags.txt": "", "d/a.png": None, "d/sub/b.png": None,
    })  # fmt: skip
    found = samples(root)
    inside, below = found["d/a.png"], found["d/sub/b.png"]
    assert (inside.repeats, inside.weight, inside.group) == (2.5, 0.0, "my horses")
    assert own(inside) == {"flip": "0.3", "caption_dropout": "0.1", "shuffle_tags": "true"}
    assert (below.repeats, below.weight, below.group, below.overrides) == (1.0, 1.0, "", ())


def test_numbers_give_way_to_local_yaml_and_names_of_batches_do_not(tmp_path: Path) -> None:
    local = "multiply: 3\ncond_dropout: 0\nflip_p: 1\nbatch_id: other\nloss_scale: 0.5"
    root = lay(tmp_path, {
        "local.yaml": local, "multiply.txt": "7", "cond_dropout.txt": "0.2", "flip_p.txt": "0.2",
        "batch_id.txt": "mine", "loss_scale.txt": "2", "a.png": None, "b.png": None, "b.yaml": "batch_id: third",
    })  # fmt: skip
    found = samples(root)
    assert (found["a.png"].repeats, found["a.png"].weight, found["a.png"].group) == (3, 2, "mine")
    assert own(found["a.png"]) == {"flip": "1.0", "caption_dropout": "0.0"}
    assert found["b.png"].group == "third"


def test_zero_stands_for_not_set_where_it_makes_no_sense(tmp_path: Path) -> None:
    mapping = "main_prompt: x\nmultiply: 0\nrating: 0\nmax_caption_length: 0\nbatch_id: default_batch"
    found = samples(lay(tmp_path, {"a.png": None, "a.yaml": mapping, "global.yaml": "multiply: 2"}))["a.png"]
    assert (found.repeats, found.overrides, found.group) == (2.0, (), "")


def test_tags_keep_weights_limit_and_commas(tmp_path: Path) -> None:
    mapping = (
        "main_prompt: one, two\nmax_caption_length: 40\n"
        "tags:\n  - {tag: low, weight: 0.5}\n  - plain\n  - tag: 12.5\n  - 1girl\n  - 2023\n  - {tag: top, weight: 2}"
    )
    found = samples(lay(tmp_path, {"a.png": None, "a.yaml": mapping}))["a.png"]
    assert found.captions == ("one, two, top, plain, 12.5, 1girl, 2023, low",)
    tags = Tags.decoded(own(found)["tags"])
    assert tags == Tags(
        "one, two", ("top", "plain", "12.5", "1girl", "2023", "low"), (2.0, 1.0, 1.0, 1.0, 1.0, 0.5), 40
    )


def test_a_caption_key_is_a_text_a_file_or_a_mapping(tmp_path: Path) -> None:
    root = lay(tmp_path, {
        "a.png": None, "a.yaml": "caption: a cat, black",
        "b.png": None, "b.yaml": "tags: [outer]\ncaption: {main_prompt: inner, tags: [in], rating: 2}",
        "d/c.png": None, "d/c.yaml": "caption: words/c1.caption", "d/words/c1.caption": "from a file, x",
    })  # fmt: skip
    found = samples(root)
    assert {key: sample.captions[0] for key, sample in found.items()} == {
        "a.png": "a cat, black", "b.png": "inner, in, outer", "d/c.png": "from a file, x",
    }  # fmt: skip
    assert own(found["b.png"]) == {"rating": "2.0"}
    (root / "d/words/c1.caption").unlink()
    assert "d/c.yaml:1: caption: there is no file 'words/c1.caption'" in problem(root)


def test_a_caption_file_outside_the_data_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("not for training")
    root = lay(tmp_path / "data", {"a.png": None, "a.yaml": f"caption: {tmp_path}/secret.txt"})
    assert "there is no file" in problem(root)


def test_text_that_is_not_utf8_is_latin1_and_noted(tmp_path: Path) -> None:
    root = lay(tmp_path, {"a.png": None, "a.txt": "café, naïve".encode("latin-1"), "b.png": None, "b.txt": "\ufeffbom"})
    found = samples(root)
    assert (found["a.png"].captions, found["b.png"].captions) == (("café, naïve",), ("bom",))
    assert [(n.path, n.reason) for n in read(root) if isinstance(n, Noted)] == [
        ("a.txt", "not UTF-8; read as ISO-8859-1")
    ]


def test_hidden_and_other_files_are_not_looked_at(tmp_path: Path) -> None:
    root = lay(tmp_path, {"a.png": None, ".b.png": None, ".d/c.png": None, "d.gif": b"GIF89a", "notes.md": "x"})
    listing = everydream.FORMAT.files_at(root, settings_of(root))
    assert listing.names == ["a.png"]
    assert listing.unknown == {".gif": 1, ".md": 1}


def test_words_of_older_yaml_are_switches(tmp_path: Path) -> None:
    root = lay(tmp_path, {"a.png": None, "a.yaml": "shuffle_tags: Yes", "b.png": None, "b.yaml": "shuffle_tags: off"})
    assert [own(sample) for sample in samples(root).values()] == [{"shuffle_tags": "true"}, {}]


# --- what is malformed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("main_prompt: x\ntags: [a\n", ":2: column 7: a list that is not closed"),
        ("main_prompt: x\nmultipl: 2\n", ":2: multipl: unknown key; did you mean multiply?"),
        ("\nmultiply: two\n", ":2: multiply: must be a number, got 'two'"),
        ("multiply: -1\n", ":1: multiply: must not be below 0, got -1"),
        ("flip_p: 1.5\n", ":1: flip_p: must lie between 0 and 1, got 1.5"),
        ("cond_dropout: .nan\n", ":1: cond_dropout: must be a number, got nan"),
        ("rating: [1]\n", ":1: rating: must be a number, got [1]"),
        ("shuffle_tags: 2\n", ":1: shuffle_tags: must be true or false, got 2"),
        ("max_caption_length: 2.5\n", ":1: max_caption_length: must be a whole number of characters, got 2.5"),
        ("tags: a, b\n", ":1: tags: must be a list, got 'a, b'"),
        ("tags:\n  - a\n  - {tag: b, wieght: 2}\n", ":3: tags.1: 'wieght' is no key of a tag"),
        ("tags:\n  - {tag: b, weight: -2}\n", ":2: tags.0.weight: must not be below 0"),
        ("tags:\n  - weight: 2\n", ":2: tags.0: a tag without its text"),
        ("tags:\n  - [a]\n", ":2: tags.0: must be a text, got ['a']"),
        ("caption:\n  prompt: x\n", ":2: caption.prompt: unknown key"),
        ("- a\n- b\n", ":1: holds no keys such as main_prompt and tags"),
        ("main_prompt: a\nmain_prompt: b\n", ":2: column 1: this key is given twice"),
    ],
)
def test_a_malformed_mapping_is_named_with_its_line(tmp_path: Path, content: str, told: str) -> None:
    message = problem(lay(tmp_path, {"d/a.png": None, "d/a.yaml": content}))
    assert f"d/a.yaml{told}" in message
    assert "recipe" not in message


@pytest.mark.parametrize("name", ["multiply", "cond_dropout", "flip_p", "loss_scale"])
def test_a_file_that_holds_no_number_is_named(tmp_path: Path, name: str) -> None:
    root = lay(tmp_path, {"a.png": None, f"{name}.txt": "two\n"})
    assert f"{name}.txt:1: is to hold one number, got 'two'" in problem(root)
    lay(root, {f"{name}.txt": "inf"})
    assert f"{name}.txt:1: must be a number" in problem(root)


def test_everything_malformed_is_told_at_once(tmp_path: Path) -> None:
    files: dict[str, str | bytes | None] = {f"{i:02}.png": None for i in range(13)}
    files |= {f"{i:02}.yaml": "x: 1" for i in range(12)} | {"12.txt": b"a\0b"}
    message = problem(lay(tmp_path, files))
    assert len(re.findall(r"\d\d\.yaml:1", message)) == 10
    assert message.endswith("and 3 more; mend them, or take the files away")


def test_an_empty_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="holds no pictures") as caught:
        build(settings_of(lay(tmp_path / "data", {"global.yaml": "tags: [x]"})), tmp_path / "index", workers=1)
    assert caught.value.code == "E1202"


@pytest.mark.parametrize("name", ["source", "lines"])
def test_settings_without_effect_are_refused(name: str) -> None:
    value = {"source": "either", "lines": "choose"}[name]
    with pytest.raises(RecipeError, match=r"data\.captions\.lines have no effect with data\.format=everydream"):
        read_text(f"data: {{path: x, format: everydream, captions: {{{name}: {value}}}}}")


# --- manifests --------------------------------------------------------------------------------------------------------


def manifest(root: Path, *entries: Any, name: str = "list.json") -> Path:
    path = root / name
    path.write_text(json.dumps(list(entries)))
    return path


def test_a_manifest_names_its_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(tmp_path, {"data/a.png": None, "data/global.yaml": "tags: [not here]", "here/b_1.png": None, "far/c.png": None})
    path = manifest(
        tmp_path / "data",
        {"image": "a.png", "caption": "a cat, black", "batch_id": 7},
        {"image": "a.png", "main_prompt": "a cat again", "multiply": 2},
        {"image": "here/b_1.png"},
        {"image": str(tmp_path / "far/c.png"), "caption": "far away"},
    )
    monkeypatch.chdir(tmp_path)
    found = samples(path)
    far = str(tmp_path / "far/c.png")
    assert {key: sample.captions[0] for key, sample in found.items()} == {
        "a.png": "a cat, black", "a.png#2": "a cat again", "here/b_1.png": "b", far: "far away",
    }  # fmt: skip
    assert (found["a.png"].group, found["a.png#2"].repeats) == ("7", 2)
    made = build(settings_of(path), tmp_path / "index", workers=1)
    assert [made.path(row).is_file() for row in range(len(made))] == [True] * 4
    assert made.width.tolist() == [64] * 4


def test_a_changed_picture_of_a_manifest_is_seen(tmp_path: Path) -> None:
    lay(tmp_path, {"a.png": None})
    path = manifest(tmp_path, {"image": "a.png"})
    first = build(settings_of(path), tmp_path / "index", workers=1)
    Image.new("RGB", (80, 64)).save(tmp_path / "a.png")
    assert build(settings_of(path), tmp_path / "index", workers=1).width.tolist() == [80]
    assert first.width.tolist() == [64]


def test_pictures_that_are_not_there_are_skipped(tmp_path: Path) -> None:
    lay(tmp_path, {"a.png": None, "b.xcf": b"x"})
    items = read(manifest(tmp_path, {"image": "gone.png"}, {"image": "a.png"}, {"image": "b.xcf"}))
    assert [(s.path, s.reason) for s in items if isinstance(s, Skipped)] == [
        ("gone.png", "no such file, neither beside the manifest nor in the current folder"),
        ("b.xcf", ".xcf is no ending of pictures"),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[{"image": "a.png"},\n {"image": }]', r"list\.json:2: not JSON"),
        ('{"image": "a.png"}', r"list\.json:1: a manifest is a list of objects"),
        ('[{"image": "a.png"}, {"file": "b.png"}]', "entry 2 is to be an object with `image`"),
        ('[{"image": "a.png", "multiply": -1}]', r"list\.json: entry 1: multiply: must not be below 0"),
        ('[{"image": "a.png", "capton": "x"}]', r"list\.json: entry 1: capton: unknown key; did you mean caption\?"),
    ],
)
def test_a_malformed_manifest_is_named_with_its_entry(tmp_path: Path, text: str, told: str) -> None:
    lay(tmp_path, {"a.png": None, "list.json": text})
    with pytest.raises(DatasetError, match=told) as caught:
        read(tmp_path / "list.json")
    assert caught.value.code == "E1217"


def test_a_manifest_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="does not exist") as caught:
        read(tmp_path / "list.json")
    assert caught.value.code == "E1201"


# --- from the format to the catalogue -------------------------------------------------------------------------------


def test_several_sources_keep_their_own(tmp_path: Path) -> None:
    one = lay(tmp_path / "one", {"a.png": None, "batch_id.txt": "x", "multiply.txt": "2"})
    two = lay(tmp_path / "two", {"a.png": None, "a.yaml": "rating: 3\nflip_p: 0.5\nbatch_id: y"})
    listed = manifest(two, {"image": "a.png", "rating": 3, "batch_id": "x"})
    made = build(settings_of(one, listed), tmp_path / "index", workers=1)
    assert [made.key(row) for row in range(2)] == ["0/a.png", "1/a.png"]
    assert made.repeats.tolist() == [2, 1]
    assert [made.overrides.group_name(n) for n in made.overrides.group.tolist()] == ["x", "x"]
    assert made.overrides.rating.tolist() == [1, 3]


def test_a_second_start_reads_what_samples_have_of_their_own(tmp_path: Path) -> None:
    mapping = "flip_p: 0.1\ncond_dropout: 0\nbatch_id: b\ntags: [{tag: t, weight: 2}, u]\nshuffle_tags: true"
    root = lay(tmp_path / "data", {"a.png": None, "a.yaml": mapping, "c.png": None})
    first = build(settings_of(root), tmp_path / "index", workers=1)
    again = build(settings_of(root), tmp_path / "index", workers=1)
    for made in (first, again):
        own = made.overrides
        assert (own.flip_of(0), own.caption_dropout_of(0), own.flip_of(1)) == (0.1, 0.0, None)
        assert made.overrides.group.tolist() == [1, 0]
        assert made.overrides.shuffle_tags.tolist() == [1, 0]
        assert Tags.decoded(made.overrides.tags_of(0)).weights == (2.0, 1.0)
        assert made.overrides.tags_of(1) == ""
    assert first.folder == again.folder


def test_the_data_set_is_another_one_when_a_folder_file_changes(tmp_path: Path) -> None:
    root = lay(tmp_path / "data", {"a.png": None})
    seen = {build(settings_of(root), tmp_path / "index", workers=1).fingerprint}
    for name, text in (
        ("flip_p.txt", "0.5"),
        ("batch_id.txt", "x"),
        ("shuffle_tags.txt", ""),
        ("local.yaml", "rating: 2"),
    ):
        lay(root, {name: text})
        seen.add(build(settings_of(root), tmp_path / "index", workers=1).fingerprint)
    assert len(seen) == 5


def test_pictures_with_nothing_of_their_own_are_the_data_set_they_are_elsewhere(tmp_path: Path) -> None:
    root = lay(tmp_path / "data", {"a.png": None, "a.txt": "a cat"})
    plain = DataSettings.model_validate({"path": root})
    ours = build(settings_of(root), tmp_path / "index", workers=1)
    assert ours.fingerprint == build(plain, tmp_path / "index", workers=1).fingerprint


def test_shuffled_tags_and_one_kept_order_are_refused(tmp_path: Path) -> None:
    root = lay(tmp_path / "data", {"a.png": None, "shuffle_tags.txt": ""})
    with pytest.raises(DatasetError, match=r"tags of 1 pictures.*set data\.cache\.shuffles above 1") as caught:
        build(settings_of(root, cache={"text": True}), tmp_path / "index", workers=1)
    assert caught.value.code == "E1218"
    assert len(build(settings_of(root, cache={"text": True, "shuffles": 2}), tmp_path / "index", workers=1)) == 1


def test_held_out_pictures_are_told_as_written_and_weigh_the_same(tmp_path: Path) -> None:
    mapping = "main_prompt: x\ntags: [a, b, c, d]\nshuffle_tags: true\ncond_dropout: 1\nloss_scale: 0.1"
    root = lay(tmp_path / "data", {"a.png": None, "a.yaml": mapping})
    settings = settings_of(root, resolution=64, workers=0)
    made = build(settings, tmp_path / "index", workers=1)
    [batch] = held_out(made, np.zeros(1, np.int32), settings, seed=0)
    assert (batch.captions, batch.weight.tolist()) == (("x, a, b, c, d",), [1.0])
    with open_loader(
        made, np.zeros(1, np.int32), settings, accumulation=1, seed=0, start_step=0, last_step=1
    ) as loader:  # fmt: skip
        [trained] = [batch for step in loader for batch in step.batches]
    assert (trained.captions, trained.weight.tolist()) == (("",), [pytest.approx(0.1)])


def test_pictures_with_own_flips_have_several_placements_in_a_cache(tmp_path: Path) -> None:
    root = lay(tmp_path / "data", {"a.png": None, "flip_p.txt": "0.5", "sub/b.png": None})
    settings = settings_of(root, resolution=64, cache={"latents": True, "crops": 20})
    made = build(settings, tmp_path / "index", workers=1)
    latents = LatentCache(tmp_path / "cache", settings, identity="vae", compute="fp32", seed=3)
    assert latents.views == 20
    flipped = [{latents.placement(made, row, n, Size(64, 64)).flipped for n in range(20)} for row in (0, 1)]
    assert flipped == [{False, True}, {False}]
