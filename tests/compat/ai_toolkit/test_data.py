"""Data sets of a job: one and several, captions, masks, clips."""

from __future__ import annotations

from typing import Any

import pytest
from foreign_lines import ALONE
from jobs import FLUX, job, notes, problems, settings, write

from mezzotint.data.buckets import own_sizes
from mezzotint.settings.sections.buckets import SDXL
from mezzotint.shapes import Size
from mezzotint.tasks.reading import foreign

WAN = {**FLUX, "model.arch": "wan21"}
CLIPS = {"datasets.0.num_frames": 17, "datasets.0.shrink_video_to_frames": False}


def as_any(value: Any) -> Any:
    """A value whose class is built at run time."""
    return value


def test_several_sets_have_what_differs() -> None:
    changes = {
        "datasets.0.resolution": [512, 1024], "datasets.0.num_repeats": 4, "datasets.0.trigger_word": "p3r",
        "datasets.1.folder_path": "kind", "datasets.1.is_reg": True, "datasets.1.resolution": 512,
        "datasets.2.folder_path": "style", "datasets.2.loss_multiplier": 0.5, "datasets.2.buckets": False,
        "datasets.2.caption_dropout_rate": 0.1, "train.reg_weight": 0.7,
    }  # fmt: skip
    recipe = foreign.read_command_line("ai-toolkit", [write(job(changes))], (), ALONE).recipe
    one, kind, style = map(as_any, recipe.data.sets)
    assert [str(one.path), str(kind.path), str(style.path)] == ["images", "kind", "style"]
    assert (one.resolution, one.resolution_mode, one.repeats) == ((512, 1024), "each", 4.0)
    assert (one.captions.trigger, kind.captions.trigger) == ("p3r", None)
    assert (kind.class_images, recipe.data.prior.weight, style.weight) == (True, 0.7, 0.5)
    assert (style.buckets.shape, style.captions.dropout) == ("square", 0.1)
    assert any("as often as the others" in note for note in notes(changes))


def test_one_set_is_the_data_path() -> None:
    assert settings({"datasets.0.dataset_path": "a"})["data.path"] == "images"
    tree = job()
    tree["config"]["process"][0]["datasets"] = [{"dataset_path": "foxes"}]
    recipe = foreign.read_command_line("ai-toolkit", [write(tree)], (), ALONE).recipe
    assert (str(recipe.data.path), recipe.data.sets) == ("foxes", ())


@pytest.mark.parametrize(
    ("changes", "template", "shuffled", "kept"),
    [
        ({"trigger_word": "p3r"}, "{trigger} {caption}", None, None),
        ({"trigger_word": "p3r", "datasets.0.shuffle_tokens": True}, "{trigger}, {caption}", True, 0),
        ({"trigger_word": "p3r", "datasets.0.shuffle_tokens": True, "datasets.0.keep_tokens": 2},
         "{trigger}, {caption}", True, 2),
        ({"datasets.0.shuffle_tokens": True, "datasets.0.keep_tokens": 2}, None, True, 1),
        ({"datasets.0.shuffle_tokens": True}, None, True, -1),
        ({"datasets.0.token_dropout_rate": 0.1}, None, False, -1),
        ({"trigger_word": "p3r", "datasets.0.token_dropout_rate": 0.1}, "{trigger}, {caption}", False, 0),
        ({"trigger_word": "p3r", "train.unload_text_encoder": True}, "{trigger}", None, None),
    ],
)  # fmt: skip
def test_trigger_and_shuffling(changes: dict[str, Any], template: Any, shuffled: Any, kept: Any) -> None:
    read = settings(changes)
    names = ("template", "shuffle_tags", "keep_tags")
    assert tuple(read.get(f"data.captions.{name}") for name in names) == (template, shuffled, kept)


def test_class_images_have_no_trigger_word() -> None:
    shuffled = {"trigger_word": "p3r", "datasets.0.shuffle_tokens": True, "datasets.1.shuffle_tokens": True}
    sets = settings({**shuffled, "datasets.1.folder_path": "kind", "datasets.1.is_reg": True})["data.sets"]
    assert [one["captions"].get("template") for one in sets] == ["{trigger}, {caption}", None]
    assert [one["captions"]["keep_tags"] for one in sets] == [0, -1]


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({}, "own"), ({"datasets.0.buckets": False}, "square"), ({"datasets.0.bucket_tolerance": 32}, "own"),
        ({"datasets.0.bucket_tolerance": 8, "datasets.0.resolution": 1024}, "aspect"), ({**WAN, **CLIPS}, "aspect"),
    ],
)  # fmt: skip
def test_images_are_not_enlarged(changes: dict[str, Any], shape: str) -> None:
    recipe = foreign.read_command_line("ai-toolkit", [write(job(changes))], (), ALONE).recipe
    assert recipe.data.buckets.shape == shape
    assert any("smaller than its bucket" in note for note in notes(changes)) == (shape == "aspect")


@pytest.mark.parametrize("image", [(3000, 3000), (4896, 3264), (5333, 3000), (3000, 5333), (5656, 2828), (4470, 3576)])
def test_usual_images_have_sizes_of_sdxl(image: tuple[int, int]) -> None:
    fitted = own_sizes.fit(Size(*image), 1024, 64)
    assert fitted is not None
    assert f"{fitted.bucket.height}x{fitted.bucket.width}" in SDXL.split()


def test_dropouts_of_job_and_set_are_combined() -> None:
    changes = {"train.prompt_dropout_prob": 0.5, "datasets.0.caption_dropout_rate": 0.2}
    assert settings(changes)["data.captions.dropout"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"datasets.0.caption_ext": "json"}, "datasets.0.caption_ext", "needs other caption extensions"),
        ({"datasets.0.folder_path": ""}, "datasets.0.folder_path", "is missing"),
        ({"datasets.0.folder_path": "a.json"}, "datasets.0.dataset_path", "JSON file"),
        ({"datasets": []}, "datasets", "has no data set"),
        ({"datasets.0.num_frames": 17}, "datasets.0.num_frames", "for models of clips"),
        ({**WAN, "datasets.0.num_frames": 17}, "datasets.0.num_frames", "needs frames spread over a whole clip"),
        ({**WAN, **CLIPS, "datasets.0.do_i2v": True}, "datasets.0.do_i2v", "wan21 generates from text alone"),
        ({**WAN, "model.arch": "wan21_i2v"}, "datasets.0.num_frames", "wan21_i2v continues the first frame of clips"),
        ({**WAN, **CLIPS, "model.arch": "wan22_14b_i2v", "datasets.0.control_path": "c"}, "datasets.0.control_path",
         "continues the first frame of each clip and takes no control images"),
        ({**WAN, **CLIPS, "datasets.1.folder_path": "b", "datasets.1.num_frames": 33}, "datasets.1.num_frames",
         "clips of different lengths"),
        ({"datasets.0.alpha_mask": True, "datasets.1.folder_path": "b", "datasets.1.mask_path": "m",
          "datasets.1.mask_min_value": 0.5}, "datasets.1.mask_min_value", "for each data set"),
    ],
)  # fmt: skip
def test_impossible_data_is_refused(changes: dict[str, Any], where: str, words: str) -> None:
    [(named, _, message, _)] = problems(job(changes))
    assert named == f"{where} in job.yaml"
    assert words in message


def test_resolution_is_rounded_down_with_a_note() -> None:
    assert any("632 is rounded down to 576" in note for note in notes({"datasets.0.resolution": [632]}))
