"""How findings are printed."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from support.flawed_images import Ask, put


def test_file_names_cannot_control_the_terminal(tmp_path: Path, ask: Ask) -> None:
    for number in range(2):
        put(tmp_path, f"\x1b[31m{number}.png", Image.new("RGB", (64, 64), "red"), "\x1b]0;title")
    assert "\x1b" not in ask(tmp_path, "--json")[1]
    assert "\x1b" not in ask(tmp_path)[1]
