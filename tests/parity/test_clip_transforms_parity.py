"""Clips that Open-Sora-Plan has resized and cropped, recorded, against ours; and OpenCV's filter, the port's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mezzotint.data.loading.worker import to_pixels
from mezzotint.data.media.clip_transforms import port_square, project_square, to_bytes

DATA = Path(__file__).parent / "data" / "open-sora-plan"
RECORD = load_file(DATA / "transforms.safetensors")
OPENCV = load_file(DATA / "opencv_bicubic.safetensors")
CPU = torch.device("cpu")


@pytest.mark.parametrize("case", ["small", "tall", "wide"])
def test_transformed_clip_equals_the_record(case: str) -> None:
    clip = RECORD[f"{case}.in.clip_uint8_tchw"]
    ours, recorded = project_square(clip, 16), RECORD[f"{case}.out.center_crop_resize16_minus1_1"]
    assert ours.shape == recorded.shape
    # normalized on the device, as images are
    assert (to_pixels(ours.clone(), CPU) - recorded).abs().max() < 1e-6
    assert (to_pixels(to_bytes(ours), CPU) - recorded).abs().max() <= 0.5 / 127.5 + 1e-6


def test_records_contain_enlarged_and_reduced_clips() -> None:
    sizes = {case: RECORD[f"{case}.in.clip_uint8_tchw"].shape[-2:] for case in ("small", "tall", "wide")}
    assert min(sizes["small"]) < 16 < max(sizes["tall"])


@pytest.mark.parametrize("case", sorted({name.split(".")[0] for name in OPENCV}))
def test_resize_filter_is_bit_identical_to_opencv(case: str) -> None:
    """The record has whole resized images; only the centre square is compared."""
    before, resized = OPENCV[f"{case}.in"], OPENCV[f"{case}.out"]
    side = min(resized.shape[-2:])
    top, left = (resized.shape[-2] - side) // 2, (resized.shape[-1] - side) // 2
    ours = port_square(before, side)
    assert ours.dtype == torch.uint8
    assert torch.equal(ours, resized[..., top : top + side, left : left + side])


def test_project_and_port_give_different_results() -> None:
    clip = RECORD["wide.in.clip_uint8_tchw"]
    assert not torch.equal(port_square(clip, 16), to_bytes(project_square(clip, 16)))
