"""The command `report`: one self-contained HTML file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mezzotint import outside
from mezzotint.board import report
from mezzotint.board.reading import images
from mezzotint.cli import main
from support.board_runs import SCRIPT, opened, write_image, write_images, write_run


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("report")
    write_run(root / "run", steps=400)
    assert main(["report", str(root / "run"), f"--out={root / 'run.html'}"]) == 0
    return (root / "run.html").read_text("utf-8")


def test_report_loads_nothing_from_elsewhere(written: str) -> None:
    without = re.sub(r"https?://(github\.com/leeoniya|www\.w3\.org)[^\s\"')]*", "", written)
    assert re.findall(r"(?:src|href)=\"(?!data:|#)[^\"]*\"", without) == []
    assert "@import" not in written
    assert "url(" not in written
    assert "default-src &#39;none&#39;" in written


def test_report_escapes_markup(written: str) -> None:
    assert SCRIPT not in written
    assert "<img src=x" not in written


def test_checkpoints_have_their_leak_on_the_page_and_in_the_report(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "run")
    assert "Leak" not in report.render_run(run)[0]
    (run / "exports" / "step-00000060-ema").mkdir(parents=True)
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": 60, "drift/leak": 0.75, "drift/leak_shadow": 0.25}) + "\n")
    with opened(tmp_path / "runs") as board:
        for text in (board.ask("/part/stored?run=0/run")[1], report.render_run(run)[0]):
            assert re.findall(r'data-label="leak">([^<]*)<', text) == ["0.75", "0.25"]


def test_existing_report_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "a.html").write_text("mine")
    assert main(["report", str(tmp_path / "run"), f"--out={tmp_path / 'a.html'}"]) == 2
    assert "error[E1014]" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "none")]) == 2
    assert "error[E1943]" in capsys.readouterr().err
    assert (tmp_path / "a.html").read_text() == "mine"


def test_report_names_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "run", steps=9000)
    with open(folder / "run.log", "a") as file:
        file.writelines(f"line {number}\n" for number in range(20_000))
    monkeypatch.setattr(report, "_IMAGES", 4000)
    assert main(["report", str(folder), f"--out={tmp_path / 'small.html'}"]) == 0
    output = capsys.readouterr().out
    text = (tmp_path / "small.html").read_text("utf-8")
    for words in ("of 12 images", "of 9,000 the lowest and highest", "the log before its last 64 kB"):
        assert words in output
        assert words in text
    assert 0 < text.count("data:image/webp") < 12
    assert '"00000060/00-raw.png"' in text, "the last step is kept"


def test_report_of_many_large_images_stays_below_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run")
    monkeypatch.setattr(images, "downscale", lambda file, side: bytes(3_000_000))
    text, left_out = report.render_run(folder)
    assert len(text.encode()) < report.MOST
    assert any("images" in one for one in left_out)


def test_playlist_in_place_of_a_clip_opens_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clips are shown as their strips of frames; the clip itself is not read."""
    folder = write_run(tmp_path / "run")
    shots = folder / "samples" / "step-00000060"
    (shots / "00-raw.mp4").write_text("ffconcat version 1.0\nfile 'secret.mp4'\n")
    read: list[str] = []
    real = outside.open_plain

    def watched(path: Path, *words: Any, **named: Any) -> Any:
        read.append(Path(path).name)
        return real(path, *words, **named)

    monkeypatch.setattr(outside, "open_plain", watched)
    text, left_out = report.render_run(folder)
    assert "00-raw.png" in read
    assert not [name for name in read if name.endswith(".mp4")]
    assert "data:video" not in text
    assert "1 clip: shown as a strip of frames" in left_out


@pytest.mark.parametrize("most", [1, 3, 6, 9])
def test_steps_are_chosen_from_the_ends_to_the_middle(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", prompts=())
    for step in range(9):
        place = folder / "samples" / f"step-{step:08d}"
        place.mkdir(exist_ok=True)
        write_image(place / "00-raw.png", "a fox")
    for step in (30, 60):
        (folder / "samples" / f"step-{step:08d}").rmdir()
    monkeypatch.setattr(images, "downscale", lambda file, side: b"small")
    monkeypatch.setattr(report, "_IMAGES", most * len("data:image/webp;base64,c21hbGw="))
    text, _ = report.render_run(folder)
    chosen = {int(step) for step in re.findall(r'"(\d{8})/00-raw\.png": ?"data:', text)}
    assert chosen == set([8, 0, 5, 3, 6, 2, 4, 1, 7][:most])


def test_report_of_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = write_images(tmp_path / "images", 40)
    Image.new("RGB", (64, 48)).save(folder / "mute.jpg")  # small, and without a caption
    assert main(["report", str(folder), f"--out={tmp_path / 'data.html'}"]) == 0
    text = (tmp_path / "data.html").read_text("utf-8")
    assert text.count('<figure class="sample"') == 41
    assert "mute.jpg" in text
    assert "broken.png" in text
    assert SCRIPT not in text


def test_home_folder_is_shown_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / "al"
    monkeypatch.setenv("HOME", str(home))
    data = {"path": [f"{home}/the boy's"], "cache": {"path": f"{home}/.cache"}}
    run = write_run(home / "runs" / "fox", recipe={"data": data})
    with open(run / "run.log", "a") as file:
        file.write(f"in {home}.\n{home}ine stays\n")
    with open(run / "history.jsonl", "a") as file:
        event = {"event": "resumed", "step": 3, "changes": [f"data.path: {home} → {home}/b"], "note": [f"\n{home}/q"]}
        file.write(json.dumps(event) + "\n")
    (tmp_path / "by-link").symlink_to(home)
    for place in (run, tmp_path / "by-link" / "runs" / "fox"):
        text, _ = report.render_run(place)
        assert re.findall(re.escape(str(home)) + r"\w*", text) == [f"{home}ine"]
        assert "mezzotint train ~/runs/fox/recipe.yaml" in text
        assert "~/the boy" in text
        assert "data.path: ~ → ~/b" in text


@pytest.mark.parametrize(
    ("home", "text", "left"),
    [("/root", "/root/x, /srv/root/x, /root2", "~/x, /srv/root/x, /root2"), ("/", "/a/b", "/a/b"), ("", "/a/b", "/a/b"),
     ("/h/a.b", "/h/a.b/c /h/axb \\n/h/a.b", "~/c /h/axb \\n~")],
)  # fmt: skip
def test_other_paths_are_unchanged(home: str, text: str, left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", home)
    uri = "data:image/webp;base64,/root/h/a.b/"
    assert report.hide_home({"a": [text, 3, uri], text: None}) == {"a": [left, 3, uri], left: None}
