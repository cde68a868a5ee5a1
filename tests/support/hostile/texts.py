# ruff: noqa: E501 (an entry a line)
"""Captions, recipes and prompts: the rows F8 and H1."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from support.hostile import seeds
from support.hostile.entry import Entry, Make, all_of, file

_SOUND = all_of(
    file("sound.png", seeds.image_file(size=(64, 64))), file("sound.txt", "a fox"), file("x.png", seeds.image_file())
)


def _caption(id_: str, fault: str, content: bytes | str, expected: str = "ok", **more: Any) -> Entry:
    name = more.pop("name", "x.txt")
    names = "x.png" if expected == "S" else ""
    return Entry(
        id=f"caption-{id_}", reader="caption", fault=fault, row="F8", expected=expected, names=names,
        make=all_of(_SOUND, file(name, content)), **more,
    )  # fmt: skip


_CAPTIONS = [
    _caption("bom", "a mark at its beginning", b"\xef\xbb\xbfa fox", is_quick=True),
    _caption("empty", "no byte", b""),
    _caption("blank", "blanks and line ends alone", " \t\r\n \u3000\n", is_quick=True),
    _caption("markup", "markup", "<script>alert(1)</script> & <b>fox</b>"),
    _caption("terminal", "codes that steer a terminal", "\x1b]0;owned\x07\x1b[2Ja fox", is_quick=True),
    _caption("bidi", "text from right to left, with marks that turn it", "\u202e xof \u2066a\u2069 \u05d0\u05d1", is_quick=True),
    _caption("emoji", "signs of several code points", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u0301\u0301\u0301"),
    _caption("template", "braces and signs of templates", "{name} {{x}} %s ${HOME} $(id) {a|b"),
    _caption("tokens", "words that tokenizers treat apart", "<|endoftext|> <|startoftext|> <pad> [INST]"),
    _caption("line-ends", "three kinds of line ends", "a fox\r\nred\rblue\n"),
    _caption("many-lines", "100,000 lines", "a\n" * 100_000),
    _caption("long-word", "a word of 900,000 letters", "x" * 900_000),
    _caption("tags", "100,000 tags", "a, " * 100_000),
    _caption("hanging", "marks upon marks", "a" + "\u0300" * 50_000),
    _caption("utf-16", "UTF-16", "a fox".encode("utf-16"), "S", says="UTF-8", is_quick=True),
    _caption("utf-32", "UTF-32", "a fox".encode("utf-32"), "S"),
    _caption("latin-1", "ISO-8859-1", "un caf\xe9".encode("latin-1"), "S", says="UTF-8", is_quick=True),
    _caption("overlong", "a slash in two bytes", b"a \xc0\xaf fox", "S", says="UTF-8"),
    _caption("surrogates", "half a pair", b"a \xed\xa0\x80 fox", "S", says="UTF-8"),
    _caption("nul", "a NUL", b"a\0fox", "S", is_quick=True),
    _caption("noise", "noise", bytes(range(256)), "S"),
    _caption("megabytes", "3 MB", "a fox, " * 450_000, "S", is_quick=True),
    _caption("zip", "an archive", seeds.archive({"a": b"b"}), "S"),
    _caption("caption-ending", "UTF-16 in a .caption", "a fox".encode("utf-16"), "S", name="x.caption"),
    _caption("json", "JSON under .txt is text like any other", '{"caption": "a fox", "x": [[[[]]]]}'),
]  # fmt: skip


def _pipe(folder: Path, *, name: str) -> None:
    os.mkfifo(folder / name)


def _to(folder: Path, *, name: str, target: str) -> None:
    (folder / name).symlink_to(target)


_CAPTIONS += [
    Entry(id="caption-pipe", reader="caption", fault="a pipe", row="F8", expected="S", names="x.txt",
          make=all_of(_SOUND, partial(_pipe, name="x.txt")), is_quick=True),
    Entry(id="caption-endless", reader="caption", fault="a link to a device without end", row="F8", expected="S",
          names="x.txt", make=all_of(_SOUND, partial(_to, name="x.txt", target="/dev/zero"))),
]  # fmt: skip

# --- recipes ----------------------------------------------------------------------------------------------------------


def aliases(levels: int) -> str:
    """YAML whose lists come to nine times as many words with each level."""
    lines = ["schema: 1", "a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


def merges(levels: int) -> str:
    """YAML whose mappings take nine times as long with each level."""
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, levels)]
    return "\n".join(lines)


def _recipe(id_: str, fault: str, content: bytes | str, code: str, says: str = "", **more: Any) -> Entry:
    return Entry(
        id=f"recipe-{id_}", reader=more.pop("reader", "recipe"), fault=fault, row="H1", code=code, says=says,
        expected="E2" if code else "ok", names="recipe.yaml" if code else "", make=file("recipe.yaml", content), **more,
    )  # fmt: skip


_RECIPES = [
    _recipe("alias-bomb", "aliases of aliases: 9^8 values", aliases(8), "E1006", "aliases bring in more", is_quick=True),
    _recipe("merge-bomb", "merge keys of merge keys", merges(8), "E1006", is_quick=True),
    _recipe("alias-itself", "an anchor within itself", "schema: 1\na: &a [*a]\n", "E1006", "refers to itself", is_quick=True),
    _recipe("alias-unknown", "an alias of nothing", "schema: 1\na: *b\n", "E1006", "no &b"),
    _recipe("alias", "an anchor that is used once", "schema: 1\ndata: {path: &p [x], captions: {}}\n", ""),
    _recipe("tag-python", "a tag that calls a program", "schema: 1\nrun: {name: !!python/object/apply:os.system ['touch canary']}\n", "E1006", "tag", is_quick=True),
    _recipe("tag-own", "a tag of nobody's", "schema: 1\nrun: {name: !x a}\n", "E1006", "tag"),
    _recipe("tag-directive", "a directive for tags", "%TAG ! tag:x,2000:\n---\nschema: 1\n", "E1006", "tags are not allowed"),
    _recipe("yaml-1.1", "a directive for YAML 1.1", "%YAML 1.1\n---\nschema: 1\n", "E1006", "YAML 1.2"),
    _recipe("twice", "a key twice", "schema: 1\nrun: {steps: 1, steps: 2}\n", "E1005", "given twice", is_quick=True),
    _recipe("deep", "60 lists in each other", "schema: 1\na: " + "[" * 60 + "]" * 60, "E1006", "nested deeper", is_quick=True),
    _recipe("deep-open", "300,000 brackets that never close", "a: " + "[" * 300_000, "E1006", "nested deeper"),
    _recipe("deep-mappings", "5,000 mappings in each other", "\n".join(" " * n + "a:" for n in range(1000)), "E1006", "nested deeper"),
    _recipe("two-documents", "a second document", "schema: 1\n---\nschema: 1\n", "E1006", "one document"),
    _recipe("empty", "no byte", b"", "E1004", "empty", is_quick=True),
    _recipe("comments", "comments alone", "# nothing\n", "E1004", "empty"),
    _recipe("list", "a list at the top", "- a\n- b\n", "E1004", "list of settings"),
    _recipe("text", "a text", "hello\n", "E1004"),
    _recipe("control", "a control character", "schema: 1\nrun: {name: a\x07b}\n", "E1006", "control character", is_quick=True),
    _recipe("nul", "a NUL", b"schema: 1\0\n", "E1006", "control character"),
    _recipe("utf-16", "UTF-16", "schema: 1\n".encode("utf-16"), "E1006", "UTF-8", is_quick=True),
    _recipe("latin-1", "ISO-8859-1", "schema: 1\nrun: {name: caf\xe9}\n".encode("latin-1"), "E1006", "UTF-8"),
    _recipe("bom", "a mark at its beginning", b"\xef\xbb\xbfschema: 1\n", ""),
    _recipe("megabytes", "2 MB", "schema: 1\n" + "# " + "x" * 2_000_000, "E1006", "larger than"),
    _recipe("toml", "TOML", "[run]\nsteps = 3\n", "E1004", "TOML"),
    _recipe("json", "JSON is YAML", '{"schema": 1, "run": {"steps": 3}}', ""),
    _recipe("tabs", "tabs", "schema: 1\nrun:\n\tsteps: 3\n", "E1004", "tab"),
    _recipe("open-quote", "a quote that never closes", 'schema: 1\nrun: {name: "a\n' + "x\n" * 1000, "E1004", "not closed"),
    _recipe("huge-int", "a number of 5,000 digits", "schema: 1\nrun: {steps: " + "9" * 5000 + "}\n", "E1002"),
    _recipe("huge-steps", "10^300 steps", "schema: 1\nrun: {steps: 1" + "0" * 299 + "}\n", "E1002", is_quick=True),
    _recipe("infinite", "an infinite rate", "schema: 1\noptim: {lr: .inf}\n", "E1002", is_quick=True),
    _recipe("nan", "NaN for a rate", "schema: 1\noptim: {lr: .nan}\n", "E1002"),
    _recipe("overflow", "1e999", "schema: 1\noptim: {lr: 1e999}\n", "E1002"),
    _recipe("negative", "a negative batch", "schema: 1\ndata: {batch_size: -4}\n", "E1007"),
    _recipe("types", "every value of another type", "schema: 1\nmodel: 3\ndata: [a]\noptim: x\nrun: null\nsample: {seed: {a: 1}}\n", "E1002", is_quick=True),
    _recipe("bool", "a yes where a number belongs", "schema: 1\nrun: {steps: true}\n", "E1002"),
    _recipe("unknown", "a key with a slip in it", "schema: 1\ndata: {batch_sise: 4}\n", "E1001", "did you mean data.batch_size", is_quick=True),
    _recipe("many-unknown", "70,000 unknown keys", "schema: 1\n" + "".join(f"k{n}: 1\n" for n in range(70_000)), "E1006", is_quick=True),
    _recipe("many-inside", "50,000 unknown keys of a section", "schema: 1\ndata:\n" + "".join(f"  k{n}: 1\n" for n in range(50_000)), "E1006"),
    _recipe("many-tags", "100,000 tags", "schema: 1\nx: [" + ", ".join(["!a b"] * 100_000) + "]\n", "E1006", "tag"),
    _recipe("many-twice", "a key 100,000 times", "schema: 1\n" + "run: {}\n" * 100_000, "E1005", "given twice"),
    _recipe("many-paths", "1,000 data sets", "schema: 1\ndata: {sets: [" + ", ".join(f"{{path: p{n}}}" for n in range(1000)) + "]}\n", ""),
    _recipe("long-key", "a key of 100,000 letters", "schema: 1\n? " + "k" * 100_000 + "\n: 1\n", "E1001"),
    _recipe("key-list", "a list for a key", "schema: 1\n? [a, b]\n: 1\n", "E1004", "plain word"),
    _recipe("key-terminal", "a key that steers a terminal", 'schema: 1\n"\\e[31mred\\u202e": 1\n', "E1001", is_quick=True),
    _recipe("secret", "a token", "schema: 1\nrun: {name: hf_" + "a" * 24 + "}\n", "E1009", is_quick=True),
    _recipe("class-path", "a class of nobody's", "schema: 1\noptim: {optimizer: {kind: library, class_name: os.system}}\n", "E1161", reader="check"),
    _recipe("name-format", "a name that reads attributes", "schema: 1\nrun: {export: {name: '{name.__class__}'}}\n", "E1003"),
    _recipe("name-wide", "a name of ten billion digits", "schema: 1\nrun: {export: {name: '{step:9999999999}'}}\n", "E1003"),
    _recipe("no-schema", "no version", "run: {steps: 3}\n", ""),
    _recipe("schema", "a version of the future", "schema: 99\n", "E1007"),
]  # fmt: skip


def _wrong_recipe_places() -> list[Entry]:
    return [
        Entry(id="recipe-folder", reader="recipe", fault="a folder", row="H1", expected="E2", code="E1011",
              names="recipe.yaml", make=lambda folder: (folder / "recipe.yaml").mkdir()),
        Entry(id="recipe-pipe", reader="recipe", fault="a pipe", row="H1", expected="E2", code="E1011",
              names="recipe.yaml", make=partial(_pipe, name="recipe.yaml"), is_quick=True),
        Entry(id="recipe-endless", reader="recipe", fault="a link to a device without end", row="H1", expected="E2",
              code="E1011", names="recipe.yaml", make=partial(_to, name="recipe.yaml", target="/dev/zero")),
    ]  # fmt: skip


# --- prompts ----------------------------------------------------------------------------------------------------------


def _prompts(id_: str, fault: str, content: Any, says: str = "", **more: Any) -> Entry:
    expected = more.pop("expected", "E2")
    name = more.pop("name", "prompts.json")
    if not isinstance(content, (str, bytes)):
        content = json.dumps(content)
    return Entry(
        id=f"prompts-{id_}", reader="prompts", fault=fault, row="H1", expected=expected, says=says,
        code="E1073" if expected == "E2" else "", names=name if expected == "E2" else "", make=file(name, content),
        **more,
    )  # fmt: skip


_MANY = {"samples": [{"prompt": "x" * 60} for _ in range(60_000)] + [{"prompt": 3}]}
_PROMPTS = [
    _prompts("deep", "nested 10,000 deep", "[" * 10_000 + "]" * 10_000, is_quick=True),
    _prompts("number", "a number of 5,000 digits", '{"seed": ' + "9" * 5000 + "}"),
    _prompts("twice", "a key twice", '{"seed": 1, "seed": 2}'),
    _prompts("list", "a list at the top", [1, 2]),
    _prompts("null", "null", "null"),
    _prompts("nan", "NaN for a size", '{"guidance": [NaN]}'),
    _prompts("infinite", "an infinite scale", '{"guidance": [1e999]}', is_quick=True),
    _prompts("types", "a prompt that is a number", {"samples": [{"prompt": 3}]}, "samples[0].prompt", is_quick=True),
    _prompts("unknown", "an unknown key", {"sampels": []}, "did you mean samples"),
    _prompts("seed", "a seed of 10^30", {"seed": 10**30}),
    _prompts("steps", "a billion steps", {"steps": 10**9}),
    _prompts("aspect", "an aspect ratio of 0", {"samples": [{"prompt": "a", "aspect_ratio": 0}]}),
    _prompts("late", "5 MB that are wrong at the end", _MANY, "is 3", is_quick=True),
    _prompts("cut", "JSON that ends in its middle", '{"samples": [{"prompt": "a'),
    _prompts("utf-16", "UTF-16", "a fox".encode("utf-16"), "UTF-8", name="prompts.txt"),
    _prompts("option", "an option that is none", "a fox --z 3", "is not an option of a prompt", name="prompts.txt"),
    _prompts("option-number", "a width of 10^30", f"a fox --w {10**30}", name="prompts.txt", is_quick=True),
    _prompts("option-twice", "an option twice", "a fox --w 64 --w 64", name="prompts.txt"),
    _prompts("markup", "markup and codes of a terminal", "\x1b[31m<b>a fox</b>\u202e", name="prompts.txt", expected="ok"),
    _prompts("long", "a line of 2 MB", "a fox " * 350_000, name="prompts.txt", expected="ok"),
    _prompts("dashes", "a line of 500,000 dashes", " --" * 170_000, name="prompts.txt", expected="ok"),
    _prompts("lines", "200,000 lines", "a fox --w 64\n" * 200_000, name="prompts.txt", expected="ok", seconds=6.0),
    _prompts("empty", "no byte", b"", expected="ok"),
    Entry(id="prompts-pipe", reader="prompts", fault="a pipe", row="H1", expected="E2", code="E1073",
          names="prompts.txt", make=partial(_pipe, name="prompts.txt")),
    Entry(id="prompts-endless", reader="prompts", fault="a link to a device without end", row="H1", expected="E2",
          code="E1073", names="prompts.txt", make=partial(_to, name="prompts.txt", target="/dev/zero")),
]  # fmt: skip

ENTRIES = _CAPTIONS + _RECIPES + _wrong_recipe_places() + _PROMPTS


def link(name: str, target: str) -> Make:
    """Makes a link."""
    return partial(_to, name=name, target=target)


def pipe(name: str) -> Make:
    """Makes a pipe that nobody writes to."""
    return partial(_pipe, name=name)
