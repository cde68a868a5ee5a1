"""Open-Sora-Plan's lists and annotations become samples with stable keys, or errors that name file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mezzotint.compat.open_sora_plan.clip_list import Annotated, named_files, read_annotation, read_list, samples
from mezzotint.compat.open_sora_plan.clip_list_spec import ClipListSettings
from mezzotint.data.buckets.clip_buckets import out_of_limits
from mezzotint.data.files.overrides import Marked
from mezzotint.data.formats.base import Skipped
from mezzotint.settings.sections.clips import ClipsSettings
from mezzotint.shapes import Size
from mezzotint.stages import Sample
from support.data_sets import put
from support.messages import refused

CLIP = {"path": "a.mp4", "cap": "a cat"}


def a_list(root: Path, *entries: Any, texts: bool = False, text: str | None = None) -> Path:
    (root / "media").mkdir(parents=True, exist_ok=True)
    (root / "texts").mkdir(exist_ok=True)
    (root / "clips.json").write_text(json.dumps(entries))
    line = "media,texts,clips.json" if texts else "media,clips.json"
    (root / "list.txt").write_text(line if text is None else text)
    return root / "list.txt"


def listed(path: Path, **values: Any) -> tuple[list[Sample], list[Skipped]]:
    own = {name: values.pop(name) for name in ClipListSettings.model_fields if name in values}
    items = list(samples(path, ClipsSettings(**values), ClipListSettings(**own)))
    return [i for i in items if isinstance(i, Sample)], [i for i in items if isinstance(i, Skipped)]


def complaint(code: str, path: Path, **values: Any) -> str:
    with refused(code) as caught:
        listed(path, **values)
    return caught.value.message.removeprefix(f"{path}: ").removeprefix(f"{path.parent / 'clips.json'}: ")


def test_two_paths_per_line_give_samples(tmp_path: Path) -> None:
    path = a_list(
        tmp_path, CLIP, {"path": "Fish/b.mp4", "cap": "a fish", "frame_idx": "12:77"}, text="\n media , clips.json \n\n"
    )
    put(tmp_path / "media", "a.mp4", "Fish/b.mp4")
    used, skipped = listed(path)
    assert not skipped
    assert [s.key for s in used] == ["a.mp4", "Fish/b.mp4@12"]
    assert [s.captions for s in used] == [("a cat",), ("a fish",)]
    assert [s.overrides for s in used] == [(), (("start", "12"),)]
    assert [s.media for s in used] == [tmp_path / "media/a.mp4", tmp_path / "media/Fish/b.mp4"]


def test_third_path_names_the_embedding_folder(tmp_path: Path) -> None:
    entry = {"path": "Fish/b.mp4", "frame_idx": "0:65", "cap": "a fish", "fps": 24}
    path = a_list(tmp_path, entry, texts=True)
    put(tmp_path, "media/Fish/b.mp4", "texts/Fish/b-frame_idx-0:65-fps-24.npz")
    used, skipped = listed(path, text_embeddings=True)
    assert not skipped
    own = dict(used[0].overrides)
    texts = tmp_path / "texts/Fish/b-frame_idx-0:65-fps-24.npz"
    assert own["start"] == "0"
    assert Marked.decoded(own["embedding"]) == Marked.of(texts)
    assert set(named_files(path, has_texts=True)) == {
        tmp_path / "clips.json", tmp_path / "media/Fish/b.mp4", texts,
    }  # fmt: skip


def test_repeated_clips_have_distinct_keys(tmp_path: Path) -> None:
    entries = [CLIP, {**CLIP, "cap": "another"}, CLIP, {**CLIP, "frame_idx": "5:9"}, {**CLIP, "frame_idx": "7:9"}]
    path = a_list(tmp_path, *entries, text="media,clips.json\nmedia,clips.json\n")
    put(tmp_path / "media", "a.mp4")
    used, skipped = listed(path)
    keys = ["a.mp4", "a.mp4#2", "a.mp4@5", "a.mp4@7"]
    assert [s.key for s in used] == [f"{n}/{key}" for n in (0, 1) for key in keys]
    assert [(s.path, s.reason, s.is_wanted) for s in skipped] == [
        (f"{n}/a.mp4", "entry 3 has path, start and caption of entry 1", False) for n in (0, 1)
    ]


def test_missing_files_are_skipped_or_counted(tmp_path: Path) -> None:
    entries = [CLIP, {"path": "b.mp4", "cap": "b"}, {"path": "c.mp4", "cap": "c"}]
    path = a_list(tmp_path, *entries, texts=True)
    put(tmp_path, "media/a.mp4", "media/b.mp4", "texts/a.npz", "texts/c.npz")
    used, skipped = listed(path, text_embeddings=True)
    assert [s.key for s in used] == ["a.mp4"]
    assert [(s.path, s.reason, s.is_wanted) for s in skipped] == [
        ("b.mp4", f"{tmp_path / 'texts/b.npz'} does not exist", True),
        ("c.mp4", f"{tmp_path / 'media/c.mp4'} does not exist", True),
    ]
    # kept: reading the file reports why it is unusable; nothing else reads an embedding
    used, skipped = listed(path, text_embeddings=True, missing="count")
    assert [s.key for s in used] == ["a.mp4", "c.mp4"]
    assert [(s.path, s.is_wanted) for s in skipped] == [("b.mp4", False)]


def test_larger_version_of_a_clip_replaces_it(tmp_path: Path) -> None:
    path = a_list(tmp_path, CLIP)
    put(tmp_path / "media", "a.mp4", "a_resize_1080p.mp4")
    (used,), _ = listed(path)
    assert used.key == "a.mp4"
    assert used.media.name == "a_resize_1080p.mp4"


def test_listed_sizes_are_filtered_before_files_are_opened(tmp_path: Path) -> None:
    sizes = [(1280, 720), (320, 240), (2000, 500), (4096, 2160)]
    entries = [{"path": f"{w}.mp4", "cap": "x", "resolution": {"height": h, "width": w}} for w, h in sizes] + [
        {"path": "untold.mp4", "cap": "x", "resolution": "720p"}
    ]
    path = a_list(tmp_path, *entries)
    put(tmp_path / "media", *(entry["path"] for entry in entries))
    used, skipped = listed(path, min_size=480, max_size=3000, max_aspect=2.0)
    assert [s.key for s in used] == ["1280.mp4", "untold.mp4"]
    assert [s.reason for s in skipped] == [
        "320×240: its shorter side is below 480",
        "2000×500: its sides are more than 2 to 1",
        "4096×2160: its longer side is above 3000",
    ]
    assert all(s.is_wanted for s in skipped)
    assert out_of_limits(Size(1280, 720), ClipsSettings(min_size=480, max_size=1280, max_aspect=16 / 9)) is None


def test_malformed_lines_are_reported(tmp_path: Path) -> None:
    text = "media,clips.json\nmedia\n\nmedia,texts,clips.json\nnowhere,clips.json\nmedia,\n"
    assert complaint("E1231", a_list(tmp_path, CLIP, text=text)) == (
        "line 2: 1 path where 2 are needed: media folder,annotation.json; "
        "line 4: 3 paths where 2 are needed: media folder,annotation.json; with a folder of embeddings set "
        "data.clip_list.text_embeddings=true; line 5: no such file or folder: 'nowhere'; "
        "line 6: 1 path where 2 are needed: media folder,annotation.json"
    )
    assert complaint("E1231", a_list(tmp_path, CLIP), text_embeddings=True) == (
        "line 1: 2 paths where 3 are needed: media folder,folder of embeddings,annotation.json; name the folder where "
        "mezzotint cache writes embeddings, or set data.clip_list.text_embeddings=false"
    )


def test_invalid_lists_are_refused(tmp_path: Path) -> None:
    assert complaint("E1231", a_list(tmp_path, text="\n \n")).startswith("is empty; write a line for each data set")
    assert "No such file" in complaint("E1231", tmp_path / "none.txt")
    assert "is a folder, not a regular file, where a list of clips is needed" in complaint("E1231", tmp_path)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    assert complaint("E1231", tmp_path / "latin.txt") == "is not UTF-8 at byte 3; save it as UTF-8"


FAULTS = [
    ("text", "a text where an object with path and cap is needed"),
    ({"path": "a.mp4"}, "no 'cap'; it has 'path'"),
    ({"cap": "a"}, "no 'path'; it has 'cap'"),
    ({"path": "a.mp4", "cap": ["a"]}, "its 'cap' is a list, not a text"),
    ({"path": 5, "cap": "a"}, "its 'path' is a number (5), not a text"),
    ({"path": "../a.mp4", "cap": "a"}, "its path '../a.mp4' must be inside the media folder"),
    ({"path": "/a.mp4", "cap": "a"}, "its path '/a.mp4' must be inside the media folder"),
    ({"path": "", "cap": "a"}, "its path '' must be inside the media folder"),
    ({"path": "a.mp4", "cap": "a", "frame_idx": "7"}, "its frame_idx is '7'; write 'start:end' in integers"),
    ({"path": "a.mp4", "cap": "a", "frame_idx": -1}, "its frame_idx is -1; write 'start:end' in integers"),
]


@pytest.mark.parametrize(("entry", "reason"), FAULTS)
def test_malformed_entry_is_reported(entry: Any, reason: str, tmp_path: Path) -> None:
    assert complaint("E1232", a_list(tmp_path, CLIP, entry)) == f"entry 2: {reason}"


def test_malformed_entries_are_counted_and_ten_are_shown(tmp_path: Path) -> None:
    message = complaint("E1232", a_list(tmp_path, *[{}] * 13))
    assert message.count("entry ") == 10
    assert message.endswith("entry 10: no 'path'; it has no keys and 3 more")


def test_invalid_annotations_are_refused(tmp_path: Path) -> None:
    path = a_list(tmp_path)
    for text, reason in {
        "{}": "contains an object instead",
        "[1,": "is not JSON: ",
        '[{"path": "a", "path": "b", "cap": ""}]': "is not JSON: the key 'path' occurs twice",
    }.items():
        (tmp_path / "clips.json").write_text(text)
        assert complaint("E1232", path).startswith(reason)


def test_other_keys_of_entries_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        '[{"z": 1.5, "path": ".\\\\b\\\\a.mp4", "frame_idx": " 3 : ", "cap": "x", "a": null}]'
    )
    assert read_annotation(tmp_path / "a.json") == (
        Annotated(1, "b/a.mp4", "x", 3, None, (("z", "1.5"), ("frame_idx", " 3 : "), ("a", "None"))),
    )


def test_list_paths_are_also_relative_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_list(tmp_path / "here", CLIP)
    other = a_list(tmp_path / "there", CLIP, text="media,clips.json")
    (tmp_path / "there/clips.json").unlink()
    monkeypatch.chdir(tmp_path / "here")
    (line,) = read_list(other, has_texts=False)
    assert line.media == tmp_path / "there/media"
    assert line.annotation == tmp_path / "here/clips.json"
