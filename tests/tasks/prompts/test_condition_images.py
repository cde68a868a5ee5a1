"""The sizes of condition images in `sample` and previews."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from PIL import Image

from mezzotint.families.base import ModelFamily
from mezzotint.sampling.requests import Request, batch_requests
from mezzotint.settings.reading.read import read_text
from mezzotint.shapes import Size
from mezzotint.tasks.prompts import condition_images

WIDE, TALL = (128, 32), (32, 128)


def family(*, aligned: bool) -> ModelFamily:
    """A family whose latents are the pixels."""
    encoded = {"parts": lambda: {"vae": torch.nn.Linear(1, 1)}, "encode_media": lambda x: torch.cat((x, x), dim=1)}
    files = SimpleNamespace(needs_aligned_conditions=aligned)
    return cast(ModelFamily, SimpleNamespace(files=files, **encoded))


def with_images(data: dict[str, Any], *, aligned: bool = False, size: Size | None = None) -> list[Request]:
    for name, sides in (("wide", WIDE), ("tall", TALL)):
        Image.new("RGB", sides, (200, 20, 20)).save(f"{name}.png")
    settings = {"schema": 1, "data": {"path": "a", "buckets": {"step": 16}, "resolution": 64, **data}}
    recipe = read_text(json.dumps(settings | {"sample": {"conditions": {"source": ["wide.png", "tall.png"]}}})).recipe
    requests = [Request(name, size or Size(64, 64), line=number) for number, name in enumerate(("wide", "tall"))]
    return condition_images.with_images(requests, recipe, lambda: family(aligned=aligned), {})


def sizes(requests: list[Request]) -> list[tuple[int, int]]:
    return [(image.shape[3], image.shape[2]) for one in requests for image in one.images.values()]


@pytest.mark.parametrize(
    ("align", "size", "expected"),
    [
        ("target", Size(64, 64), [(64, 64)] * 2),
        ("own", Size(64, 64), [WIDE, TALL]),
        ("own", Size(96, 96), [WIDE, TALL]),  # as in training: at about as many pixels as data.resolution
    ],
)
def test_size_is_that_of_training(
    align: str, size: Size, expected: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    requests = with_images({"conditions": {"source": {"folder": "b", "align": align}}}, size=size)
    assert sizes(requests) == expected
    assert len(list(batch_requests(requests, 4))) == (2 if align == "own" else 1)


def test_untrained_reference_keeps_its_shape_where_the_model_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sizes(with_images({}, size=Size(96, 96))) == [(192, 48), (48, 192)]
    assert sizes(with_images({}, size=Size(96, 96), aligned=True)) == [(96, 96)] * 2
