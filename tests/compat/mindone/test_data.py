"""What the `data` of a YAML of MindONE's becomes: filters, crops, sizes, files, lengths."""

from __future__ import annotations

import re

import pytest
from mindone_yaml import PLAIN, notes, recipe, refused, replaced, settings

CROP = "        - target: gm.data.mappers.AddOriginalImageSizeAsTupleAndCropToSquare\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, ("nearest", False)), (1, ("lanczos", True)), (2, ("bilinear", False)), (3, ("bicubic", False)),
        (4, ("area", True)), (5, ("bicubic", True)),
    ],
)  # fmt: skip
def test_filter_codes_are_translated(code: int, expected: tuple[str, bool]) -> None:
    data = recipe(replaced("interpolation: 3", f"interpolation: {code}")).data
    assert (data.resize, data.antialias) == expected


def test_other_crops_and_flips_are_translated() -> None:
    centre = "        - target: gm.data.mappers.CenterCrop\n          params: {size: 1024}\n"
    mirror = "        - target: gm.data.mappers.RandomHorizontalFlip\n          params: {p: 0.3}\n"
    data = recipe(replaced(CROP, mirror + centre)).data
    assert (data.crop, data.flip) == ("center", 0.3)
    assert recipe(replaced(CROP, CROP + mirror.replace("p: 0.3", "p: 0.5"))).data.flip == 0.5


MULTI = """
      target_size: 1024
      multi_aspect: [[704, 1408], [1024, 1024], [1472, 704], [1472, 704]]
      batched_transforms:
        - target: gm.data.mappers.BatchedResizedAndRandomCrop
        - target: gm.data.mappers.BatchedRescaler
          params: {isfloat: False}
        - target: gm.data.mappers.BatchedTranspose
          params: {type: bhwc2bchw}
"""


def test_several_sizes_become_a_bucket_list() -> None:
    text = re.sub(r"\n      target_size: 1024\n(?:      .*\n)+", MULTI, PLAIN)
    data = recipe(text).data
    assert (data.buckets.shape, data.buckets.sizes) == ("list", ((704, 1408), (1024, 1024), (1472, 704)))
    assert (data.resize, data.antialias, data.crop) == ("bilinear", False, "random")
    assert "at the size nearest to its own aspect ratio" in notes(text)


def test_datasets_in_tar_files_become_webdataset() -> None:
    text = replaced("dataset.Text2ImageDataset\n    params:\n", "dataset_wds.T2I_Webdataset\n    params:\n"
                    "      caption_key: text_english\n")  # fmt: skip
    data = settings(text)[0]["data"]
    assert (data["format"], data["columns"]["caption"]) == ("webdataset", "text_english")


def test_small_images_may_be_skipped() -> None:
    written = "target_size: 1024\n      image_filter_size: 1024\n      filter_small_size: True"
    assert recipe(replaced("target_size: 1024", written)).data.small_images == "skip"
    assert recipe(PLAIN).data.small_images == "upscale"


def test_epochs_and_workers_are_translated() -> None:
    text = replaced("total_step: 100000", "num_epochs: 3\n  drop_remainder: False",
                    replaced("num_parallel_workers: 2", "num_parallel_workers: 6"))  # fmt: skip
    run, data = recipe(text).run, recipe(text).data
    assert (run.steps, run.epochs, data.workers, data.remainder, data.shuffle) == (None, 3, 6, "short", True)
    assert recipe(replaced("shuffle: True", "shuffle: False")).data.shuffle is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PLAIN.replace(CROP, ""), "got Resize, Rescaler, Transpose"),
        (PLAIN.replace(CROP, CROP + CROP), "is listed more than once"),
        (PLAIN.replace(CROP, "").replace("            type: hwc2chw\n", "            type: hwc2chw\n" + CROP),
         "comes after Transpose; move it before"),
        (PLAIN.replace(CROP, "        - target: gm.data.mappers.CenterCrop\n          params: {size: 512}\n"),
         "is 512, but images are resized to 1024"),
    ],
)  # fmt: skip
def test_unsupported_order_of_transforms_is_refused(text: str, message: str) -> None:
    codes, messages = refused(text)
    assert codes == {"E1082"}
    assert message in messages
