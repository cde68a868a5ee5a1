"""The settings in one file, and what is malformed in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from everydream_folders import own, problem, read, samples, write_files

from mezzotint.data.files.tags import Tags
from mezzotint.data.formats.base import Noted


def test_zero_means_unset_where_it_is_meaningless(tmp_path: Path) -> None:
    mapping = "main_prompt: x\nmultiply: 0\nrating: 0\nmax_caption_length: 0\nbatch_id: default_batch"
    by_key = samples(write_files(tmp_path, {"a.png": None, "a.yaml": mapping, "global.yaml": "multiply: 2"}))["a.png"]
    assert (by_key.repeats, by_key.overrides, by_key.group) == (2.0, (), "")


def test_tags_keep_weights_limits_and_commas(tmp_path: Path) -> None:
    mapping = (
        "main_prompt: one, two\nmax_caption_length: 40\n"
        "tags:\n  - {tag: low, weight: 0.5}\n  - plain\n  - tag: 12.5\n  - 1girl\n  - 2023\n  - {tag: top, weight: 2}"
    )
    by_key = samples(write_files(tmp_path, {"a.png": None, "a.yaml": mapping}))["a.png"]
    assert by_key.captions == ("one, two, top, plain, 12.5, 1girl, 2023, low",)
    tags = Tags.decoded(own(by_key)["tags"])
    assert tags == Tags(
        "one, two", ("top", "plain", "12.5", "1girl", "2023", "low"), (2.0, 1.0, 1.0, 1.0, 1.0, 0.5), 40
    )


def test_caption_key_is_a_text_a_file_or_a_mapping(tmp_path: Path) -> None:
    root = write_files(tmp_path, {
        "a.png": None, "a.yaml": "caption: a cat, black",
        "b.png": None, "b.yaml": "tags: [outer]\ncaption: {main_prompt: inner, tags: [in], rating: 2}",
        "d/c.png": None, "d/c.yaml": "caption: words/c1.caption", "d/words/c1.caption": "from a file, x",
    })  # fmt: skip
    by_key = samples(root)
    assert {key: sample.captions[0] for key, sample in by_key.items()} == {
        "a.png": "a cat, black", "b.png": "inner, in, outer", "d/c.png": "from a file, x",
    }  # fmt: skip
    assert own(by_key["b.png"]) == {"rating": "2.0"}
    (root / "d/words/c1.caption").unlink()
    assert "d/c.yaml:1: caption: there is no file 'words/c1.caption'" in problem(root)


def test_text_that_is_not_utf8_is_read_as_latin1_with_a_note(tmp_path: Path) -> None:
    root = write_files(
        tmp_path, {"a.png": None, "a.txt": "café, naïve".encode("latin-1"), "b.png": None, "b.txt": "\ufeffbom"}
    )
    by_key = samples(root)
    assert (by_key["a.png"].captions, by_key["b.png"].captions) == (("café, naïve",), ("bom",))
    assert [(n.path, n.reason) for n in read(root) if isinstance(n, Noted)] == [
        ("a.txt", "not UTF-8; read as ISO-8859-1")
    ]


def test_yaml_1_1_booleans_are_accepted(tmp_path: Path) -> None:
    root = write_files(
        tmp_path, {"a.png": None, "a.yaml": "shuffle_tags: Yes", "b.png": None, "b.yaml": "shuffle_tags: off"}
    )
    assert [own(sample) for sample in samples(root).values()] == [{"shuffle_tags": "true"}, {}]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("main_prompt: x\ntags: [a\n", ":2: column 7: a list that is not closed"),
        ("main_prompt: x\nmultipl: 2\n", ":2: multipl: unknown key; did you mean multiply?"),
        ("\nmultiply: two\n", ":2: multiply: must be a number, got 'two'"),
        ("multiply: -1\n", ":1: multiply: must not be below 0, got -1"),
        ("flip_p: 1.5\n", ":1: flip_p: must be between 0 and 1, got 1.5"),
        ("cond_dropout: .nan\n", ":1: cond_dropout: must be a number, got nan"),
        ("rating: [1]\n", ":1: rating: must be a number, got [1]"),
        ("shuffle_tags: 2\n", ":1: shuffle_tags: must be true or false, got 2"),
        ("max_caption_length: 2.5\n", ":1: max_caption_length: must be an integer number of characters, got 2.5"),
        ("tags: a, b\n", ":1: tags: must be a list, got 'a, b'"),
        ("tags:\n  - a\n  - {tag: b, wieght: 2}\n", ":3: tags.1: 'wieght' is not a key of a tag"),
        ("tags:\n  - {tag: b, weight: -2}\n", ":2: tags.0.weight: must not be below 0"),
        ("tags:\n  - weight: 2\n", ":2: tags.0: a tag without its text"),
        ("tags:\n  - [a]\n", ":2: tags.0: must be a text, got ['a']"),
        ("caption:\n  prompt: x\n", ":2: caption.prompt: unknown key"),
        ("- a\n- b\n", ":1: has no keys such as main_prompt and tags"),
        ("main_prompt: a\nmain_prompt: b\n", ":2: column 1: this key is given twice"),
    ],
)
def test_malformed_mapping_is_reported_with_its_line(tmp_path: Path, content: str, expected: str) -> None:
    message = problem(write_files(tmp_path, {"d/a.png": None, "d/a.yaml": content}))
    assert f"d/a.yaml{expected}" in message
    assert "recipe" not in message


@pytest.mark.parametrize("name", ["multiply", "cond_dropout", "flip_p", "loss_scale"])
def test_file_without_a_number_is_reported(tmp_path: Path, name: str) -> None:
    root = write_files(tmp_path, {"a.png": None, f"{name}.txt": "two\n"})
    assert f"{name}.txt:1: must contain one number, got 'two'" in problem(root)
    write_files(root, {f"{name}.txt": "inf"})
    assert f"{name}.txt:1: must be a number" in problem(root)


def test_all_malformed_values_are_reported_together(tmp_path: Path) -> None:
    files: dict[str, str | bytes | None] = {f"{i:02}.png": None for i in range(13)}
    files |= {f"{i:02}.yaml": "x: 1" for i in range(12)} | {"12.txt": b"a\0b"}
    message = problem(write_files(tmp_path, files))
    assert len(re.findall(r"\d\d\.yaml:1", message)) == 10
    assert message.endswith("and 3 more; correct them, or remove the files")
