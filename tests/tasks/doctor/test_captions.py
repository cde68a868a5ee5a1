"""Findings about captions: several lines, and tags."""

from __future__ import annotations

from pathlib import Path

from support.flawed_images import Ask, findings_in, put, scene


def test_tags_are_counted_in_comma_separated_captions(tmp_path: Path, ask: Ask) -> None:
    for number, caption in enumerate(("red_hair, 1girl, hat", "Red hair, 1girl", "red_hair, 1girl, smile")):
        put(tmp_path, f"{number}.png", scene(number), caption)
    findings = findings_in(ask(tmp_path, "--json")[1])
    assert findings["tags"]["table"][:3] == [
        ["tag", "captions", "share"],
        ["1girl", "3", "100%"],
        ["red_hair", "2", "67%"],
    ]
    assert findings["tags-spelled-twice"]["examples"] == ["Red hair (1), red_hair (2)"]


def test_multi_line_captions_are_a_finding(tmp_path: Path, ask: Ask) -> None:
    """Such as translations: joined they are too long, and a random choice trains one language at random."""
    lines = [f"line {number} " + "about a red circle on the left " * 3 for number in range(12)]
    for number in range(3):
        put(tmp_path, f"{number}.png", scene(number), "\n".join(lines))
    joined = findings_in(ask(tmp_path, "--json")[1])["cut-captions"]
    drawn = findings_in(ask(tmp_path, "--json", "data.captions.lines=random")[1])
    assert "set data.captions.lines=first" in joined["advice"]
    assert "set data.captions.lines=first" in drawn["many-captions"]["advice"]
    first = findings_in(ask(tmp_path, "--json", "data.captions.lines=first")[1])
    assert not {"cut-captions", "many-captions"} & first.keys()
