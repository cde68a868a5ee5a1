"""Held-out images that are also trained."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.flawed_images import Ask, findings_in, names, put, scene


def test_trained_held_out_images_are_a_finding(tmp_path: Path, ask: Ask) -> None:
    trained, held = tmp_path / "trained", tmp_path / "held"
    trained.mkdir()
    held.mkdir()
    for number in range(4):
        put(trained, f"{number}.png", scene(number), f"caption {number}")
    shutil.copyfile(trained / "2.png", held / "copy.png")
    put(held, "near.jpg", scene(3, (90, 90)), None, quality=70)
    put(held, "other.png", scene(9), None)
    for name in ("copy", "near", "other"):
        (held / f"{name}.txt").write_text("held")
    status, text = ask(trained, "--json", f"data.holdout.path.new={held}", "run.validation.every=null")
    finding = findings_in(text)["held-out-is-trained"]
    assert (status, finding["count"]) == (2, 2)
    assert names(finding) == ["new"] * 2
    assert {words.split()[1] for words in finding["examples"]} == {"copy.png", "near.jpg"}
    share = findings_in(ask(trained, "--json", "data.holdout.fraction=0.5")[1])
    assert "held-out-is-trained" not in share
