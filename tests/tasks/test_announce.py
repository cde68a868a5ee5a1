"""What a run says before its first step leaves nothing out that the recipe or the files left out."""

from __future__ import annotations

from typing import Any

from PIL import Image


def line(text: str, word: str) -> str:
    return next(row for row in text.splitlines() if row.startswith(f"  {word} "))


def test_what_is_left_out_skipped_or_changed_is_counted(world: Any, capsys: Any) -> None:
    Image.new("RGB", (64, 64)).save(world.pictures / "uncaptioned.png")
    Image.new("RGB", (64, 64)).save(world.pictures / "wordless.png")
    Image.new("RGB", (8, 8)).save(world.pictures / "small.png")
    (world.pictures / "wordless.txt").write_text("\n")
    (world.pictures / "small.txt").write_text("a small one")
    (world.pictures / "broken.png").write_bytes(b"\x89PNG")
    (world.pictures / "broken.txt").write_text("a broken one")
    (world.pictures / "notes.md").write_text("")
    assert world.train("run", run__steps=1, data__captions__missing="skip") == 0
    said = line(capsys.readouterr().out, "data")
    for words in (
        "1 with an empty caption",
        "1 enlarged to their bucket",
        "1 left out as the recipe asks",
        "1 skipped",
        "1 of other kinds (not looked at)",
    ):
        assert words in said


def test_a_warm_up_that_outlasts_the_run_is_said(world: Any, capsys: Any) -> None:
    assert world.train("long", run__steps=2, optim__schedule__warmup_steps=2) == 0
    assert "stays below its peak" in line(capsys.readouterr().out, "update")
    assert world.train("short", run__steps=2, optim__schedule__warmup_steps=1) == 0
    assert "stays below its peak" not in line(capsys.readouterr().out, "update")
