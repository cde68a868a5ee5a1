"""Control images of data sets and of samples."""

from __future__ import annotations

from typing import Any

import pytest
from foreign_lines import GONE
from jobs import FLUX, job, notes, problems, settings
from key_cases import KLEIN

CONTROL, ALONE = "datasets.0.control_path", {"sample.prompts": ["a fox"]}
QWEN: dict[str, Any] = {**FLUX, "model.arch": "qwen_image_edit"}
KONTEXT: dict[str, Any] = {**FLUX, "model.arch": "flux_kontext", CONTROL: "before",
                           "sample.prompts": ["a fox --ctrl_img cat.png"]}  # fmt: skip
I2V: dict[str, Any] = {**FLUX, "model.arch": "wan21_i2v", "datasets.0.num_frames": 17,
                       "datasets.0.shrink_video_to_frames": False}  # fmt: skip
SAMPLES: dict[str, Any] = {"sample.prompts": GONE, "sample.samples.0.prompt": "a", "sample.samples.1.prompt": "b"}


def conditions(changes: dict[str, Any]) -> dict[str, Any]:
    read = settings(changes)
    return {path: value for path, value in read.items() if "conditions" in path or path == "model.task"}


def test_kontext_has_the_images_before_the_edits() -> None:
    assert conditions(KONTEXT) == {
        "model.task": "edit", "data.conditions.source.folder": "before", "sample.conditions.source": "cat.png",
    }  # fmt: skip
    assert settings(KONTEXT)["sample.prompts"] == ["a fox"]


@pytest.mark.parametrize(
    "written", [{CONTROL: ["faces", "styles"]}, {CONTROL: "faces", f"{CONTROL}_2": "styles"},
                {f"{CONTROL}_1": "faces", f"{CONTROL}_2": ["styles"]}],
)  # fmt: skip
def test_references_of_klein_are_in_their_order(written: dict[str, Any]) -> None:
    settings = conditions({**KLEIN, **written})
    assert list(settings.items()) == [
        ("data.conditions.source.folder", "faces"), ("data.conditions.source.align", "own"),
        ("data.conditions.source_2.folder", "styles"), ("data.conditions.source_2.align", "own"),
    ]  # fmt: skip
    area = [note for note in notes({**KLEIN, **written}) if "1024 × 1024" in note]
    assert len(area) == 1
    matched = {**KLEIN, **written, "model.model_kwargs.match_target_res": True}
    assert not [note for note in notes(matched) if "1024 × 1024" in note]


def test_each_data_set_has_its_control_images() -> None:
    second = {"datasets.1.folder_path": "b", "datasets.1.control_path": "c"}
    sets = settings({**KONTEXT, **second})["data.sets"]
    assert [one["conditions"] for one in sets] == [{"source": {"folder": "before"}}, {"source": {"folder": "c"}}]


def test_prompts_without_control_images_have_no_previews() -> None:
    alone = {**KONTEXT, **ALONE}
    assert conditions(alone) == {"model.task": "edit", "data.conditions.source.folder": "before"}
    assert [note for note in notes(alone) if "without ctrl_img there are no previews: flux_kontext edits" in note]
    assert settings(alone)["run.preview.every"] is None


def test_images_of_qwen_image_edit_are_aligned_and_those_of_plus_are_not() -> None:
    one = {CONTROL: "before", "sample.prompts": ["a --ctrl_img cat.png"]}
    assert conditions({**QWEN, **one})["data.conditions.source.folder"] == "before"
    assert "data.conditions.source.align" not in conditions({**QWEN, **one})
    plus = {**QWEN, "model.arch": "qwen_image_edit_plus", **one}
    assert conditions(plus)["data.conditions.source.align"] == "own"


def test_samples_have_their_control_images() -> None:
    own = {"sample.samples.0.ctrl_img": "a.png", "sample.samples.1.ctrl_img_1": "b.png"}
    assert conditions({**KONTEXT, **SAMPLES, **own})["sample.conditions.source"] == ["a.png", "b.png"]
    prompts = ["a --ctrl_img_1 x y.png --ctrl_img_2 s.png", "b --ctrl_img z.png --ctrl_img_2 s.png"]
    assert conditions({**KLEIN, "sample.prompts": prompts}) == {
        "sample.conditions.source": ["x y.png", "z.png"], "sample.conditions.source_2": "s.png",
    }  # fmt: skip


def test_samples_of_image_to_video_models_continue_images() -> None:
    own = {"sample.num_frames": 17, "sample.prompts": ["a --ctrl_img a.png", "b --ctrl_img b.png"]}
    assert conditions({**I2V, **own}) == {"sample.conditions.first_frame": ["a.png", "b.png"]}
    alone = {**I2V, **ALONE}
    assert [note for note in notes(alone) if "no previews: wan21_i2v continues an image" in note]
    assert any("always continues" in note for note in notes({**I2V, **own, "datasets.0.do_i2v": True}))


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({**I2V, "sample.prompts": ["a --ctrl_img a"], "sample.num_frames": 1}, "sample.num_frames", "has one frame"),
        ({**I2V, "sample.num_frames": 17, "sample.prompts": ["a --ctrl_img a --ctrl_img_2 b"]}, "sample.prompts",
         "takes one control image"),
        ({**FLUX, CONTROL: "before"}, CONTROL, "flux generates from text alone and takes no control images; leave it "
         "out, or choose flux_kontext, "),
        ({**KONTEXT, CONTROL: GONE}, CONTROL, "is missing; flux_kontext edits images; name the folder"),
        ({**KONTEXT, CONTROL: ["a", "b"]}, CONTROL, "takes one control image"),
        ({**KLEIN, CONTROL: "a", "datasets.1.folder_path": "b"}, "datasets.1.control_path", "in each data set"),
        ({**KONTEXT, "datasets.0.full_size_control_images": False}, "datasets.0.full_size_control_images",
         "needs other kinds of control images"),
        ({**KONTEXT, "sample.prompts": ["a --ctrl_img a --ctrl_img_2 b"]}, "sample.prompts", "takes one control image"),
        ({**KONTEXT, **SAMPLES, "sample.samples.0.ctrl_img": "a.png"}, "sample.samples.0.ctrl_img", "own settings"),
        ({**FLUX, "sample.prompts": ["a --ctrl_img a"]}, "sample.prompts", "flux generates from text alone"),
        ({**QWEN, "sample.prompts": ["a --ctrl_img a"]}, CONTROL, "is missing; qwen_image_edit edits images"),
    ],
)  # fmt: skip
def test_impossible_control_images_are_refused(changes: dict[str, Any], where: str, words: str) -> None:
    given = {key: value for key, value in changes.items() if value != GONE or key == "sample.prompts"}
    [(named, _, message, _)] = problems(job(given))
    assert named == f"{where} in job.yaml"
    assert words in message
