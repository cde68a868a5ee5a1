"""Data sets of a file, as `data`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from foreign_lines import flat
from musubi_commands import notes, problems, recipe, settings, translate

from mezzotint.compat.musubi import _datasets as features
from mezzotint.compat.musubi._datasets import bucket_sizes
from mezzotint.compat.musubi._rows_model import FUN_CONTROL, LAYERED
from mezzotint.settings.reading.translation import Launched

NUMBERS: dict[str, Any] = json.loads((Path(__file__).parent / "formulas.json").read_text("utf-8"))
GENERAL = '[general]\ncaption_extension = ".txt"\nresolution = [512, 512]\n'
ONE = f'{GENERAL}[[datasets]]\nimage_directory = "a"\n'
CLIPS = f'{GENERAL}[[datasets]]\nvideo_directory = "v"\n'
WAN, FILE = "wan_train_network", "--dataset_config=d.toml"


def data(text: str, script: str = WAN) -> dict[str, Any]:
    Path("d.toml").write_text(text, "utf-8")
    values = settings(script, FILE)
    return {path.removeprefix("data."): value for path, value in values.items() if path.startswith("data.")}


@pytest.mark.parametrize(("width", "height", "sizes"), NUMBERS["buckets"])
def test_buckets_are_those_of_the_scripts(width: int, height: int, sizes: list[list[int]]) -> None:
    assert [list(size) for size in bucket_sizes(width, height)] == sizes


def test_single_size_without_buckets_and_its_default() -> None:
    values = data('[[datasets]]\nimage_directory = "a"\ncaption_extension = ".txt"\n')
    assert (values["buckets.shape"], values["buckets.sizes"]) == ("list", [[544, 960]])
    values = data(f"{ONE}enable_bucket = true\nbatch_size = 2\nnum_repeats = 3\n")
    assert [512, 512] in values["buckets.sizes"]
    assert (values["batch_size"], values["repeats"], values["path"]) == (2, 3.0, "a")
    recipe(WAN, FILE)


def test_several_data_sets_have_what_differs() -> None:
    text = f'{ONE}num_repeats = 2\n[[datasets]]\nimage_directory = "b"\nresolution = 768\nbatch_size = 2\n'
    values = data(text)
    assert values["sets"] == [
        {"path": "a", "repeats": 2.0, "batch_size": 1, "resolution": 512},
        {"path": "b", "repeats": 1.0, "batch_size": 2, "resolution": 768},
    ]
    assert (values["buckets.shape"], values["buckets.step"]) == ("square", 64)
    read = recipe(WAN, FILE)
    assert [one.batch_size for one in read.data.sets] == [1, 2]
    translated = translate(WAN, FILE, launched=Launched(processes=2))
    assert [one["batch_size"] for one in flat(translated.settings)["data.sets"]] == [2, 4]


def test_clips_have_their_frames() -> None:
    values = data(f"{CLIPS}target_frames = [27]\nsource_fps = 30.0\n")
    found = {key: values[key] for key in ("format", "clips.frames", "clips.start", "clips.fps", "captions.missing")}
    assert found == {
        "format": "videofolder", "clips.frames": 25, "clips.start": "first", "clips.fps": 16.0,
        "captions.missing": "error",
    }  # fmt: skip
    assert "target_frames 27 is cut to 25" in notes(WAN, FILE)
    recipe(WAN, FILE)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("target_frames = [45, 1, 27, 25]", [{"frames": n, "start": "first"} for n in (1, 25, 45)]),
        ('target_frames = [5, 9]\nframe_extraction = "chunk"', [{"frames": n, "piece_stride": n} for n in (5, 9)]),
        ('target_frames = [5]\nframe_extraction = "slide"\nframe_stride = 3', [{"frames": 5, "piece_stride": 3}]),
        ('target_frames = [5]\nframe_extraction = "uniform"\nframe_sample = 4', [{"frames": 5, "pieces": 4}]),
        ('frame_extraction = "full"\nmax_frames = 47', [{"frames": 45, "short": "trim", "start": "first"}]),
    ],
)
def test_clips_become_samples(keys: str, expected: list[dict[str, Any]]) -> None:
    Path("d.toml").write_text(f"{CLIPS}{keys}\n", "utf-8")
    read = recipe(WAN, FILE).data
    clips = [one.settings.clips.model_dump(exclude_unset=True) for one in read.image_sets()]
    assert [{name: one.get(name) for name in each} for one, each in zip(clips, expected, strict=True)] == expected
    assert read.clips.frames == max(one["frames"] for one in expected)


def test_data_sets_of_clips_have_their_own_lengths_and_rates() -> None:
    more = '[[datasets]]\nvideo_directory = "w"\ntarget_frames = [5]\nsource_fps = 30.0\n'
    values = data(f"{CLIPS}target_frames = [1, 9]\n{more}")
    assert [(one["path"], one["clips"]) for one in values["sets"]] == [
        ("v", {"frames": 1}), ("v", {"frames": 9}), ("w", {"frames": 5, "fps": 16.0})]  # fmt: skip
    assert values["clips.start"] == "first"
    recipe(WAN, FILE)


def test_images_are_not_enlarged() -> None:
    values = data(f"{ONE}enable_bucket = true\nbucket_no_upscale = true\n")
    assert (values["buckets.shape"], values["buckets.step"], values["resolution"]) == ("own", 16, 512)
    assert "an image above the area keeps its shape" in notes(WAN, FILE)
    recipe(WAN, FILE)


def test_caption_extension_decides_which_files_are_read() -> None:
    assert data(ONE)["captions.extension"] == ".txt"
    two = '[[datasets]]\nimage_directory = "b"\ncaption_extension = ".caption"\n'
    assert [one["captions"]["extension"] for one in data(ONE + two)["sets"]] == [".txt", ".caption"]
    recipe(WAN, FILE)


@pytest.mark.parametrize("kind", ["image", "video"])
def test_metadata_is_a_table_of_its_folder(kind: str) -> None:
    values = data(f'[general]\nresolution = 512\n[[datasets]]\n{kind}_jsonl_file = "x/metadata.jsonl"\n')
    assert (values["path"], values["columns.image"], values["columns.caption"]) == ("x", f"{kind}_path", "caption")
    assert values["format"] == ("metadata" if kind == "image" else "videofolder")
    recipe(WAN, FILE)


@pytest.mark.parametrize(
    ("text", "key", "feature"),
    [
        (f"{CLIPS}enable_bucket = true\nbucket_no_upscale = true\n", "bucket_no_upscale", features.BOUNDS),
        (f'{ONE}control_directory = "c"\n', "control_directory", FUN_CONTROL),
        (f"{ONE}no_resize_control = true\n", "no_resize_control", FUN_CONTROL),
        (f"{ONE}multiple_target = true\n", "multiple_target", LAYERED),
        (f'{ONE}caption_extension = ".cap"\n', "caption_extension", features.EXTENSION),
        (f'{CLIPS}[[datasets]]\nimage_directory = "a"\n', "image_directory", features.BOTH),
        (f'{GENERAL}[[datasets]]\nimage_jsonl_file = "a.jsonl"\n', "image_jsonl_file", features.FILES),
        (f'{ONE}[[datasets]]\nimage_jsonl_file = "b/metadata.jsonl"\n', "image_jsonl_file", features.FORMATS),
    ],
)
def test_awaited_keys_name_their_feature(text: str, key: str, feature: str) -> None:
    Path("d.toml").write_text(text, "utf-8")
    [problem] = problems(WAN, FILE)
    assert problem.where.endswith(f".{key} in d.toml")
    assert (problem.code, problem.message) == ("E1018", f"needs {feature}, which Mezzotint does not have yet")


@pytest.mark.parametrize(
    ("text", "script", "message"),
    [
        (CLIPS, "zimage_train", "zimage_train.py trains images"),
        ('[[datasets]]\nimage_directory = "a"\n', WAN, "is missing; it is the end of the names of caption files"),
        (ONE.replace("512, 512", "500, 512"), WAN, "must be multiples of 16, got 500, 512"),
        (ONE.replace("512, 512", "16, 512"), WAN, "must be 64 to 4096, got 16, 512"),
        (f"{ONE}num_repeats = 0\n", WAN, "must be 1 or more, got 0"),
    ],
)
def test_impossible_data_sets_are_refused(text: str, script: str, message: str) -> None:
    Path("d.toml").write_text(text, "utf-8")
    [problem] = problems(script, FILE)
    assert (problem.code, problem.message) == ("E1017", message)


def test_what_has_no_effect_is_noted() -> None:
    Path("a/inside").mkdir(parents=True)
    Path("d.toml").write_text(f'{ONE}cache_directory = "a/c"\nfp_latent_window_size = 9\n', "utf-8")
    text = notes(WAN, FILE)
    assert "acts only with FramePack" in text
    assert "images in subfolders of a are used, too, such as inside" in text


KONTEXT, KLEIN = "flux_kontext_train_network", "flux_2_train_network"
EDITS = f'{ONE}control_directory = "c"\n'
METADATA = '[general]\nresolution = 512\n[[datasets]]\nimage_jsonl_file = "metadata.jsonl"\n'


def conditions(text: str, script: str) -> dict[str, Any]:
    return {key.removeprefix("conditions."): value for key, value in data(text, script).items() if "conditions" in key}


@pytest.mark.parametrize("script", [KONTEXT, KLEIN])
def test_control_directory_has_condition_images(script: str) -> None:
    assert conditions(EDITS, script) == {"source.folder": "c"}
    whole = {"source.folder": "c", "source.align": "own"}
    for key in ("no_resize_control", "flux_kontext_no_resize_control", "qwen_image_edit_no_resize_control"):
        assert conditions(f"{EDITS}{key} = true\n", script) == whole
        assert "have about the area of resolution; in the scripts, their own" in notes(script, FILE)
    for key in ("control_resolution", "qwen_image_edit_control_resolution"):
        assert conditions(f"{EDITS}{key} = 512\n", script) == whole
    second = f'{EDITS}[[datasets]]\nimage_directory = "b"\ncontrol_directory = "d"\n'
    assert [one["conditions"] for one in data(second, script)["sets"]] == [
        {"source": {"folder": "c"}}, {"source": {"folder": "d"}}
    ]  # fmt: skip
    assert recipe(script, FILE).model.task == ("edit" if script == KONTEXT else "auto")


def test_control_images_of_one_folder_are_numbered() -> None:
    for folder, names in (("a", ("x.png", "x.txt", "y.png")), ("c", ("x_0.png", "x_1.png", "y_0.png", "y_1.png"))):
        Path(folder).mkdir()
        for name in names:
            Path(folder, name).touch()
    values = data(f'{ONE}control_directory = "c"\n', KLEIN)
    assert {path: value for path, value in values.items() if path.startswith("conditions.")} == {
        "conditions.source.folder": "c", "conditions.source.suffix": "_0",
        "conditions.source_2.folder": "c", "conditions.source_2.suffix": "_1",
    }  # fmt: skip
    recipe(KLEIN, FILE)


def test_klein_needs_no_condition_images() -> None:
    assert conditions(ONE, KLEIN) == {}
    Path("metadata.jsonl").write_text('{"image_path": "a.png", "caption": "a"}\n', "utf-8")
    assert conditions(METADATA, KLEIN) == {}
    [problem] = problems(KONTEXT, FILE)
    assert "has no control_path in the first line of its file" in problem.message


def test_condition_images_are_in_columns_of_metadata() -> None:
    line = {"image_path": "a.png", "control_path_10": "d.png", "control_path_2": "c.png", "control_path": "b.png"}
    Path("metadata.jsonl").write_text(f"{json.dumps(line)}\n", "utf-8")
    names = ["source", "source_2", "source_3"]
    columns = ["control_path", "control_path_2", "control_path_10"]
    assert conditions(METADATA, KLEIN) == {f"{name}.column": one for name, one in zip(names, columns, strict=True)}
    Path("metadata.jsonl").write_text('{"image_path": "a.png", "control_path": "b.png"}\n', "utf-8")
    assert conditions(METADATA, KONTEXT) == {"source.column": "control_path"}


@pytest.mark.parametrize(
    ("script", "text", "where", "words"),
    [
        (KONTEXT, ONE, "datasets.0", "has no control_directory, and flux_kontext_train_network.py trains a model"),
        (KONTEXT, METADATA, "datasets.0.image_jsonl_file", "has 2 control images, and flux_kontext_train_network.py"),
        (KLEIN, f"{EDITS}control_resolution = 1024\n", "datasets.0.control_resolution", f"needs {features.AREA}"),
        (KLEIN, f'{EDITS}[[datasets]]\nimage_directory = "b"\n', "datasets.1.control_directory",
         f"needs {features.SOME}"),
        ("zimage_train", EDITS, "datasets.0.control_directory", "zimage_train.py trains from text alone"),
        ("qwen_image_train", EDITS, "datasets.0.control_directory", "is for models that edit; qwen_image_train.py"),
    ],
)  # fmt: skip
def test_impossible_condition_images_are_refused(script: str, text: str, where: str, words: str) -> None:
    Path("metadata.jsonl").write_text(
        '{"image_path": "a.png", "caption": "a", "control_path_0": "b.png", "control_path_1": "c.png"}\n', "utf-8"
    )
    Path("d.toml").write_text(text, "utf-8")
    [problem] = problems(script, FILE)
    assert problem.where == f"{where} in d.toml"
    assert words in problem.message
