# ruff: noqa: E501 (an entry a line)
"""Hostile folders, manifests and setting files of EveryDream2: entries of the corpus of `tests/faults`, their doors and readers."""

from __future__ import annotations

import json
from typing import Any

from foreign_lines import ALONE

from mezzotint.compat.everydream2.dialect import DIALECT
from support.hostile import seeds
from support.hostile.data_sets import IMAGE, entry
from support.hostile.doors import Door, data
from support.hostile.entry import Entry, all_of, file
from support.hostile.readers import IMAGE as SMALL_IMAGE
from support.hostile.readers import Reader, both, listed
from support.hostile.texts import link, pipe


def _dream(id_: str, fault: str, name: str, content: bytes | str, says: str = "", **more: Any) -> Entry:
    expected = more.pop("expected", "E2")
    code, names = ("E1217", name) if expected == "E2" else ("", more.pop("names", ""))
    make = all_of(IMAGE, file("sub/b.png", seeds.image_file()), file(name, content))
    return entry("everydream", id_, fault, make, expected, code=code, names=names, says=says, **more)


_DREAMS = [
    _dream("bomb", "aliases of aliases", "global.yaml", seeds.GLOBAL + "x0: &x0 [a, a, a, a, a, a, a, a, a]\n" + "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 8)), is_quick=True),
    _dream("merge", "merge keys", "local.yaml", "a: &a {multiply: 2}\n<<: *a\n", "merge keys"),
    _dream("tag", "a tag that calls a program", "global.yaml", "main_prompt: !!python/object/apply:os.system ['touch canary']\n", "tag", is_quick=True),
    _dream("deep", "300,000 brackets", "a.yaml", "tags: " + "[" * 300_000, "nested deeper"),
    _dream("unknown", "an unknown key", "global.yaml", "multiplay: 3\n", "did you mean multiply"),
    _dream("list", "a list at the top", "global.yaml", "- a\n"),
    _dream("infinite", "an infinite number of visits", "multiply.txt", "1e999", is_quick=True),
    _dream("nan", "NaN for a chance", "flip_p.txt", "nan"),
    _dream("words", "words where a number belongs", "cond_dropout.txt", "often"),
    _dream("digits", "a number of 5,000 digits", "loss_scale.txt", "9" * 5000),
    _dream("huge", "10^300 visits", "multiply.txt", "1" + "0" * 300, is_quick=True),
    _dream("negative", "a chance below 0", "sub/flip_p.txt", "-1"),
    _dream("nul", "a NUL in a caption", "a.txt", b"a\0fox", "NUL"),
    _dream("utf-16", "a caption in UTF-16", "a.txt", "a fox".encode("utf-16"), "NUL"),
    _dream("latin-1", "a caption in ISO-8859-1, which is read and reported", "a.txt", "caf\xe9".encode("latin-1"), expected="ok", is_quick=True),
    _dream("megabytes", "a caption of 3 MB", "a.txt", "a fox, " * 450_000),
    _dream("tags", "100,000 tags", "a.txt", "fox, " + "red, " * 100_000, expected="ok"),
    _dream("batch", "a name for batches with line ends and markup", "batch_id.txt", "<b>\x1b[31m\nfoxes\u202e", expected="ok"),
    _dream("caption-out", "a caption file that lies outside", "a.yaml", "caption: ../../../etc/passwd.txt\n"),
    _dream("caption-absolute", "a caption file by its absolute name", "a.yaml", "caption: /etc/hosts.txt\n"),
    entry("everydream", "pipe", "a pipe called global.yaml", all_of(IMAGE, pipe("global.yaml")), "S", names="global.yaml", is_quick=True),
    entry("everydream", "endless", "a link to a device called a.txt", all_of(IMAGE, link("a.txt", "/dev/zero")), "S", names="a.txt"),
]  # fmt: skip


def _manifest(id_: str, fault: str, content: Any, expected: str = "E2", **more: Any) -> Entry:
    text = content if isinstance(content, (str, bytes)) else json.dumps(content)
    code = "E1217" if expected == "E2" else ""
    names = more.pop("names", "list.json")
    return entry(
        "manifest", id_, fault, all_of(IMAGE, file("list.json", text)), expected, code=code, names=names, **more
    )


_MANIFESTS = [
    _manifest("deep", "nested 100,000 deep", "[" * 100_000, is_quick=True),
    _manifest("number", "a number of 5,000 digits", '[{"image": "a.png", "multiply": ' + "9" * 5000 + "}]"),
    _manifest("nan", "NaN for a chance", '[{"image": "a.png", "flip_p": NaN}]'),
    _manifest("infinite", "an infinite scale", '[{"image": "a.png", "loss_scale": 1e999}]', is_quick=True),
    _manifest("object", "an object", {"image": "a.png"}),
    _manifest("types", "values of other types", [{"image": "a.png", "tags": {"a": [3]}}]),
    _manifest("image", "an image that is a number", [{"image": 3}]),
    _manifest("unknown", "an unknown key", [{"image": "a.png", "x": 1}]),
    _manifest("twice", "a key twice", '[{"image": "a.png", "image": "b.png"}]'),
    _manifest("latin-1", "ISO-8859-1", '[{"image": "caf\xe9.png"}]'.encode("latin-1")),
    _manifest("absent", "images that are not there", [{"image": "a.png"}, {"image": "x" * 300 + ".png"}, {"image": "b\0.png"}], "S", names="x" * 50),
    _manifest("ending", "a file that is no image", [{"image": "a.png"}, {"image": "list.json"}], "S"),
]  # fmt: skip

ENTRIES = (*_DREAMS, *_MANIFESTS)

DOORS: dict[str, Door] = {
    "everydream": data(format="everydream"),
    "manifest": data(format="everydream", path="list.json"),
}

READERS = {
    "everydream": Reader(both(SMALL_IMAGE, file("global.yaml", seeds.GLOBAL), file("a.txt", "a fox, red"), file("multiply.txt", "2"), file("a.yaml", "caption: a.txt\n")), ("global.yaml", "a.txt", "multiply.txt", "a.yaml"), listed("everydream"), (b"tags: ", b"weight: ")),
    "manifest": Reader(both(SMALL_IMAGE, file("list.json", '[{"image": "a.png", "tags": ["red", {"tag": "b", "weight": 2}], "multiply": 2}]')), ("list.json",), listed("everydream", "list.json")),
    "train-json": Reader(file("train.json", '{"resolution": 512, "lr": 1e-6, "batch_size": 4, "flip_p": 0.5, "max_epochs": 3}'), ("train.json",), lambda folder: DIALECT.translate(["--resume_ckpt=sd15", f"--config={folder / 'train.json'}"], ALONE)),
}  # fmt: skip
