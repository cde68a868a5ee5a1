"""Tags, where captions are lists of them."""

from __future__ import annotations

from pathlib import Path

from odd_pictures import Ask, findings_in, put, scene


def test_tags_are_counted_where_captions_are_lists(tmp_path: Path, ask: Ask) -> None:
    for number, caption in enumerate(("red_hair, 1girl, hat", "Red hair, 1girl", "red_hair, 1girl, smile")):
        put(tmp_path, f"{number}.png", scene(number), caption)
    findings = findings_in(ask(tmp_path, "--json")[1])
    assert findings["tags"]["table"][:3] == [
        ["tag", "captions", "share"],
        ["1girl", "3", "100%"],
        ["red_hair", "2", "67%"],
    ]
    assert findings["tags-spelled-twice"]["examples"] == ["Red hair (1), red_hair (2)"]
