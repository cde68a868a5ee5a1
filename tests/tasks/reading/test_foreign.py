"""Commands of other trainers instead of a recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.tasks.reading.foreign import their_flags


def test_suggested_settings_come_before_foreign_command() -> None:
    for message, words in (
        ("error[E1221]: m: set model.flux.distilled=true and model.flux.guidance=null", "model.flux.distilled=true "
         "model.flux.guidance=null"),
        ("error[E1219]: write sample.solver=euler, or leave it out", "sample.solver=euler"),
        ("error[E1410]: out is there; add --replace", "--replace"),
        ("error[E1220]: got sample.guidance=3.5", ""),
    ):  # fmt: skip
        assert their_flags(message, {}) == (f"write {words} before the `--`" if words else "")


def test_messages_name_flags_of_foreign_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"model": "--weight", "./a/b.ckpt": "--over", "data.path": "--data", "--out": "--save"}
    for sentence, flags in (
        ("error[E1406]: model: is a folder without model_index.json", "model is --weight"),
        ("error[E1406]: this is no model, and no model: was one", ""),
        ("error[E1406]: a/b.ckpt: is no model", "./a/b.ckpt is --over"),
        (f"error[E1406]: {tmp_path}/a/b.ckpt: is no model", "./a/b.ckpt is --over"),
        ("error[E1406]: /elsewhere/a/b.ckpt: is no model", ""),
        ("error[E1406]: a/b.ckpt.old: is no model", ""),
        ("a/b.ckpt has 2 problems\n  given  data.path  E1007", "data.path is --data"),
        ("give --out, or data.path", "--out is --save, data.path is --data"),
    ):
        assert their_flags(sentence, names) == (f"in this command line: {flags}" if flags else "")
