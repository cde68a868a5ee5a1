"""Frames are placed in their bucket like images, independently of each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint.data.media import decoding
from mezzotint.data.media.clip_transforms import frame_transform, port_square, project_square, to_bytes
from mezzotint.shapes import Size
from mezzotint.stages import Placement

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("resize", ["lanczos", "bicubic", "bilinear", "hamming", "box", "nearest"])
@pytest.mark.parametrize("flipped", [False, True])
def test_frame_is_placed_like_an_image_of_the_same_pixels(resize: str, flipped: bool, tmp_path: Path) -> None:
    frame = RNG.integers(0, 256, (30, 47, 3), dtype=np.uint8)
    Image.fromarray(frame).save(tmp_path / "frame.png")
    placement = Placement(Size(32, 24), Size(37, 24), (0, 3), flipped)
    expected = decoding.decode_image(
        tmp_path / "frame.png", placement, resize=resize, background="#ffffff", max_pixels=10**6
    )
    assert np.array_equal(frame_transform(placement, resize=resize)(frame), expected)


@pytest.mark.parametrize("transform", [project_square, port_square])
def test_frames_are_transformed_independently(transform: object) -> None:
    assert callable(transform)
    clip = torch.from_numpy(RNG.integers(0, 256, (3, 3, 30, 47), dtype=np.uint8))
    together = transform(clip, 24)
    assert torch.equal(torch.cat([transform(frame[None], 24) for frame in clip]), together)


def test_square_crop_rounds_its_offset_to_even() -> None:
    clip = torch.zeros(1, 3, 4, 9, dtype=torch.uint8)
    clip[..., :] = torch.arange(9)  # (9 − 4) / 2 = 2.5 → 2
    assert project_square(clip, 4)[0, 0, 0].tolist() == [2, 3, 4, 5]
    wide = torch.arange(11, dtype=torch.uint8).expand(1, 3, 4, 11)  # 3.5 → 4
    assert project_square(wide, 4)[0, 0, 0].tolist() == [4, 5, 6, 7]


def test_bytes_are_rounded_and_clamped() -> None:
    assert to_bytes(torch.tensor([-3.0, 0.5, 1.5, 254.6, 300.0])).tolist() == [0, 0, 2, 255, 255]
